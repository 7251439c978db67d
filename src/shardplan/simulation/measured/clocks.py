"""Clocks of ranks: the least shifts with which no pass starts before what it needs has ended."""

from __future__ import annotations

from typing import Final

import numpy as np

from shardplan.simulation.clock import Seconds
from shardplan.simulation.pieces import NOTHING, Pieces

RESOLUTION: Final = 2e-6
"""Seconds by which two times of one clock may be wrong together: CUDA events have about half a microsecond."""


def clock_shifts(pieces: Pieces, start: Seconds, end: Seconds) -> Seconds | None:
    r"""Seconds to add to the times of every rank; None where no shift keeps the order of cause and effect.

    A pass on rank j that needs one of rank i asks for :math:`o_j \ge o_i + e_i - s_j`. The shifts are the least ones
    that are not negative and keep all of these: 0 where the times are in order as they are.
    """
    num_ranks = len(pieces.rank_names)
    least = np.full((num_ranks, num_ranks), -np.inf)
    (waits,) = np.nonzero(pieces.after != NOTHING)
    needs = pieces.after[waits]
    np.maximum.at(least, (pieces.rank[needs], pieces.rank[waits]), end[needs] - start[waits] - RESOLUTION)
    if np.any(np.diag(least) > 0):
        return None
    np.fill_diagonal(least, 0.0)
    shifts = np.zeros(num_ranks)
    for _ in range(num_ranks):
        longer: Seconds = np.maximum(shifts, (shifts[:, None] + least).max(axis=0))
        if np.array_equal(longer, shifts):
            return shifts
        shifts = longer
    return None
