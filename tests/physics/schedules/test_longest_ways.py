"""The longest ways through uneven chunks, against all ways of small pipelines and against passes run one by one."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.physics.schedules.executor import run

from shardplan.inputs.plan import chunk_layers
from shardplan.physics.schedules.base import Pipeline
from shardplan.physics.schedules.interleaved import BreadthFirst, Interleaved
from shardplan.physics.schedules.longest_ways import BACKWARD_SHARE, breadth_first_way, interleaved_ways, pace_of

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
    """A group of p micro-batches takes as long as the way, once the pipeline is full; some groups fill and empty it.

    While it fills another way may be longer: where ways are nearly as long, for more than four groups.
    """
    pp, longest = work.shape[1], work.sum(axis=0).max()
    (way,) = interleaved_ways([work])
    pace = pace_of(work, way)
    grown = step_of(Interleaved(), work, 16) - step_of(Interleaved(), work, 15)
    assert grown >= pp * pace * longest * (1 - 1e-9)
    grown = step_of(BreadthFirst(), work, 16) - step_of(BreadthFirst(), work, 15)
    assert grown == pytest.approx(pp * float((breadth_first_way(work) * work).sum()))


@pytest.mark.parametrize("seed", [*range(60), 419, 530])
def test_the_way_is_the_longest_of_all_that_end_as_they_began(seed: int) -> None:
    """Exactly, of even and of odd numbers, whole and not; alone and run together with others."""
    generator = np.random.default_rng(seed)
    shape = tuple(int(size) for size in generator.integers(2, 8, 2))
    work = generator.uniform(0.2, 3, shape) if seed % 2 else generator.integers(1, 7, shape).astype(float)
    others = [np.ones((2, 2)), generator.uniform(0.2, 3, (5, 5))]
    longest = longest_closed_way(work) / shape[1]
    alone, together = interleaved_ways([work])[0], interleaved_ways([*others, work])[2]
    assert alone.shape == shape
    assert float((alone * work).sum()) == pytest.approx(longest, rel=1e-12)
    assert np.array_equal(alone, together)
    assert pace_of(work, alone) == pytest.approx(max(longest / work.sum(axis=0).max(), 1), rel=1e-12)
    assert Interleaved().pace(work) == pace_of(work, alone)
    uneven = float((breadth_first_way(work) * work).sum()) / work.sum(axis=0).max()
    assert BreadthFirst().pace(work) == pytest.approx(uneven, rel=1e-12)


def longest_closed_way(work: Work) -> float:
    """Longest way of p v turns that is on the same rank, with or without its backward pass, at both ends.

    By the two equations of turns: of all ways from every start, one turn after the other.
    """
    starts = [(rank, is_back) for rank in range(work.shape[1]) for is_back in (False, True)]
    return max(_longest_from(work, start).get(start, 0.0) for start in starts)


def _longest_from(work: Work, start: tuple[int, bool]) -> dict[tuple[int, bool], float]:
    """Time of the longest way to every rank, after its forward pass (False) and its backward pass (True)."""
    vp, pp = work.shape
    reached = {start: 0.0}
    for turn in range(pp * vp):
        enters = (turn - 2) // pp % vp == vp - 1  # rank 0 runs the model's first chunk
        ends = (turn + pp - 1) // pp % vp == 0  # the last rank runs its last one backward
        forward = [work[((turn - rank - 2) // pp + 1) % vp, rank] * (1 - BACKWARD_SHARE) for rank in range(pp)]
        backward = [work[vp - 1 - (turn + rank) // pp % vp, rank] * BACKWARD_SHARE for rank in range(pp)]
        ways: dict[tuple[int, bool], list[float]] = {}
        for (rank, is_back), time in reached.items():
            to = rank if is_back else (rank + 1) % pp
            if is_back or to or not enters:  # a new micro-batch waits for no rank
                ways.setdefault((to, False), []).append(time + forward[to])
                ways.setdefault((to, True), []).append(time + forward[to] + backward[to])
            if is_back and (rank or not ends):  # nor does the gradient of the last chunk
                ways.setdefault(((rank - 1) % pp, True), []).append(time + backward[rank - 1])
        reached = {place: max(times) for place, times in ways.items()}
    return reached


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


def test_backward_passes_take_between_two_and_three_times_the_forward_pass() -> None:
    """Two thirds of both without recomputation, three quarters where all of it runs again."""
    assert 2 / 3 < BACKWARD_SHARE < 3 / 4
    assert interleaved_ways([]) == []


def test_pipelines_that_are_run_together_do_not_touch() -> None:
    generator = np.random.default_rng(0)
    several = [generator.integers(1, 4, shape).astype(float) for shape in ((2, 3), (7, 2), (3, 8), (4, 4))]
    for work, way in zip(several, interleaved_ways(several), strict=True):
        assert np.array_equal(way, interleaved_ways([work])[0])
