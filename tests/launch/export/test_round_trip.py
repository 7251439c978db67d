"""What is exported is read again as the same plan, job and model, but for what the export names as not expressed."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

import pytest
from tests.launch.export.cases import LAUNCHES, Launch
from tests.launch.export.runnable import Runnable, varied

from shardplan import load_cluster, load_model
from shardplan.estimation.estimate import estimate_plan
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import Degrees, Setting
from shardplan.inputs.software import Software
from shardplan.launch.audit.question import posed, violations
from shardplan.launch.dialects.ask import Ask
from shardplan.launch.dialects.read import read_launch
from shardplan.launch.export.decoder import decoder_of
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
NOT_READ: Final = ("tokens", "routing", "software")
"""Fields of a job that no launch file has."""
OF_JOB: Final = ("grad dtype ", "moment dtype ")
"""Parts of a job that some frameworks do not state."""
BY_NAME: Final = ("deepspeed", "accelerate")
"""Frameworks whose files name a model that the user fills in."""


PLANS: Final = 25
MEGATRON: Final = ("megatron-lm", "megatron-bridge", "nemo")
"""Frameworks whose files leave fields of the plan to be told, and models' windows and biases unread."""
FEW, OF_MEGATRON = 5, ("llama-3.1-8b", "qwen3-30b-a3b", "llama-3.2-1b", "qwen3-32b", "deepseek-v3")


@pytest.mark.parametrize(("to", "version"), TARGETS, ids=lambda each: str(each or ""))
def test_what_is_exported_is_read_again(to: str, version: str | None) -> None:
    """As the same plan, which takes the same time; what is not expressed is the model's, never the plan's."""
    found = enumerate(varied(to, version, *((FEW, OF_MEGATRON) if to in MEGATRON else (PLANS,))))
    assert [(at, difference) for at, each in found for difference in differences(to, each)] == []


