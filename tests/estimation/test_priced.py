"""Plans priced together, alone and by kinds of stage: one step, whichever way it is composed."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from tests.estimation.test_pipelines import WHOLE
from tests.estimation.test_times import HIDDEN, LAYERS, LENGTH, priced
from tests.strategies import Case, cases

from shardplan.calibrate.predict import ask_all, cases_of, predict
from shardplan.calibrate.runs.rows import shipped_runs
from shardplan.estimation.band import band_of
from shardplan.estimation.estimate import estimate_plan
from shardplan.estimation.layout import whole_model
from shardplan.estimation.parts.chunks import OnceAStep
from shardplan.estimation.plan_columns import PlanColumns
from shardplan.estimation.plan_rows import PlanRows, StageRows
from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.stage_memory import host_holds
from shardplan.estimation.step import Step, WorkOfStages, step_of
from shardplan.estimation.times import StateTimes
from shardplan.inputs.plan import Plan
from shardplan.physics.workload.stage import Stage, kinds_of_stage

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


PRODUCTS, SCORES = 24 * LENGTH * HIDDEN**2, 2 * LENGTH**2 * HIDDEN
"""FLOP of a layer's products and of causal attention for one sequence, forward (arXiv 2104.04473, section 5.1)."""


def test_plans_priced_together_are_as_each_alone() -> None:
    """Slowest and fullest stages are counted from a plan's own first one."""
    asked = priced(32, pp=8, replicas=2, profile={"microbatch_time": 1e-3}).question
    plans = [
        Plan(pp=4, stage_layers=(3, 4, 5, 4)),
        Plan(pp=8, stage_layers=(1, 2, 2, 2, 2, 2, 4, 1)),
        Plan(pp=2, recompute="full", recompute_num_layers=2),
        Plan(pp=2, vp=2, schedule="interleaved", offload="activations"),
    ]
    for one, found in zip(plans, PricedPlan.of_all(asked, plans), strict=True):
        alone = PricedPlan.of(asked, one)
        for name in ("slowest", "fullest", "step_time", "peak_memory_bytes", "fits", "shares", "breakdown"):
            assert getattr(found, name) == getattr(alone, name), name
        assert found.host_bytes.tolist() == alone.host_bytes.tolist()
        assert found.communication() == alone.communication()
        assert found.hardware_flops() == alone.hardware_flops()
        assert [found.memory_of(rank) for rank in range(one.pp)] == [alone.memory_of(rank) for rank in range(one.pp)]
        for record in ("once_a_step", "step_traffic", "chunk_times"):
            pairs = (
                (getattr(getattr(each, record), f.name) for each in (found, alone))
                for f in fields(getattr(alone, record))
            )
            assert all(np.array_equal(a, b) for a, b in pairs), record
    slow = PricedPlan.of_all(asked, plans)
    assert [each.slowest for each in slow[:2]] == [2, 6]


@pytest.mark.parametrize(
    ("plan", "again"),
    [
        ({}, 0),
        ({"pp": 4}, 0),
        ({"recompute": "full"}, 16),
        ({"pp": 4, "recompute": "full"}, 16),
        ({"pp": 4, "recompute": "full", "recompute_num_layers": 1}, 4),
        ({"pp": 4, "recompute": "full", "recompute_num_layers": 9}, 16),
    ],
)
def test_flops_that_are_executed(plan: dict[str, Any], again: int) -> None:
    """Three times the forward FLOP, what a fused kernel repeats left out, and the layers that run again."""
    sequences = 8
    trained = LAYERS * 3 * (PRODUCTS + SCORES)
    repeated = again * (PRODUCTS + SCORES)
    assert priced(8, **plan).hardware_flops() == pytest.approx(sequences * (trained + repeated), rel=1e-4)
    assert priced(8, replicas=2, **plan).hardware_flops() == pytest.approx(16 * (trained + repeated), rel=1e-4)


@pytest.mark.parametrize(("plan", "chunks"), [({"pp": 4}, 1), ({"pp": 4, "vp": 2, "schedule": "interleaved"}, 2)])
def test_stages_send_every_micro_batch_there_and_back(plan: dict[str, Any], chunks: int) -> None:
    """2 s h bytes of each chunk's output and as many of its gradient."""
    assert priced(8, **plan).communication()["pp"]["node"] == 8 * chunks * 2 * (2 * LENGTH * HIDDEN)


@pytest.mark.parametrize("schedule", ["1f1b", "dualpipe"])
def test_replicas_send_the_gradients_of_all_copies(schedule: str) -> None:
    """All-reduced fp32 gradients of 12 h^2 parameters of each of 8 layers; DualPipe holds two copies."""
    copies = 2 if schedule == "dualpipe" else 1
    found = priced(8, pp=2, replicas=2, sharding="ddp", schedule=schedule)
    whole = 4 * 12 * HIDDEN**2 * LAYERS / 2
    assert sum(found.communication()["dp"].values()) == pytest.approx(copies * whole, rel=1e-2)


