"""The timeline of a simulated step, and the memory of every rank over it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulation.cases import even, passes, pipeline, step
from tests.simulation.test_plan import PLANS, every_plan, question
from tests.simulation.test_step import sizes, suited, uneven

from shardplan.base.errors import InputError
from shardplan.estimation.parts.chunks import MemoryParts
from shardplan.inputs.plan import Plan
from shardplan.inputs.schedule_names import BUILT_IN
from shardplan.physics.schedules.base import ChunkTimes, Pipeline, PipelineSchedule, Schedule
from shardplan.physics.schedules.registry import list_all_schedules, load_any_schedule
from shardplan.simulation.events import PlacedStep, events_of, memory_of
from shardplan.simulation.plan import SimulatedPlan, simulate_plan, timeline_of, timeline_of_times
from shardplan.simulation.step import Disturbance
from shardplan.simulation.timeline import (
    BUBBLE,
    COMPUTE,
    EVENT_KINDS,
    FORWARD,
    GATHERING,
    MEANWHILE,
    RECOMPUTATION,
    SEND_BACKWARD,
    SEND_FORWARD,
    SHARDED,
    TRANSFERS,
    MemoryTrace,
    StepTimeline,
)

schedules = st.sampled_from(list_all_schedules())


def shown(name: str, size: tuple[int, int, int], times_seed: int, **disturbance: Any) -> StepTimeline:
    """A step with times of its own, every gradient with some recomputation."""
    schedule = load_any_schedule(name)
    at = suited(schedule, *size)
    times = uneven(at, times_seed)
    times = replace(times, recomputed=0.3 * times.input_gradient, sending=0.1 * times.forward)
    return timeline_of_times(schedule, step(schedule, at, times, **disturbance), times)


def simulated(plan: Plan, **disturbance: Any) -> SimulatedPlan:
    schedule = load_any_schedule(plan.effective_schedule)
    return simulate_plan(question(), plan, schedule, disturbance=Disturbance(**disturbance))


def test_a_step_that_a_hand_can_count() -> None:
    """1F1B, two ranks, two micro-batches: forward 1 s, gradients 2 s, transfers half a second."""
    at = pipeline(2, 2)
    times = even(passes(1.0, 1.0, 1.0), at, transfer=0.5)
    events = timeline_of_times(load_any_schedule("1f1b"), step("1f1b", at, times), times).events
    rows = [
        (f"{EVENT_KINDS[kind]} {number}", start, duration, critical)
        for kind, number, start, duration, critical in zip(
            events.kind.tolist(), events.microbatch.tolist(), events.start.tolist(), events.duration.tolist(),
            events.critical.tolist(), strict=True,
        )
    ]  # fmt: skip
    first = [
        ("forward 0", 0.0, 1.0, True), ("forward 1", 1.0, 1.0, False),
        ("backward 0", 5.0, 2.0, False), ("backward 1", 8.0, 2.0, True),
        ("send forward 0", 1.0, 0.5, True), ("send forward 1", 2.0, 0.5, False),
    ]  # fmt: skip
    second = [
        ("forward 0", 1.5, 1.0, True), ("backward 0", 2.5, 2.0, True),
        ("forward 1", 4.5, 1.0, True), ("backward 1", 5.5, 2.0, True),
        ("send backward 0", 4.5, 0.5, False), ("send backward 1", 7.5, 0.5, True),
    ]  # fmt: skip
    assert rows == first + second


@given(schedules, sizes(), st.integers(0, 100), st.sampled_from([0.0, 0.2]))
def test_work_is_conserved_and_no_rank_computes_twice_at_a_time(
    name: str, size: tuple[int, int, int], seed: int, jitter: float
) -> None:
    timeline = shown(name, size, seed, jitter=jitter, seed=seed)
    events = timeline.events
    for rank in range(timeline.num_ranks):
        own = events.of_rank(rank)
        own = own.at(own.lane == COMPUTE)
        assert np.all(own.start[1:] >= own.end[:-1] - 1e-9)
    forward = events.at(events.kind == FORWARD)
    number = forward.rank * 10**6 + forward.chunk * 10**4 + forward.microbatch
    assert len(np.unique(number)) == len(number)
    again = events.at(events.kind == RECOMPUTATION)
    assert len(again) == len(number)
    assert sum(timeline.split(timeline.slowest).values()) == pytest.approx(timeline.step_time, rel=1e-12)


@given(schedules, sizes(), st.integers(0, 100))
def test_without_jitter_a_seed_changes_nothing(name: str, size: tuple[int, int, int], seed: int) -> None:
    calm, seeded = shown(name, size, seed), shown(name, size, seed, jitter=0.0, seed=seed + 1)
    assert np.array_equal(calm.events.start, seeded.events.start)
    assert np.array_equal(calm.events.critical, seeded.events.critical)


@given(schedules, sizes(), st.integers(0, 100))
def test_the_critical_path_has_no_gap_and_ends_with_the_step(name: str, size: tuple[int, int, int], seed: int) -> None:
    timeline = shown(name, size, seed)
    path = timeline.events.at(timeline.events.critical)
    order = np.argsort(path.start, kind="stable")
    start, end = path.start[order], np.maximum.accumulate(path.end[order])
    assert start[0] == 0
    assert np.all(start[1:] <= end[:-1] + 1e-9)
    assert end[-1] == pytest.approx(timeline.events.of_rank(timeline.slowest).end.max())


def test_a_pass_that_is_not_critical_can_take_longer() -> None:
    """A slower first forward pass lengthens the step; that of the next micro-batch, which waits, does not."""
    at = pipeline(4, 4)
    times = even(passes(), at)
    schedule = load_any_schedule("1f1b")
    timeline = timeline_of_times(schedule, step(schedule, at, times), times)
    on_first = timeline.events.of_rank(0)
    on_first = on_first.at(on_first.kind == FORWARD)
    assert on_first.critical.tolist() == [True, False, False, False]


@every_plan
@pytest.mark.parametrize("jitter", [0.0, 0.1])
def test_the_slowest_rank_spans_the_step_of_a_plan(plan: Plan, jitter: float) -> None:
    one = simulated(plan, jitter=jitter, seed=1)
    timeline = timeline_of(one)
    own = timeline.events.of_rank(timeline.slowest)
    assert own.end.max() - own.start.min() == pytest.approx(one.step_time, rel=1e-12)
    split = timeline.split(timeline.slowest)
    assert sum(split.values()) == pytest.approx(one.step_time, rel=1e-12)
    assert split[BUBBLE] >= 0
    assert timeline.events.start.min() == 0
    assert timeline.step_time == one.step_time


def test_without_a_pipeline_the_events_are_the_breakdown_of_the_estimate() -> None:
    plan = Plan(tp=2, recompute="full")
    one = simulated(plan)
    split, breakdown = timeline_of(one).split(0), one.priced.breakdown
    assert split["recomputation"] == pytest.approx(breakdown["recompute"], rel=1e-9)
    assert split["optimizer"] == pytest.approx(breakdown["optimizer"], rel=1e-9)
    assert split["stragglers"] == pytest.approx(breakdown["stragglers"], rel=1e-9)
    exchanges = split.get("gradient reduction", 0.0) + split.get("parameter gathering", 0.0)
    assert exchanges == pytest.approx(breakdown["dp_communication"], rel=1e-9)
    assert split[BUBBLE] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("plan", [replace(plan, overlap_pp=overlaps) for plan in PLANS for overlaps in (True, False)])
def test_transfers_end_before_what_waits_for_them(plan: Plan) -> None:
    """A send is there for every pass but those of the last stage (forward) and the first (backward)."""
    events = timeline_of(simulated(plan)).events
    sent = events.at(events.lane == TRANSFERS)
    forward = events.at(events.kind == FORWARD)
    number = int(forward.microbatch.max()) + 1
    stages = len(forward) // number
    of_same_rank = {"zb-v": 1, "dualpipe-v": 1}.get(plan.effective_schedule, 0)
    for kind in (SEND_FORWARD, SEND_BACKWARD):
        assert np.sum(sent.kind == kind) == number * (stages - 1 - of_same_rank)
    assert not np.isin(events.kind[events.lane == COMPUTE], MEANWHILE).any()


def test_sharded_weights_travel_while_passes_wait() -> None:
    plan = Plan(tp=1, pp=2, sharding="zero3", overlap_dp=False)
    one = simulated(plan)
    events = timeline_of(one).events
    own = events.of_rank(0)
    exposed = own.duration[own.kind == SHARDED].sum()
    assert exposed > 0
    assert exposed <= own.duration[own.lane == COMPUTE].sum()
    assert GATHERING not in own.kind


def test_memory_of_some_ranks_is_refused() -> None:
    timeline = timeline_of(simulated(Plan(tp=2, pp=4)))
    with pytest.raises(InputError, match="4 ranks has the memory of 3"):
        replace(timeline, memory=timeline.memory[:3])
    assert replace(timeline, memory=()).memory == ()


STATES = ("weights", "gradients", "optimizer", "whole", "framework")
MORE = Plan(tp=2, pp=4, recompute="full"), Plan(tp=2, pp=4, sharding="zero3"), Plan(tp=2, pp=4, offload="activations")


def parts(at: Pipeline, **sizes: float) -> MemoryParts:
    """Equal chunks and ranks; what is not given is nothing."""
    names = (*STATES, "recomputed", "passing", "loss", "moving", "update")
    ones = np.ones(int(at.pp))
    return MemoryParts(
        kept=np.full(int(at.pp * at.vp), sizes.get("kept", 0.0)),
        **{name: sizes.get(name, 0.0) * ones for name in names},
    )


def traces(schedule: Schedule, at: Pipeline, times: ChunkTimes, held: MemoryParts) -> tuple[MemoryTrace, ...]:
    placed = PlacedStep.of(step(schedule, at, times), times)
    return memory_of(placed, events_of(placed), held)


def test_a_trace_that_a_hand_can_count() -> None:
    """1F1B, two ranks, two micro-batches of 10 bytes; states of 100 bytes, 3 while a gradient is computed."""
    at = pipeline(2, 2)
    first, second = traces(
        load_any_schedule("1f1b"), at, even(passes(), at), parts(at, kept=10.0, weights=100.0, passing=3.0)
    )
    assert list(zip(first.times.tolist(), first.allocated.tolist(), strict=True)) == [
        (0.0, 110.0), (1.0, 120.0), (2.0, 120.0), (4.0, 123.0), (6.0, 110.0), (7.0, 113.0), (9.0, 100.0),
    ]  # fmt: skip
    assert [(part.name, part.num_bytes, part.microbatches) for part in first.at_peak] == [
        ("weights", 100.0, ()),
        ("activations of model chunk 0", 20.0, (0, 1)),
        ("gradients of a layer's tensors", 3.0, ()),
    ]
    assert first.peak_time == 4.0
    assert second.peak_bytes == 113.0


@given(st.sampled_from([*BUILT_IN]), sizes())
def test_equal_chunks_peak_at_the_closed_form(name: str, size: tuple[int, int, int]) -> None:
    """Micro-batches in flight by the schedule's own formula, each as large as all chunks of a rank."""
    schedule = load_any_schedule(name)
    assert isinstance(schedule, PipelineSchedule)
    at = suited(schedule, *size)
    held = parts(at, kept=7.0, weights=100.0, passing=3.0, recomputed=2.0)
    peaks = [trace.peak_bytes for trace in traces(schedule, at, even(passes(1.0, 1.1, 0.9), at), held)]
    kept = [7.0 * at.vp * float(schedule.microbatches_in_flight(at, rank)) for rank in range(int(at.pp))]
    assert peaks == pytest.approx([105.0 + most for most in kept], rel=1e-9)


