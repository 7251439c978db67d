"""A family of which some plans are priced: the memory of all where they are counted, the step times of few.

A plan is looked at where two bounds (``planner.pruning.bounds``) and its memory, as far as it is known, leave open that
it is of use. Then a closer bound is found, that of its pipeline, and last its step.

A part of a family is run by software of its own. What holds whatever software runs a plan bounds its step before
anything of it is priced: the computation that no choice takes away, and the share of its exchanges that shows all the
same (``bounds.least_by_software``). Most plans are too slow by that alone; the blocks of the others are priced, and
they are a family of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardplan.inputs.plan import Plan
from shardplan.planner.evaluation import Table, pairs_in
from shardplan.planner.family import Family
from shardplan.planner.pricing.cutting import pieces_of
from shardplan.planner.pricing.pairs import Pairs, least_times, step_times
from shardplan.planner.pricing.pieces import FASTEST, PointGroup
from shardplan.planner.pricing.tables import Tables
from shardplan.planner.pruning.bounds import (
    ROUNDING,
    FirstStages,
    bound_and_promise,
    least_by_software,
    least_bytes,
    least_of_exchanges,
    least_shares,
)
from shardplan.planner.stopping import Stop, check

Bits = NDArray[Any]
"""A bit for every kind of sharding."""
Wanted = Callable[[Family], NDArray[np.bool_]]
"""Where plans of a family can be that are asked for, by slot of recomputation and point."""
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
        self.knows_memory = False
        """Whether plans have been left out of ``kinds`` that need too much of it, by a bound if not counted."""
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

    @property
    def near(self) -> PrunedFamily:
        """The plans that are looked at: all."""
        return self

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

    def of_use(self, wanted: Wanted, limit: float) -> NDArray[np.bool_]:
        """Those of the wanted cells of which some plans are not priced, may fit, and may be within the limit."""
        limit *= 1 + ROUNDING
        left = wanted(self.tables.family) & self.cells & (self.kinds != 0) & (self.reach < limit)
        if not left.any():
            return left
        left = left & (self._bound_and_promise[0] <= limit)
        if left.any() and not self.knows_memory:
            self._leave_out_what_is_too_large()
        return left & ((self.kinds & bits_of(self.exchanges <= limit)) != 0) if left.any() else left

    def _leave_out_what_is_too_large(self) -> None:
        """Plans that cannot fit, as far as the first stages of pipelines tell, whatever software runs them."""
        tables = self._of_all_software
        fits = FirstStages(tables).least_memory() <= FASTEST.most_bytes(tables.question) * (1 + ROUNDING)
        self.kinds_of_whole = np.where(fits, bits_of(tables.family.shards), 0)
        self.kinds, self.knows_memory = self.kinds_of_whole & self.kinds, True

    @property
    def _of_all_software(self) -> Tables:
        """Of a part that stands for a whole family all its plans, whatever software runs them."""
        return self.tables.whole_family if self.tables.family.counts else self.tables

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
        """Finds the memory of all plans, which their placement does not change, and counts those that fit."""
        tables = self._of_all_software
        self.kinds_of_whole, self.num_feasible = counted(tables, stop)
        self.num_evaluated, self.is_counted, self._table = tables.family.num_plans(), True, None
        self.kinds, self.knows_memory = self.kinds_of_whole & self.kinds, True


def _pairs(tables: Tables, cells: NDArray[np.bool_]) -> tuple[Tables, Pairs, NDArray[np.intp]]:
    """All plans of some cells but for their sharding, in tables at hand or in those of a part; and their points."""
    points = np.arange(cells.shape[1])
    if not tables.are_at_hand:
        points = np.flatnonzero(cells.any(axis=0))
        cells = cells[:, points]
        tables = tables.within(points, cells)
    pairs = pairs_in(tables, cells)
    return tables, pairs, points[pairs.points]


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


class _Whole:
    """What the parts of a family have in common."""

    def __init__(self, first: PrunedFamily) -> None:
        self.first = first
        self._least: dict[tuple[float, float], NDArray[np.float64]] = {}
        self._fast: dict[float, Bits] = {}

    def least(self, *, tp: float, ep: float) -> NDArray[np.float64]:
        """The bound of plans that leave these shares of exchanges exposed, by slot of recomputation and point. [s]"""
        if (tp, ep) not in self._least:
            self._least[tp, ep] = least_by_software(self.first.tables.whole_family, tp=tp, ep=ep)
        return self._least[tp, ep]

    def fast_kinds(self, limit: float) -> Bits:
        """Kinds of sharding whose exchanges alone leave room below a limit, by point."""
        if limit not in self._fast:
            self._fast = {limit: bits_of(self.first.exchanges <= limit)}
        return self._fast[limit]


class PrunedPart:
    """As ``PrunedFamily``, of a part of a family. What it returns of cells is of the plans that are looked at."""

    def __init__(self, tables: Tables, whole: _Whole) -> None:
        self.tables, self.cells, self._whole = tables, tables.family.recomputes, whole
        self.near: PrunedFamily | None = None
        """Those that are looked at, as a family of their own."""
        self._points = np.empty(0, dtype=np.intp)
        """Points of the plans that are looked at."""

    @cached_property
    def _least(self) -> NDArray[np.float64]:
        return self._whole.least(**least_shares(self._whole.first.tables, self.tables))

    @cached_property
    def _least_of_points(self) -> NDArray[np.float64]:
        return np.min(self._least, axis=0, where=self.cells, initial=np.inf)

    def _kinds(self, points: NDArray[np.intp]) -> Bits:
        """Kinds of sharding under which plans may fit: they need no less memory than the first of the family."""
        family, first = self.tables.family, self._whole.first
        own = np.where(family.recomputes[:, points], bits_of(family.shards[:, points]), 0)
        return own & first.kinds_of_whole[:, points] if first.knows_memory else own

    def copy(self) -> PrunedPart:
        """The same, to be priced further."""
        made = object.__new__(PrunedPart)
        made.__dict__ |= self.__dict__ | {"near": None if self.near is None else self.near.copy()}
        return made

    def only(self, cells: NDArray[np.bool_]) -> PrunedPart:
        """The same without the plans at other cells."""
        near = None if self.near is None else self.near.only(cells[:, self._points])
        made = self.copy()
        made.__dict__ |= {"cells": self.cells & cells, "near": near}
        return made

    def of_use(self, wanted: Wanted, limit: float) -> NDArray[np.bool_]:
        """Those of the wanted cells of which some plans are not priced, may fit, and may be within the limit."""
        within = limit * (1 + ROUNDING)
        points = np.flatnonzero(self._least_of_points <= within)
        if len(points):
            near = self.cells[:, points] & (self._least[:, points] <= within)
            near &= (self._kinds(points) & self._whole.fast_kinds(within)[points]) != 0
            near &= wanted(self.tables.family.within(points))
            self._look_at(points[near.any(axis=0)])
        if self.near is None:
            return np.zeros((len(self.cells), 0), dtype=bool)
        return self.near.of_use(wanted, limit)

    def _look_at(self, points: NDArray[np.intp]) -> None:
        """Takes in plans of more points; what has been priced stays."""
        every = np.union1d(self._points, points)
        if len(every) == len(self._points):
            return
        before, part = self.near, self.tables.family.part
        near = PrunedFamily(self.tables.within(every, self.tables.family.recomputes[:, every]))
        near.kinds, near.cells = self._kinds(every), self.cells[:, every]
        near.__dict__["exchanges"] = self._whole.first.exchanges[:, every]
        near.is_counted = self._whole.first.is_counted and part is not None and part.same_memory
        near.knows_memory = True
        if before is not None:
            known = np.searchsorted(every, self._points)
            near.best[:, :, known], near.reach[:, known] = before.best, before.reach
        self.near, self._points = near, every


Pruned = PrunedFamily | PrunedPart


def pruned_families(tables: Sequence[Tables]) -> list[Pruned]:
    """Families of which no plan is priced yet; the first of those with the same plans stands for all."""
    wholes: dict[int, _Whole] = {}
    found: list[Pruned] = []
    for each in tables:
        whole = wholes.get(id(each.family.whole))
        found.append(PrunedFamily(each) if whole is None else PrunedPart(each, whole))
        if whole is None:
            wholes[id(each.family.whole)] = _Whole(found[-1])  # type: ignore[arg-type]  # made in this line's place
    return found


def tables_of_pruned(families: Sequence[Pruned]) -> list[Table]:
    """What is priced of some families."""
    return [each.near.table for each in families if each.near is not None]
