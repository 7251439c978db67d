"""Plans of a family that are run by software of their own, of which those are looked at that may be of use.

What holds whatever software runs a plan bounds its step before anything of it is priced: the computation that no choice
takes away, and the share of its exchanges that shows all the same (``bounds.least_by_software``). Most plans are too
slow by that alone; the blocks of the others are priced, and they are a family of their own (``PrunedFamily``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shardplan.planner.evaluation import Table
from shardplan.planner.pricing.tables import Tables
from shardplan.planner.pruning.bounds import ROUNDING, least_by_software, least_shares
from shardplan.planner.pruning.pruned_family import Bits, PrunedFamily, bits_of
from shardplan.planner.stopping import Stop


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
        self._near: PrunedFamily | None = None
        self._points = np.empty(0, dtype=np.intp)
        """Points of the plans that are looked at."""

    @cached_property
    def _least(self) -> NDArray[np.float64]:
        return self._whole.least(**least_shares(self._whole.first.tables, self.tables))

    @property
    def kinds(self) -> Bits:
        """Kinds of sharding under which plans may fit: they need no less memory than the first of the family."""
        family, first = self.tables.family, self._whole.first
        own = np.where(family.recomputes, bits_of(family.shards), 0)
        return own & first.kinds_of_whole if first.is_counted else own

    @property
    def table(self) -> Table | None:
        """What is priced; None where nothing has been looked at."""
        return None if self._near is None else self._near.table

    @property
    def is_counted(self) -> bool:
        """Whether the memory of all plans that are looked at is known."""
        return self._near is None or self._near.is_counted

    def copy(self) -> PrunedPart:
        """The same, to be priced further."""
        made = object.__new__(PrunedPart)
        made.__dict__ |= self.__dict__ | {"_near": None if self._near is None else self._near.copy()}
        return made

    def only(self, cells: NDArray[np.bool_]) -> PrunedPart:
        """The same without the plans at other cells."""
        near = None if self._near is None else self._near.only(cells[:, self._points])
        made = self.copy()
        made.__dict__ |= {"cells": self.cells & cells, "_near": near}
        return made

    def of_use(self, cells: NDArray[np.bool_], limit: float) -> NDArray[np.bool_]:
        """Those of the cells of which some plans are not priced, may fit, and may be within the limit."""
        within = limit * (1 + ROUNDING)
        near = cells & self.cells & (self._least <= within)
        if near.any():
            near &= (self.kinds & self._whole.fast_kinds(within)) != 0
            self._look_at(np.flatnonzero(near.any(axis=0)))
        if self._near is None:
            return np.zeros((len(cells), 0), dtype=bool)
        return self._near.of_use(cells[:, self._points], limit)

    def most_promising(self, cells: NDArray[np.bool_], size: int) -> NDArray[np.bool_]:
        """As ``PrunedFamily.most_promising``."""
        assert self._near is not None, "there are cells"
        return self._near.most_promising(cells, size)

    def price(self, cells: NDArray[np.bool_], limit: float, stop: Stop | None) -> None:
        """As ``PrunedFamily.price``."""
        assert self._near is not None, "there are cells"
        self._near.price(cells, limit, stop)

    def count(self, stop: Stop | None) -> None:
        """Finds the memory of all plans that are looked at."""
        if self._near is not None:
            self._near.count(stop)

    def _look_at(self, points: NDArray[np.intp]) -> None:
        """Takes in plans of more points; what has been priced stays."""
        every = np.union1d(self._points, points)
        if len(every) == len(self._points):
            return
        before, part = self._near, self.tables.family.part
        near = PrunedFamily(self.tables.within(every, self.tables.family.recomputes[:, every]))
        near.kinds, near.cells = self.kinds[:, every], self.cells[:, every]
        near.__dict__["exchanges"] = self._whole.first.exchanges[:, every]
        near.is_counted = self._whole.first.is_counted and part is not None and part.same_memory
        if before is not None:
            known = np.searchsorted(every, self._points)
            near.best[:, :, known], near.reach[:, known] = before.best, before.reach
        self._near, self._points = near, every


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
    return [table for each in families if (table := each.table) is not None]
