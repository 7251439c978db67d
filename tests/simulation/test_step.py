"""What every simulated step keeps: its rules, its limits, and what a hand can count."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.physics.schedules.executor import equal, run
from tests.simulation.cases import even, passes, pipeline, step

from shardplan.base.errors import InputError
from shardplan.inputs.schedule_names import BUILT_IN
from shardplan.physics.schedules.base import ChunkTimes, Orders, Pass, Passes, Pipeline, PipelineSchedule, Schedule
from shardplan.physics.schedules.one_f_one_b import OneForwardOneBackward
from shardplan.physics.schedules.registry import closed_form, list_all_schedules, load_any_schedule
from shardplan.simulation.step import UNDISTURBED, Disturbance, KnownSteps, simulate

every_schedule = pytest.mark.parametrize("name", list_all_schedules())
with_closed_form = pytest.mark.parametrize("name", [*BUILT_IN])
fixed_order = pytest.mark.parametrize("name", [*BUILT_IN, "eager-1f1b"])
seconds = st.floats(0.05, 3.0)


@st.composite
def own_passes(draw: st.DrawFn) -> Passes:
    return passes(draw(seconds), draw(seconds), draw(seconds))


def suited(schedule: Schedule, pp: int, vp: int, m: int) -> Pipeline:
    """A pipeline near this size that the schedule takes."""
    pp = max(pp, schedule.least_pp)
    chunks = max(vp, schedule.least_vp) if schedule.most_vp is None else schedule.most_vp
    near = (
        pipeline(ranks, max(count, int(schedule.least_microbatches(ranks))), chunks)
        for ranks in (pp, pp + 1)
        for count in (m, m + 1, m * ranks)
    )
    at = next((one for one in near if bool(schedule.can_run(one))), None)
    assume(at is not None)
    assert at is not None
    return at


@st.composite
def sizes(draw: st.DrawFn) -> tuple[int, int, int]:
    return draw(st.integers(1, 6)), draw(st.integers(1, 3)), draw(st.integers(1, 20))


def uneven(at: Pipeline, seed: int, transfer: float = 0.1) -> ChunkTimes:
    generator, n = np.random.default_rng(seed), int(at.pp * at.vp)
    forward, gradient, weight = generator.uniform(0.2, 2.0, (3, n))
    return ChunkTimes(forward=forward, input_gradient=gradient, weight_gradient=weight, transfer=np.full(n, transfer))


@with_closed_form
@given(sizes(), own_passes(), st.sampled_from([0.0, 0.05]))
def test_the_simulation_agrees_with_passes_run_one_by_one(
    name: str, size: tuple[int, int, int], own: Passes, transfer: float
) -> None:
    """A second, plain implementation: the executor of the schedules' own tests."""
    schedule = load_any_schedule(name)
    assert isinstance(schedule, PipelineSchedule)
    at = suited(schedule, *size)
    plain = run(schedule, at, equal(own, int(at.vp)), transfer=transfer)
    simulated = step(schedule, at, even(own, at, transfer))
    idle = [rank.span - rank.busy_time for rank in simulated.ranks]
    assert idle == pytest.approx(plain.idle, rel=1e-9, abs=1e-9)
    assert simulated.end.max() == pytest.approx(plain.step_time, rel=1e-12)
    kept = [rank.peak_kept / at.vp for rank in simulated.ranks]
    assert kept == pytest.approx(plain.in_flight)


@fixed_order
@given(sizes(), own_passes())
def test_equal_stages_and_free_transfers_take_the_closed_form(
    name: str, size: tuple[int, int, int], own: Passes
) -> None:
    schedule = load_any_schedule(name)
    formula = closed_form(schedule)
    assert formula is not None
    at = suited(schedule, *size)
    closed = at.num_microbatches * own.total + formula.idle_time(at, own, own / (1 / at.pp))
    assert step(schedule, at, even(own, at)).step_time == pytest.approx(float(closed), rel=1e-12)


