"""The search over sizes finds what looking at every size finds, on runs whose speed falls and jumps."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardplan.decide.scale import fewest, sizes_of, soonest


class Run(NamedTuple):
    num_accelerators: int
    wall_time: float


SIZES = sizes_of(8, 4096)


def run_on(size: int, *, least: int, decline: float) -> Run | None:
    """A run whose rate per accelerator falls with the size, and is 30 % lower where nodes do not pair up."""
    if size < least:
        return None
    rate = size**decline * (0.7 if size // 8 % 2 else 1.0)
    return Run(size, 1e9 / (size * rate))


def test_sizes_are_whole_nodes_and_parts_of_one() -> None:
    assert SIZES[:6] == (1, 2, 4, 8, 16, 24)
    assert SIZES[-1] == 4096
    assert len([size for size in SIZES if 2048 <= size < 4096]) == 32
    assert 4608 in sizes_of(4, 10_000)  # 64 racks of 72


@given(st.sampled_from(SIZES), st.floats(-0.4, 0.0), st.floats(1e4, 1e9))
def test_the_fewest_is_that_of_all_sizes(least: int, decline: float, wall_time: float) -> None:
    runs = [run_on(size, least=least, decline=decline) for size in SIZES]
    meeting = [run for run in runs if run is not None and run.wall_time <= wall_time]
    found, looked = fewest(SIZES, lambda size: run_on(size, least=least, decline=decline), wall_time)
    assert found == (meeting[0] if meeting else None)
    assert looked


@pytest.mark.parametrize("decline", [-0.05, -0.2, -0.4])
@pytest.mark.parametrize("most", [1e9, 2e9, 5e9, 1e10])
def test_the_soonest_is_within_the_money(decline: float, most: float) -> None:
    def affords(run: Run) -> bool:
        return run.wall_time * run.num_accelerators <= most

    found, looked = soonest(SIZES, lambda size: run_on(size, least=16, decline=decline), affords)
    runs = [run for size in SIZES if (run := run_on(size, least=16, decline=decline)) is not None and affords(run)]
    if not runs:
        assert found is None
        return
    assert found is not None
    assert affords(found)
    assert found.wall_time <= 1.1 * min(run.wall_time for run in runs)
    assert len(looked) < len(SIZES) / 3


@given(st.sampled_from(SIZES), st.floats(-0.4, 0.0), st.floats(1e4, 1e9), st.floats(0.5, 1.0))
def test_runs_that_are_known_to_be_slower_change_nothing(
    least: int, decline: float, wall_time: float, share: float
) -> None:
    """``share`` of the wall time up to which it is known, as of a search that gives up where a bound says so."""

    def evaluate(size: int) -> Run | None:
        return run_on(size, least=least, decline=decline)

    def is_slower(size: int, most: float) -> bool:
        found = evaluate(size)
        return found is not None and found.wall_time * share > most

    assert fewest(SIZES, evaluate, wall_time, is_slower)[0] == fewest(SIZES, evaluate, wall_time)[0]
