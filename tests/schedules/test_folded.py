"""DualPipe and DualPipe-V with unequal ranks: against their own passes, and what the place of a slow rank changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from shardplan.schedules.base import ChunkTimes, Passes, Pipeline, RankPasses
from shardplan.schedules.dualpipe import folded_idle_time
from shardplan.schedules.registry import load_schedule
from shardplan.simulation.closed import closed_form_step_time
from shardplan.simulation.step import simulate

Seconds = NDArray[np.float64]
Three = tuple[float, float, float]


def times(work: Seconds, backward: float, weight: float) -> ChunkTimes:
    """Chunks down the ranks and back up, of which those of a rank take the same."""
    chunks = np.concatenate([work, work[::-1]])
    return ChunkTimes(
        forward=chunks,
        input_gradient=backward * chunks,
        weight_gradient=weight * chunks,
        transfer=np.zeros(len(chunks)),
    )


def pipeline(name: str, num_ranks: int, m: int) -> Pipeline:
    """As many folded ranks; twice as many ranks of DualPipe, whose micro-batches come from either end."""
    if name == "dualpipe":
        return Pipeline(pp=2 * num_ranks, vp=1, num_microbatches=2 * m, group_size=2 * num_ranks)
    return Pipeline(pp=num_ranks, vp=2, num_microbatches=m, group_size=num_ranks)


def closed(name: str, work: Seconds, m: int, backward: float = 1.2, weight: float = 0.8) -> float:
    found = closed_form_step_time(
        load_schedule(name), pipeline(name, len(work), m), times(np.asarray(work, dtype=float), backward, weight)
    )
    assert found is not None
    return found


@settings(max_examples=40)
@given(
    st.lists(st.floats(0.75, 1.25), min_size=2, max_size=8),
    st.floats(0.7, 1.8),
    st.floats(0.3, 1.2),
    st.integers(2, 4),
    st.sampled_from(["dualpipe", "dualpipe-v"]),
)
def test_the_closed_form_is_near_for_unequal_ranks(
    work: list[float], backward: float, weight: float, rounds: int, name: str
) -> None:
    """Within 5 %; a form that takes every other rank as the mean is up to 16 % too slow."""
    m, own = rounds * len(work), np.array(work)
    simulated = simulate(load_schedule(name), pipeline(name, len(work), m), times(own, backward, weight))
    assert closed(name, own, m, backward, weight) == pytest.approx(simulated.step_time, rel=0.05)


def test_dualpipe_is_dualpipe_v_with_a_second_copy() -> None:
    work = [1.0, 1.3, 0.9, 1.1]
    assert closed("dualpipe", np.array(work), 16) == pytest.approx(closed("dualpipe-v", np.array(work), 16), rel=1e-12)


@pytest.mark.parametrize("name", ["dualpipe", "dualpipe-v"])
def test_a_slow_rank_hides_the_way_through_the_others(name: str) -> None:
    """The last rank is three times as slow: 16 micro-batches in two chunks of 9 s keep it busy for 288 s.

    Beyond that, the first forward pass takes at most 3 s to it and the last gradient at most 3.6 s back.
    """
    work = np.array([1.0, 1.0, 1.0, 3.0])
    step = closed(name, work, 16)
    simulated = simulate(load_schedule(name), pipeline(name, 4, 16), times(work, 1.2, 0.8)).step_time
    assert 288 <= step <= 288 + 3 + 3.6
    assert step == pytest.approx(simulated, rel=0.01)


@pytest.mark.parametrize(
    ("num_front", "front", "own", "num_behind", "behind", "gaps", "last"),
    [
        # g = 2 (10 - 2) + (10 + 16 + 2 - 6) + (4 + 5 - 4), e = (4 + 10 + 7 - 7) + (16 - 4) = 26;
        # the first rank ends last: 4 + 16 + 4 x 12 / 1 - 5 x 4.
        (1, (4, 5, 7), (2, 3, 1), 1, (10, 8, 2), 16 + 22 + 5, 48),
        # e = (4 + 10 + 1 - 7) + (16 - 4) = 20 is longer: 4 + 20 + 5 - 1.
        (1, (4, 5, 1), (2, 3, 1), 1, (10, 8, 2), 16 + 22 + 5, 28),
        # g = 2 (3 - 2) + (3 + 6 + 2 - 8) + (8 + 8 - 4), e = (8 + 16 + 6 - 10) + (6 - 6) = 20;
        # 8 + 22 + 6 x 14 / 2 - 8 x 3 is longer than 8 + 20 + 8 - 2.
        (2, (8, 8, 6), (1, 2, 1), 2, (3, 3, 2), 2 + 3 + 12, 48),
        # g = 0 + (40 - 14) + 0, e = 0 + (40 - 12); this rank ends last: 28, and at the first one 1 + 28 + 1 - 9.
        (1, (1, 1, 1), (2, 3, 9), 1, (0, 20, 0), 26, 28),
        # A slow rank never waits.
        (1, (1, 1, 1), (9, 9, 9), 0, (0, 0, 0), 0, 0),
        # With nothing in front, g = 2 (5 - 2) + (5 + 12 + 4 - 8), and e = 12 - 6.
        (0, (0, 0, 0), (2, 4, 2), 1, (5, 6, 4), 6 + 13, 6),
    ],
)  # fmt: skip
def test_gaps_counted_by_hand(  # noqa: PLR0917  # a row of the table
    num_front: int, front: Three, own: Three, num_behind: int, behind: Three, gaps: float, last: float
) -> None:
    """Every term of the formula once as a gap and once as none."""
    mine = of_three(own)
    everyone = of_three((own[0] + front[0] + behind[0], own[1] + front[1] + behind[1], own[2] + front[2] + behind[2]))
    placed, depth = RankPasses.of(mine, num_behind, of_three(behind)), num_front + 1 + num_behind
    assert folded_idle_time(depth, placed, everyone) == gaps + last
    if not num_behind:
        assert folded_idle_time(depth, mine, everyone) == gaps + last


def of_three(parts: Three) -> Passes:
    forward, input_gradient, weight_gradient = parts
    return Passes(forward=forward, input_gradient=input_gradient, weight_gradient=weight_gradient)
