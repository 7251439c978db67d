"""One plan with all its prices: parts that sum to the whole, and all stages at once against one after the other."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest
from hypothesis import given
from tests.strategies import Case, cases

from shardplan.calibration.predict import ask_all, cases_of, predict
from shardplan.calibration.runs.rows import shipped_runs
from shardplan.estimation.band import band_of
from shardplan.estimation.estimate import estimate_plan
from shardplan.estimation.layout import whole_model
from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.stage_memory import host_holds
from shardplan.estimation.step import Step, step_of
from shardplan.workload.stage import Stage, kinds_of_stage

SAME = 1e-12


def priced_of(case: Case) -> PricedPlan:
    return PricedPlan.of(case.question, case.plan)


# Parts and wholes.


@given(cases())
def test_the_split_sums_to_the_step(case: Case) -> None:
    """Each term is computed from what it names; none is what others leave of the step."""
    priced = priced_of(case)
    assert math.fsum(priced.breakdown.values()) == pytest.approx(priced.step_time, rel=SAME)
    assert all(time >= 0 for time in priced.breakdown.values()), priced.breakdown


@given(cases())
def test_parts_of_the_memory_sum_to_the_peak(case: Case) -> None:
    priced = priced_of(case)
    stages = [priced.memory_of(stage) for stage in range(len(priced.stages))]
    sums = [math.fsum(float(getattr(stage, field.name)) for field in fields(stage)) for stage in stages]
    assert priced.peak_memory_bytes == pytest.approx(max(sums), rel=SAME)
    assert sums[priced.fullest] == pytest.approx(max(sums), rel=SAME)


@given(cases(num_accelerators=1))
def test_one_accelerator_waits_for_none(case: Case) -> None:
    split = priced_of(case).breakdown
    assert split["bubble"] == split["stragglers"] == split["pp_communication"] == split["dp_communication"] == 0


# One array over stages.


def alone(priced: PricedPlan, *stages: Stage) -> Step:
    """Outcome of a plan all of whose stages wait for this one."""
    return step_of(priced.question, priced.numbers, priced.prices, stages, whole_model(priced.question.model))


@given(cases())
def test_an_array_of_stages_is_its_stages_one_by_one(case: Case) -> None:
    """The first stage ends last, unless another one's own exchanges and update take longer than its head start."""
    priced = priced_of(case)
    first, singly = priced.stages[0], [alone(priced, stage) for stage in priced.stages]
    times = [float(alone(priced, *{first: None, stage: None}).step_time) for stage in priced.stages]
    peaks = [float(step.peak_memory_bytes) for step in singly]
    if not priced.rounds:  # where ranks hold several chunks, a stage alone has no other's to wait for
        assert priced.step_time == pytest.approx(max(times), rel=SAME)
        assert times[priced.slowest] == pytest.approx(max(times), rel=SAME)
    assert [priced.memory_of(rank).total for rank in range(len(singly))] == pytest.approx(peaks, rel=SAME)
    assert priced.fits == all(bool(step.fits) for step in singly)


@given(cases())
def test_all_stages_make_the_step_that_the_kinds_of_stage_make(case: Case) -> None:
    """The way of a single plan and the way of a search."""
    priced = priced_of(case)
    kinds, whole = kinds_of_stage(priced.stages), whole_model(case.question.model)
    rounds = [[chunk.as_stage() for chunk in group] for group in priced.rounds]
    step = step_of(case.question, priced.numbers, priced.prices, kinds, whole, rounds=rounds)
    assert priced.step_time == pytest.approx(float(step.step_time), rel=SAME)
    assert priced.peak_memory_bytes == pytest.approx(float(step.peak_memory_bytes), rel=SAME)
    assert priced.fits == bool(step.fits)


@given(cases())
def test_what_does_not_fit_exceeds_the_device_or_the_host(case: Case) -> None:
    priced = priced_of(case)
    on_device = priced.peak_memory_bytes <= float(case.question.usable_memory)
    on_host = all(bool(host_holds(case.question, [float(need)])) for need in priced.host_bytes)
    assert priced.fits == (on_device and on_host)


# Shares that are less certain than computing.


@given(cases())
def test_shares_are_those_of_the_split(case: Case) -> None:
    priced = priced_of(case)
    split, whole = priced.breakdown, priced.step_time
    sent = sum(split[f"{name}_communication"] for name in ("tp", "cp", "ep", "dp", "pp"))
    assert priced.shares.host == pytest.approx(split["host"] / whole)
    assert priced.shares.communication == pytest.approx(sent / whole)
    assert priced.shares.attention == pytest.approx(split["attention"] / whole)


@given(cases())
def test_an_estimate_has_the_band_of_its_shares(case: Case) -> None:
    found, shares = estimate_plan(case.question, case.plan), priced_of(case).shares
    assert 0 <= shares.host <= 1
    assert 0 <= shares.communication <= 1
    assert 0 <= shares.attention <= 1
    band = band_of(case.question, shares=shares, plan=case.plan)
    assert found.step_time_p10 == pytest.approx(found.step_time * band.low)
    assert found.step_time_p90 == pytest.approx(found.step_time * band.high)
    band = band_of(case.question, "memory")
    assert found.peak_memory_p10_bytes == pytest.approx(found.peak_memory_bytes * band.low)
    assert found.peak_memory_p90_bytes == pytest.approx(found.peak_memory_bytes * band.high)


def test_measured_runs_have_the_shares_of_their_estimate() -> None:
    asked, _ = ask_all(shipped_runs()[::60])
    for case, prediction in zip(cases_of(asked), predict(asked), strict=True):
        found = estimate_plan(case.asked.question, case.asked.plan)
        shares = PricedPlan.of(case.asked.question, case.asked.plan).shares
        assert case.shares({}).host == pytest.approx(shares.host)
        assert case.shares({}).communication == pytest.approx(shares.communication)
        assert prediction.step_time_p90 == pytest.approx(found.step_time_p90)


# What crosses the network.


@given(cases())
def test_a_dimension_of_one_rank_sends_nothing(case: Case) -> None:
    plan, sent = case.plan, priced_of(case).communication()
    for dimension in ("tp", "cp", "pp"):
        assert getattr(plan, dimension) > 1 or dimension not in sent
    assert all(moved >= 0 for tiers in sent.values() for moved in tiers.values())
