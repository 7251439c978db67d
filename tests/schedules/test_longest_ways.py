"""The longest ways through uneven chunks, against all ways of small pipelines and against passes run one by one."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.schedules.executor import run

from shardplan.inputs.chunks import chunk_layers
from shardplan.schedules.base import Pipeline
from shardplan.schedules.breadth_first import BreadthFirst
from shardplan.schedules.interleaved import Interleaved
from shardplan.schedules.longest_ways import BACKWARD_SHARE, breadth_first_way, interleaved_ways, pace_of

Work = NDArray[np.float64]


@st.composite
def works(draw: st.DrawFn, most: int = 12) -> Work:
    """Whole-numbered times of few chunks."""
    pp = draw(st.integers(2, 4))
    vp = draw(st.integers(2, most // pp))
    times = draw(st.lists(st.integers(1, 6), min_size=pp * vp, max_size=pp * vp))
    return np.asarray(times, dtype=np.float64).reshape(vp, pp)


def step_of(schedule: Interleaved | BreadthFirst, work: Work, groups: int) -> float:
    """Time of a step of whole groups of micro-batches, passes one by one."""
    vp, pp = work.shape
    at = Pipeline(pp=pp, vp=vp, num_microbatches=groups * pp, group_size=pp)
    share = {"F": 1 - BACKWARD_SHARE, "B": BACKWARD_SHARE, "W": 0.0}
    return run(schedule, at, lambda kind, place: share[kind] * float(work[place.chunk, place.rank])).step_time


@given(works())
def test_breadth_first_counts_the_chunks_that_take_longest_and_are_a_round_apart(work: Work) -> None:
    times, pp = work.ravel(), work.shape[1]
    every = (
        chosen
        for size in range(1, work.shape[0] + 1)
        for chosen in combinations(range(len(times)), size)
        if all(after - before >= pp for before, after in pairwise(chosen))
    )
    way = breadth_first_way(work)
    assert float((way * work).sum()) == max(float(times[list(chosen)].sum()) for chosen in every)
    places = np.flatnonzero(way)
    assert set(way.ravel().tolist()) <= {0.0, 1.0}
    assert np.all(np.diff(places) >= pp)


@given(works(20))
def test_no_step_is_faster_than_the_longest_way(work: Work) -> None:
    """A group of p micro-batches takes as long as the way, once the pipeline is full; some groups fill and empty it."""
    pp, longest = work.shape[1], work.sum(axis=0).max()
    (way,) = interleaved_ways([work])
    pace = pace_of(work, way)
    grown = step_of(Interleaved(), work, 14) - step_of(Interleaved(), work, 4)
    assert grown >= 10 * pp * pace * longest * (1 - 0.03)
    grown = step_of(BreadthFirst(), work, 14) - step_of(BreadthFirst(), work, 4)
    assert grown == pytest.approx(10 * pp * float((breadth_first_way(work) * work).sum()))


@pytest.mark.parametrize(
    ("num_layers", "pp", "vp", "slower"),
    [(80, 9, 8, 0.06), (80, 9, 6, 0.04), (80, 17, 3, 0.03), (80, 27, 2, 0.15), (60, 4, 7, 0.0), (48, 4, 12, 0.0)],
)
def test_groups_take_as_long_as_the_way(num_layers: int, pp: int, vp: int, slower: float) -> None:
    """Layers that do not divide, with a head: to 1 %, and slower than the slowest rank alone by the share given."""
    work = np.asarray(chunk_layers(num_layers, pp * vp), dtype=np.float64)
    work[-1] += 1.2
    work = work.reshape(vp, pp)
    group = pp * float(work.sum(axis=0).max())
    grown = (step_of(Interleaved(), work, 8) - step_of(Interleaved(), work, 4)) / (4 * group)
    assert Interleaved().pace(work) == pytest.approx(grown, rel=0.01)
    assert grown > 1 + slower - 1e-9


def test_pipelines_that_are_run_together_do_not_touch() -> None:
    generator = np.random.default_rng(0)
    several = [generator.integers(1, 4, shape).astype(float) for shape in ((2, 3), (7, 2), (3, 8), (4, 4))]
    for work, way in zip(several, interleaved_ways(several), strict=True):
        assert np.array_equal(way, interleaved_ways([work])[0])
