"""Known causes of large errors: they speak of runs that exist, and of inputs that exist."""

import re
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import get_args

import pytest

from shardplan.calibrate.errors import sweeps_of
from shardplan.calibrate.predict import Prediction
from shardplan.calibrate.runs.rows import shipped_runs
from shardplan.calibrate.validate import Validation, validate_runs
from shardplan.inputs.readers.causes import Subject, known_causes
from shardplan.reports.accuracy.causes import cause_of
from shardplan.reports.accuracy.record import Accuracy
from shardplan.reports.accuracy.shortfalls import causes, causes_of_order

DOCS = Path(__file__).parents[2] / "docs"
SUBJECTS = get_args(Subject)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_every_pattern_names_published_runs(subject: Subject) -> None:
    ids = [run.id for run in shipped_runs()]
    for known in known_causes(subject):
        for pattern in (*known.runs, *known.against):
            assert any(fnmatchcase(name, pattern) for name in ids), pattern


def test_every_cause_of_a_memory_error_is_that_of_a_run_with_a_memory() -> None:
    ids = [run.id for run in shipped_runs() if run.peak_memory_bytes is not None]
    for known in known_causes("peak_memory"):
        assert any(known.is_of(name) for name in ids), known.cause


@pytest.mark.parametrize("subject", SUBJECTS)
def test_what_to_state_exists(subject: Subject) -> None:
    flags = {flag for known in known_causes(subject) for flag in re.findall(r"--[a-z-]+", known.state)}
    reference = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert flags
    assert [flag for flag in flags if flag not in reference] == []


def test_a_run_of_ones_own_has_no_cause_though_it_is_called_like_a_published_one() -> None:
    assert cause_of("nano-020") is not None
    assert cause_of("nano-999") is None


def test_a_memory_and_a_time_may_be_off_for_different_causes() -> None:
    time, memory = cause_of("nano-016"), cause_of("nano-016", "peak_memory")
    assert time is not None
    assert memory is not None
    assert "allocator" in time.cause
    assert "meter" in memory.cause


def test_a_pair_has_the_cause_of_the_run_that_was_slower() -> None:
    """The setting of the servers was mended between bloom-031 and bloom-060: only the earlier run was slowed by it."""
    before = cause_of("bloom-031", "order", "bloom-073")
    assert before is not None
    assert "mended" in before.cause
    assert cause_of("bloom-073", "order", "bloom-031") is None


def test_runs_without_a_cause_are_the_rest() -> None:
    checked = validate_runs(shipped_runs()[::40])
    rows = causes(Accuracy.of(checked))
    assert rows[-1].name is None
    assert rows[-1].in_sample.n == len([one for one in checked.predictions if _is_rest(one)])
    assert all(row.left_out is None for row in rows)


def test_every_memory_belongs_to_one_cause_or_to_the_rest() -> None:
    checked = validate_runs(tuple(run for run in shipped_runs() if run.peak_memory_bytes is not None))
    rows = causes(Accuracy.of(checked), "peak_memory")
    assert sum(row.in_sample.n for row in rows) == checked.peak_memory.n == 353


def test_every_misordered_pair_is_counted_once() -> None:
    """Steps that take the inverse of what was measured put every pair in the wrong order."""
    runs = tuple(run for run in shipped_runs() if run.id in {f"bloom-0{number}" for number in (30, 60, 73, 78, 79)})
    fresh = validate_runs(runs)
    tokens = [one.asked.question.job.tokens_per_step for one in fresh.predictions]
    inverse = [
        replace(one, step_time=size**2 / (one.run.step_time or 1.0))
        for one, size in zip(fresh.predictions, tokens, strict=True)
    ]
    turned = Validation(predictions=tuple(inverse), skipped=(), sweeps=sweeps_of(inverse))
    rows = causes_of_order(turned)
    (sweep,) = turned.sweeps
    assert sweep.pairs_in_order == 0.0
    assert sum(row.pairs for row in rows) == sum(row.described for row in rows) == sweep.num_pairs
    assert {row.cause is None for row in rows} == {True, False}


def test_runs_of_ones_own_have_no_section() -> None:
    nothing = Validation(predictions=(), skipped=(), sweeps=())
    assert not causes(Accuracy.of(nothing))
    assert not causes(Accuracy.of(nothing), "peak_memory")
    assert not causes_of_order(nothing)


def _is_rest(one: Prediction) -> bool:
    return cause_of(one.run.id) is None and one.run.tier != "B" and one.log_time_ratio is not None