@every_schedule
@given(sizes(), st.integers(0, 100), st.sampled_from([0.0, 0.1]))
def test_work_is_conserved_and_dependencies_are_kept(
    name: str, size: tuple[int, int, int], seed: int, jitter: float
) -> None:
    schedule = load_any_schedule(name)
    at = suited(schedule, *size)
    times = uneven(at, seed)
    simulated = step(schedule, at, times, jitter=jitter, seed=seed)
    pieces, start, end = simulated.pieces, simulated.start, simulated.end
    waits = pieces.after >= 0
    assert np.all(start[waits] >= end[pieces.after[waits]] - 1e-9)
    apart = (pieces.rank[1:] == pieces.rank[:-1]) & (pieces.block[1:] != pieces.block[:-1])
    assert np.all(start[1:][apart] >= end[:-1][apart] - 1e-9)
    assert simulated.step_time >= max(rank.busy_time for rank in simulated.ranks) - 1e-9
    assert 0 <= simulated.bubble_rate < 1
    if not jitter:
        work = times.forward.sum() + times.input_gradient.sum() + times.weight_gradient.sum()
        assert sum(rank.busy_time for rank in simulated.ranks) == pytest.approx(float(at.num_microbatches * work))


@fixed_order
@given(sizes(), st.integers(0, 100))
def test_no_piece_is_later_with_more_bandwidth(name: str, size: tuple[int, int, int], seed: int) -> None:
    """For one order of passes; a search may choose another order."""
    schedule = load_any_schedule(name)
    at = suited(schedule, *size)
    ends = [step(schedule, at, uneven(at, seed, transfer)).end for transfer in (0.0, 0.1, 0.5)]
    assert np.all(ends[0] <= ends[1] + 1e-9)
    assert np.all(ends[1] <= ends[2] + 1e-9)


@given(sizes(), st.integers(0, 100))
def test_a_seed_repeats_a_step(size: tuple[int, int, int], seed: int) -> None:
    at = suited(OneForwardOneBackward(), *size)
    times = uneven(at, seed)
    one, same, other = (step("1f1b", at, times, jitter=0.1, seed=which) for which in (seed, seed, seed + 1))
    assert np.array_equal(one.end, same.end)
    assert not np.array_equal(one.end, other.end)
    assert np.array_equal(step("1f1b", at, times, jitter=0.0, seed=seed).end, step("1f1b", at, times).end)


def test_steps_of_the_same_times_run_once() -> None:
    """A step of other times, of another schedule or of another disturbance is another one."""
    at, known = Pipeline(pp=3, vp=1, num_microbatches=6, group_size=3), KnownSteps()
    one, other = load_any_schedule("1f1b"), load_any_schedule("gpipe")
    first = known.simulate(one, at, uneven(at, 0))
    assert known.simulate(one, at, uneven(at, 0)) is first
    asked = [
        (one, at, uneven(at, 1), UNDISTURBED),
        (other, at, uneven(at, 0), UNDISTURBED),
        (one, at, uneven(at, 0), Disturbance(slowdown={1: 1.5})),
        (one, replace(at, num_microbatches=7), uneven(at, 0), UNDISTURBED),
    ]
    for schedule, counts, times, disturbance in asked:
        found = known.simulate(schedule, counts, times, disturbance)
        assert found is not first
        assert found.step_time == simulate(schedule, counts, times, disturbance).step_time


def test_jitter_has_the_mean_and_the_spread_that_it_says() -> None:
    at = pipeline(4, 2000)
    took = step("1f1b", at, even(passes(), at), jitter=0.05).took
    forward = took[took < 1.5]
    assert np.mean(forward) == pytest.approx(1.0, abs=0.002)
    assert np.std(forward) == pytest.approx(0.05, rel=0.03)


def test_a_slow_rank_sets_the_pace() -> None:
    """Two ranks, passes of 1 s, the second rank twice as slow: 8 micro-batches of 6 s, and 3 s to fill and drain."""
    at = pipeline(2, 8)
    assert step("1f1b", at, even(passes(), at), slowdown={1: 2.0}).step_time == 8 * 6 + 3


