"""Schedules from outside the package join the search for names, the rules and the estimate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.examples import LLAMA_70B, cluster

from shardplan import estimate
from shardplan.errors import InputError, PlanError, UnknownNameError
from shardplan.estimation.estimate import Estimate
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.schedules import registry
from shardplan.schedules.names import BUILT_IN
from shardplan.schedules.one_f_one_b import OneForwardOneBackward
from shardplan.schedules.registry import is_known, list_schedules, load_schedule, register

PACKAGE = """
from shardplan.schedules.one_f_one_b import OneForwardOneBackward

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
    assert all(schedule.name == name for name, schedule in registry.SCHEDULES.items())


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
