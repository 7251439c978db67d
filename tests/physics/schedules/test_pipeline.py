"""The schedule of a plan, or of each plan of an array, and 1F1B of unequal stages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.physics.schedules.executor import equal, run

from shardplan.base.arrays import Numbers
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.physics.schedules.base import Passes, Pipeline, Place, RankPasses
from shardplan.physics.schedules.pipeline import (
    ends_in_flight,
    idle_time,
    least_bubble,
    microbatches_in_flight,
    parameter_copies,
    pipeline_of,
    reads_place,
    splits_backward,
)
from shardplan.physics.schedules.registry import INTERLEAVED, ONE_F_ONE_B, SCHEDULES, load_schedule


def numbers(pp: int, num_microbatches: int, **fields: Any) -> PlanNumbers:
    job = Job(sequence_length=1024, global_batch_size=num_microbatches)
    return PlanNumbers.of(Plan(pp=pp, **fields), pp, job)


def mixed(*vp: int) -> PlanNumbers:
    """Plans of 4 ranks, 32 micro-batches and these chunks."""
    return replace(numbers(4, 32, vp=2), vp=np.array(vp))


OWN = Passes(forward=1.0, input_gradient=2.0, weight_gradient=3.0)
EVERYONE = Passes(forward=5.0, input_gradient=12.0, weight_gradient=9.0)
"""The other three ranks take 20 s."""


def test_a_bubble_is_that_of_each_plans_schedule() -> None:
    """20 s of the other ranks, over the chunks."""
    assert idle_time(OWN, EVERYONE, numbers(4, 32)) == 20
    assert idle_time(OWN, EVERYONE, numbers(4, 32, vp=2)) == 10
    for vp, idle in (((1, 1), [20, 20]), ((2, 4), [10, 5]), ((1, 2, 4), [20, 10, 5])):
        found = np.broadcast_to(idle_time(OWN, EVERYONE, mixed(*vp)), len(vp))
        assert found.tolist() == idle
    uneven = np.asarray(idle_time(OWN, EVERYONE, mixed(1, 2), 1.5))
    assert uneven.tolist() == [20, 10 + 0.5 * 6 * (32 - 2)]
    assert idle_time(OWN, EVERYONE, numbers(4, 32, schedule="zb-h1")) == 4 + 10 - 3 * 1


def test_kept_micro_batches_are_those_of_each_plans_schedule() -> None:
    for vp, kept in (((1, 1), [3, 3]), ((2, 4), [9 / 2, 17 / 4]), ((1, 2), [3, 9 / 2])):
        assert np.broadcast_to(microbatches_in_flight(1, mixed(*vp), 8), 2).tolist() == kept
    assert microbatches_in_flight(1, numbers(4, 32, schedule="gpipe"), 8) == 32


def test_overlap_of_experts_keeps_a_layer_more() -> None:
    """One more pass warms up, and from then on one micro-batch goes back layer by layer as the next comes."""

    def kept(pp: int, *, overlap_ep: bool, **fields: Any) -> float:
        plan = Plan(pp=pp, ep=4, overlap_ep=overlap_ep, **fields)
        of = PlanNumbers.of(plan, 4 * pp, Job(sequence_length=1024, global_batch_size=128))
        return float(np.asarray(microbatches_in_flight(min(1, pp - 1), of, 8)))

    assert kept(4, vp=2, overlap_ep=True) == kept(4, vp=2, overlap_ep=False) + 1 / 8
    assert kept(1, overlap_ep=True) == kept(1, overlap_ep=False) == 1


def test_the_last_chunk_of_an_interleaved_pipeline_keeps_one_micro_batch() -> None:
    """Counted in the events of Megatron's schedule: on the last rank each of its passes goes back at once."""
    for pp, vp in ((2, 4), (4, 2)):
        (*_, last) = INTERLEAVED.events(pp, vp, 4 * pp, pp)
        kept, most = 0, 0
        for each in last:
            kept += (each.chunk == vp - 1) * (1 if each.kind == "F" else -1)
            most = max(most, kept)
        assert most == ends_in_flight(3.0, numbers(pp, 4 * pp, vp=vp)) == 1
    assert ends_in_flight(3.0, numbers(4, 32)) == 3
    assert ends_in_flight(3.0, numbers(4, 32, vp=2, schedule="breadth-first")) == 3
    assert np.asarray(ends_in_flight(3.0, mixed(1, 2))).tolist() == [3, 1]


