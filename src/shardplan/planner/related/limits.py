"""The slowest steps that are of use to questions side by side, by system and by capacity.

A plan is of use to a question where it is the fastest, and where it may be recommended: among ties, and among plans
that have headroom (``planner.robustness``), which are those that fit a smaller capacity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardplan.estimation.ties import tie_factor
from shardplan.planner.related.pool import Limits
from shardplan.planner.related.slices import Slice
from shardplan.planner.tied import ROOM_FACTOR, SAME


class Recommendable(NamedTuple):
    """The plans of each question one of which is recommended: those that fit a capacity and take no longer."""

    capacities: NDArray[np.intp]
    longest: NDArray[np.float64]
    """[s]"""


def limits_of(asked: Slice, least: NDArray[np.float64], factor: float) -> Limits:
    """Times within a factor of the fastest, and of the fastest that have headroom, as far as these may be recommended.

    ``least``: the fastest step of plans that fit a capacity, by system and capacity [s].
    """
    own, roomy = np.unique([asked.capacities, asked.roomy], axis=1)
    found = np.full_like(least.T, -np.inf)
    np.maximum.at(found, own, least.T[own] * factor)
    np.maximum.at(found, roomy, np.minimum(least.T[roomy] * factor, least.T[own] * ROOM_FACTOR))
    return _of_smaller_too(found.T)


def limits_within(asked: Slice, least: NDArray[np.float64], most: Sequence[float]) -> Limits:
    """Limits of the fastest plan of every question, and of its candidates that take no longer than ``most``. [s]"""
    found, systems, own = np.full_like(least, -np.inf), np.asarray(asked.systems), np.asarray(asked.capacities)
    capacities, longest = candidates(asked, least)
    for index, limit in ((own, least[systems, own]), (capacities, np.minimum(longest, most))):
        np.maximum.at(found.reshape(-1), systems * least.shape[1] + index, limit)
    return _of_smaller_too(found)


def candidates(asked: Slice, least: NDArray[np.float64]) -> Recommendable:
    """Of every question: the ties with headroom, else the fastest that has it and its ties, else all ties."""
    systems, own, roomy = asked.systems, np.asarray(asked.capacities), np.asarray(asked.roomy)
    fastest, with_room, factor = least[systems, own], least[systems, roomy], tie_factor()
    has_room = with_room <= fastest * (ROOM_FACTOR * (1 + SAME))
    is_slower = has_room & (with_room > fastest * (factor * (1 + SAME)))
    slower = np.minimum(with_room * factor, fastest * ROOM_FACTOR)
    return Recommendable(np.where(has_room, roomy, own), np.where(is_slower, slower, fastest * factor))


def _of_smaller_too(limits: NDArray[np.float64]) -> Limits:
    """Limits of capacities hold for plans that fit smaller ones too."""
    found = np.maximum.accumulate(limits[:, ::-1], axis=1)[:, ::-1] * (1 + SAME)
    return np.pad(found, ((0, 0), (0, 1)), constant_values=-np.inf)
