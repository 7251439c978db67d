"""Interleaving with unlike chunks, against Megatron's schedule run pass by pass."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.schedules.executor import run

from shardplan.arrays import Numbers
from shardplan.inputs.plan import chunk_layers
from shardplan.schedules.base import Passes, Pipeline
from shardplan.schedules.interleaved import Interleaved


def simulated(work: NDArray[np.float64], m: int) -> float:
    """Time of a step whose chunks take ``work`` forward, chunks per rank x ranks, and twice that backward."""
    vp, pp = work.shape
    at = Pipeline(pp=pp, vp=vp, num_microbatches=m, group_size=pp)
    return run(Interleaved(), at, lambda _kind, place: float(work[place.chunk, place.rank])).step_time


def predicted(work: NDArray[np.float64], m: int) -> float:
    """Micro-batches at the pace of the slowest rank, slowed by unlike chunks, and the bubble."""
    ranks = 3 * work.sum(axis=0)
    vp, pp = work.shape
    at = Pipeline(pp=pp, vp=vp, num_microbatches=m, group_size=pp)
    own, everyone, pace = thirds(ranks), thirds(ranks.sum()), Interleaved().pace(work)
    return float(np.max(m * ranks + Interleaved().idle_time(at, own, everyone, pace)))


def thirds(time: Numbers) -> Passes:
    return Passes(forward=time / 3, input_gradient=time / 3, weight_gradient=time / 3)


def layers(num_layers: int, pp: int, vp: int, *, head: float = 0.0) -> NDArray[np.float64]:
    work = np.asarray(chunk_layers(num_layers, pp * vp), dtype=np.float64)
    work[-1] += head
    return work.reshape(vp, pp)


@pytest.mark.parametrize(("pp", "vp", "m"), [(2, 2, 8), (4, 3, 16), (8, 2, 32)])
def test_equal_chunks_take_the_closed_form(pp: int, vp: int, m: int) -> None:
    work = np.ones((vp, pp))
    assert Interleaved().pace(work) == 1
    assert simulated(work, m) == pytest.approx(predicted(work, m), rel=1e-12)


@pytest.mark.parametrize(
    ("num_layers", "pp", "vp", "m", "head"),
    [
        (48, 16, 2, 64, 0.0), (64, 16, 3, 64, 0.0), (32, 8, 3, 32, 0.0), (40, 8, 3, 64, 0.0), (60, 4, 7, 64, 0.0),
        (32, 8, 3, 32, 2.0), (80, 8, 3, 32, 1.0), (61, 8, 4, 64, 1.0), (126, 16, 8, 64, 1.0), (48, 4, 5, 32, 0.5),
    ],
)  # fmt: skip
def test_unlike_chunks_hold_one_another_up(num_layers: int, pp: int, vp: int, m: int, head: float) -> None:
    """Within 5 % of the schedule run pass by pass; without the term the first three would be 13 to 20 % too fast."""
    work = layers(num_layers, pp, vp, head=head)
    assert predicted(work, m) == pytest.approx(simulated(work, m), rel=0.05)


def test_ranks_of_equal_sums_wait_for_each_rounds_slowest_chunk() -> None:
    """Sixteen ranks of three layers, the last with its longer chunk first, all others with theirs second."""
    work = layers(48, 16, 2)
    assert set(work.sum(axis=0)) == {3}
    assert simulated(work, 64) > 1.15 * (64 + 15 / 2) * 9
    assert Interleaved().pace(work) > 1.15


@given(
    st.integers(2, 8), st.integers(2, 6), st.lists(st.floats(0.1, 2.0), min_size=48, max_size=48), st.floats(0.1, 10.0)
)
def test_pace_is_a_ratio(pp: int, vp: int, values: list[float], unit: float) -> None:
    """Of no unit, at least 1, at most that of the longest forward and backward pass in every turn."""
    work = np.asarray(values[: pp * vp]).reshape(vp, pp)
    found = Interleaved().pace(work)
    assert found == pytest.approx(Interleaved().pace(unit * work), rel=1e-9)
    assert 1 <= found <= vp * work.max() / work.sum(axis=0).max() + 1e-9
