"""Every valid plan of a space, evaluated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shardplan.estimation.estimate import Estimate, estimate_plan
from shardplan.estimation.question import Question
from shardplan.planner.evaluation import Table, best_plan, evaluate
from shardplan.planner.layouts import KnownPipelines
from shardplan.planner.objective import FASTEST, Objective
from shardplan.planner.points import families
from shardplan.planner.ranking import Cell, best_cell
from shardplan.planner.space import Space
from shardplan.planner.stopping import Stop
from shardplan.planner.tied import TiedPlans, tied_plans

Progress = Callable[[int, int], None]
"""Called with families done and families in all."""


@dataclass(frozen=True, kw_only=True)
class Survey:
    """Every valid plan of a space with its value."""

    question: Question
    tables: tuple[Table, ...]
    rejected: Counter[str]
    objective: Objective
    tied: TiedPlans | None = None
    """The plans that tie with the fastest, where they have been asked for."""

    @property
    def num_evaluated(self) -> int:
        """Valid plans, each priced in full."""
        return sum(table.num_evaluated for table in self.tables)

    @property
    def num_feasible(self) -> int:
        """Those that fit in memory."""
        return sum(table.num_feasible for table in self.tables)

    def estimate(self, cell: Cell) -> Estimate:
        """The full answer for the best plan at ``cell``; it is the one that the arrays gave."""
        index = None if self.tied is None else self.tied.index_of(cell)
        if self.tied is None or index is None:
            plan, value = best_plan(cell.tables, cell.position, self.objective)
        else:
            plan, value = self.tied.plan(index), self.tied.step_time[index]
        answer = estimate_plan(self.question, plan)
        told = answer.step_time if self.objective is FASTEST else answer.peak_memory_bytes
        assert np.isclose(value, told, rtol=1e-9, atol=0), (plan, value, told)
        return answer

    def with_ties(self) -> Survey:
        """The same, with the plans that tie with the fastest; these need not be priced again."""
        return replace(self, tied=tied_plans(self.question, self.tables))

    def best_where(self, **wanted: Any) -> Estimate | None:
        """The best plan with these values of its fields, if any."""
        cell = best_cell(self.tables, **wanted)
        return None if cell is None else self.estimate(cell)


def survey_of(
    question: Question,
    space: Space,
    *,
    objective: Objective = FASTEST,
    progress: Progress | None = None,
    stop: Stop | None = None,
    known: KnownPipelines | None = None,
) -> Survey:
    """Evaluates every valid plan of ``space``. Raises ``SearchStopped`` where ``stop`` says so."""
    rejected: Counter[str] = Counter()
    found = list(families(question, space, rejected))
    known = known or KnownPipelines()
    tables = []
    for done, family in enumerate(found, start=1):
        tables.append(evaluate(question, family, objective, stop=stop, known=known))
        if progress is not None:
            progress(done, len(found))
    return Survey(question=question, tables=tuple(tables), rejected=rejected, objective=objective)
