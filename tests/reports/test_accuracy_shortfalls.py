"""Where predictions fall short: worst memories, runs predicted not to fit, missed floors, coverage that is off."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from shardplan.answers.accuracy.page import accuracy_parts
from shardplan.answers.accuracy.shortfalls import BANDS, lower_end, why_not_fitting
from shardplan.answers.document import RowTable
from shardplan.calibrate.coverage import Coverage
from shardplan.calibrate.runs.rows import shipped_runs
from shardplan.calibrate.validate import Validation, validate_runs
from shardplan.estimation.band import features_of
from shardplan.inputs.readers.residuals import Features, Residual
from shardplan.reports.accuracy.bands import Bands, Held
from shardplan.reports.accuracy.causes import cause_of
from shardplan.reports.accuracy.record import Accuracy
from shardplan.reports.accuracy.shortfalls import worst

UNSTATED, CLOSE = "mb-26.02.01-pretrain-llama3-70b-gb300-nvfp4", "llmf-044"
FACTORS = {"mle-b200-8k": 0.7, "nano-011": 0.8, "bloom-025": 1.2, "bloom-026": 1.1}
H100 = Features(accelerator="h100", generation="hopper", bits=16, moe=False, parameters=8e9, accelerators=64)


@pytest.fixture(scope="module")
def metered() -> Validation:
    """Runs with a peak memory, predicted to fit, and two that are not: by far, and by less than their band is wide."""
    lacking = {UNSTATED: 2.0, CLOSE: 1.02}
    found = validate_runs(tuple(run for run in shipped_runs() if run.peak_memory_bytes or run.id in lacking))
    needs = [
        replace(
            one,
            needed_memory_bytes=lacking.get(one.run.id, 0.5) * one.usable_memory_bytes,
            fits=one.run.id not in lacking,
        )
        for one in found.predictions
    ]
    return replace(found, predictions=tuple(needs))


@pytest.fixture(scope="module")
def accuracy(metered: Validation) -> Accuracy:
    """Left-out errors of 20 %, on which no floor is met, of two families by turns."""
    residuals = [
        Residual(
            id=one.run.id,
            family=f"family {index % 2}",
            features=features_of(one.asked.question),
            time=None if one.run.step_time is None else math.log(1.2),
            memory=None if one.run.peak_memory_bytes is None else math.log(1.2),
        )
        for index, one in enumerate(metered.predictions)
    ]
    return Accuracy.of(metered, residuals)


def _rows(accuracy: Accuracy, title: str) -> list[list[str]]:
    part = next(part for part in accuracy_parts(accuracy) if part.title == title)
    (table,) = (block for block in part.blocks if isinstance(block, RowTable))
    return [[column.cell(row) for column in table.columns] for row in table.rows]


def test_the_worst_memories_come_first_and_none_is_small(metered: Validation) -> None:
    moved = [
        replace(one, peak_memory_bytes=(one.run.peak_memory_bytes or math.nan) * FACTORS.get(one.run.id, 1.04))
        for one in metered.predictions
    ]
    checked = replace(metered, predictions=tuple(moved))
    rows = worst(Accuracy.of(checked), lambda one: one.log_memory_ratio, most=12, least=0.05)
    assert {row.name.run.id: row.in_sample for row in rows} == pytest.approx(FACTORS)
    assert [row.name.run.id for row in rows] == list(FACTORS)
    shown = _rows(Accuracy.of(checked), "Worst peak memories")
    assert [row[2] for row in shown] == ["reserved", "unstated", "process", "process"]
    assert shown[0][-1].startswith("optimizer on the CPU")


def test_runs_predicted_not_to_fit_tell_what_they_need_and_why(metered: Validation) -> None:
    rows = {one.run.id: one for one in metered.not_fitting}
    unstated, close = rows[UNSTATED], rows[CLOSE]
    assert unstated.needed_memory_bytes > lower_end(unstated) > unstated.usable_memory_bytes
    assert why_not_fitting(unstated) == "recomputation is not stated, so none is taken"
    assert cause_of(CLOSE, "fits") is None
    assert lower_end(close) < close.usable_memory_bytes < 85e9, "80 GiB, less the context"


def test_every_run_predicted_not_to_fit_is_listed(metered: Validation, accuracy: Accuracy) -> None:
    rows = _rows(accuracy, "Runs predicted not to fit")
    assert [row[0] for row in rows] == [one.run.id for one in metered.not_fitting] == [UNSTATED, CLOSE]
    assert rows[1][-1] == "not known; the lower end fits"


def test_a_missed_floor_names_who_misses_it(accuracy: Accuracy) -> None:
    rows = [row for row in _rows(accuracy, "Floors that are not reached") if row[1] == "left out"]
    labels = {row[0] for row in rows}
    assert {"step time, all", "peak memory, all tiers", "peak memory, tier A"} <= labels
    memory = next(row for row in rows if row[0] == "peak memory, all tiers")
    assert memory[2].startswith("bloom 20.0 / 20.0 (62); nanotron 20.0 / 20.0 (26); ")
    assert "internevo" not in memory[2]
    assert "Known causes of memory errors" in memory[3]


def test_a_left_out_share_has_no_floor(accuracy: Accuracy) -> None:
    """The issue sets floors of shares in-sample only."""
    for row in _rows(accuracy, "Shares"):
        assert not row[4].endswith("no")


def _residuals(family: str, errors: list[float]) -> list[Residual]:
    return [
        Residual(id=f"{family} {number}", family=family, features=H100, time=error, memory=None)
        for number, error in enumerate(errors)
    ]


def _held(*residuals: Residual) -> dict[str, Held]:
    others = _residuals("others", [(number - 20) / 200 for number in range(41)])
    return {one.label.removeprefix("step time, "): one for one in Bands(residuals=[*others, *residuals]).held()}


def test_large_families_are_held_against_the_acceptable_share() -> None:
    """Errors of others reach from -10 to 10 %: a family within that is all inside, one at 30 % all outside."""
    held = _held(*_residuals("calm", [0.0] * 20), *_residuals("far", [0.3] * 20))
    assert held["calm"].coverage.inside == 1.0
    assert held["far"].coverage.inside == 0.0
    assert held["calm"].is_acceptable is held["far"].is_acceptable is False


def test_small_families_are_not_judged_but_listed() -> None:
    few = [*_residuals("eight", [0.0] * 8), *_residuals("two", [0.0, 0.5])]
    held = _held(*few)
    assert held["eight"].is_acceptable is None
    assert "two" not in held
    assert held["teams of fewer than 8 runs"].coverage.n == 2
    others = _residuals("others", [(number - 20) / 200 for number in range(41)])
    assert Bands(residuals=[*others, *few]).small_teams() == {"step time": [("two", 1, 2)]}


def test_the_page_marks_families_that_are_wide_or_narrow() -> None:
    def shown(inside: float, *, is_acceptable: bool) -> str:
        coverage = Coverage(n=30, inside=inside, below=1 - inside, above=0.0, width=1.2)
        return BANDS[3].cell(Held("some", coverage, is_acceptable))

    assert shown(0.5, is_acceptable=False) == "no, narrow"
    assert shown(0.97, is_acceptable=False) == "no, wide"
    assert shown(0.8, is_acceptable=True) == "yes"