def test_the_least_bubble_holds_for_any_chunks_up_to_those_of_the_plan() -> None:
    """Half of 3 passes of 1F1B, 3 / v of interleaving, all 3 of GPipe; with one micro-batch all of 1F1B too."""
    assert [float(least_bubble(numbers(4, 32, **more))) for more in ({}, {"vp": 2}, {"vp": 3})] == [1.5, 1.5, 1.0]
    assert np.asarray(least_bubble(mixed(1, 2, 3))).tolist() == [1.5, 1.5, 1.0]
    assert least_bubble(numbers(4, 32, schedule="gpipe")) == 3
    assert least_bubble(numbers(4, 32, schedule="zb-h1")) == 0
    assert [float(least_bubble(numbers(4, m))) for m in (1, 2, 4, 5)] == [3, 2.5, 1.5, 1.5]


def test_what_a_plan_is_asked() -> None:
    plain, chunks, dual = numbers(4, 8), numbers(4, 8, vp=2), numbers(4, 8, schedule="dualpipe")
    assert [splits_backward(plan) for plan in (plain, chunks, dual, numbers(4, 8, schedule="gpipe"))] == [
        False, False, True, False,
    ]  # fmt: skip
    assert [parameter_copies(plan) for plan in (plain, chunks, dual)] == [1, 1, 2]
    assert [reads_place(plan) for plan in (plain, chunks, dual, mixed(1, 2), mixed(2, 4))] == [
        True, False, True, True, False,
    ]  # fmt: skip
    assert not reads_place(numbers(4, 8, schedule="zb-h1"))
    grouped = pipeline_of(numbers(4, 16, vp=2, microbatch_group_size=8))
    assert grouped == Pipeline(pp=4, vp=2, num_microbatches=16, group_size=8)


@pytest.mark.parametrize(("pp", "vp", "m", "pace", "lost"), [
    (4, 2, 32, 1.5, 90.0), (4, 1, 32, 1.5, 0.0), (4, 2, 32, 1.0, 0.0), (4, 2, 32, 0.5, 0.0), (8, 2, 2, 1.5, 0.0),
    (8, 2, 5, 1.25, 1.5),
])  # fmt: skip
def test_uneven_chunks_cost_their_pace_after_half_a_group(pp: int, vp: int, m: int, pace: float, lost: float) -> None:
    """(M - p / 2) t (c - 1), of ranks that take 6 s; numbers and arrays alike."""
    one = Pipeline(pp=pp, vp=vp, num_microbatches=m, group_size=pp)
    many = Pipeline(pp=np.array([pp]), vp=np.array([vp]), num_microbatches=np.array([m]), group_size=np.array([pp]))
    schedule = SCHEDULES["interleaved"]
    assert schedule.idle_time(one, OWN, EVERYONE, pace) == 20 / vp + lost
    assert np.asarray(schedule.idle_time(many, OWN, EVERYONE, np.array([pace]))).tolist() == [20 / vp + lost]


@pytest.mark.parametrize(("m", "vp", "pace", "idle"), [
    (8, 2, 1.0, 10.0), (2, 2, 1.0, 10 + 14 / 2), (2, 4, 1.0, 5 + 3 * 14 / 4), (8, 2, 1.5, 10 + 24), (8, 2, 0.5, 10.0),
])  # fmt: skip
def test_breadth_first_waits_at_every_turn_with_few_micro_batches(m: int, vp: int, pace: float, idle: float) -> None:
    """One micro-batch through all takes 26 s, of which M of 6 s each hide the turns; uneven chunks slow every one."""
    at = Pipeline(pp=4, vp=vp, num_microbatches=m, group_size=4)
    assert SCHEDULES["breadth-first"].idle_time(at, OWN, EVERYONE, pace) == idle