@given(st.sampled_from(list_all_schedules()), sizes(), st.integers(0, 100))
def test_memory_starts_and_ends_with_the_states(name: str, size: tuple[int, int, int], seed: int) -> None:
    schedule = load_any_schedule(name)
    at = suited(schedule, *size)
    held = parts(at, kept=7.3, weights=100.1, optimizer=50.7, passing=3.1, recomputed=2.9, loss=4.2, moving=0.3)
    for trace in traces(schedule, at, uneven(at, seed), held):
        assert np.all(trace.allocated >= trace.baseline_bytes * (1 - 1e-12))
        assert trace.allocated[-1] == pytest.approx(trace.baseline_bytes, rel=1e-12)
        assert np.all(np.diff(trace.times) > 0)
        np.testing.assert_allclose(sum(trace.by_part.values()), trace.allocated, rtol=1e-12)
        assert trace.by_part["weights"].max() == pytest.approx(100.1)
        assert trace.by_part["optimizer"].min() == pytest.approx(50.7)
        assert sum(part.num_bytes for part in trace.at_peak) == pytest.approx(trace.peak_bytes, rel=1e-9)


@pytest.mark.parametrize("plan", [*PLANS, *MORE])
def test_the_peak_of_a_plan_is_that_of_its_estimate(plan: Plan) -> None:
    """On every rank whose chunks are alike; where one holds the head or the embedding, the closed form takes the mean.

    With one chunk on each rank all peaks are exact.
    """
    simulated = simulate_plan(question(), plan, load_any_schedule(plan.effective_schedule))
    priced = simulated.priced
    for rank, trace in enumerate(timeline_of(simulated).memory):
        stage = priced.stages[rank]
        uneven = plan.vp > 1 or stage.has_head not in {0, 1} or stage.has_embedding not in {0, 1}
        ends = stage.has_head or stage.has_embedding
        assert trace.peak_bytes == pytest.approx(priced.memory_of(rank).total, rel=0.01 if uneven and ends else 1e-9)
        assert sum(part.num_bytes for part in trace.at_peak) == pytest.approx(trace.peak_bytes, rel=1e-9)


def test_the_optimizer_peaks_when_activations_are_gone() -> None:
    """Update buffers that exceed the activations are the peak, and there are no micro-batches in it."""
    plan = Plan(tp=2, pp=4)
    simulated = simulate_plan(question(), plan, load_any_schedule("1f1b"))
    placed = PlacedStep.of(simulated.step, simulated.times, simulated.priced.once_a_step)
    held = simulated.priced.memory_parts
    large = replace(held, update=held.update + 1e12)
    trace = memory_of(placed, events_of(placed), large)[0]
    assert trace.at_peak[-1].name == "buffers of the optimizer"
    assert trace.peak_bytes == pytest.approx(trace.baseline_bytes + large.update[0], rel=1e-12)
    assert not any(part.microbatches for part in trace.at_peak)
