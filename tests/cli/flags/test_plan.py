"""Flags follow the records they fill: names, defaults and choices."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Annotated, Any, get_args, get_type_hints

import typer

from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.plan import JobFlags, OverrideFlags, PlanFlags, SoftwareFlags
from shardplan.cli.main import EXAMPLES, app
from shardplan.inputs import job, plan, software
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.readers.overrides import Overrides
from shardplan.inputs.software import Software
from shardplan.schedules.names import BUILT_IN

JOB = [field.name for field in fields(Job)]


def options(command: str) -> dict[str, Any]:
    group: Any = typer.main.get_command(app)
    return {parameter.name: parameter for parameter in group.commands[command].params}


def test_every_field_has_a_flag() -> None:
    assert [field.name for field in fields(PlanFlags)] == [field.name for field in fields(Plan)]
    assert [field.name for field in fields(JobFlags)] == [name for name in JOB if name != "software"]
    assert [field.name for field in fields(SoftwareFlags)] == [field.name for field in fields(Software)]
    assert [field.name for field in fields(OverrideFlags)] == list(Overrides.__annotations__)
    assert {field.name for field in fields(Plan)} <= options("estimate").keys()
    for command in ("plan", "estimate"):
        flags = {*JOB, *(field.name for field in fields(Software)), "stack", "profile"} - {"software"}
        assert flags | set(Overrides.__annotations__) <= options(command).keys()


def test_help_states_the_defaults() -> None:
    shown = options("estimate")
    for record in (Plan, Job, Software):
        for field in fields(record):
            default: Any = field.default
            if default is not None and default is not MISSING:
                words = ("off", "on")[default] if isinstance(default, bool) else default
                assert f"[default: {words}]" in shown[field.name].help, field.name


def test_help_states_the_choices() -> None:
    shown = options("estimate")
    for module, names in (
        (plan, {"sharding": "Sharding", "offload": "Offload", "cp_comm": "CpComm"}),
        (
            software,
            {
                "attention_generation": "AttentionGeneration",
                "kernels": "Kernels",
                "cuda_graphs": "CudaGraphs",
                "moe_dispatcher": "MoeDispatcher",
            },
        ),
        (job, {"precision": "Precision", "optimizer": "Optimizer", "attention": "AttentionKernel"}),
    ):
        for field, name in names.items():
            for choice in get_args(getattr(module, name)):
                assert choice in shown[field].help
    for schedule in BUILT_IN:
        assert schedule in shown["schedule"].help


def test_every_command_has_one_way_to_write_json() -> None:
    for command in EXAMPLES:
        assert options(command.__name__)["json"].opts == ["--json"]


def test_groups_become_options_and_come_back_filled() -> None:
    given: dict[str, Any] = {}

    def command(*, name: Annotated[str, typer.Argument()], overrides: OverrideFlags) -> int:
        given.update(name=name, overrides=overrides)
        return 3

    run = with_flags(command)
    assert {"name", "memory"} <= get_type_hints(run, include_extras=True).keys()
    empty = dict.fromkeys((field.name for field in fields(OverrideFlags)), None)
    assert run(**{**empty, "name": "x", "memory": "80GB"}) == 3
    assert given == {"name": "x", "overrides": OverrideFlags(memory="80GB")}
