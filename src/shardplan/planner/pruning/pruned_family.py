"""A family of which some plans are priced: the memory of all where they are counted, the step times of few.

A plan is looked at where two bounds (``planner.pruning.bounds``) and its memory, as far as it is known, leave open that
it is of use. Then a closer bound is found, that of its pipeline, and last its step.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardplan.inputs.plan import Plan
from shardplan.planner.evaluation import Table
from shardplan.planner.listed import with_chunks
from shardplan.planner.objective import FASTEST
from shardplan.planner.pricing.cutting import pieces_of
from shardplan.planner.pricing.pairs import Pairs, least_times, step_times
from shardplan.planner.pricing.pieces import PointGroup
from shardplan.planner.pricing.tables import Tables
from shardplan.planner.pruning.bounds import ROUNDING, bound_and_promise, least_bytes, least_of_exchanges
from shardplan.planner.stopping import Stop, check

Bits = NDArray[Any]
"""A bit for every kind of sharding."""
LAST_BIT = 63
"""Kinds of sharding beyond it share it."""


class PrunedFamily:
    """A family of which some plans are priced: those that goals so far could ask for."""

    def __init__(self, tables: Tables) -> None:
        family = tables.family
        shape = len(family.policies), family.num_points
        self.tables = tables
        self.cells = family.recomputes
        """Where plans are looked for, by slot and point."""
        self.best = np.full((len(family.shardings), *shape), np.inf)
        self.reach = np.full(shape, -np.inf)
        """Plans whose bound is at most this are priced, by slot and point. [s]"""
        self.kinds = np.where(family.recomputes, bits_of(family.shards), 0)
        """Kinds of sharding under which a plan may fit, as far as that is known, a bit each: by slot and point."""
        self.num_evaluated = 0
        """Plans that are priced, or all where the memory of all was found."""
        self.is_counted = False
        """Whether the memory of all plans was found."""
        self.num_feasible = 0
        self._table: Table | None = None
        self.kinds_of_whole = self.kinds
        """As ``kinds``, for all plans of the whole."""

    @cached_property
    def _bound_and_promise(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return bound_and_promise(self.tables)

    @cached_property
    def exchanges(self) -> NDArray[np.float64]:
        """The second bound."""
        return least_of_exchanges(self.tables)

    def copy(self) -> PrunedFamily:
        """The same, to be priced further."""
        made = object.__new__(PrunedFamily)
        made.__dict__ |= self.__dict__ | {"best": self.best.copy(), "reach": self.reach.copy(), "_table": None}
        return made

    def only(self, cells: NDArray[np.bool_]) -> PrunedFamily:
        """The same without the plans at other cells."""
        made = self.copy()
        made.cells, made.best = self.cells & cells, np.where(cells, self.best, np.inf)
        return made

    @property
    def table(self) -> Table:
        """What is priced, as a table; infinite elsewhere."""
        if self._table is None:
            counts = self.tables.family.counts
            self._table = Table(
                tables=self.tables,
                best=self.best,
                num_evaluated=self.num_evaluated if counts else 0,
                num_feasible=self.num_feasible if counts else 0,
            )
        return self._table

    def of_use(self, cells: NDArray[np.bool_], limit: float) -> NDArray[np.bool_]:
        """Those of the cells of which some plans are not priced, may fit, and may be within the limit."""
        limit *= 1 + ROUNDING
        left = cells & self.cells & (self.kinds != 0) & (self.reach < limit)
        if not left.any():
            return left
        left = left & ((self.kinds & bits_of(self.exchanges <= limit)) != 0)
        return left & (self._bound_and_promise[0] <= limit)

    def most_promising(self, cells: NDArray[np.bool_], size: int) -> NDArray[np.bool_]:
        """The best of the cells for ``size`` sets of degrees, by what they promise; all where points are no more."""
        points = np.flatnonzero(cells.any(axis=0))
        if len(points) <= size:
            return cells
        kinds = _flags_of(self.kinds[:, points], len(self.exchanges)) & cells[:, points]
        exchange = np.where(kinds, self.exchanges[:, None, points], np.inf).min(axis=0)
        promise = np.maximum(self._bound_and_promise[1][:, points], exchange)
        first = _first_of_each(self.tables.family.points["layout"][points], promise.min(axis=0), size)
        chosen = np.zeros_like(cells)
        chosen[promise[:, first].argmin(axis=0), points[first]] = True
        return chosen

    def price(self, cells: NDArray[np.bool_], limit: float, stop: Stop | None) -> None:
        """Prices all plans of some cells whose bounds are within a limit."""
        self._table = None
        limit *= 1 + ROUNDING
        tables, pairs, points = _pairs(self.tables, cells)
        is_first = np.isinf(limit) and (self.reach[cells] < 0).all()  # all of it is priced, whatever its bound
        least = np.full(len(points), -np.inf) if is_first else least_times(tables, pairs, stop)
        near = np.flatnonzero(least <= limit)
        pairs, least, at = pairs.at(near), least[near], (pairs.slots[near], points[near])
        bound = np.maximum(least, self.exchanges[:, at[1]])
        wanted = _flags_of(self.kinds[at], len(bound)) & (bound <= limit) & (bound > self.reach[at])
        times = step_times(tables, pairs, wanted, stop, reads="both")
        shardings, index = np.nonzero(np.isfinite(times))
        np.minimum.at(self.best, (shardings, at[0][index], at[1][index]), times[shardings, index])
        self.reach[cells] = limit
        if not self.is_counted:
            self.num_evaluated += int(np.count_nonzero(wanted))
            self.num_feasible += len(index)

    def count(self, stop: Stop | None) -> None:
        """Finds the memory of all plans, which their placement does not change, and counts those that fit.

        Of a part that stands for a whole family, of all its plans, whatever software runs them.
        """
        tables = self.tables.whole_family if self.tables.family.counts else self.tables
        self.kinds_of_whole, self.num_feasible = counted(tables, stop)
        self.num_evaluated, self.is_counted, self._table = tables.family.num_plans(), True, None
        self.kinds = self.kinds_of_whole & self.kinds


def _pairs(tables: Tables, cells: NDArray[np.bool_]) -> tuple[Tables, Pairs, NDArray[np.intp]]:
    """All plans of some cells but for their sharding, in tables at hand or in those of a part; and their points."""
    points = np.arange(cells.shape[1])
    if not tables.are_at_hand:
        points = np.flatnonzero(cells.any(axis=0))
        cells = cells[:, points]
        tables = tables.within(points, cells)
    slots, here = np.nonzero(cells)
    plans, _ = with_chunks(tables, np.zeros_like(slots), slots, here)
    return tables, Pairs(plans.shardings, plans.slots, plans.layouts, plans.points), points[plans.points]


def counted(tables: Tables, stop: Stop | None) -> tuple[Bits, int]:
    """Kinds of sharding under which the plans of a family fit, by slot and point; and how many plans that are."""
    family, most = tables.family, FASTEST.most_bytes(tables.question)
    kinds, num_feasible = np.zeros_like(np.where(family.recomputes, bits_of(family.shards), 0)), 0
    if least_bytes(tables.question, family.switches.get("offload", Plan().offload)) > most:
        return kinds, 0
    chosen, which = family.placed_alike()
    times = np.bincount(which)[which]
    for at, pieces in pieces_of(tables, most, chosen):
        fits: Any = False
        for piece in pieces:
            check(stop)
            num_feasible += _count(piece.fits, times[at.points])
            fits = fits | piece.fits
        _add(kinds, at, bits_of(fits, at.shardings))
    return kinds[:, chosen[which]], num_feasible


def _add(whole: Bits, at: PointGroup, kinds: Bits) -> None:
    """Adds kinds of sharding under which plans of some points fit."""
    points = at.points[at.starts]
    if len(points) < len(at.points):
        kinds = np.bitwise_or.reduceat(kinds, at.starts, axis=1)
    for slot, found in zip(at.slots.tolist(), kinds, strict=True):
        whole[slot, points] |= found


def _count(flags: NDArray[np.bool_], times: NDArray[np.intp]) -> int:
    """How many hold, those of each position of the last axis as many times."""
    if times[0] == times[-1] and (times == times[0]).all():
        return int(np.count_nonzero(flags)) * int(times[0])
    return int(np.count_nonzero(flags, axis=(0, 1)) @ times)


def bits_of(flags: NDArray[np.bool_], kinds: NDArray[np.intp] | None = None) -> Bits:
    """Flags by kind of sharding as bits of one number; of listed ``kinds``, or of all."""
    bits = np.minimum(np.arange(len(flags)) if kinds is None else kinds, LAST_BIT)
    weights = np.left_shift(np.uint64(1), bits.astype(np.uint64))
    weights = weights.astype(np.min_scalar_type(weights.max())).reshape(-1, *[1] * (flags.ndim - 1))
    found: Bits = np.bitwise_or.reduce(flags * weights, axis=0)
    return found


def _flags_of(bits: Bits, number: int) -> NDArray[np.bool_]:
    """Flags of the first ``number`` kinds of sharding, on an axis in front of the others."""
    return np.stack([bits & (1 << min(kind, LAST_BIT)) != 0 for kind in range(number)])


def _first_of_each(keys: NDArray[np.intp], values: NDArray[np.float64], size: int) -> NDArray[np.intp]:
    """Positions of the least value of every key, the least ``size`` of them."""
    least = np.full(int(keys.max()) + 1, np.inf)
    np.minimum.at(least, keys, values)
    first = np.flatnonzero(values == least[keys])
    return first if len(first) <= size else first[np.argpartition(values[first], size)[:size]]
