"""Where predictions fall short: worst memories, runs predicted not to fit, missed floors, coverage that is off."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from shardplan.calibrate.runs.rows import shipped_runs
from shardplan.calibrate.validate import Validation, validate_runs
from shardplan.estimation.band import features_of
from shardplan.inputs.readers.residuals import Features, Residual
from shardplan.reports.accuracy.page import accuracy_sections
from shardplan.reports.accuracy.record import accuracy_record, coverage_record
from shardplan.reports.accuracy.shortfalls import not_fitting, worst
from shardplan.reports.breakdown import Section

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
def record(metered: Validation) -> dict[str, Any]:
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
    return accuracy_record(metered, residuals)


def _section(record: dict[str, Any], title: str) -> Section:
    return next(section for section in accuracy_sections(record) if section.title == title)


def test_the_worst_memories_come_first_and_none_is_small(metered: Validation) -> None:
    moved = [
        replace(one, peak_memory_bytes=(one.run.peak_memory_bytes or math.nan) * FACTORS.get(one.run.id, 1.04))
        for one in metered.predictions
    ]
    checked = replace(metered, predictions=tuple(moved))
    rows = worst(checked, None, lambda one: one.log_memory_ratio, most=12, least=0.05, subject="peak_memory")
    assert [(row["id"], row["in_sample"]) for row in rows] == [(name, pytest.approx(FACTORS[name])) for name in FACTORS]
    assert [row["meter"] for row in rows] == ["reserved", "unstated", "process", "process"]
    assert rows[0]["cause"].startswith("optimizer on the CPU")


def test_runs_predicted_not_to_fit_tell_what_they_need_and_why(metered: Validation) -> None:
    rows = {row["id"]: row for row in not_fitting(metered)}
    unstated, close = rows[UNSTATED], rows[CLOSE]
    assert unstated["needed_memory_bytes"] > unstated["needed_memory_p10_bytes"] > unstated["usable_memory_bytes"]
    assert unstated["cause"] == "recomputation is not stated, so none is taken"
    assert close["cause"] is None
    assert close["needed_memory_p10_bytes"] < close["usable_memory_bytes"] < 85e9, "80 GiB, less the context"


def test_every_run_predicted_not_to_fit_is_listed(metered: Validation, record: dict[str, Any]) -> None:
    rows = _section(record, "Runs predicted not to fit").rows
    assert [row[0] for row in rows] == [one.run.id for one in metered.not_fitting] == [UNSTATED, CLOSE]
    assert rows[1][-1] == "not known; the lower end fits"


def test_a_missed_floor_names_who_misses_it(record: dict[str, Any]) -> None:
    rows = [row for row in _section(record, "Floors that are not reached").rows if row[1] == "left out"]
    labels = {row[0] for row in rows}
    assert {"step time, all", "peak memory, all tiers", "peak memory, tier A"} <= labels
    memory = next(row for row in rows if row[0] == "peak memory, all tiers")
    assert memory[2].startswith("bloom 20.0 / 20.0 (62); nanotron 20.0 / 20.0 (26); ")
    assert "internevo" not in memory[2]
    assert "Known causes of memory errors" in memory[3]


def test_a_left_out_share_has_no_floor(record: dict[str, Any]) -> None:
    """The issue sets floors of shares in-sample only."""
    for row in _section(record, "Shares").rows:
        assert not row[4].endswith("no")


def _residuals(family: str, errors: list[float]) -> list[Residual]:
    return [
        Residual(id=f"{family} {number}", family=family, features=H100, time=error, memory=None)
        for number, error in enumerate(errors)
    ]


def test_large_families_are_held_against_the_acceptable_share() -> None:
    """Errors of others reach from -10 to 10 %: a family within that is all inside, one at 30 % all outside."""
    others = _residuals("others", [(number - 20) / 200 for number in range(41)])
    record = coverage_record([*others, *_residuals("calm", [0.0] * 20), *_residuals("far", [0.3] * 20)])["time"]
    assert record["team"]["calm"]["inside"] == 1.0
    assert record["team"]["far"]["inside"] == 0.0
    assert not record["team"]["calm"]["is_acceptable"]
    assert not record["team"]["far"]["is_acceptable"]


def test_small_families_are_not_judged_but_listed() -> None:
    others = _residuals("others", [(number - 20) / 200 for number in range(41)])
    record = coverage_record([*others, *_residuals("eight", [0.0] * 8), *_residuals("two", [0.0, 0.5])])["time"]
    assert record["team"]["eight"]["is_acceptable"] is None
    assert "two" not in record["team"]
    assert record["small_teams"] == [{"team": "two", "n": 2, "inside": 1}]
    assert record["small"]["n"] == 2


def test_the_page_marks_families_that_are_wide_or_narrow(record: dict[str, Any]) -> None:
    far = {"n": 30, "inside": 0.5, "below": 0.5, "above": 0.0, "width": 1.2, "is_acceptable": False}
    families = {"far": far, "calm": {**far, "inside": 0.97}, "right": {**far, "inside": 0.8, "is_acceptable": True}}
    coverage = record["coverage"] | {"time": {**record["coverage"]["time"], "team": families}}
    rows = {row[0]: row[3] for row in _section(record | {"coverage": coverage}, "Bands").rows}
    assert rows["step time, far"] == "no, narrow"
    assert rows["step time, calm"] == "no, wide"
    assert rows["step time, right"] == "yes"
