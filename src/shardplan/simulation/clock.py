"""The clock: every rank runs its pieces in turn, each when what it needs has arrived."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shardplan.errors import InputError
from shardplan.simulation.pieces import NOTHING, Pieces

Seconds = NDArray[np.float64]
MOST_WAITING = 4
"""Ranks that an error names."""
TURNS: Final = 4096
"""Turns of ranks between two questions whether to go on: a few milliseconds."""
Between = Callable[[], None]
"""Called now and then: what it raises ends the simulation."""


def run(pieces: Pieces, took: Seconds, transfer: Seconds, between: Between | None = None) -> tuple[Seconds, Seconds]:
    """Start and end of every piece. [s]

    ``took``: of every piece; ``transfer``: on its way, of what every piece waits for. Joined pieces start together and
    end together. Raises ``InputError`` where ranks wait for one another.
    """
    bounds = pieces.bounds.tolist()
    together = took if pieces.is_alone else _together(pieces, took)
    ends, turns = _played(pieces.after_list, transfer.tolist(), together.tolist(), bounds, between)
    stuck = [rank for rank, turn in enumerate(turns) if turn < bounds[rank + 1]]
    if stuck:
        raise _deadlock(pieces, stuck, turns)
    end = np.asarray(ends)
    start = _starts(pieces, end, transfer)
    return (start, end) if pieces.is_alone else (start[pieces.block], end[pieces.block])


def _starts(pieces: Pieces, end: Seconds, transfer: Seconds) -> Seconds:
    """When every piece starts: as soon as the rank is free and what it needs has arrived. [s]"""
    free = np.concatenate(([0.0], end[:-1]))
    free[pieces.bounds[:-1]] = 0.0
    return np.maximum(free, np.where(pieces.after == NOTHING, 0.0, end[pieces.after]) + transfer)


def _together(pieces: Pieces, took: Seconds) -> Seconds:
    """What every block takes, at its last piece; nothing at the others. [s]"""
    together = np.zeros(len(took))
    np.add.at(together, pieces.block, took)
    return np.where(pieces.block == np.arange(len(took)), together, 0.0)


def _played(
    after: list[int], transfer: list[float], took: list[float], bounds: list[int], between: Between | None
) -> tuple[list[float], list[int]]:
    """End of every piece, and the piece that every rank has come to.

    Plain lists: one piece at a time, Python reads them faster than arrays. A rank runs until it has to wait, and goes
    on when the piece that it waits for ends.
    """
    num_ranks, nobody = len(bounds) - 1, -1
    end = [-1.0] * len(took) + [0.0]  # the last is there for pieces that wait for nothing
    turns, clocks = bounds[:-1], [0.0] * num_ranks
    waiting, others = [nobody] * len(took), [nobody] * num_ranks  # who waits for a piece, and who else does
    ready = list(range(num_ranks))
    for _ in repeat(None) if between is None else _asking(between):
        if not ready:
            break
        rank = ready.pop()
        piece, last, now = turns[rank], bounds[rank + 1], clocks[rank]
        while piece < last:
            need = after[piece]
            arrival = end[need]
            if arrival < 0:
                waiting[need], others[rank] = rank, waiting[need]
                break
            arrival += transfer[piece]
            if arrival > now:  # noqa: PLR1730  # max() takes twice as long
                now = arrival
            now += took[piece]
            end[piece] = now
            other = waiting[piece]
            while other >= 0:
                ready.append(other)
                other = others[other]
            piece += 1
        turns[rank], clocks[rank] = piece, now
    end.pop()
    return end, turns


def _asking(between: Between) -> Iterator[None]:
    """Turns without end."""
    while True:
        between()
        yield from repeat(None, TURNS)


def _deadlock(pieces: Pieces, stuck: Sequence[int], turns: Sequence[int]) -> InputError:
    """Which ranks wait, with what, and for whom."""
    texts = []
    for rank in stuck[:MOST_WAITING]:
        piece = turns[rank]
        need = int(pieces.after[piece])
        source = "" if need == NOTHING else f" for {pieces.name(need)} on {pieces.rank_names[pieces.rank[need]]}"
        texts.append(f"{pieces.rank_names[rank]} waits with {pieces.name(piece)}{source}")
    more = f", and {len(stuck) - MOST_WAITING} more ranks wait" if len(stuck) > MOST_WAITING else ""
    return InputError(
        f"ranks wait for one another: {'; '.join(texts)}{more}",
        rule="no rank waits for a pass that cannot run",
        hint="change the order of the passes on these ranks",
    )
