"""What is exported is read again as the same plan, job and model, but for what the export names as not expressed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.few import few
from tests.launch.export.cases import LAUNCHES, Launch
from tests.launch.export.runnable import Runnable, runnable, varied

from shardplan.estimation.estimate import estimate_plan
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import Degrees, Setting
from shardplan.inputs.software import Software
from shardplan.launch.audit.question import put
from shardplan.launch.dialects.ask import Ask
from shardplan.launch.dialects.read import read_launch
from shardplan.launch.export.decoder import decoder_of
from shardplan.launch.export.targets import export_plan
from shardplan.launch.export.written import Export
from shardplan.physics.frameworks.option_entries import VALUES
from shardplan.physics.frameworks.options import makes_a_difference

pytest.importorskip("tree_sitter_bash")

TARGETS: Final = (
    ("megatron-lm", None),
    ("megatron-bridge", None),
    ("nemo", None),
    ("torchtitan", None),
    ("torchtitan", "0.3.0"),
    ("deepspeed", None),
    ("accelerate", None),
    ("nanotron", None),
    ("maxtext", None),
)
NAMES: Final = {"stage_layers": "chunk_layers"}
"""Facts of a plan that say a field whatever its spelling."""
NOT_READ: Final = ("tokens", "moe_imbalance", "software")
"""Fields of a job that no launch file has."""
FIELDS: Final = tuple(each.name for kind in (Plan, Job, Software) for each in fields(kind))
BY_NAME: Final = ("deepspeed", "accelerate")
"""Frameworks whose files name a model that the user fills in."""


@pytest.mark.parametrize(("to", "version"), TARGETS, ids=lambda each: str(each or ""))
@few(5, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(data=st.data())
def test_what_is_exported_is_read_again(to: str, version: str | None, data: st.DataObject) -> None:
    found = data.draw(runnable(to, version))
    assert list(differences(to, version, found)) == []


ON_MEGATRON_CORE: Final = ("megatron-lm", "megatron-bridge", "nemo")


@pytest.mark.parametrize("to", ON_MEGATRON_CORE)
@pytest.mark.parametrize("part", range(6))
def test_varied_plans_are_read_again_with_their_time(to: str, part: int) -> None:
    """Sixty plans of all kinds of models: what is read is the plan, field by field, and takes as long."""
    plans = [each for each in varied(to, 60) if each.question.model.name not in NO_PLAIN_DECODERS][part::6]
    assert len(plans) > 5
    assert {at: found for at, each in enumerate(plans) if (found := list(differences(to, None, each)))} == {}


NO_PLAIN_DECODERS: Final = ("llama-4-scout",)
"""Models that exports refuse: windows in some layers without rotary positions."""

RARE: Final = {
    "deepspeed-recomputed-pipeline": Launch(
        "deepspeed", "llama-3.1-8b", "dgx-h100", 16, {"pp": 2, "sharding": "zero1", "recompute": "full"}
    ),
    "deepspeed-experts": Launch("deepspeed", "gpt-oss-20b", "dgx-h100", 16, {"ep": 4, "sharding": "zero2"}),
    "megatron-lm-positions": Launch("megatron-lm", "llama-4-maverick", "dgx-h100", 64, {"ep": 64, "sharding": "zero1"}),
    "megatron-lm-mxfp8": Launch("megatron-lm", "qwen2.5-7b", "dgx-b200", 16, {"cp": 2}, {"precision": "mxfp8"}),
    "megatron-lm-windows": Launch("megatron-lm", "gemma-2-2b", "dgx-h100", 8, {}),
    "megatron-bridge-pipeline": Launch("megatron-bridge", "llama-2-7b", "dgx-h100", 16, {"tp": 4, "pp": 2}),
    "megatron-bridge-yarn": Launch("megatron-bridge", "gpt-oss-20b", "dgx-h100", 16, {"ep": 8}),
    "nemo-fsdp": Launch("nemo", "qwen2.5-7b", "dgx-h100", 16, {"sharding": "zero3"}),
    "nemo-windows": Launch("nemo", "gemma-2-2b", "dgx-h100", 8, {}),
    "torchtitan-open": Launch("torchtitan", "glm-4.5-air", "dgx-h100", 32, {"ep": 8, "sharding": "zero2"}),
    "torchtitan-main-pipeline": Launch("torchtitan", "llama-3.1-8b", "dgx-h100", 16, {"pp": 2, "sharding": "zero2"}),
}
"""Options that few exports have."""


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_a_pipeline_of_deepspeed_is_read_from_its_file(recompute: str, tmp_path: Path) -> None:
    """``get_pipeline_config`` of ``deepspeed/runtime/config.py``."""
    launch = Launch("deepspeed", "llama-3.1-8b", "dgx-h100", 16, {"pp": 2, "sharding": "zero1", "recompute": recompute})
    for name, text in launch.export().files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    reading = read_launch(Ask(path=next(tmp_path.glob("*.sh"))))
    assert (reading.value("pp"), reading.value("recompute")) == (2, recompute)


@pytest.mark.parametrize("launch", [pytest.param(each, id=name) for name, each in (LAUNCHES | RARE).items()])
def test_every_option_of_an_export_is_understood_and_breaks_no_rule(launch: Launch, tmp_path: Path) -> None:
    """Of itself: without a value that is given."""
    made = launch.export()
    for name, text in made.files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    reading = read_launch(Ask(path=tmp_path / next(iter(made.files))))
    assert reading.not_understood == ()
    assert reading.breaks == ()


def differences(to: str, version: str | None, found: Runnable) -> Iterator[str]:
    """Fields that are read otherwise than they were exported, and are not named as not expressed."""
    q = found.question
    made = export_plan(
        to, model=q.model, cluster=q.cluster, num_accelerators=q.num_accelerators, job=q.job, plan=found.plan,
        version=version,
    )  # fmt: skip
    lost = [each.startswith(("the model:", "the vocabulary")) for each in made.not_expressed]
    names_model = to in BY_NAME or any(lost) or "windows" in decoder_of(q.model).features  # which audits ask for
    with tempfile.TemporaryDirectory() as folder:
        for name, text in made.files.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        said = {"precision": q.job.precision, "recompute": found.plan.recompute}
        told = {name: value for name, value in said.items() if is_named(made, name)}
        told |= {"vp": str(found.plan.vp)} if names_model and found.plan.vp > 1 else {}  # follows from its layers
        reading = read_launch(Ask(path=Path(folder) / next(iter(made.files)), given=told))
    again = put(reading, q.model if names_model else None, q.cluster)
    unsaid = [*again.missing, *(each.values for each in again.breaks if each.severity == "stops")]
    missing = [name for name in unsaid if not is_named(made, name)]
    if missing or again.question is None or again.plan is None:
        yield from (f"missing {each}: {again.missing.get(each)}" for each in missing)
        return
    if again.question.num_accelerators != q.num_accelerators:
        yield f"accelerators {again.question.num_accelerators} {q.num_accelerators}"
    yield from _of_plan(made, Setting.of(q.model, q.cluster, q.num_accelerators, q.job), found.plan, again.plan)
    yield from _of_job(made, q.job, again.question.job, is_moe=q.model.is_moe)
    lacks = (*decoder_of(q.model).features.values(), "heads of ", "dense layers between ")
    read, exported = again.question.model.num_parameters, q.model.num_parameters
    if read != exported and not any(each.startswith(lacks) for each in made.not_expressed):
        yield f"parameters: {read} are read, {exported} were exported"
    elif read == exported and not any(is_named(made, name) for name in FIELDS):
        mine, other = estimate_plan(q, found.plan).step_time, estimate_plan(again.question, again.plan).step_time
        if mine != pytest.approx(other, rel=1e-9):
            yield f"time: {other} s are read, {mine} s were exported"


def is_named(made: Export, name: str) -> bool:
    """Whether a field is named as not expressed."""
    return any(each.startswith(f"{name.replace('_', ' ')} ") for each in made.not_expressed)


def _of_plan(made: Export, setting: Setting, plan: Plan, again: Plan) -> Iterator[str]:
    degrees, others = Degrees.of(plan), Degrees.of(again)
    for each in fields(Plan):
        if is_named(made, each.name) or not makes_a_difference(each.name, setting, degrees):
            continue
        fact = VALUES[NAMES.get(each.name, each.name)]
        expected, read = _plain(fact(setting, degrees)), _plain(fact(setting, others))
        if each.name == "placement":
            expected, read = _in_order(expected, plan), _in_order(read, plan)
        if read != expected:
            yield f"{each.name}: {read} is read, {expected} was exported"


def _of_job(made: Export, job: Job, again: Job, *, is_moe: bool) -> Iterator[str]:
    for each in fields(Job):
        mine, read = getattr(job, each.name), getattr(again, each.name)
        if each.name not in NOT_READ and mine != read and not is_named(made, each.name):
            yield f"{each.name}: {read} is read, {mine} was exported"
    for each in fields(Software):
        mine, read = getattr(job.software, each.name), getattr(again.software, each.name)
        if mine != read and not is_named(made, each.name) and (is_moe or not each.name.startswith("moe_")):
            yield f"software.{each.name}: {read} is read, {mine} was exported"


def _in_order(placement: str, plan: Plan) -> list[str]:
    """The dimensions that have several ranks, and data parallelism."""
    return [each for each in placement.split("-") if each == "dp" or getattr(plan, each) > 1]


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else tuple(value) if isinstance(value, list) else value
