"""Pruning: plans are left out of a search where a bound shows that they are slower than anything it is asked for.

What is asked for are goals: the plans of the list and all that tie with the fastest, the best plan with given values
of its fields, or all plans up to a step time. A goal has a limit, the slowest step that is still of use to it. The
limit is unknown until some plans that fit have been priced; the most promising ones come first. From then on, plans
whose bound is above the limits of all goals are left out, so that what is answered is what a search of every plan
answers.

A search that counts the plans that fit finds the memory of every plan, and leaves out no more than the step times of
those that are too slow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.fields import dataclass
from shardplan.estimation.ties import tie_factor
from shardplan.planner.evaluation import Table
from shardplan.planner.family import Family
from shardplan.planner.pruning.pruned import Pruned, tables_of_pruned
from shardplan.planner.ranking import best_cell, cells_with, least_of_different
from shardplan.planner.stopping import Stop

FIRST: Final = 64
"""Sets of degrees of which the most promising plans are priced first, to find a limit."""
MORE: Final = 8
"""Times as many are priced next."""


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


@dataclass(frozen=True)
class Within(Goal):
    """All plans that take no longer."""

    most: float
    """[s]"""

    def limit(self, tables: Sequence[Table]) -> float:  # noqa: ARG002
        """As it is."""
        return self.most

    def cells(self, family: Family) -> NDArray[np.bool_]:
        """Every plan."""
        return family.recomputes


def priced_for(families: Sequence[Pruned], goals: Sequence[Goal], stop: Stop | None = None) -> list[Pruned]:
    """The same families with all plans priced that ``goals`` ask for too."""
    return with_prices([each.copy() for each in families], goals, stop)


def with_prices(found: list[Pruned], goals: Sequence[Goal], stop: Stop | None) -> list[Pruned]:
    """The families, with all plans priced that ``goals`` ask for. Raises ``SearchStopped`` where ``stop`` says so."""
    for each in found[:1]:  # what some of its plans take is a limit for all others
        _price_some(each, found, _asked(goals, each), FIRST, stop)
    for each in (*reversed(found), *(found if any(goal.may_rise for goal in goals) else ())):
        left, size = _asked(goals, each), FIRST * MORE if len(found) > 1 else FIRST
        while left:
            left = _price_some(each, found, left, size, stop)
            size *= MORE
    return found


Asked = tuple[Goal, NDArray[np.bool_]]
"""A goal, and where plans of a family that are of use to it can be."""


def _asked(goals: Sequence[Goal], each: Pruned) -> list[Asked]:
    return [(goal, goal.cells(each.tables.family)) for goal in goals]


def _price_some(
    each: Pruned, found: Sequence[Pruned], goals: Sequence[Asked], size: int, stop: Stop | None
) -> list[Asked]:
    """Prices the most promising plans of a family that goals ask for. Returns the goals that may ask for others."""
    tables = tables_of_pruned(found)
    left = []
    for goal, cells in goals:
        limit = goal.limit(tables)
        of_use = each.of_use(cells, limit)
        num_points = np.count_nonzero(of_use.any(axis=0))
        if size > MORE * FIRST and not each.is_counted and (np.isinf(limit) or num_points > size):
            each.count(stop)  # little fits, or nothing: memory leaves out more plans than the limit
            of_use = each.of_use(cells, limit)
        if of_use.any():
            each.price(each.most_promising(of_use, size), limit, stop)
            left.append((goal, cells))
    return left
