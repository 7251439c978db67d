"""Pruning: plans are left out of a search where a bound shows that they are slower than anything it is asked for.

What is asked for are goals: the plans of the list and all that tie with the fastest, or the best plan with given values
of its fields. A goal has a limit, the slowest step that is still of use to it. The limit is unknown until some plans
that fit have been priced; the most promising ones come first. From then on, plans whose bound is above the limits of
all goals are left out, so that what is answered is what a search of every plan answers.

A search that counts the plans that fit finds the memory of every plan, and leaves out no more than the step times of
those that are too slow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shardplan.estimation.question import Question
from shardplan.estimation.ties import tie_factor
from shardplan.fields import dataclass
from shardplan.planner.evaluation import FitCount, Table, evaluated, lower
from shardplan.planner.family import Family
from shardplan.planner.layouts import KnownPipelines
from shardplan.planner.objective import FASTEST
from shardplan.planner.pricing.pieces import pieces_of
from shardplan.planner.pricing.tables import Tables
from shardplan.planner.pruning.bounds import (
    ROUNDING,
    bound_and_promise,
    least_of_pipelines,
)
from shardplan.planner.ranking import best_cell, cells_with, least_of_different
from shardplan.planner.stopping import Stop, check

ENOUGH: Final = 1024
"""Points of a family below which all are priced at once: bounds and pieces take longer than the plans."""
FIRST: Final = 64
"""Points that are priced to find a limit."""
MORE: Final = 2
"""Times as many are priced next where none is found, or one that more than these promise to be within."""


class Goal(ABC):
    """What is asked of a search."""

    @abstractmethod
    def limit(self, tables: Sequence[Table]) -> float:
        """Plans that take longer are of no use, whatever else is still priced; infinite where that is not known. [s]"""

    @abstractmethod
    def cells(self, family: Family) -> NDArray[np.bool_]:
        """Where plans that are of use can be, by slot of recomputation and point."""

    @property
    def may_rise(self) -> bool:
        """Whether the limit may rise, so that families are looked at once more."""
        return False


@dataclass(frozen=True)
class Listing(Goal):
    """The best plans, as many with different degrees as are listed, and all that tie with the fastest."""

    top: int = 1
    within: float = np.inf
    """Where even the fastest takes longer, none is of use. [s]"""

    def limit(self, tables: Sequence[Table]) -> float:
        """The last of the list, and the last of the ties."""
        known = least_of_different(tables, self.top)
        if not len(known) or known[0] > self.within:
            return self.within
        return max(known[-1], known[0] * tie_factor()) if len(known) == self.top else np.inf

    def cells(self, family: Family) -> NDArray[np.bool_]:
        """Every plan."""
        return family.recomputes

    @property
    def may_rise(self) -> bool:
        """Where a plan is found that is fast enough, its ties and the list may take longer than it may."""
        return bool(np.isfinite(self.within))


@dataclass(frozen=True)
class BestWith(Goal):
    """The best plan with given values of its fields."""

    wanted: Mapping[str, Any]
    within: float = np.inf
    """Plans that take longer are of no use. [s]"""

    def limit(self, tables: Sequence[Table]) -> float:
        """The best one known."""
        best = best_cell(tables, **self.wanted)
        return self.within if best is None else min(best.value, self.within)

    def cells(self, family: Family) -> NDArray[np.bool_]:
        """Plans with these values."""
        return cells_with(family, self.wanted)


class PrunedFamily:
    """A family of which some plans are priced: those that goals so far could ask for."""

    def __init__(self, tables: Tables) -> None:
        family = tables.family
        shape = len(family.policies), family.num_points
        self.tables = tables
        self.best = np.full((len(family.shardings), *shape), np.inf)
        self.priced = np.zeros(shape, dtype=bool)
        bound, self.promise = bound_and_promise(tables)
        self.bound = bound.copy()
        self.is_close = np.zeros(shape, dtype=bool)
        """Where the bound is the closer one, of pipelines."""
        self.is_lightest = family.is_lightest
        """The smallest micro-batch of every set of degrees, of whose plans most fit."""
        self.may_fit = family.recomputes
        """Where a plan fits, as far as that is known."""
        self.num_evaluated = 0
        """Plans that are priced, or all where the memory of all was found."""
        self.is_counted = False
        """Whether the memory of all plans was found."""
        self.fit_count = FitCount()

    def copy(self) -> PrunedFamily:
        """The same, to be priced further."""
        made = object.__new__(PrunedFamily)
        made.__dict__ |= self.__dict__
        for name in ("best", "priced", "bound", "is_close", "fit_count"):
            setattr(made, name, copy(getattr(self, name)))
        return made

    @property
    def table(self) -> Table:
        """What is priced, as a table; infinite elsewhere."""
        return Table(
            tables=self.tables,
            best=self.best,
            num_evaluated=self.num_evaluated,
            num_feasible=self.fit_count.num_feasible,
        )

    def of_use(self, cells: NDArray[np.bool_], limit: float) -> NDArray[np.bool_]:
        """Those of the cells that are not priced, may fit, and may be within the limit."""
        return cells & self.may_fit & ~self.priced & (self.bound <= limit * (1 + ROUNDING))

    def most_promising(self, cells: NDArray[np.bool_], limit: float, size: int) -> NDArray[np.bool_]:
        """Cells of the ``size`` points that promise most; all where no more than these promise to be within a limit."""
        promise = np.where(cells, self.promise, np.inf).min(axis=0)
        points = np.flatnonzero((promise <= limit) & cells.any(axis=0))
        if len(points) <= size:
            return cells
        lightest = points[self.is_lightest[points]]
        if not np.isfinite(limit) and len(lightest) > size:
            points = lightest
        chosen = np.zeros(len(promise), dtype=bool)
        chosen[points[np.argpartition(promise[points], size)[:size]]] = True
        return cells & chosen

    def come_closer(self, cells: NDArray[np.bool_], limit: float, stop: Stop | None) -> None:
        """Finds the closer bound of some cells, where there is a limit that it can exceed."""
        cells = cells & ~self.is_close
        points = np.flatnonzero(cells.any(axis=0))
        if np.isfinite(limit) and len(points):
            found = least_of_pipelines(self.tables.within(points, cells[:, points]), stop)
            here = cells[:, points]
            self.bound[:, points] = np.where(here, found, self.bound[:, points])
            self.is_close |= cells

    def price(self, cells: NDArray[np.bool_], stop: Stop | None) -> None:
        """Prices all plans of some cells."""
        points = np.flatnonzero(cells.any(axis=0))
        if len(points):
            found = evaluated(self.tables.within(points, cells[:, points]), FASTEST, stop)
            self.best[:, :, points] = np.minimum(self.best[:, :, points], found.best)
            self.priced |= cells
            if not self.is_counted:
                self.num_evaluated += found.num_evaluated
                self.fit_count.num_feasible += found.num_feasible

    def count(self, stop: Stop | None) -> None:
        """Finds the memory of all plans, and counts those that fit."""
        none_fits = np.ones_like(self.priced)
        for at, pieces in pieces_of(self.tables, FASTEST.most_bytes(self.tables.question)):
            for piece in pieces:
                check(stop)
                lower(none_fits, at, np.logical_not(self.fit_count.look_at(piece).any(axis=0)))
        self.may_fit, self.is_counted = ~none_fits, True
        self.num_evaluated = self.tables.family.num_plans()


def pruned(
    question: Question, families: Sequence[Family], goal: Goal, known: KnownPipelines, stop: Stop | None = None
) -> list[PrunedFamily]:
    """The families with all plans priced that ``goal`` asks for. Raises ``SearchStopped`` where ``stop`` says so."""
    found = [PrunedFamily(Tables(question=question, family=family, known=known)) for family in families]
    return _with_prices(found, [goal], stop)


def counted(
    question: Question, families: Sequence[Family], goal: Goal, known: KnownPipelines, stop: Stop | None = None
) -> list[PrunedFamily]:
    """As ``pruned``, with the memory of every plan, so that those that fit are counted."""
    found = [PrunedFamily(Tables(question=question, family=family, known=known)) for family in families]
    for each in found:
        each.count(stop)
    return _with_prices(found, [goal], stop)


def priced_for(families: Sequence[PrunedFamily], goals: Sequence[Goal], stop: Stop | None = None) -> list[PrunedFamily]:
    """The same families with all plans priced that ``goals`` ask for too."""
    return _with_prices([each.copy() for each in families], goals, stop)


def _with_prices(found: list[PrunedFamily], goals: Sequence[Goal], stop: Stop | None) -> list[PrunedFamily]:
    """Prices all plans of families that ``goals`` ask for."""
    again = found if any(goal.may_rise for goal in goals) else []
    for each in (*found, *again):
        size = FIRST if each.tables.family.num_points >= ENOUGH else ENOUGH
        left = [(goal, goal.cells(each.tables.family)) for goal in goals]
        while left:
            left = _price_some(each, found, left, size, stop)
            size *= MORE
    return found


Asked = tuple[Goal, NDArray[np.bool_]]
"""A goal, and where plans of a family that are of use to it can be."""


def _price_some(
    each: PrunedFamily, found: Sequence[PrunedFamily], goals: Sequence[Asked], size: int, stop: Stop | None
) -> list[Asked]:
    """Prices plans of a family. Returns the goals that may ask for others.

    All within the limit of a goal; the most promising alone where more than ``size`` points promise to be, as they do
    where no limit is known yet.
    """
    tables = [one.table for one in found]
    left, chosen = [], np.zeros_like(each.priced)
    for goal, cells in goals:
        limit = goal.limit(tables)
        of_use = each.of_use(cells, limit)
        if not of_use.any():
            continue
        left.append((goal, cells))
        first = each.most_promising(of_use, limit, size)
        each.come_closer(first, limit, stop)
        chosen |= each.of_use(first, limit)
    each.price(chosen, stop)
    return left