@pytest.mark.parametrize(("name", "m", "idle"), [
    # 4 s forward and 10 s back through the others, less 3 or 2 times 1 s.
    ("zb-h1", 8, 11), ("zb-h1", 3, 12), ("zb-h1", 1, 14), ("zb-h2", 8, 8), ("gpipe", 8, 20),
])  # fmt: skip
def test_bubbles_of_unequal_stages(name: str, m: int, idle: float) -> None:
    at = Pipeline(pp=4, vp=1, num_microbatches=m, group_size=4)
    assert SCHEDULES[name].idle_time(at, OWN, EVERYONE) == idle


@pytest.mark.parametrize(("own", "others", "idle"), [
    # Long forward passes: 2 x 3 F of 4 s, less 3 B and 3 W of its own 1 s.
    ((1, 1, 1), (12, 3, 3), (6 * 4 - 3 - 3) / 2),
    # Long input gradients: 2 x 3 B of 4 s, less 2 x 3 W of its own 1 s.
    ((1, 1, 1), (3, 12, 3), (6 * 4 - 6) / 2),
    # A slow rank among quick ones never waits.
    ((9, 9, 9), (3, 3, 3), 0.0),
])  # fmt: skip
def test_zb_v_waits_for_the_mean_other_rank(
    own: tuple[float, float, float], others: tuple[float, float, float], idle: float
) -> None:
    """Four ranks: others lengthen the longest way, the rank's own passes fill it."""
    mine, both = of(own), of((own[0] + others[0], own[1] + others[1], own[2] + others[2]))
    at = Pipeline(pp=4, vp=2, num_microbatches=16, group_size=4)
    assert SCHEDULES["zb-v"].idle_time(at, mine, both) == idle
    alone = Pipeline(pp=1, vp=2, num_microbatches=16, group_size=1)
    assert SCHEDULES["zb-v"].idle_time(alone, mine, both) == 0


@pytest.mark.parametrize(
    ("pp", "parts"),
    [
        (5, (11, 3, 1)), (5, (12, 11, 10)), (5, (12, 1, 7)), (5, (8, 1, 12)), (5, (4, 12, 1)), (5, (1, 9, 12)),
        (5, (1, 12, 8)), (5, (5, 1, 11)), (2, (11, 6, 1)), (2, (10, 8, 4)), (2, (12, 1, 8)), (2, (1, 12, 1)),
        (4, (12, 4, 1)), (4, (5, 1, 11)), (8, (12, 11, 9)), (8, (1, 10, 12)), (8, (1, 12, 8)),
    ],
)  # fmt: skip
def test_each_way_of_zb_v_is_once_the_longest(pp: int, parts: tuple[float, float, float]) -> None:
    """The passes one by one take exactly as long, whichever of the eight ways is the longest."""
    at, own = Pipeline(pp=pp, vp=2, num_microbatches=3 * pp, group_size=pp), of(parts)
    step = run(SCHEDULES["zb-v"], at, equal(own, 2))
    assert SCHEDULES["zb-v"].idle_time(at, own, own / (1 / pp)) == pytest.approx(max(step.idle), rel=1e-12)


def of(parts: tuple[float, float, float]) -> Passes:
    forward, input_gradient, weight_gradient = parts
    return Passes(forward=forward, input_gradient=input_gradient, weight_gradient=weight_gradient)


def test_time_that_joins_a_pass_is_shared_where_gradients_are_apart() -> None:
    """Half with the forward pass and half with the input gradient; all with the forward pass where they are one."""
    assert OWN.lengthened(4.0).parts == (3, 4, 3)
    assert of((1, 0, 3)).lengthened(4.0).parts == (5, 0, 3)
    assert np.asarray(OWN.lengthened(np.array([2.0, 4.0])).input_gradient).tolist() == [3, 4]
    assert (OWN.backward, OWN.total, (OWN / 2).parts, (EVERYONE - OWN).parts) == (5, 6, (0.5, 1, 1.5), (4, 10, 6))
    placed = RankPasses.of(OWN, 2, EVERYONE)
    assert (placed.parts, placed.num_behind, placed.behind) == (OWN.parts, 2, EVERYONE)


Seconds = NDArray[np.float64]


