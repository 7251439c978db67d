"""Flags follow the records they fill: names, defaults and choices."""

from __future__ import annotations

import inspect
import math
from dataclasses import MISSING, fields
from typing import Annotated, Any, get_args

import pytest
import typer

from shardplan.ask.forms import JobFields, Replaced, ReplacedFields
from shardplan.base.errors import InputError
from shardplan.base.fields import described
from shardplan.cli.flags import with_flags
from shardplan.cli.main import COMMANDS, app
from shardplan.inputs import job, plan
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.readers.overrides import Overrides
from shardplan.inputs.readers.typed import values_of
from shardplan.inputs.schedule_names import BUILT_IN
from shardplan.inputs.software import Software


def options(command: str) -> dict[str, Any]:
    group: Any = typer.main.get_command(app)
    return {parameter.name: parameter for parameter in group.commands[command].params}


WITHOUT_FLAG = {Plan: (), Job: ("software",), Software: ()}
"""Fields that no flag sets by itself."""


@pytest.mark.parametrize("record", WITHOUT_FLAG)
def test_every_field_is_described_or_listed_as_without_a_flag(record: type[Any]) -> None:
    known = described(record)
    assert [each.name for each in fields(record) if each.name not in WITHOUT_FLAG[record]] == list(known)
    for field in known.values():
        assert field.about.help.endswith((".", ":")), field.name
        assert field.about.help.endswith(":") <= bool(field.kind.choices), field.name
        bounded = field.about.least > -math.inf and field.about.most < math.inf
        assert bounded == (field.kind.base in (int, float, tuple)), field.name


def test_every_field_has_a_flag() -> None:
    assert [field.name for field in fields(Replaced)] == list(Overrides.__annotations__)
    assert set(described(Plan)) <= options("estimate").keys()
    for command in ("plan", "estimate"):
        flags = {*described(Job), "software", "stack", "profile"}
        assert flags | set(Overrides.__annotations__) <= options(command).keys()


def test_help_states_the_defaults() -> None:
    shown = options("estimate")
    for record in (Plan, Job):
        for field in fields(record):
            default: Any = field.default
            if default is not None and default is not MISSING:
                words = ("off", "on")[default] if isinstance(default, bool) else default
                stated = "Default: the framework's." if field.name == "vp" else f"[default: {words}]"
                assert stated in shown[field.name].help, field.name


def test_help_states_the_choices() -> None:
    shown = options("estimate")
    for module, names in (
        (plan, {"sharding": "Sharding", "offload": "Offload", "cp_comm": "CpComm"}),
        (job, {"precision": "Precision", "optimizer": "Optimizer", "attention": "AttentionKernel"}),
    ):
        for field, name in names.items():
            for choice in get_args(getattr(module, name)):
                assert choice in shown[field].help
    for schedule in BUILT_IN:
        assert schedule in shown["schedule"].help


def test_every_command_has_one_way_to_write_json() -> None:
    for command in COMMANDS.keys() - {"published", "sweep", "plot", "serve"}:  # folders, and a server
        assert options(command)["json"].opts == ["--json"]


def test_groups_and_records_become_options_and_come_back_filled() -> None:
    given: dict[str, Any] = {}

    def command(*, name: Annotated[str, typer.Argument()], overrides: ReplacedFields, job: JobFields) -> int:
        given.update(name=name, overrides=overrides, job=job)
        return 3

    run = with_flags(command)
    assert {"name", "memory", "dropout"} <= inspect.signature(run).parameters.keys()
    names = [*described(Replaced), *described(Job)]
    assert run(**{**dict.fromkeys(names), "name": "x", "memory": "80GB", "tokens": "1T"}) == 3
    assert given == {"name": "x", "overrides": {"memory": "80GB"}, "job": {"tokens": "1T"}}


def test_flags_are_read_by_the_type_of_their_field() -> None:
    given = {"tp": "1,024", "stage_layers": "3, 4", "recompute": "full", "overlap_dp": False}
    assert values_of(Plan, given) == {**given, "tp": 1024, "stage_layers": (3, 4)}
    assert values_of(Job, {"tokens": "15.6T"}) == {"tokens": 15.6e12}
    for wrong in ({"tp": "2.5"}, {"stage_layers": "3;4"}, {"sharding_degree": "0"}):
        with pytest.raises(InputError):
            values_of(Plan, wrong)