def test_a_hand_counted_step() -> None:
    """Two ranks, two micro-batches, forward 1 s, backward 2 s, transfers 0.5 s: 10 s on the first rank."""
    at = pipeline(2, 2)
    simulated = step("1f1b", at, even(passes(), at, 0.5))
    first, second = simulated.ranks
    # F0 0-1, F1 1-2; on rank 1 F0 1.5-2.5, B0 2.5-4.5, F1 4.5-5.5, B1 5.5-7.5; back on rank 0 B0 5-7, B1 8-10.
    assert simulated.step_time == 10
    assert (first.busy_time, first.idle_time, first.peak_in_flight) == (6, 4, 2)
    assert (second.busy_time, second.idle_time, second.span, second.peak_in_flight) == (6, 4, 6, 1)
    assert simulated.bubble_rate == pytest.approx(0.4)


class Given(OneForwardOneBackward):
    """1F1B in an order that a test gives."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders

    def order(self, at: Pipeline, times: ChunkTimes) -> Orders:  # noqa: ARG002
        return self.orders


F, B = Pass("F", 0, 0), Pass("BW", 0, 0)
SECOND = (Pass("F", 0, 1), Pass("BW", 0, 1))


@pytest.mark.parametrize(
    ("orders", "why"),
    [
        (((F, B, *SECOND), (F, B, Pass("F", 0, 1))), "micro-batch 1 in stage 1 is missing on rank 1"),
        (((F, B, *SECOND), (F, F, B, *SECOND)), "micro-batch 0 in stage 1 runs more than once"),
        (((F, B, *SECOND), (B, F, *SECOND)), "runs after its gradient on rank 1"),
        (((F, B, *SECOND), (*SECOND, F, B)), "rank 0 waits with the backward pass of micro-batch 0 in chunk 0"),
    ],
)
def test_what_is_wrong_with_an_order_is_said(orders: Orders, why: str) -> None:
    at = pipeline(2, 2)
    with pytest.raises(InputError, match=why) as refusal:
        step(Given(orders), at, even(passes(), at))
    assert refusal.value.hint


def test_a_deadlock_names_ranks_and_pieces() -> None:
    at = pipeline(2, 2)
    with pytest.raises(
        InputError, match="rank 1 waits with the forward pass of micro-batch 1 in chunk 0 for the"
    ) as one:
        step(Given(((F, B, *SECOND), (*SECOND, F, B))), at, even(passes(), at))
    assert "micro-batch 1 in chunk 0 on rank 0" in one.value.message


def test_a_limit_that_a_fixed_order_breaks_is_refused() -> None:
    at = pipeline(4, 8)
    assert step("1f1b", at, even(passes(), at, limit=4)).ranks[0].peak_in_flight == 4
    with pytest.raises(InputError, match="4 chunk passes in flight on rank 0; max_in_flight is 3"):
        step("1f1b", at, even(passes(), at, limit=3))


@pytest.mark.parametrize(
    ("name", "pp", "vp", "m"), [("interleaved", 4, 2, 9), ("dualpipe", 3, 1, 8), ("1f1b", 4, 2, 8)]
)
def test_a_pipeline_that_does_not_suit_is_refused(name: str, pp: int, vp: int, m: int) -> None:
    at = pipeline(pp, m, vp)
    with pytest.raises(InputError, match=f"schedule {name} cannot run {m} micro-batches on {pp} ranks") as refusal:
        step(name, at, even(passes(), at))
    assert refusal.value.hint


def test_one_step_can_be_cut_off() -> None:
    """Whoever asked is asked again while it runs, and what that raises ends it."""
    schedule, at = load_any_schedule("1f1b"), pipeline(8, 4000)
    calls = 0

    def between() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(schedule, at, even(passes(), at), between=between)
    whole, cut = (simulate(schedule, at, even(passes(), at), between=each) for each in (None, lambda: None))
    assert np.array_equal(whole.end, cut.end)
