from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardplan.inputs.batch import Batch
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.schedules.base import PipelineRank, PipelineSchedule
from shardplan.schedules.pipeline import SCHEDULES, idle_time, microbatches_in_flight

stages = st.integers(1, 64)
chunks = st.integers(1, 8)
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=list(SCHEDULES))


def at(rank: int, pp: int, vp: int, num_microbatches: int, group_size: int | None = None) -> PipelineRank:
    return PipelineRank(rank=rank, pp=pp, vp=vp, num_microbatches=num_microbatches, group_size=group_size or pp)


def batch(pp: int, num_microbatches: int, **fields: Any) -> Batch:
    job = Job(sequence_length=1024, global_batch_size=num_microbatches)
    return Batch.of(Plan(pp=pp, **fields), pp, job)


@every_schedule
@given(stages, st.floats(1e-6, 1e3))
def test_equal_stages_idle_for_one_micro_batch_each(schedule: PipelineSchedule, pp: int, time: float) -> None:
    """(p - 1) t of GPipe (arXiv 1811.06965) and PipeDream-Flush (arXiv 2006.09503), over m t of work."""
    assert schedule.idle_time(time, pp * time, 1) == pytest.approx((pp - 1) * time, rel=1e-12)


@given(st.integers(2, 64), chunks)
def test_interleaving_divides_the_bubble(pp: int, vp: int) -> None:
    """(p - 1) / (v m) (Narayanan et al., arXiv 2104.04473, section 2.2)."""
    assert SCHEDULES["interleaved"].idle_time(1.0, float(pp), vp) == pytest.approx((pp - 1) / vp)


@pytest.mark.parametrize(("pp", "m", "vp", "fraction"), [(8, 64, 1, 7 / 64), (8, 64, 4, 7 / 256), (16, 16, 1, 15 / 16)])
def test_bubble_fraction_of_a_plan(pp: int, m: int, vp: int, fraction: float) -> None:
    plan = batch(pp, m, vp=vp)
    assert idle_time(1.0, float(pp), plan) / m == pytest.approx(fraction)


@every_schedule
def test_a_single_stage_never_idles(schedule: PipelineSchedule) -> None:
    assert schedule.idle_time(3.0, 3.0, 1) == 0


@every_schedule
@given(st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=16))
def test_a_rank_waits_for_all_others(schedule: PipelineSchedule, times: list[float]) -> None:
    """A simulated forward and backward wave: filling and draining pass through every other stage once."""
    for own in times:
        assert schedule.idle_time(own, sum(times), 1) == pytest.approx(sum(times) - own, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("pp", [1, 2, 3, 8])
@pytest.mark.parametrize("m", [1, 2, 7, 32])
def test_one_f_one_b_against_a_simulation(pp: int, m: int) -> None:
    """Runs the schedule step by step: every stage takes 1 forward and 2 backward, transfers are free."""
    assert simulate(pp, m) == pytest.approx(m * 3 + SCHEDULES["1f1b"].idle_time(3.0, 3.0 * pp, 1))


def simulate(pp: int, m: int) -> float:
    """Makespan of 1F1B with equal stages: forward takes 1, backward 2."""
    order = []
    for rank in range(pp):
        warmup = min(m, pp - rank - 1)
        steady = [step for i in range(m - warmup) for step in (("F", warmup + i), ("B", i))]
        order.append([("F", i) for i in range(warmup)] + steady + [("B", i) for i in range(m - warmup, m)])
    done: dict[tuple[str, int, int], float] = {}
    clock, position = [0.0] * pp, [0] * pp
    while any(position[rank] < len(order[rank]) for rank in range(pp)):
        for rank in range(pp):
            if position[rank] == len(order[rank]):
                continue
            kind, index = order[rank][position[rank]]
            at_the_end = rank == (0 if kind == "F" else pp - 1)
            before = (
                ("F", index, rank) if kind == "B" and at_the_end else (kind, index, rank + (-1 if kind == "F" else 1))
            )
            if before in done or (kind == "F" and at_the_end):
                clock[rank] = max(clock[rank], done.get(before, 0.0)) + (1 if kind == "F" else 2)
                done[kind, index, rank] = clock[rank]
                position[rank] += 1
    return max(clock)


@pytest.mark.parametrize("pp", [1, 2, 4, 8])
@pytest.mark.parametrize("m", [1, 3, 8, 100])
def test_in_flight_of_one_f_one_b(pp: int, m: int) -> None:
    """The first stage keeps p micro-batches, the last one (arXiv 2104.04473, section 2.2.1)."""
    kept = [SCHEDULES["1f1b"].microbatches_in_flight(at(rank, pp, 1, m)) for rank in range(pp)]
    assert kept == [min(m, pp - rank) for rank in range(pp)]


@pytest.mark.parametrize(("pp", "vp"), [(2, 2), (4, 5), (8, 3), (16, 7)])
def test_in_flight_of_interleaving_on_the_first_stage(pp: int, vp: int) -> None:
    """p (1 + (p - 1) / (p v)) (arXiv 2205.05198, section 4.2.3)."""
    kept = SCHEDULES["interleaved"].microbatches_in_flight(at(0, pp, vp, 1000))
    assert kept == pytest.approx(pp * (1 + (pp - 1) / (pp * vp)))


@pytest.mark.parametrize("m", [1, 4, 100])
def test_gpipe_keeps_every_micro_batch(m: int) -> None:
    assert {SCHEDULES["gpipe"].microbatches_in_flight(at(rank, 4, 1, m)) for rank in range(4)} == {m}


@every_schedule
@given(st.integers(2, 64), chunks, st.integers(1, 500))
def test_kept_micro_batches_fall_along_the_pipeline(schedule: PipelineSchedule, pp: int, vp: int, m: int) -> None:
    kept = [float(schedule.microbatches_in_flight(at(rank, pp, vp, m))) for rank in range(pp)]
    assert all(0 < one <= m for one in kept)
    assert kept == sorted(kept, reverse=True)


@every_schedule
@given(st.integers(2, 64), chunks, st.integers(1, 500))
def test_schedules_accept_arrays(schedule: PipelineSchedule, pp: int, vp: int, m: int) -> None:
    many = PipelineRank(
        rank=np.arange(3) % pp, pp=pp, vp=np.array([1, vp, 2]), num_microbatches=np.array([m, 2 * m, 1]), group_size=pp
    )
    singly = [
        schedule.microbatches_in_flight(at(rank % pp, pp, v, count))
        for rank, v, count in ((0, 1, m), (1, vp, 2 * m), (2, 2, 1))
    ]
    assert np.broadcast_to(schedule.microbatches_in_flight(many), 3).tolist() == singly


def test_a_plan_selects_its_schedule() -> None:
    assert microbatches_in_flight(0, batch(4, 32)) == 4
    assert microbatches_in_flight(0, batch(4, 32, schedule="gpipe")) == 32
    assert microbatches_in_flight(0, batch(4, 32, vp=2)) == 4 + 3 / 2
    assert microbatches_in_flight(0, batch(4, 32, vp=2, microbatch_group_size=8)) == (2 * 3 + 8 + 1) / 2
