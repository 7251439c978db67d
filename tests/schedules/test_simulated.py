"""Schedules that only the simulation runs: orders that are sought for given times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.simulation.cases import even, passes, pipeline, step
from tests.simulation.published_rows import rows, simulated

from shardplan.errors import InputError
from shardplan.schedules.base import ChunkTimes, Passes
from shardplan.simulation.pieces import FORWARD, INPUT_GRADIENT, NOTHING, WEIGHT_GRADIENT
from shardplan.simulation.step import SimulatedStep

ROUNDING = 1e-9
seconds = st.floats(0.05, 3.0)


@st.composite
def own_passes(draw: st.DrawFn) -> Passes:
    return passes(draw(seconds), draw(seconds), draw(seconds))


@pytest.mark.parametrize("name", ["zb-1p", "zb-2p"])
def test_bubble_rates_of_the_zero_bubble_paper(name: str) -> None:
    """All four printed digits of every cell (arXiv 2401.10241, table 5, from the times of table 9)."""
    of_schedule = [row for row in rows("zero_bubble_table_5") if row["schedule"] == name]
    assert len(of_schedule) == 9
    rates = [simulated(row)[1].bubble_rate for row in of_schedule]
    assert [round(rate, 4) for rate in rates] == [float(row["bubble_rate"]) for row in of_schedule]


@pytest.mark.parametrize("pp", [2, 3, 4, 5, 6, 8, 12])
def test_schedules_with_controllable_memory(pp: int) -> None:
    """Peak activations (p + 2) // 2 and (p + 4) // 3 of a stage; V-Min's bubble is 2/3 of 1F1B's (arXiv 2405.15362)."""
    at = pipeline(pp, 8 * pp, 2)
    half, least, greedy = (step(name, at, even(passes(), at)) for name in ("v-half", "v-min", "zbv-greedy"))
    assert max(rank.peak_kept for rank in half.ranks) / 2 == (pp + 2) // 2
    assert max(rank.peak_kept for rank in least.ranks) / 2 <= (pp + 4) // 3
    assert max(rank.peak_kept for rank in greedy.ranks) <= 2 * pp
    plain = step("1f1b", pipeline(pp, 8 * pp), even(passes(), pipeline(pp, 8 * pp)))
    bubble = plain.step_time - 24 * pp
    assert least.step_time - 24 * pp <= 0.85 * bubble
    assert half.step_time - 24 * pp <= 0.85 * bubble
    assert greedy.step_time - 24 * pp <= 0.3 * bubble


@pytest.mark.parametrize("name", ["zb-1p", "zb-2p"])
@given(st.integers(1, 6), st.integers(1, 20), own_passes(), st.integers(0, 12))
def test_searched_orders_keep_to_their_limit(name: str, pp: int, m: int, own: Passes, more: int) -> None:
    at = pipeline(pp, m)
    searched = step(name, at, even(own, at, 0.05, limit=pp + more))
    assert max(rank.peak_in_flight for rank in searched.ranks) <= pp + more
    with pytest.raises(InputError, match="max_in_flight is 0"):
        step(name, at, even(own, at, limit=0))


@given(st.integers(2, 6), st.integers(1, 20), own_passes(), st.integers(2, 12))
def test_a_greedy_order_keeps_to_its_limit(pp: int, m: int, own: Passes, limit: int) -> None:
    at = pipeline(pp, m, 2)
    greedy = step("zbv-greedy", at, even(own, at, 0.05, limit=limit))
    assert max(rank.peak_kept for rank in greedy.ranks) <= limit
    with pytest.raises(InputError, match="max_in_flight is 1"):
        step("zbv-greedy", at, even(own, at, limit=1))


@given(st.integers(2, 5), st.integers(1, 12), st.integers(2, 12), st.integers(0, 1000))
def test_a_greedy_rank_starts_what_is_there(pp: int, m: int, limit: int, seed: int) -> None:
    """No rank waits while a pass that it may run is there; no forward or weight gradient goes before a B that is."""
    at, generator = pipeline(pp, m, 2), np.random.default_rng(seed)
    forward, gradient, weight, transfer = generator.uniform(0.2, 2.0, (4, 2 * pp))
    times = ChunkTimes(
        forward=forward, input_gradient=gradient, weight_gradient=weight, transfer=transfer / 10, max_in_flight=limit
    )
    ran = step("zbv-greedy", at, times)
    for piece, kept, later in left_at_each_start(ran):
        may_keep = (ran.pieces.kind[later] != FORWARD) | (limit - kept >= 2 - ran.pieces.chunk[later])
        there = later[may_keep & (arrivals(ran)[later] < ran.start[piece] - ROUNDING)]
        if waited(ran, piece):
            assert not len(there)
        if ran.pieces.kind[piece] != INPUT_GRADIENT:
            assert not np.any(ran.pieces.kind[there] == INPUT_GRADIENT)


def arrivals(ran: SimulatedStep) -> NDArray[Any]:
    """When every piece has what it needs, of another rank and of its own. [s]"""
    pieces = ran.pieces
    from_others = np.where(pieces.after == NOTHING, 0.0, ran.end[pieces.after] + ran.transfer)
    columns = zip(*(each.tolist() for each in (pieces.kind, pieces.position, pieces.microbatch)), strict=True)
    ends = dict(zip(columns, ran.end.tolist(), strict=True))
    before = {INPUT_GRADIENT: FORWARD, WEIGHT_GRADIENT: INPUT_GRADIENT}
    own = [ends.get((before.get(kind), position, microbatch), 0.0) for kind, position, microbatch in ends]
    return np.maximum(from_others, own)


def waited(ran: SimulatedStep, piece: int) -> bool:
    """Whether the rank did nothing just before a piece."""
    is_first = piece in ran.pieces.bounds
    return bool(ran.start[piece] > (0.0 if is_first else ran.end[piece - 1]) + ROUNDING)


def left_at_each_start(ran: SimulatedStep) -> Iterator[tuple[int, int, NDArray[Any]]]:
    """Every piece, how many chunk passes its rank keeps when it starts, and the pieces that run there later."""
    kept_more = {FORWARD: 1, WEIGHT_GRADIENT: -1}
    for first, end in zip(ran.pieces.bounds[:-1], ran.pieces.bounds[1:], strict=True):
        kept = 0
        for piece in range(first, end):
            yield piece, kept, np.arange(piece + 1, end)
            kept += kept_more.get(int(ran.pieces.kind[piece]), 0)
