"""Every valid plan of a space, evaluated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from shardplan.base.fields import dataclass, replace
from shardplan.estimation.estimate import Estimate, estimate_plans
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan
from shardplan.planner.evaluation import Table, best_plans, evaluated
from shardplan.planner.layouts import KnownPipelines
from shardplan.planner.objective import FASTEST, Objective
from shardplan.planner.points import families
from shardplan.planner.pricing.tables import Tables, tables_of
from shardplan.planner.pruning.goals import BestWith, Goal, Within, priced_for, with_prices
from shardplan.planner.pruning.pruned import Pruned, PrunedFamily, counted, pruned_families, tables_of_pruned
from shardplan.planner.ranking import Cell, best_cell
from shardplan.planner.space import Space
from shardplan.planner.stopping import Stop
from shardplan.planner.tied import ROOM_FACTOR, PricedPlans, fastest_of, has_headroom, priced_plans

Progress = Callable[[int, int], None]
"""Called with families done and families in all."""


@dataclass(frozen=True, kw_only=True)
class Survey:
    """Every valid plan of a space with its value."""

    question: Question
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
    progress: Progress | None = None,
    stop: Stop | None = None,
    known: KnownPipelines | None = None,
) -> Survey:
    """Evaluates every valid plan of ``space``; those that ``goals`` can ask for, where some are given.

    ``counts``: the memory of all plans is found all the same, so that those that fit are counted.
    Raises ``SearchStopped`` where ``stop`` says so.
    """
    rejected: Counter[str] = Counter()
    progress = progress or _no_progress
    priced = tables_of(question, families(question, space, rejected), known or KnownPipelines())
    tables, left = [], pruned_families(priced) if goals else []
    for done, each in enumerate(priced, start=1):
        if not goals:
            tables.append(_counted_once(evaluated(each, FASTEST, stop), stop))
        elif counts and isinstance(family := left[done - 1], PrunedFamily):
            family.count(stop)
        progress(done, len(priced))
    if goals:
        tables = tables_of_pruned(with_prices(left, goals, stop))
    return Survey(question=question, tables=tuple(tables), rejected=rejected, objective=FASTEST, pruned=tuple(left))


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
