"""The schedule of a plan, or of each plan of an array: which formula answers, and exact answers of each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.schedules.executor import equal, run

from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.schedules.base import Passes, Pipeline, RankPasses
from shardplan.schedules.pipeline import (
    idle_time,
    least_bubble,
    microbatches_in_flight,
    parameter_copies,
    pipeline_of,
    reads_place,
    splits_backward,
)
from shardplan.schedules.registry import SCHEDULES


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
        assert np.broadcast_to(microbatches_in_flight(1, mixed(*vp)), 2).tolist() == kept
    assert microbatches_in_flight(1, numbers(4, 32, schedule="gpipe")) == 32


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
