"""Schedules by name, their rules, and those that others add."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.examples import LLAMA_70B, cluster

from shardplan import estimate
from shardplan.base.errors import InputError, PlanError, UnknownNameError
from shardplan.estimation.estimate import Estimate
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.schedule_names import BUILT_IN
from shardplan.physics.schedules import registry
from shardplan.physics.schedules.base import Pipeline, PipelineSchedule
from shardplan.physics.schedules.one_f_one_b import OneForwardOneBackward
from shardplan.physics.schedules.registry import (
    SCHEDULES,
    is_known,
    list_all_schedules,
    list_schedules,
    load_any_schedule,
    load_schedule,
    register,
)

PACKAGE = """
from shardplan.physics.schedules.one_f_one_b import OneForwardOneBackward

class Theirs(OneForwardOneBackward):
    name = "theirs"
    rule = "the schedule suits the pipeline"

    def least_microbatches(self, pp):
        return 4 * pp

class Renamed(Theirs):
    name = "another"

class Impostor(Theirs):
    name = "1f1b"

def number(): return 3
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package as another project installs it."""
    (tmp_path / "their_schedules.py").write_text(PACKAGE)
    info = tmp_path / "their_schedules-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-schedules\nVersion: 1.0\n")
    points = {"theirs": "Theirs", "misnamed": "Renamed", "1f1b": "Impostor", "number": "number"}
    lines = [f"{name} = their_schedules:{target}" for name, target in points.items()]
    (info / "entry_points.txt").write_text(
        "\n".join((f"[{registry.GROUP}]", *lines, "absent = no_such_module:Thing")) + "\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    registry._installed.cache_clear()
    yield
    registry._installed.cache_clear()


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it, and what others did does not matter."""
    monkeypatch.setattr(registry, "SCHEDULES", registry.Schedules())


def test_every_file_of_a_schedule_is_listed() -> None:
    """A schedule that ships but is not listed could not be named."""
    assert list(registry.SCHEDULES)[: len(BUILT_IN)] == list(BUILT_IN)
    for name, schedule in registry.SCHEDULES.items():
        assert (schedule.name, schedule.most_vp == 1) == (name, BUILT_IN[name].has_one_chunk)


@pytest.mark.usefixtures("installed")
def test_a_schedule_of_another_package_joins() -> None:
    assert list_schedules() == [*BUILT_IN, "absent", "misnamed", "number", "theirs"]
    assert load_schedule("theirs").least_microbatches(2) == 8
    assert type(load_schedule("1f1b")) is OneForwardOneBackward  # built-in schedules stay


@pytest.mark.usefixtures("installed")
def test_plans_can_name_it() -> None:
    """Its rule is one of validity, and its closed forms are what an estimate asks."""

    def answer(batch: int, **fields: str) -> Estimate:
        job, plan = Job(sequence_length=4096, global_batch_size=batch), Plan(tp=8, pp=4, **fields)  # type: ignore[arg-type]
        return estimate(LLAMA_70B, cluster(), 64, plan, job=job, stack=None)

    assert answer(64, schedule="theirs").step_time == answer(64).step_time
    with pytest.raises(PlanError, match="schedule theirs with pp 4") as refusal:
        answer(16, schedule="theirs")
    assert "global batch size to 32" in refusal.value.hint


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "why"),
    [("absent", "ModuleNotFoundError"), ("misnamed", "calls itself 'another'"), ("number", "not a PipelineSchedule")],
)
def test_what_is_wrong_with_another_package_is_said(name: str, why: str) -> None:
    assert is_known(name)
    with pytest.raises(InputError, match=why):
        load_schedule(name)


def test_a_program_registers_its_own() -> None:
    class Mine(OneForwardOneBackward):
        name = "mine"

    assert not is_known("mine")
    register(Mine())
    register(Mine())  # a notebook cell run again
    assert isinstance(load_schedule("mine"), Mine)
    assert list_schedules() == [*BUILT_IN, "mine"]


def test_a_taken_name_is_refused() -> None:
    class Mine(OneForwardOneBackward):
        pass

    with pytest.raises(InputError, match="taken by OneForwardOneBackward"):
        register(Mine())
    with pytest.raises(InputError, match="not a PipelineSchedule"):
        register("mine")  # type: ignore[arg-type]  # wrong on purpose


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean zb-h1"):
        load_schedule("zbh1")


def at(pp: int, vp: int, num_microbatches: int, group_size: int | None = None) -> Pipeline:
    return Pipeline(pp=pp, vp=vp, num_microbatches=num_microbatches, group_size=group_size or pp)