def test_what_comes_once_a_step_travels_behind_a_chunks_work() -> None:
    """Without windows nothing does; with all of it the forward work of a micro-batch hides gathering, F of 3 F."""
    bare = priced(8, pp=2, replicas=2, sharding="zero1")
    traffic, once = bare.step_traffic, bare.once_a_step
    assert np.all(traffic.gather_time > 0)
    assert traffic.gather_time.tolist() == once.gather.tolist()
    assert traffic.reduce_time.tolist() == once.reduce.tolist()
    assert not np.any(traffic.gather_window)
    assert not np.any(traffic.reduce_window)
    hidden = priced(8, pp=2, replicas=2, sharding="zero1", profile={"dp_window": 1.0, "hidden_slowdown": 0.1})
    forward = LAYERS / 2 * (PRODUCTS + SCORES) / 1e15
    backward = LAYERS / 2 * (2 * PRODUCTS + 2.5 * SCORES) / 1e15
    traffic = hidden.step_traffic
    assert traffic.gather_window == pytest.approx(forward, rel=1e-3)
    assert traffic.reduce_window == pytest.approx(backward, rel=1e-3)
    assert traffic.least_share == 0.1


def test_transfers_and_exchanges_share_a_link_where_both_use_its_tier() -> None:
    assert priced(8, pp=4, replicas=2, sharding="zero1").step_traffic.shares_card
    assert not priced(8, replicas=8, sharding="zero1").step_traffic.shares_card


ROWS = StageRows(stages=WHOLE, plan=np.array([0, 0, 0, 1, 1, 2, 2]), first=np.array([0, 3, 5]))
PASSES = np.array([10.0, 12.0, 11.0, 20.0, 20.0, 20.0, 21.0])
HEAD_STARTS = np.array([0.0, 3.0, 1.0, 0.0, 4.0, 0.0, 4.0])
ONCE = StateTimes(sharded=0.0, reduce=0.0, gather=0.0, update=np.array([1.0, 2.0, 9.0, 5.0, 2.0, 5.0, 2.0]))


def columns() -> PlanColumns:
    """Plans whose passes, head starts and ends are given."""
    nothing: Any = None
    work = WorkOfStages(
        question=nothing, numbers=nothing, around=nothing, kinds=[WHOLE], works=[], whole=WHOLE, whole_work=nothing,
        behind=nothing, longest=nothing, rows=ROWS,
    )  # fmt: skip
    vars(work)["head_starts"] = [HEAD_STARTS]
    step = Step(work=work, charges=[], sharding_time=0.0)
    vars(step).update(passes=[PASSES], states=[ONCE])
    every = PlanRows(
        stages_of=(), rounds_of=(), stages=ROWS, chunks=None, group_first=ROWS.first, group_plan=ROWS.first
    )
    found = PlanColumns(question=nothing, numbers=nothing, rows=every, prices=nothing)
    vars(found)["step"] = step
    return found


def test_a_step_ends_with_its_first_stage_or_with_one_that_needs_longer() -> None:
    """First stages end at 12 + 1, 20 + 5 and 21 + 5; others at 12 - 3 + 2, 11 - 1 + 9, 20 - 4 + 2 and 21 - 4 + 2."""
    ends = columns()
    assert np.asarray(ends.step.busiest).tolist() == [19, 25, 26]
    assert ends.slowest_row.tolist() == [2, 3, 6]
    assert ends.slowest.tolist() == [2, 0, 1]
    assert ends.last_row.tolist() == [2, 3, 5]
    assert ends.waiting.tolist() == [10, 20, 21]


def test_rows_of_plans() -> None:
    assert ROWS.each(2.0).tolist() == [2.0] * 7
    assert ROWS.largest(PASSES).tolist() == [12, 20, 21]
    assert ROWS.at_largest(PASSES).tolist() == [1, 3, 6]
    assert ROWS.at_largest(1.0).tolist() == [0, 3, 5]


def test_what_comes_once_a_step_is_slower_with_stragglers() -> None:
    parts = {name: np.array([value]) for name, value in (("gather", 1.0), ("reduce", 2.0), ("update", 4.0))}
    once = OnceAStep(**parts, fixed={"fixed": 8.0}, straggler_factor=1.25)
    assert once.after(np.array([25.0])).tolist() == [50.0]
    assert once.after_passes(np.array([25.0]))["stragglers"].tolist() == pytest.approx([10.0])