def through(total: Numbers) -> Passes:
    """Forward and backward passes of several ranks together."""
    return Passes(forward=total, input_gradient=0.0, weight_gradient=0.0)


def of_ranks(forward: Seconds, backward: Seconds, m: int) -> Seconds:
    """Work and idle time of every rank by the closed form."""
    total = forward + backward
    own = RankPasses(
        forward=forward,
        input_gradient=backward,
        weight_gradient=0.0,
        num_behind=np.arange(len(forward))[::-1],
        behind=through(total.sum() - total.cumsum()),
    )
    everyone = Passes(forward=forward.sum(), input_gradient=backward.sum(), weight_gradient=0.0)
    at = Pipeline(pp=len(forward), vp=1, num_microbatches=m, group_size=len(forward))
    return np.asarray(m * total + ONE_F_ONE_B.idle_time(at, own, everyone))


def passes(forward: Seconds, backward: Seconds, m: int) -> float:
    """The step, pass by pass."""
    at = Pipeline(pp=len(forward), vp=1, num_microbatches=m, group_size=len(forward))

    def time(kind: str, place: Place) -> float:
        return float({"F": forward, "B": backward}.get(kind, 0.0 * forward)[place.rank])

    return float(run(ONE_F_ONE_B, at, time).step_time)


@pytest.mark.parametrize(("slow", "step"), [(0, 51.0), (1, 53.0), (2, 55.0), (3, 57.0)])
def test_a_slow_stage_works_while_the_first_micro_batch_is_behind_it(slow: int, step: float) -> None:
    """Four stages of 1 s and 2 s, one of them twice as long, eight micro-batches: 48 s of work on the slow rank.

    Each of the ranks in front of it adds 3 s. Behind it are n = 3 - s ranks, where a micro-batch spends 3 n seconds.
    Meanwhile the rank runs n forward passes of 2 s, or n backward passes of 4 s: n s remain at the start, 0 at the end.
    """
    forward = np.where(np.arange(4) == slow, 2.0, 1.0)
    assert of_ranks(forward, 2 * forward, 8).max() == step == 48 + 3 * slow + (3 - slow)
    assert passes(forward, 2 * forward, 8) == step


def test_with_few_micro_batches_a_rank_waits_once() -> None:
    """Two micro-batches on three ranks, the first twice as long: 2 + 2 F, then 6 s behind it less one F, or 2 B of 4 s.

    The first one is back after 2 + 6 = 8 s, when the rank has long run its second forward pass; then come two backward
    passes of 4 s. The second micro-batch would be back after 4 + 6 = 10 s.
    """
    forward = np.array([2.0, 1.0, 1.0])
    assert of_ranks(forward, 2 * forward, 2)[0] == 2 + 6 + 2 * 4
    assert passes(forward, 2 * forward, 2) == 16


@st.composite
def stages(draw: st.DrawFn, least: float, most: float) -> tuple[Seconds, Seconds, int]:
    """Passes of every rank, forward and backward apart, and micro-batches."""
    pp, times = draw(st.integers(1, 8)), st.floats(least, most)
    forward, backward = (np.array(draw(st.lists(times, min_size=pp, max_size=pp))) for _ in range(2))
    return forward, draw(st.sampled_from([1.0, 2.0, 3.0])) * backward, draw(st.integers(1, 24))


@given(stages(0.05, 3.0))
def test_no_step_is_shorter_than_the_closed_form(case: tuple[Seconds, Seconds, int]) -> None:
    """Of whatever stages: the closed form is a path through the step."""
    assert of_ranks(*case).max() <= passes(*case) * (1 + 1e-12)


@given(stages(0.97, 1.03))
def test_stages_that_differ_by_some_per_cent_take_the_closed_form(case: tuple[Seconds, Seconds, int]) -> None:
    assert of_ranks(*case).max() == pytest.approx(passes(*case), rel=1e-3)


