"""Traffic of states once a step behind simulated passes: the limits in which a hand or the estimate can count it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulation.cases import even, passes, pipeline, step
from tests.simulation.test_plan import every_plan, question
from tests.simulation.test_step import sizes, suited, uneven

from shardplan.estimation.parts.chunks import StepTraffic
from shardplan.inputs.plan import Plan, Sharding
from shardplan.physics.costs.host import exposed_with_chunks
from shardplan.physics.schedules.base import ChunkTimes
from shardplan.physics.schedules.registry import list_all_schedules, load_any_schedule
from shardplan.simulation.exchanges import StateExchanges
from shardplan.simulation.plan import SimulatedPlan, simulate_plan, timeline_of
from shardplan.simulation.step import SimulatedStep
from shardplan.simulation.timeline import HIDDEN_GATHERING, HIDDEN_REDUCTION

SLOWDOWN = 0.15


def exchanged(
    run: SimulatedStep, times: ChunkTimes, time: float, share: float = 0.5, *, shares_card: bool = True
) -> StateExchanges:
    """The same traffic for both exchanges; each hides behind a ``share`` of its passes."""
    ones = np.ones(len(run.ranks))
    chunks = [np.unique(run.pieces.position[run.pieces.rank == rank]) for rank in range(len(ones))]
    backward = times.input_gradient + times.weight_gradient
    return StateExchanges(
        traffic=StepTraffic(
            gather_time=ones * time,
            reduce_time=ones * time,
            gather_window=share * np.array([times.forward[held].mean() for held in chunks]),
            reduce_window=share * np.array([backward[held].mean() for held in chunks]),
            least_share=SLOWDOWN,
            shares_card=shares_card,
        ),
        step=run,
        times=times,
    )


def of_plan(plan: Plan, num_accelerators: int = 128, **asked: Any) -> SimulatedPlan:
    """With few micro-batches, so that exchanges show."""
    return simulate_plan(
        question(num_accelerators=num_accelerators, **asked), plan, load_any_schedule(plan.effective_schedule)
    )


@pytest.mark.parametrize("plan", [Plan(tp=2), Plan(tp=2, pp=4), Plan(tp=2, pp=4, schedule="gpipe"), Plan(tp=1, pp=8)])
@pytest.mark.parametrize("sharding", ["ddp", "zero1", "zero2", "zero3"])
def test_with_one_chunk_the_exposed_exchanges_are_those_of_the_estimate(plan: Plan, sharding: Sharding) -> None:
    one = of_plan(replace(plan, sharding=sharding))
    estimated = one.priced.once_a_step
    assert one.once_a_step.reduce == pytest.approx(estimated.reduce, rel=1e-9)
    assert one.once_a_step.gather == pytest.approx(estimated.gather, rel=1e-9)


@every_plan
def test_without_overlap_all_of_it_is_exposed(plan: Plan) -> None:
    one = of_plan(replace(plan, overlap_dp=False), batch=256)
    assert np.array_equal(one.once_a_step.reduce, one.priced.step_traffic.reduce_time)
    assert np.array_equal(one.once_a_step.gather, one.priced.step_traffic.gather_time)
    assert np.array_equal(one.once_a_step.reduce, one.priced.once_a_step.reduce)
    kinds = timeline_of(one).events.kind
    assert not np.isin(kinds, (HIDDEN_GATHERING, HIDDEN_REDUCTION)).any()


@pytest.mark.parametrize("time", [0.0, 0.1, 1.0, 3.0, 20.0])
def test_chunks_that_follow_one_another_are_the_formula_of_the_estimate(time: float) -> None:
    """Breadth-first: all g micro-batches of a chunk, then those of the next one, without a gap."""
    chunks, group = 4, 6
    at = pipeline(2, group, vp=chunks)
    times = even(passes(4.0, 4.0, 4.0), at)  # a chunk takes 1 s forward and 2 s backward
    found = exchanged(step("breadth-first", at, times), times, time)
    profile = replace(question().profile, hidden_slowdown=SLOWDOWN)
    for shown, own in ((found.reduce_exposed, 1.0), (found.gather_exposed, 0.5)):
        windows = own * (1 + group * (chunks - 1))
        formula = exposed_with_chunks(time, own, windows.__pos__, chunks, profile)
        assert shown == pytest.approx(formula, rel=1e-12)


def test_a_split_backward_pass_completes_its_gradients_with_the_weights() -> None:
    """ZB-H1's last piece is a weight gradient of 1 s: half of it hides traffic, and 3 s are left of 3.5."""
    at = pipeline(2, 4)
    times = even(passes(), at)
    found = exchanged(step("zb-h1", at, times), times, 3.5)
    assert found.reduce_exposed == pytest.approx(3.0)


