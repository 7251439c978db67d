"""The classical schedules against their papers, and the schedule that a plan selects."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.schedules.base import Passes, Pipeline, PipelineSchedule
from shardplan.schedules.pipeline import holds_both_ends, idle_time, microbatches_in_flight
from shardplan.schedules.registry import SCHEDULES

chunks = st.integers(1, 8)
one_wave = pytest.mark.parametrize("schedule", [SCHEDULES["1f1b"], SCHEDULES["gpipe"]], ids=["1f1b", "gpipe"])


def at(pp: int, vp: int, num_microbatches: int, group_size: int | None = None) -> Pipeline:
    return Pipeline(pp=pp, vp=vp, num_microbatches=num_microbatches, group_size=group_size or pp)


def passes(total: float) -> Passes:
    return Passes(forward=total / 3, input_gradient=total / 3, weight_gradient=total / 3)


def numbers(pp: int, num_microbatches: int, **fields: Any) -> PlanNumbers:
    job = Job(sequence_length=1024, global_batch_size=num_microbatches)
    return PlanNumbers.of(Plan(pp=pp, **fields), pp, job)


@one_wave
@given(st.integers(1, 64), st.floats(1e-6, 1e3))
def test_equal_stages_idle_for_one_micro_batch_each(schedule: PipelineSchedule, pp: int, time: float) -> None:
    """(p - 1) t of GPipe (arXiv 1811.06965) and PipeDream-Flush (arXiv 2006.09503), over m t of work."""
    idle = schedule.idle_time(at(pp, 1, 8), passes(time), passes(pp * time))
    assert idle == pytest.approx((pp - 1) * time, rel=1e-12, abs=1e-12 * time)


@given(st.integers(2, 64), chunks)
def test_interleaving_divides_the_bubble(pp: int, vp: int) -> None:
    """(p - 1) / (v m) (Narayanan et al., arXiv 2104.04473, section 2.2)."""
    idle = SCHEDULES["interleaved"].idle_time(at(pp, vp, pp), passes(1.0), passes(float(pp)))
    assert idle == pytest.approx((pp - 1) / vp)


@pytest.mark.parametrize(("pp", "m", "vp", "fraction"), [(8, 64, 1, 7 / 64), (8, 64, 4, 7 / 256), (16, 16, 1, 15 / 16)])
def test_bubble_fraction_of_a_plan(pp: int, m: int, vp: int, fraction: float) -> None:
    plan = numbers(pp, m, vp=vp)
    assert idle_time(passes(1.0), passes(float(pp)), plan) / m == pytest.approx(fraction)


@one_wave
@given(st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=16))
def test_a_rank_waits_for_all_others(schedule: PipelineSchedule, times: list[float]) -> None:
    """A simulated forward and backward wave: filling and draining pass through every other stage once."""
    for own in times:
        idle = schedule.idle_time(at(len(times), 1, 8), passes(own), passes(sum(times)))
        assert idle == pytest.approx(sum(times) - own, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("pp", [1, 2, 4, 8])
@pytest.mark.parametrize("m", [1, 3, 8, 100])
def test_in_flight_of_one_f_one_b(pp: int, m: int) -> None:
    """The first stage keeps p micro-batches, the last one (arXiv 2104.04473, section 2.2.1)."""
    kept = [SCHEDULES["1f1b"].microbatches_in_flight(at(pp, 1, m), rank) for rank in range(pp)]
    assert kept == [min(m, pp - rank) for rank in range(pp)]


@pytest.mark.parametrize(("pp", "vp"), [(2, 2), (4, 5), (8, 3), (16, 7)])
def test_in_flight_of_interleaving_on_the_first_stage(pp: int, vp: int) -> None:
    """p (1 + (p - 1) / (p v)) (arXiv 2205.05198, section 4.2.3)."""
    kept = SCHEDULES["interleaved"].microbatches_in_flight(at(pp, vp, 1000), 0)
    assert kept == pytest.approx(pp * (1 + (pp - 1) / (pp * vp)))


@pytest.mark.parametrize("m", [1, 4, 100])
def test_gpipe_keeps_every_micro_batch(m: int) -> None:
    assert {SCHEDULES["gpipe"].microbatches_in_flight(at(4, 1, m), rank) for rank in range(4)} == {m}


def test_a_plan_selects_its_schedule() -> None:
    assert microbatches_in_flight(0, numbers(4, 32)) == 4
    assert microbatches_in_flight(0, numbers(4, 32, schedule="gpipe")) == 32
    assert microbatches_in_flight(0, numbers(4, 32, vp=2)) == 4 + 3 / 2
    assert microbatches_in_flight(0, numbers(4, 32, vp=2, microbatch_group_size=8)) == (2 * 3 + 8 + 1) / 2


@pytest.mark.parametrize(
    ("pp", "vp", "m", "g", "knob"),
    [
        (1, 2, 8, 1, "pp of 2 or more"),
        (4, 1, 8, 4, "vp of 2 or more"),
        (4, 2, 8, 2, "group size to pp 4 or more"),
        (4, 2, 9, 4, "global batch size to 128,"),
        (4, 2, 3, 4, "global batch size to 64,"),
    ],
)
def test_hints_of_interleaving_name_the_knob_that_is_wrong(pp: int, vp: int, m: int, g: int, knob: str) -> None:
    """Of 16 sequences a micro-batch: nine are near two groups of four, three near one."""
    assert knob in SCHEDULES["interleaved"].hint(at(pp, vp, m, g), 16)


def test_one_rank_holds_both_ends_of_a_model_alone_or_where_the_pipeline_turns_round() -> None:
    """In a V and with two directions the first rank has the last stage too (arXiv 2405.15362; arXiv 2412.19437)."""
    plans = [
        numbers(1, 8), numbers(4, 8), numbers(4, 8, vp=2), numbers(4, 8, schedule="zb-v", vp=2),
        numbers(4, 8, schedule="dualpipe"), numbers(4, 8, schedule="zb-h1"),
    ]  # fmt: skip
    assert [bool(holds_both_ends(plan)) for plan in plans] == [True, False, False, True, True, False]