@given(stages(0.97, 1.03))
def test_a_rank_of_unknown_place_waits_at_least_as_long(case: tuple[Seconds, Seconds, int]) -> None:
    forward, backward, m = case
    own = Passes(forward=forward, input_gradient=backward, weight_gradient=0.0)
    everyone = Passes(forward=forward.sum(), input_gradient=backward.sum(), weight_gradient=0.0)
    at = Pipeline(pp=len(forward), vp=1, num_microbatches=m, group_size=len(forward))
    upper = m * own.total + ONE_F_ONE_B.idle_time(at, own, everyone)
    assert np.max(upper) >= of_ranks(forward, backward, m).max() * (1 - 1e-12)


@given(st.integers(1, 4), st.integers(2, 8), st.integers(1, 24), st.floats(0.1, 3.0), st.floats(0.1, 6.0))
def test_of_equal_ranks_the_last_takes_longest(front: int, equal: int, m: int, forward: float, last: float) -> None:
    """So that one rank of each run of equal stages is enough."""
    lengths = np.array([1.0] * front + [forward] * equal + [last])
    of_run = of_ranks(lengths, 2 * lengths, m)[front : front + equal]
    assert of_run[-1] == pytest.approx(of_run.max(), rel=1e-12)


@pytest.mark.parametrize("m", [1, 3, 4, 12])
def test_numbers_and_arrays_agree(m: int) -> None:
    """Arrays over plans whose ranks have more and fewer behind them than there are micro-batches."""
    behind, forward = np.array([0.0, 1.0, 3.0, 7.0]), np.array([1.0, 1.5, 0.5, 2.0])
    own = RankPasses(
        forward=forward, input_gradient=2.0, weight_gradient=0.0, num_behind=behind, behind=through(3.0 * behind)
    )
    everyone = Passes(forward=40.0, input_gradient=0.0, weight_gradient=0.0)
    at = Pipeline(pp=9, vp=1, num_microbatches=m, group_size=9)
    together = ONE_F_ONE_B.idle_time(at, own, everyone)
    for place in range(4):
        one = RankPasses(
            forward=float(forward[place]),
            input_gradient=2.0,
            weight_gradient=0.0,
            num_behind=float(behind[place]),
            behind=through(3.0 * float(behind[place])),
        )
        assert ONE_F_ONE_B.idle_time(at, one, everyone) == np.asarray(together)[place]


@given(
    st.lists(st.tuples(st.floats(0.0, 3.0), st.floats(0.0, 6.0)), min_size=2, max_size=8).filter(
        lambda stages: sum(map(sum, stages)) > 0
    ),
    st.integers(1, 20),
    st.sampled_from((2, 3, 8)),
)
def test_the_slowest_rank_waits_for_the_least_bubble(stages: list[tuple[float, float]], m: int, vp: int) -> None:
    """Whatever the stages and their place: 1F1B, where chunks are interleaved, and GPipe."""
    forward, backward = np.asarray(stages).T
    total, slowest = forward + backward, int((forward + backward).argmax())
    at = Pipeline(pp=len(total), vp=1, num_microbatches=m, group_size=len(total))
    least = (m + ONE_F_ONE_B.least_bubble(at)) * total.mean()
    assert of_ranks(forward, backward, m)[slowest] >= least * (1 - 1e-12)
    assert passes(forward, backward, m) >= least * (1 - 1e-12)
    own = Passes(forward=total[slowest], input_gradient=0.0, weight_gradient=0.0)
    everyone = Passes(forward=total.sum(), input_gradient=0.0, weight_gradient=0.0)
    for schedule, chunks in ((INTERLEAVED, vp), (load_schedule("gpipe"), 1)):
        at = Pipeline(pp=len(total), vp=chunks, num_microbatches=m, group_size=len(total))
        takes = m * own.total + schedule.idle_time(at, own, everyone)
        assert takes >= (m + schedule.least_bubble(at)) * total.mean() * (1 - 1e-12)


def test_a_rank_that_is_busy_meanwhile_has_no_gaps() -> None:
    """Eight micro-batches of 15 s: two forward passes of 5 s last longer than the 6 s behind the first rank."""
    forward = np.array([5.0, 1.0, 1.0])
    assert of_ranks(forward, 2 * forward, 8)[0] == 8 * 15
    assert passes(forward, 2 * forward, 8) == 8 * 15