@pytest.mark.parametrize("pp", [2, 4, 6])
@pytest.mark.parametrize(
    ("name", "per_rank", "more"),
    [
        ("1f1b", 0, 1), ("gpipe", 0, 1), ("breadth-first", 0, 1), ("zb-h1", 0, 1), ("zb-h2", 2, -1), ("zb-v", 2, -1),
        ("dualpipe", 2, 0), ("dualpipe-v", 2, 0), ("interleaved", 1, 0),
    ],
)  # fmt: skip
def test_a_schedule_runs_with_its_least_micro_batches_and_not_with_fewer(
    name: str, pp: int, per_rank: int, more: int
) -> None:
    """DualPipe and DualPipe-V take two per rank or more (deepseek-ai/DualPipe, README); interleaving whole groups."""
    schedule, least = SCHEDULES[name], per_rank * pp + more
    assert schedule.can_run(at(pp, schedule.least_vp, least))
    assert not schedule.can_run(at(pp, schedule.least_vp, least - 1))
    if name != "interleaved":
        assert schedule.least_microbatches(pp) == least


@pytest.mark.parametrize(
    ("name", "pipeline", "hint", "flags"),
    [
        ("1f1b", at(4, 2, 8), "set vp to 1, or the schedule to interleaved", "--vp 1"),
        ("zb-h2", at(4, 1, 6), "set the global batch size to 112 or more, or lower pp", "--global-batch-size 112"),
        ("zb-v", at(4, 2, 6), "set the global batch size to 112 or more, or lower pp", "--global-batch-size 112"),
        ("zb-v", at(1, 2, 8), "needs pp of 2 or more: raise pp", "--pp 2"),
        ("zb-v", at(4, 1, 8), "set vp to 2: schedule zb-v needs 2 model chunks on each rank", "--vp 2"),
        ("zb-v", at(4, 3, 8), "set vp to 2: schedule zb-v needs 2 model chunks on each rank", "--vp 2"),
        ("breadth-first", at(4, 1, 8), "needs 2 or more model chunks on each rank", "--vp 2"),
        ("breadth-first", at(1, 2, 8), "needs pp of 2 or more", "--pp 2"),
        ("dualpipe-v", at(4, 1, 8), "set vp to 2: schedule dualpipe-v needs 2 model chunks", "--vp 2"),
        ("dualpipe-v", at(4, 2, 7), "set the global batch size to 128 or more", "--global-batch-size 128"),
        ("dualpipe-v", at(1, 2, 8), "needs pp of 2 or more", "--pp 2"),
        ("dualpipe", at(4, 2, 8), "set vp to 1: with schedule dualpipe each rank holds one stage", "--vp 1"),
        (
            "dualpipe",
            at(3, 2, 8),
            "set vp to 1: with schedule dualpipe each rank holds one stage",
            "--pp 4 --vp 1 --global-batch-size 120",
        ),
        (
            "dualpipe",
            at(4, 2, 9),
            "set vp to 1: with schedule dualpipe each rank holds one stage",
            "--vp 1 --global-batch-size 160",
        ),
        (
            "dualpipe",
            at(3, 1, 8),
            "needs an even pp: set pp to 4 or another even number",
            "--pp 4 --global-batch-size 120",
        ),
        ("dualpipe", at(1, 1, 8), "needs an even pp: set pp to 2 or another even number", "--pp 2"),
        ("dualpipe", at(4, 1, 9), "micro-batches: set the global batch size to 160", "--global-batch-size 160"),
        ("dualpipe", at(4, 1, 7), "set the global batch size to 128 or more", "--global-batch-size 128"),
        ("dualpipe", at(4, 1, 6), "set the global batch size to 128 or more", "--global-batch-size 128"),
        ("interleaved", at(1, 1, 8), "raise vp, or set the schedule to 1f1b", "--pp 2 --vp 2"),
        ("interleaved", at(1, 2, 8), "raise pp, or set vp to 1 and the schedule to 1f1b", "--pp 2"),
        ("interleaved", at(1, 2, 1), "raise pp, or set vp to 1 and the schedule to 1f1b", "--pp 2"),
        ("interleaved", at(4, 2, 8, 2), "group size to pp 4 or more", "--microbatch-group-size 4"),
        ("interleaved", at(4, 1, 8), "raise vp, or set the schedule to 1f1b", "--vp 2"),
        (
            "interleaved",
            at(4, 2, 9),
            "set the global batch size to 128, or set vp to 1 and the schedule to 1f1b",
            "--global-batch-size 128",
        ),
        (
            "interleaved",
            at(4, 2, 11),
            "set the global batch size to 192, or set vp to 1 and the schedule to 1f1b",
            "--global-batch-size 192",
        ),
        (
            "interleaved",
            at(4, 2, 1),
            "set the global batch size to 64, or set vp to 1 and the schedule to 1f1b",
            "--global-batch-size 64",
        ),
        (
            "interleaved",
            at(4, 2, 13, 6),
            "set the global batch size to 192, or set vp to 1 and the schedule to 1f1b",
            "--global-batch-size 192",
        ),
    ],
)
def test_hints_and_flags_name_the_knob_that_is_wrong(name: str, pipeline: Pipeline, hint: str, flags: str) -> None:
    """Of 16 sequences a micro-batch in all replicas together: 12 where stages are 4 in place of 3."""
    schedule = SCHEDULES[name]
    assert not schedule.can_run(pipeline)
    assert hint in schedule.hint(pipeline, 16)
    assert " ".join(schedule.flags(pipeline, 16)) == flags


