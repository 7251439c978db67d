"""Memory over a simulated step against the closed forms of the estimate, and against what a hand can count."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulation.cases import even, passes, pipeline, step
from tests.simulation.test_plan import PLANS, question
from tests.simulation.test_step import sizes, suited, uneven

from shardplan.estimation.parts.chunks import MemoryParts
from shardplan.inputs.plan import Plan
from shardplan.schedules.base import ChunkTimes, Pipeline, PipelineSchedule, Schedule
from shardplan.schedules.names import BUILT_IN
from shardplan.schedules.registry import list_all_schedules, load_any_schedule
from shardplan.simulation.events import PlacedStep, events_of
from shardplan.simulation.memory import memory_of
from shardplan.simulation.plan import simulate_plan
from shardplan.simulation.show import timeline_of
from shardplan.simulation.timeline import MemoryTrace

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