def test_a_rank_that_waits_reduces_meanwhile_unless_transfers_take_the_card() -> None:
    """Two ranks with two chunks each, two micro-batches, breadth-first: a chunk takes 1 s forward, 2 s backward.

    The last rank ends its second chunk and waits 1 s, two transfers of 0.5 s, until the other rank's first gradient
    comes back. From the last backward pass of that chunk on, half of three passes hides traffic.
    """
    at = pipeline(2, 2, vp=2, group_size=2)
    times = even(passes(2.0, 2.0, 2.0), at, transfer=0.5)
    run = step("breadth-first", at, times)
    own = np.flatnonzero(run.pieces.rank == 1)[-4:]
    waited = float(run.start[own[2]] - run.end[own[1]])
    assert waited == pytest.approx(1.0)  # two transfers; the first rank is done with its first micro-batch by then
    behind = 0.5 * 2.0 * 3  # from the last micro-batch of the first chunk to the end
    assert exchanged(run, times, 20.0, shares_card=False).reduce_exposed[1] == pytest.approx(20 - behind - waited)
    assert exchanged(run, times, 20.0).reduce_exposed[1] == pytest.approx(20 - behind)


@given(st.sampled_from(list_all_schedules()), sizes(), st.integers(0, 100), st.floats(0, 50), st.floats(0.01, 1))
def test_what_is_exposed_lies_between_its_bounds(
    name: str, size: tuple[int, int, int], seed: int, time: float, share: float
) -> None:
    """Never less than the slowdown or than a chunk without its pass, never more than all, less with a larger window."""
    schedule = load_any_schedule(name)
    at = suited(schedule, *size)
    times = uneven(at, seed)
    run = step(schedule, at, times)
    found, wider = exchanged(run, times, time, share), exchanged(run, times, time, min(1.0, 1.5 * share))
    for one, other in ((found.reduce_exposed, wider.reduce_exposed), (found.gather_exposed, wider.gather_exposed)):
        assert np.all(one >= SLOWDOWN * time * (1 - 1e-12))
        assert np.all(one <= time * (1 + 1e-12))
        assert np.all(other <= one + 1e-9)
    free = exchanged(run, times, time, share, shares_card=False)
    assert np.all(free.reduce_exposed <= found.reduce_exposed + 1e-9)


@given(st.sampled_from(list_all_schedules()), sizes(), st.integers(0, 100), st.floats(0.1, 50))
def test_buckets_travel_one_after_the_other_while_their_rank_runs(
    name: str, size: tuple[int, int, int], seed: int, time: float
) -> None:
    schedule = load_any_schedule(name)
    at = suited(schedule, *size)
    times = uneven(at, seed)
    run = step(schedule, at, times)
    found = exchanged(run, times, time)
    first, last = run.placed_start[run.pieces.bounds[:-1]], run.end[run.pieces.bounds[1:] - 1]
    for buckets in (found.gatherings, found.reductions):
        assert np.all(buckets.start >= first[buckets.rank] - 1e-9)
        assert np.all(buckets.end <= last[buckets.rank] + 1e-9)
        after = buckets.rank[1:] == buckets.rank[:-1]
        assert np.all(buckets.start[1:][after] >= buckets.end[:-1][after] - 1e-9)


def test_hidden_exchanges_are_on_the_timeline() -> None:
    """Every rank has two chunks: two buckets of each exchange on their way, which take no time of the step."""
    one = of_plan(Plan(tp=2, pp=4, vp=2))
    timeline = timeline_of(one)
    for kind in (HIDDEN_GATHERING, HIDDEN_REDUCTION):
        found = timeline.events.at(timeline.events.kind == kind)
        assert np.bincount(found.rank).max() == 2
        assert set(found.chunk.tolist()) == {0, 1}
    split = timeline.split(timeline.slowest)
    assert not any(name.startswith("hidden") for name in split)
    assert sum(split.values()) == pytest.approx(one.step_time, rel=1e-12)
