"""Every valid plan of a space, evaluated; or those that are asked for.

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
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.fields import dataclass, replace
from shardplan.estimation.estimate import Estimate, estimate_plans
from shardplan.estimation.question import Question
from shardplan.estimation.ties import tie_factor
from shardplan.inputs.plan import Plan
from shardplan.planner.evaluation import Table, best_plans, evaluated
from shardplan.planner.family import Family, KnownPipelines
from shardplan.planner.points import families
from shardplan.planner.priced_plans import ROOM_FACTOR, PricedPlans, fastest_of, has_headroom, priced_plans
from shardplan.planner.pricing.pieces import FASTEST, Objective
from shardplan.planner.pricing.tables import Tables, tables_of
from shardplan.planner.pruning.computing import EVERY, FastEnough
from shardplan.planner.pruning.pruned import Pruned, PrunedFamily, counted, pruned_families, tables_of_pruned
from shardplan.planner.ranking import Cell, best_cell, cells_with, least_of_different
from shardplan.planner.space import Space
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
        _price_some(each, found, goals, FIRST, stop)
    for each in (*reversed(found), *(found if any(goal.may_rise for goal in goals) else ())):
        left, size = goals, FIRST * MORE if len(found) > 1 else FIRST
        while left:
            left = _price_some(each, found, left, size, stop)
            size *= MORE
    tables = tables_of_pruned(found)
    if all(np.isinf(table.least).all() for table in tables) and any(np.isinf(goal.limit(tables)) for goal in goals):
        _count(found, stop)
    return found


def _count(found: Sequence[Pruned], stop: Stop | None) -> None:
    """Counts all plans, of which none fits."""
    for each in found:
        if isinstance(each, PrunedFamily) and not each.is_counted:
            each.count(stop)


def _price_some(
    each: Pruned, found: Sequence[Pruned], goals: Sequence[Goal], size: int, stop: Stop | None
) -> list[Goal]:
    """Prices the most promising plans of a family that goals ask for. Returns the goals that may ask for others."""
    tables = tables_of_pruned(found)
    left = []
    for goal in goals:
        limit = goal.limit(tables)
        of_use = each.of_use(goal.cells, limit)
        near, num_points = each.near, np.count_nonzero(of_use.any(axis=0))
        if near is None:
            continue
        if size > MORE * FIRST and not near.is_counted and (np.isinf(limit) or num_points > size):
            near.count(stop)  # little fits, or nothing: memory leaves out more plans than the limit
            of_use = each.of_use(goal.cells, limit)
        if of_use.any():
            near.price(near.most_promising(of_use, size), limit, stop)
            left.append(goal)
    return left


Progress = Callable[[int, int], None]
"""Called with families done and families in all."""


@dataclass(frozen=True, kw_only=True)
class Survey:
    """Every valid plan of a space with its value."""

    question: Question
    space: Space
    tables: tuple[Table, ...]
    rejected: Counter[str]
    objective: Objective
    pruned: tuple[Pruned, ...] = ()
    """The families of ``tables`` with what has been left out; none where every plan was priced."""
    priced: PricedPlans | None = None
    """The plans one of which is recommended and those of listed cells, where they have been asked for."""

    @property
    def num_evaluated(self) -> int:
        """Valid plans that were priced in full."""
        return sum(table.num_evaluated for table in self.tables)

    @property
    def num_pruned(self) -> int:
        """Valid plans that were left out, because a bound shows that they are too slow to be asked for."""
        return sum(table.num_pruned for table in self.tables) if self.pruned else 0

    @property
    def num_feasible(self) -> int:
        """Those that fit in memory."""
        return sum(table.num_feasible for table in self.tables)

    def estimate(self, cell: Cell) -> Estimate:
        """The full answer for the best plan at ``cell``."""
        return self.estimates([cell])[0]

    def estimates(self, cells: Sequence[Cell]) -> tuple[Estimate, ...]:
        """The full answers for the best plans at some cells; they are what the arrays gave."""
        found = self._best_of(cells)
        answers = estimate_plans(self.question, [plan for plan, _ in found])
        for answer, (plan, value) in zip(answers, found, strict=True):
            told = answer.step_time if self.objective is FASTEST else answer.peak_memory_bytes
            assert np.isclose(value, told, rtol=1e-9, atol=0), (plan, value, told)
        return answers

    def plans(self, cells: Sequence[Cell]) -> list[Plan]:
        """The best plans at some cells."""
        return [plan for plan, _ in self._best_of(cells)]

    def _best_of(self, cells: Sequence[Cell]) -> list[tuple[Plan, float]]:
        """The best plan at every cell, and its value; those that have been priced are not priced again."""
        found: dict[int, tuple[Plan, float]] = {}
        unknown: dict[int, list[int]] = {}
        for number, cell in enumerate(cells):
            index = None if self.priced is None else self.priced.index_of(cell)
            if self.priced is not None and index is not None:
                found[number] = self.priced.plan(index), float(self.priced.step_time[index])
            else:
                unknown.setdefault(id(cell.tables), []).append(number)
        for numbers in unknown.values():
            best = best_plans(cells[numbers[0]].tables, [cells[n].position for n in numbers], self.objective)
            found |= dict(zip(numbers, best, strict=True))
        return [found[number] for number in range(len(cells))]

    def with_prices(self, listed: Sequence[Cell]) -> Survey:
        """The same, with the plans that tie with the fastest and those of listed cells priced.

        Where no tie has headroom, slower plans too, of which one that has would be recommended.
        """
        ties = priced_plans(self.question, self.tables, listed)
        if ties is None or has_headroom(self.question, ties.peak_memory_bytes[ties.tied]).any():
            return replace(self, priced=ties)
        tables = self._tables_for([Within(fastest_of(self.tables) * ROOM_FACTOR)])
        return replace(self, priced=priced_plans(self.question, tables, listed, ROOM_FACTOR))

    def under(self, objective: Objective) -> Survey:
        """The same plans by another objective; what they are made of need not be priced again."""
        tables = tuple(evaluated(table.tables, objective) for table in self.tables)
        return replace(self, tables=tables, objective=objective, pruned=(), priced=None)

    def best_where(self, **wanted: Any) -> Estimate | None:
        """The best plan with these values of its fields, if any."""
        return self.best_of_each([wanted])[0]

    def best_of_each(self, wanted: Sequence[Mapping[str, Any]]) -> list[Estimate | None]:
        """As ``best_where``, for several sets of values at once."""
        tables = self._tables_for([BestWith(values) for values in wanted])
        cells = [best_cell(tables, **values) for values in wanted]
        different = {(id(cell.tables), cell.position): cell for cell in cells if cell is not None}
        answers = dict(zip(different, self.estimates([*different.values()]), strict=True))
        return [None if cell is None else answers[id(cell.tables), cell.position] for cell in cells]

    def _tables_for(self, goals: Sequence[Goal]) -> tuple[Table, ...]:
        """The tables, with plans that were left out and are asked for now."""
        if not self.pruned:
            return self.tables
        found = priced_for(self.pruned, goals)
        return tuple(tables_of_pruned(found))


def survey_of(
    question: Question,
    space: Space,
    *goals: Goal,
    counts: bool = False,
    fast: FastEnough = EVERY,
    progress: Progress | None = None,
    stop: Stop | None = None,
    known: KnownPipelines | None = None,
) -> Survey:
    """Evaluates every valid plan of ``space``; those that ``goals`` can ask for, where some are given.

    ``counts``: the memory of all plans is found all the same, so that those that fit are counted. ``fast``: plans
    that are not are asked for by no goal and are not counted.
    Raises ``SearchStopped`` where ``stop`` says so.
    """
    rejected: Counter[str] = Counter()
    progress = progress or _no_progress
    priced = tables_of(question, families(question, space, rejected, fast), known or KnownPipelines())
    tables, left = [], pruned_families(priced) if goals else []
    for done, each in enumerate(priced, start=1):
        if not goals:
            tables.append(_counted_once(evaluated(each, FASTEST, stop), stop))
        elif counts and isinstance(family := left[done - 1], PrunedFamily):
            family.count(stop)
        progress(done, len(priced))
    if goals:
        tables = tables_of_pruned(with_prices(left, goals, stop))
    return Survey(
        question=question,
        space=space,
        tables=tuple(tables),
        rejected=rejected,
        objective=FASTEST,
        pruned=tuple(left),
    )


def tables_of_space(question: Question, space: Space, known: KnownPipelines) -> list[Tables]:
    """The families of a space, to be priced."""
    return tables_of(question, families(question, space, Counter()), known)


def _counted_once(table: Table, stop: Stop | None) -> Table:
    """A table whose plans are counted once, whatever software runs them."""
    if table.family.part is None:
        return table
    if not table.family.counts:
        return replace(table, num_evaluated=0, num_feasible=0)
    whole = table.tables.whole_family
    return replace(table, num_evaluated=whole.family.num_plans(), num_feasible=counted(whole, stop)[1])


def _no_progress(_done: int, _all: int) -> None:
    """Tells nobody."""
