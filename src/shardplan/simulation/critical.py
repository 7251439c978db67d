"""The critical path of a simulated step: the chain of pieces and transfers that ends with it and has no gap."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shardplan.fields import dataclass
from shardplan.simulation.pieces import NOTHING
from shardplan.simulation.step import SimulatedStep


@dataclass(frozen=True, kw_only=True)
class CriticalPath:
    """Which pieces decide how long a step takes."""

    pieces: NDArray[np.bool_]
    """Whether every piece is on the path."""
    transfers: NDArray[np.bool_]
    """Whether what every piece waits for is on the path on its way to it."""
    first: int
    """Piece with which the path begins."""


def critical_path(step: SimulatedStep, rank: int) -> CriticalPath:
    """The path to the last piece of ``rank``.

    A piece starts when the rank has ended the one before, or when the transfer that it waits for arrives: the path goes
    on with whichever was later, and with the rank's own where both came together. Pieces of one block start together.
    """
    pieces = step.pieces
    on_path, sent = np.zeros((2, len(pieces.rank)), dtype=bool)
    piece = int(pieces.bounds[rank + 1]) - 1
    while True:
        first, last = int(pieces.first_of_block[piece]), int(pieces.block[piece])
        on_path[first : last + 1] = True
        own = first - 1 if first > pieces.bounds[pieces.rank[first]] else NOTHING
        latest, arrived = (step.end[own] if own != NOTHING else -np.inf), NOTHING
        for waiting in range(first, last + 1):
            need = pieces.after[waiting]
            if need != NOTHING and step.end[need] + step.transfer[waiting] > latest:
                latest, arrived = step.end[need] + step.transfer[waiting], waiting
        if arrived != NOTHING:
            sent[arrived], piece = True, int(pieces.after[arrived])
        elif own != NOTHING:
            piece = own
        else:
            return CriticalPath(pieces=on_path, transfers=sent, first=first)
