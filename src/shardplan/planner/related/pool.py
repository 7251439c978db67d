"""Plans of a part of a family that fit in memory: a pool, of which those are priced that may be of use.

A plan is of use to a system and a capacity where its step takes no longer than some limit. Bounds come first: that of
all plans of a point, then, where it is within the limit, that of the pipeline, and last the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardplan.planner.pricing.pairs import Index, Pairs, least_times, step_times
from shardplan.planner.pricing.pieces import pieces_of
from shardplan.planner.pricing.tables import Tables
from shardplan.planner.pruning.bounds import ROUNDING
from shardplan.planner.stopping import Stop, check

Limits = NDArray[np.float64]
"""The slowest step of use, by system and by the smallest capacity in which a plan fits; minus infinity where it fits
none. [s]"""
SOME = 32
"""Plans of every system and capacity whose closer bound is found first, to price the most promising of them."""


class Fitting(NamedTuple):
    """Plans that fit, each under one of the systems: columns of one length."""

    places: Index
    """Rows: family, sharding, slot of recomputation, layout, point."""
    systems: Index
    classes: Index
    """The smallest capacity in which each fits."""
    peak_memory_bytes: NDArray[np.float64]
    step_time: NDArray[np.float64]
    """[s]"""

    def at(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> Fitting:
        """Those at these positions."""
        columns: Any = (column[..., index] for column in self)
        return Fitting(*columns)

    def within(self, limits: Limits) -> Fitting:
        """Those whose step takes no longer."""
        return self.at(self.step_time <= limits[self.systems, self.classes])

    def in_order(self) -> Fitting:
        """The same in the order in which a search names equally fast plans."""
        family, sharding, slot, layout, point = self.places
        return self.at(np.lexsort((layout, slot, sharding, point, family)))

    @classmethod
    def joined(cls, parts: Sequence[Fitting]) -> Fitting:
        """Plans of several lists; none of no list."""
        if not parts:
            none = np.empty(0, dtype=np.intp)
            return cls(np.empty((5, 0), dtype=np.intp), none, none, np.empty(0), np.empty(0))
        return cls(*(np.concatenate(columns, axis=-1) for columns in zip(*parts, strict=True)))


class Pool:
    """Plans but for their sharding that fit and may be of use, as far as the first bound says."""

    def __init__(self, tables: Tables, usable: NDArray[np.float64], stop: Stop | None) -> None:
        """``usable``: what tensors can fill of each capacity, ascending. [bytes]"""
        self._tables, self._usable, self._stop = tables, usable, stop
        self._plans = np.empty((3, 0), dtype=np.intp)
        """Slots of recomputation, layouts and points."""

    def fill(self, bound: NDArray[np.float64], limits: Limits) -> None:
        """Finds the memory of all plans. ``bound``: what plans take at least, by system, slot and point. [s]"""
        shares, num_kinds = _least_shares(bound, limits), len(self._tables.family.shardings)
        plans, peaks, bounds = [], [], []
        for at, pieces in pieces_of(self._tables):
            for piece in pieces:
                check(self._stop)
                smallest = np.searchsorted(self._usable, piece.peaks.min(axis=0))
                slot, point = np.nonzero(shares[smallest, at.slots[:, None], at.points] <= 1 + ROUNDING)
                layouts = piece.layouts if len(piece.layouts) == 1 else piece.layouts[point]
                plans.append(np.stack(np.broadcast_arrays(at.slots[slot], layouts, at.points[point])))
                peaks.append(np.full((num_kinds, len(slot)), np.inf))
                peaks[-1][at.shardings] = piece.peaks[:, slot, point]
                bounds.append(bound[:, at.slots[slot], at.points[point]])
        self._plans = np.concatenate(plans, axis=-1)
        self._peak = np.concatenate(peaks, axis=-1)
        self._smallest = np.searchsorted(self._usable, self._peak)
        self._bound = np.concatenate(bounds, axis=-1)
        self._is_close = np.zeros(self._bound.shape, dtype=bool)

    def promising(self, limits: Limits) -> Limits:
        """Limits within which, by its bound, is a plan of every system and capacity; no higher than these."""
        if np.isfinite(limits[:, :-1]).all():
            return limits
        self._come_closer(self._with_some(self._bound, limits, SOME))
        return self._with_some(np.where(self._is_close, self._bound, np.inf), limits, 1)

    def _with_some(self, bound: NDArray[np.float64], limits: Limits, number: int) -> Limits:
        """Limits within which are so many of these bounds of every system and capacity."""
        found, least = limits.copy(), self._smallest.min(axis=0)
        for capacity in range(len(self._usable)):
            fitting = bound[:, least <= capacity]
            if fitting.shape[1] >= number:
                last = np.partition(fitting, number - 1, axis=1)[:, number - 1]
                found[:, capacity] = np.fmin(found[:, capacity], last)
        return found

    def price(self, limits: Limits, kept: Limits) -> Fitting:
        """Plans that have not been priced and may be within limits: those within others, which are no lower."""
        self._come_closer(limits)
        pairs, columns = self._near(limits)
        smallest = self._smallest[:, columns]
        most = kept[pairs.systems, smallest] * (1 + ROUNDING)
        times = step_times(self._tables, pairs, self._bound[pairs.systems, columns] <= most, self._stop)
        self._bound[pairs.systems, columns] = np.nan  # none is priced twice: limits only fall
        sharding, pair = np.nonzero((times <= most) & np.isfinite(times))
        found = pairs.at(pair)
        return Fitting(
            places=np.stack([np.zeros_like(sharding), sharding, found.slots, found.layouts, found.points]),
            systems=found.systems,
            classes=smallest[sharding, pair],
            peak_memory_bytes=self._peak[sharding, columns[pair]],
            step_time=times[sharding, pair],
        )

    def _come_closer(self, limits: Limits) -> None:
        """Finds the closer bound of plans that may be within limits."""
        pairs, columns = self._near(limits, without=self._is_close)
        self._bound[pairs.systems, columns] = least_times(self._tables, pairs, self._stop)
        self._is_close[pairs.systems, columns] = True

    def _near(self, limits: Limits, without: NDArray[np.bool_] | None = None) -> tuple[Pairs, Index]:
        """Plans and systems whose bound is within limits, and their positions in the pool."""
        limit = limits[:, :1] if len(self._usable) == 1 else limits[:, self._smallest.min(axis=0)]
        near = self._bound <= limit * (1 + ROUNDING)
        systems, columns = np.nonzero(near if without is None else near > without)
        return Pairs(systems, *self._plans[:, columns]), columns


def _least_shares(bound: NDArray[np.float64], limits: Limits) -> NDArray[np.float64]:
    """What share of the limit plans take at least, of the system of the smallest: by capacity, slot and point."""
    shares = [(bound / limit[:, None, None]).min(axis=0) for limit in limits.T[:-1]]
    return np.stack([*shares, np.full(bound.shape[1:], np.inf)])  # where a plan fits no capacity
