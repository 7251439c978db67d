"""Time of a pipeline from hand-made times of its stages, counted by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.estimation.test_times import MODEL
from tests.examples import cluster, ideal_profile

from shardplan.estimation.load import Around, BlockLoad, StageWork
from shardplan.estimation.parts.pipelines import (
    NO_SHARDED_TIMES,
    ShardedTimes,
    StageSum,
    bubble_of_equal,
    chunk_time,
    head_start,
    least_passes,
    longest_time,
    paced,
    passes_of,
    pipeline_sum,
    sharded_in_all,
)
from shardplan.estimation.question import Question
from shardplan.estimation.times import Windows, WorkTimes
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.physics.schedules.base import Passes
from shardplan.physics.workload.stage import Parts, Stage

LOAD = BlockLoad(
    forward=40.0, backward=80.0, weight_gradient=30.0, recomputed=24.0, free_forward=20.0, free_backward=36.0,
    free_recomputed=12.0, kept_bytes=0.0, freed_bytes=0.0, core_gradient_bytes=0.0,
)  # fmt: skip
WORK = StageWork(sum=LOAD, kept_of_layer=0.0, freed_of_part=0.0)
AROUND = Around(handover_time=0.5, output_bytes=0.0, logits=0.0)
WHOLE = Stage(rank=0, num_layers=16, counts=(16,), has_embedding=1, has_head=1, num_mtp_layers=0)
TIMES = WorkTimes(
    forward=10.0, backward=24.0, plain=30.0, weight_gradient=8.0, transfer=1.0, offload=0.5, overhead=0.5,
    free_forward=5.0, free_backward=9.0, windows=Windows(vp=1, group_size=1, sharding=0.0, once=0.0),
)  # fmt: skip
"""36 seconds, of which 2 lie between passes."""


def whole_backward(time: Any) -> Passes:
    return Passes(forward=time, input_gradient=0.0, weight_gradient=0.0)


def question(**constants: Any) -> Question:
    job = Job(sequence_length=128, global_batch_size=8)
    profile = ideal_profile(**{"microbatch_time": 0.25} | constants)
    return Question(model=MODEL, cluster=cluster(), num_accelerators=8, job=job, given_profile=profile)


def numbers(**plan: Any) -> PlanNumbers:
    """Eight micro-batches."""
    asked = Plan(**plan)
    return PlanNumbers.of(asked, asked.model_parallel_degree, Job(sequence_length=128, global_batch_size=8))


FULL = {"recompute": "full", "recompute_num_layers": 1}


@pytest.mark.parametrize(
    ("plan", "stages", "constants", "passes", "free"),
    [
        # 120 of work, all layers again, on four stages two transfers of 0.5 and a fixed time of 0.25
        ({"pp": 4}, None, {}, (120 + 24 + 4 * 1.25, 0, 0), 68),
        ({"pp": 4} | FULL, None, {}, (120 + 24 / 4 + 4 * 1.25, 0, 0), 56 + 12 / 4),
        ({"pp": 4} | FULL, 2, {}, (120 + 24 / 8 + 2 * 1.25, 0, 0), 56 + 12 / 8),
        ({"pp": 4} | FULL, 0, {}, (120 + 24 / 16, 0, 0), 56 + 12 / 16),
        ({"pp": 4, "vp": 2}, None, {}, (120 + 24 + 4 * 2.5, 0, 0), 68),
        ({"pp": 4, "schedule": "zb-h1"}, None, {}, (40 + 2.5, 149 - 42.5 - 30, 30), 68),
        # work hides all but a quarter of the transfers, which are 1 second on each stage
        ({"pp": 4, "overlap_pp": True}, None, {"pp_window": 0.5, "hidden_slowdown": 0.25}, (144 + 2, 0, 0), 65),
    ],
)
def test_one_micro_batch_through_all_stages(
    plan: dict[str, Any], stages: int | None, constants: dict[str, float], passes: tuple[float, ...], free: float
) -> None:
    found = pipeline_sum(question(**constants), numbers(**plan), AROUND, WHOLE, WORK, num_stages=stages)
    assert found.passes.parts == pytest.approx(passes)
    assert found.free == pytest.approx(free)


def test_every_stage_sends_its_share_to_the_host() -> None:
    """Four seconds of a link one way, each stage a quarter of it, there and back; with transfers and fixed times."""
    away = replace(WORK, sum=replace(LOAD, kept_bytes=4 * 64e9))
    found = pipeline_sum(question(), numbers(pp=4, offload="activations"), AROUND, WHOLE, away)
    assert found.passes.forward == pytest.approx(144 + 4 * (1 + 2 + 0.25))


def test_a_chunk_takes_what_its_parts_take() -> None:
    nothing = replace(LOAD, forward=0.0, backward=0.0)
    parts = Parts(layers=(LOAD,), embedding=nothing, head=replace(LOAD, backward=60.0), mtp=nothing)
    assert chunk_time(replace(WHOLE, counts=(2,)), parts) == 2 * 120 + 100


def test_of_each_group_of_longest_ways_the_slowest_counts() -> None:
    """All groups lie one behind the other."""
    assert longest_time([]) == 0
    assert longest_time([[36.0, 30.0]]) == 36
    assert longest_time([[20.0, 15.0], [25.0]]) == 45


def test_work_hides_exchanges_of_sharded_states_in_all_stages() -> None:
    every = StageSum(passes=whole_backward(149.0), free=68.0)
    asked, of_plan = question(fsdp_window=0.5, hidden_slowdown=0.25), numbers(pp=4)
    assert sharded_in_all(asked, of_plan, every, 40.0) == 10
    assert sharded_in_all(asked, of_plan, every, 60.0) == 26
    assert sharded_in_all(asked, of_plan, every, 0.0) == 0
    assert sharded_in_all(asked, numbers(pp=4, overlap_dp=False), every, 40.0) == 40


def test_forward_pass_and_input_gradient_share_what_comes_between() -> None:
    assert passes_of(numbers(pp=4), TIMES).parts == (36, 0, 0)
    assert passes_of(numbers(pp=4), TIMES, 3.0).parts == (39, 0, 0)
    assert passes_of(numbers(pp=4, schedule="zb-h1"), TIMES, 3.0).parts == (12.5, 24 - 8 + 2.5, 8)


def stage(rank: Any, num_behind: Any) -> Stage:
    return replace(WHOLE, rank=rank, num_behind=num_behind)


def step_of(of_plan: PlanNumbers, at: Stage, exchanges: ShardedTimes = NO_SHARDED_TIMES, pace: float = 1.0) -> Any:
    """All micro-batches through a stage where all stages together take 200 and those behind it 100."""
    behind = lambda _: whole_backward(100.0)  # noqa: E731
    return paced(of_plan, TIMES, whole_backward(200.0), pace, stage=at, behind=behind, exchanges=exchanges)


EXCHANGES = ShardedTimes(own=2.0, everyone=8.0)


@pytest.mark.parametrize(
    ("at", "exchanges", "expected"),
    [
        # the others' 164, those behind less the forward or backward passes that fill the gaps: 11 and 25 each
        (stage(3, 0), NO_SHARDED_TIMES, 8 * 36 + 164),
        (stage(1, 2), NO_SHARDED_TIMES, 8 * 36 + 64 + (100 - 2 * 11) + (100 - 2 * 25)),
        (stage(0, 3), NO_SHARDED_TIMES, 8 * 36 + (164 - 3 * 11) + (164 - 3 * 25)),
        # exchanges: all stages 208, own passes 12 and 26, and two thirds of the others' 6 behind the second
        (stage(3, 0), EXCHANGES, 8 * 38 + 170),
        (stage(1, 2), EXCHANGES, 8 * 38 + (170 - 104) + (104 - 2 * 12) + (104 - 2 * 26)),
        (stage(0, 3), EXCHANGES, 8 * 38 + (170 - 3 * 12) + (170 - 3 * 26)),
        (stage(1, 2), ShardedTimes(own=2.0, everyone=1.0), 8 * 38 + 64 + (100 - 2 * 12) + (100 - 2 * 26)),
    ],
)
def test_a_stage_waits_for_those_in_front_and_behind(at: Stage, exchanges: ShardedTimes, expected: float) -> None:
    """1F1B: as the schedule says (``schedules.one_f_one_b``)."""
    assert step_of(numbers(pp=4), at, exchanges) == pytest.approx(expected)


def test_stages_at_once_wait_as_each_alone() -> None:
    places = [(0, 3), (1, 2), (2, 1), (3, 0)]
    ranks, behind = np.transpose(places)
    for exchanges in NO_SHARDED_TIMES, EXCHANGES:
        alone = [float(step_of(numbers(pp=4), stage(*place), exchanges)) for place in places[:3]]
        at = replace(numbers(pp=4), pp=np.array([4, 4, 4, 1]))
        together = step_of(at, stage(np.array([*ranks[:3], 0]), behind), exchanges)
        assert np.asarray(together).tolist()[:3] == pytest.approx(alone)


def test_one_stage_waits_for_none_and_chunks_shorten_the_wait() -> None:
    assert step_of(numbers(), stage(0, 0)) == 8 * 36
    assert step_of(numbers(), stage(0, 0), EXCHANGES) == 8 * 38
    looped = numbers(pp=4, vp=2)
    assert step_of(looped, stage(1, 0)) == 8 * 36 + 164 / 2
    assert step_of(looped, stage(1, 2)) == 8 * 36 + 164 / 2  # whatever its place
    lost = (8 - 4 / 2) * 36 * 1.0  # by uneven chunks; exchanges are shared evenly and lose nothing
    assert step_of(looped, stage(1, 0), pace=2.0) == 8 * 36 + 164 / 2 + lost
    assert step_of(looped, stage(1, 0), EXCHANGES, 2.0) == pytest.approx(8 * 38 + 170 / 2 + lost)


def test_schedules_that_split_gradients_wait_for_what_weights_leave() -> None:
    """ZB-H1: F + B - W of the others; exchanges lengthen forward passes and input gradients by half each."""
    every = Passes(forward=44.0, input_gradient=68.0, weight_gradient=32.0)
    of_plan, at = numbers(pp=4, schedule="zb-h1"), stage(1, 0)
    found = [
        paced(of_plan, TIMES, every, 1.0, stage=at, behind=lambda _: every, exchanges=each)
        for each in (NO_SHARDED_TIMES, EXCHANGES)
    ]
    assert found == [8 * 36 + (33 + 51 - 24), 8 * 38 + (36 + 54 - 24)]


@pytest.mark.parametrize(
    ("rank", "plan", "everyone", "expected"),
    [
        (0, {"pp": 4}, (144, 0, 0), 0),
        (2, {}, (36, 0, 0), 0),
        (1, {"pp": 2}, (72, 0, 0), 36),
        (2, {"pp": 4}, (144, 0, 0), 108 * 2 / 3),
        (2, {"pp": 4, "vp": 2}, (144, 0, 0), 108 * 2 / 6),
        (2, {"pp": 4}, (30, 0, 0), 0),
        (2, {"pp": 4, "schedule": "zb-h1"}, (44, 68, 32), (33 + 51 - 24) * 2 / 3),
        (2, {"pp": 4, "schedule": "zb-h1"}, (44, 37, 32), 33 * 2 / 3),
    ],
)
def test_a_rank_starts_and_ends_within_the_first_ones_passes(
    rank: int, plan: dict[str, Any], everyone: tuple[float, ...], expected: float
) -> None:
    """A share of the way through the others: F + B - W of them where gradients are apart, of its own 11, 17 and 8."""
    forward, input_gradient, weight_gradient = everyone
    together = Passes(forward=forward, input_gradient=input_gradient, weight_gradient=weight_gradient)
    assert head_start(numbers(**plan), TIMES, together, stage(rank, 0)) == pytest.approx(expected)


def test_ranks_of_several_plans_start_as_each_alone() -> None:
    together = replace(numbers(pp=4), pp=np.array([1, 4]))
    found = head_start(together, TIMES, whole_backward(np.array([36.0, 144.0])), stage(np.array([0, 2]), 0))
    assert np.asarray(found).tolist() == [0, 72]


def test_the_least_that_passes_take() -> None:
    """Eight micro-batches and half of the bubble of 3 on a quarter of 120 and of the layers that run again."""
    assert least_passes(numbers(pp=4), WHOLE, 120.0, 24.0) == (8 + 1.5) / 4 * 144
    assert least_passes(numbers(pp=4, **FULL), WHOLE, 120.0, 24.0) == (8 + 1.5) / 4 * (120 + 24 / 16)


@pytest.mark.parametrize(
    ("plan", "bubble"),
    [
        ({}, 0), ({"pp": 2}, 1), ({"pp": 4}, 3), ({"pp": 4, "vp": 2}, 1.5), ({"pp": 4, "schedule": "zb-h1"}, 3),
        ({"pp": 4, "vp": 2, "schedule": "zb-v"}, 1.5), ({"pp": 4, "schedule": "dualpipe"}, 1.5),
    ],
)  # fmt: skip
def test_bubbles_of_equal_stages(plan: dict[str, Any], bubble: float) -> None:
    """In micro-batches whose gradients of weights take nothing, as in the schedules' papers."""
    assert bubble_of_equal(numbers(**plan)) == pytest.approx(bubble)


def test_bubbles_of_equal_stages_of_several_plans() -> None:
    assert np.asarray(bubble_of_equal(replace(numbers(pp=4), pp=np.array([1, 2, 4])))).tolist() == [0, 1, 3]