def test_one_rank_alone_does_not_interleave() -> None:
    for pp in (1, 2):
        assert SCHEDULES["interleaved"].can_run(at(pp, 2, 8)) == (pp == 2)
    assert "raise pp, or set vp to 1 and the schedule to 1f1b" in SCHEDULES["interleaved"].hint(at(1, 2, 8), 16)


@pytest.mark.parametrize(
    ("name", "pipeline", "message"),
    [
        ("zb-v", at(4, 3, 8), "schedule zb-v with vp 3"),
        ("zb-v", at(4, 2, 6), "schedule zb-v with pp 4, vp 2 and 6 micro-batches per replica"),
        ("interleaved", at(4, 2, 9), "9 micro-batches per replica with pp 4, vp 2 and micro-batch groups of 4"),
    ],
)
def test_messages_name_the_values_that_break_the_rule(name: str, pipeline: Pipeline, message: str) -> None:
    assert SCHEDULES[name].message(pipeline) == message


FOLDED = {"zb-v", "dualpipe-v", "zbv-greedy", "v-half", "v-min"}
"""Two chunks per rank in the shape of a V (arXiv 2405.15362; README of deepseek-ai/DualPipe)."""


@pytest.mark.parametrize("name", list_all_schedules())
def test_what_a_schedule_is(name: str) -> None:
    """Zero-bubble schedules and DualPipe split the backward pass (arXiv 2401.10241; 2412.19437); a V turns round."""
    schedule = load_any_schedule(name)
    assert schedule.splits_backward == (name.startswith(("zb", "v-", "dualpipe")))
    assert schedule.ends_meet == (name in {*FOLDED, "dualpipe"})
    assert schedule.parameter_copies == (2 if name == "dualpipe" else 1)
    assert schedule.least_pp == (2 if name in {*FOLDED, "dualpipe", "breadth-first", "interleaved"} else 1)
    in_loop = name in {"interleaved", "breadth-first"}
    assert schedule.least_vp == (2 if in_loop or name in FOLDED else 1)
    assert schedule.most_vp == (None if in_loop else 2 if name in FOLDED else 1)
    assert schedule.reads_place == (name in {"1f1b", "dualpipe", "dualpipe-v"})
    assert schedule.closed_form_holds == (name not in {"zbv-greedy", "v-half", "v-min"})


@pytest.mark.parametrize("kind", [PipelineSchedule, *map(type, SCHEDULES.values())])
def test_chunks_are_even_unless_a_pace_is_given(kind: type[PipelineSchedule]) -> None:
    assert inspect.signature(kind.idle_time).parameters["pace"].default == 1


@pytest.mark.parametrize(
    ("name", "vp", "few", "many"),
    [
        ("1f1b", 1, [2, 2, 2, 1], [4, 3, 2, 1]), ("gpipe", 1, [2] * 4, [32] * 4), ("zb-h1", 1, [2] * 4, [4] * 4),
        ("breadth-first", 2, [2] * 4, [32] * 4), ("zb-h2", 1, [2] * 4, [7] * 4), ("zb-v", 2, [2] * 4, [4] * 4),
        ("dualpipe", 1, [2] * 4, [5] * 4), ("dualpipe-v", 2, [2] * 4, [4.5] * 4),
        ("interleaved", 2, [2] * 4, [5.5, 4.5, 3.5, 2.5]),
    ],
)  # fmt: skip
def test_ranks_keep_no_more_than_there_is(name: str, vp: int, few: list[float], many: list[float]) -> None:
    """Of 2 micro-batches and of 32, on four ranks."""
    for num_microbatches, kept in ((2, few), (32, many)):
        pipeline = at(4, vp, num_microbatches)
        assert [float(SCHEDULES[name].microbatches_in_flight(pipeline, rank)) for rank in range(4)] == kept