RARE: Final = {
    "deepspeed-recomputed": Launch(
        "deepspeed", "llama-3.1-8b", "dgx-h100", 16, {"tp": 2, "sharding": "zero1", "recompute": "full"}
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


@pytest.mark.parametrize(("interval", "recompute"), [(0, "none"), (1, "full")])
def test_a_pipeline_of_deepspeed_is_read_from_its_file(interval: int, recompute: str, tmp_path: Path) -> None:
    """``get_pipeline_config`` of ``deepspeed/runtime/config.py``; a script of one's own makes its module."""
    launch = Launch("deepspeed", "llama-3.1-8b", "dgx-h100", 16, {"sharding": "zero1", "recompute": "none"})
    files = dict(launch.export().files)
    pipeline = {"stages": 2, "activation_checkpoint_interval": interval}
    files["launch.json"] = json.dumps({**json.loads(files["launch.json"]), "pipeline": pipeline})
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    reading = read_launch(Ask(path=next(tmp_path.glob("*.sh"))))
    assert (reading.value("pp"), reading.value("recompute")) == (2, recompute)
    found = posed(reading, load_model("llama-3.1-8b"), load_cluster("dgx-h100"))
    assert [each.severity for each in violations(reading, found) if "no pipeline" in each.rule] == ["notice"]


@pytest.mark.parametrize("launch", [pytest.param(each, id=name) for name, each in (LAUNCHES | RARE).items()])
def test_every_option_of_an_export_is_understood_and_breaks_no_rule(launch: Launch, tmp_path: Path) -> None:
    """Of itself: without a value that is given."""
    made = launch.export()
    for name, text in made.files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    reading = read_launch(Ask(path=tmp_path / next(iter(made.files))))
    assert reading.not_understood == ()
    assert reading.breaks == ()


def differences(to: str, found: Runnable) -> Iterator[str]:
    """Fields that are read otherwise than they were exported, and fields of the plan that are not expressed."""
    q, made = found.question, found.export()
    has_vocabulary = not any(each.startswith("the vocabulary") for each in made.not_expressed)
    has_windows = "windows" in decoder_of(q.model).features  # which of the layers have one, audits ask for
    names_model = to in BY_NAME or is_open(made) or not has_vocabulary or (to in MEGATRON and has_windows)
    told = {}
    if is_open(made):  # a user's own configuration decides these
        told = {"precision": q.job.precision, "optimizer": q.job.optimizer, "vp": str(found.plan.vp)}
    elif to in MEGATRON:
        said = {"precision": q.job.precision, "recompute": found.plan.recompute}
        told = {name: value for name, value in said.items() if is_named(made, name)}
        told |= {"vp": str(found.plan.vp)} if names_model and found.plan.vp > 1 else {}  # follows from its layers
    else:
        yield from (f"not expressed: {each.name}" for each in fields(Plan) if is_named(made, each.name))
    with tempfile.TemporaryDirectory() as folder:
        for name, text in made.files.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        reading = read_launch(Ask(path=Path(folder) / next(iter(made.files)), given=told))
    again = posed(reading, q.model if names_model else None, q.cluster)
    stopped = [each.values for each in again.breaks if each.severity == "stops"]
    missing = [name for name in again.missing if to not in MEGATRON or not is_named(made, name)]
    if stopped or missing or again.question is None or again.plan is None:
        yield from [f"missing: {dict(again.missing)}, {stopped}"] if stopped or missing else []
        return
    if again.question.num_accelerators != q.num_accelerators:
        yield f"accelerators {again.question.num_accelerators} {q.num_accelerators}"
    yield from _of_plan(made, Setting.of(q.model, q.cluster, q.num_accelerators, q.job), found.plan, again.plan)
    yield from _of_job(made, q.job, again.question.job, is_moe=q.model.is_moe)
    yield from _of_answer(made, found, again.question, again.plan)


def _of_answer(made: Export, found: Runnable, question: Question, plan: Plan) -> Iterator[str]:
    """Another number of parameters or another time, unless a part of the model is named as not expressed."""
    if _parts_lost(made, found.question.model) or any(is_named(made, each.name) for each in fields(Plan)):
        return
    read, exported = question.model.num_parameters, found.question.model.num_parameters
    if read != exported:
        yield f"parameters: {read} are read, {exported} were exported"
    both = ((_balanced(question), plan), (_balanced(found.question), found.plan))  # no file says how a router learns
    taken, expected = (estimate_plan(asked, p).step_time for asked, p in both)
    if taken != pytest.approx(expected, rel=1e-9) and not any(each.startswith(OF_JOB) for each in made.not_expressed):
        yield f"time: {taken} s for what is read, {expected} s for what was exported"


def _balanced(question: Question) -> Question:
    return replace(question, job=replace(question.job, routing="balanced"))


def _parts_lost(made: Export, model: ModelConfig) -> bool:
    """Whether a part of the model is named as not expressed: what is read is another model."""
    lacks = (*decoder_of(model).features.values(), "heads of ", "dense layers between ")
    return any(each.startswith(lacks) for each in made.not_expressed)


def is_open(made: Export) -> bool:
    """Whether a user names a configuration of their own, since the framework has no layers like the model's."""
    return any(each.startswith("the model:") for each in made.not_expressed)


def is_named(made: Export, name: str) -> bool:
    """Whether a field is named as not expressed."""
    return any(each.startswith(f"{name.replace('_', ' ')} ") for each in made.not_expressed)


def _of_plan(made: Export, setting: Setting, plan: Plan, again: Plan) -> Iterator[str]:
    degrees, others = Degrees.of(plan), Degrees.of(again)
    lost = _parts_lost(made, setting.model)
    for each in fields(Plan):
        if is_named(made, each.name) or (lost and each.name == "stage_layers"):
            continue
        if not makes_a_difference(each.name, setting, degrees):
            continue
        fact = VALUES[NAMES.get(each.name, each.name)]
        expected, read = _plain(fact(setting, degrees)), _plain(fact(setting, others))
        if each.name == "placement":
            expected, read = (_in_order(order, plan, setting.num_accelerators) for order in (expected, read))
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


def _in_order(placement: str, plan: Plan, num_accelerators: int) -> list[str]:
    """The dimensions that have several ranks."""
    sizes = {name: getattr(plan, name) for name in ("tp", "cp", "ep", "pp")} | {"dp": plan.dp(num_accelerators)}
    return [each for each in placement.split("-") if sizes[each] > 1]


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else tuple(value) if isinstance(value, list) else value
