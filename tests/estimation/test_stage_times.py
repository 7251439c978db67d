"""What hides the traffic of a stage's states, from hand-made times."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.estimation.test_pipelines import AROUND, LOAD, TIMES, WHOLE, WORK, numbers, question

from shardplan.estimation.charge import CHARGES, StateCharge
from shardplan.estimation.times import StateTimes, Windows, once_windows, state_times, work_times

OVERLAPPED = replace(TIMES, windows=Windows(vp=2, group_size=3, sharding=0.5, once=0.25))
"""5 seconds forward and 9 backward that hide nothing: half of them every micro-batch, a quarter of a chunk's once."""


def charge(**times: float) -> StateCharge:
    return StateCharge(**dict.fromkeys(CHARGES, 0.0) | {f"{name}_time": time for name, time in times.items()})


def test_times_of_a_stage_add_up() -> None:
    assert (OVERLAPPED.between, OVERLAPPED.microbatch) == (2, 36)
    assert (OVERLAPPED.free, OVERLAPPED.per_free) == (14, 1 / 14)
    assert OVERLAPPED.sharding_window == 7
    assert (OVERLAPPED.gather_window, OVERLAPPED.reduce_window) == (1.25, 2.25)
    assert (OVERLAPPED.gather_windows, OVERLAPPED.reduce_windows) == (1.25 * 4, 2.25 * 4)
    assert replace(OVERLAPPED, free_forward=0.0, free_backward=0.0).per_free > 1e20
    assert StateTimes(sharded=1.0, reduce=2.0, gather=4.0, update=8.0).once == 14
    assert StateTimes(sharded=1.0, reduce=0.0, gather=0.0, update=0.0).once == 0


@pytest.mark.parametrize(
    ("loads", "sharded", "reduce", "gather"),
    [
        # two chunks: all of it behind four windows; a tenth always shows
        ({"reduce": 20.0, "gather": 8.0}, 0, 20 - 9, 8 - 5),
        ({"reduce": 20.0}, 0, 20 - 9, 0),
        ({"reduce": 5.0}, 0, 0.5, 0),
        ({"reduce": 9.2}, 0, 9.2 / 2 - 2.25, 0),
        ({"sharding": 10.0}, 3, 0, 0),
        ({"sharding": 4.0}, 0.4, 0, 0),
        # of 10 seconds 7 travel behind half of the work: the other half is left
        ({"sharding": 10.0, "reduce": 20.0, "gather": 8.0}, 3, 20 - 4.5, 8 - 2.5),
        ({"sharding": 10.0, "gather": 8.0}, 3, 0, 8 - 2.5),
        ({"sharding": 10.0, "reduce": 20.0}, 3, 20 - 4.5, 0),
        ({"sharding": 10.0, "reduce": 4.6}, 3, 4.6 / 2 - 1.125, 0),
    ],
)
def test_work_hides_each_part_of_the_traffic_once(
    loads: dict[str, float], sharded: float, reduce: float, gather: float
) -> None:
    asked = question(hidden_slowdown=0.1)
    found = state_times(asked, OVERLAPPED, charge(update=3.0, **loads))
    assert (found.sharded, found.reduce, found.gather) == pytest.approx((sharded, reduce, gather))
    assert found.update == 3
    left = 1 - (loads.get("sharding", 0.0) - sharded) / 14
    assert once_windows(asked, OVERLAPPED, charge(**loads)) == pytest.approx((1.25 * left, 2.25 * left))


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        ({}, (1, 1, 0.5, 0.6)), ({"pp": 4, "vp": 2}, (2, 4, 0.5, 0.3)), ({"pp": 16, "vp": 2}, (2, 8, 0.5, 0.3)),
        ({"overlap_dp": False}, (1, 1, 0.0, 0.0)),
    ],
)  # fmt: skip
def test_windows_of_a_plan(plan: dict[str, Any], expected: tuple[float, ...]) -> None:
    """Eight micro-batches in groups of as many as there are ranks; a plan's own chunk has its share of the work."""
    found = Windows.of(question(fsdp_window=0.5, dp_window=0.6), numbers(**plan))
    assert (found.vp, found.group_size, found.sharding, found.once) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("plan", "transfer", "left"),
    [
        ({"pp": 4}, 1.0, 1.0),
        ({"pp": 4, "vp": 2}, 2.0, 1.0),
        ({"pp": 4, "overlap_pp": True}, 0.25, (68 - 0.75) / 68),
    ],
)
def test_what_hides_transfers_hides_nothing_else(plan: dict[str, Any], transfer: float, left: float) -> None:
    """Half a second each way for every chunk; a quarter shows behind 68 seconds of work, layers that run again too."""
    asked = question(pp_window=0.5, hidden_slowdown=0.25)
    found = work_times(asked, numbers(**{"overlap_pp": False} | plan), AROUND, WHOLE, WORK)
    assert found.transfer == pytest.approx(transfer)
    assert (found.free_forward, found.free_backward) == pytest.approx((20 * left, 48 * left))
    assert (found.forward, found.backward, found.plain, found.weight_gradient) == (40, 80 + 24, 120, 30)
    assert (found.offload, found.overhead) == (0, 0.25 * plan.get("vp", 1))


def test_transfers_of_plans_that_do_and_do_not_overlap_are_as_each_alone() -> None:
    asked = question(pp_window=0.5, hidden_slowdown=0.25)
    both = replace(numbers(pp=4), overlap_pp=np.array([False, True]))
    found = work_times(asked, both, AROUND, WHOLE, replace(WORK, sum=LOAD))
    assert np.asarray(found.transfer).tolist() == pytest.approx([1.0, 0.25])
    assert np.asarray(found.free).tolist() == pytest.approx([68, 68 - 0.75])


def test_activations_of_plans_that_offload_cross_the_link_there_and_back() -> None:
    """Two seconds one way, in which other links are free; plans that keep them send nothing."""
    both = replace(numbers(), offload_activations=np.array([False, True]))
    away = replace(WORK, sum=replace(LOAD, kept_bytes=2 * 64e9))
    found = work_times(question(hidden_slowdown=1.0), both, replace(AROUND, handover_time=0.0), WHOLE, away)
    assert np.asarray(found.offload).tolist() == pytest.approx([0.0, 4.0])
    assert np.asarray(found.free).tolist() == pytest.approx([68.0, 72.0])
    assert found.transfer == 0


def test_all_that_a_micro_batch_spends_hides_the_way_to_the_host() -> None:
    """A hundredth of 120 seconds and of the 24 that layers run again: 1.44 of 4."""
    away = replace(WORK, sum=replace(LOAD, kept_bytes=2 * 64e9))
    around = replace(AROUND, handover_time=0.0)
    found = work_times(question(offload_window=0.01), numbers(offload="activations"), around, WHOLE, away)
    assert found.offload == pytest.approx(4 - 1.44)
