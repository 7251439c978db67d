"""All plans of a family evaluated: the estimate's own formulas, run over columns.

A step has a part that sharding does not change (its work) and one that recomputation hardly changes (its states). Each
is looked up for the plans that differ in it (``planner.pricing.tables``); both meet in the step of every plan, piece by
piece (``planner.pricing.pieces``).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import Numbers
from shardplan.base.fields import dataclass
from shardplan.estimation.question import Question
from shardplan.planner.family import Family
from shardplan.planner.layouts import KnownPipelines
from shardplan.planner.objective import FASTEST, Objective
from shardplan.planner.pricing.cutting import pieces_of
from shardplan.planner.pricing.pieces import PointGroup, TablePiece
from shardplan.planner.pricing.tables import Tables
from shardplan.planner.stopping import Stop, check


@dataclass(frozen=True, kw_only=True)
class Table:
    """Best value of the objective over the chunks per rank: by sharding, recomputation and point."""

    tables: Tables
    best: NDArray[np.float64]
    num_evaluated: int
    """Plans that were priced."""
    num_feasible: int
    """Those of them that fit."""

    @cached_property
    def least(self) -> NDArray[np.float64]:
        """The best value of every point."""
        return self.best.min(axis=(0, 1))

    @property
    def num_pruned(self) -> int:
        """Valid plans that were left out, because a bound shows that they are too slow to be asked for."""
        return self.family.whole.num_plans() - self.num_evaluated if self.family.counts else 0

    @property
    def family(self) -> Family:
        """The plans that were evaluated."""
        return self.tables.family


def evaluate(
    question: Question,
    family: Family,
    objective: Objective = FASTEST,
    *,
    stop: Stop | None = None,
    known: KnownPipelines | None = None,
) -> Table:
    """Evaluates every valid plan of ``family``. Raises ``SearchStopped`` where ``stop`` says so."""
    return evaluated(Tables(question=question, family=family, known=known or KnownPipelines()), objective, stop)


def evaluated(tables: Tables, objective: Objective, stop: Stop | None = None, *, most_bytes: float = np.inf) -> Table:
    """As ``evaluate``, of what has been priced already.

    Plans whose states alone take more than ``most_bytes``, or than there is where plans have to fit, may be left out.
    """
    question, family = tables.question, tables.family
    best = np.full((len(family.shardings), len(family.policies), family.num_points), np.inf)
    num_feasible = 0
    for at, pieces in pieces_of(tables, min(most_bytes, objective.most_bytes(question))):
        num_feasible += _fill(at, pieces, objective, best, stop)
    return Table(
        tables=tables,
        best=objective.finished(question, best),
        num_evaluated=family.num_plans(),
        num_feasible=num_feasible,
    )


def _fill(
    at: PointGroup, pieces: Iterator[TablePiece], objective: Objective, best: NDArray[np.float64], stop: Stop | None
) -> int:
    """Writes the best values of some points over the chunks per rank. Returns how many of their plans fit."""
    num_feasible = 0
    least: dict[int, Numbers] = {}
    for piece in pieces:
        check(stop)
        num_feasible += piece.num_feasible
        for outcome in piece.outcomes():
            value, known = outcome.valued(objective), least.get(outcome.sharding)
            least[outcome.sharding] = value if known is None else np.minimum(known, value)
    for sharding, values in least.items():
        _lower(best[sharding], at, values)
    return num_feasible


def _lower(best: NDArray[np.float64], at: PointGroup, values: Numbers) -> None:
    """Puts the smaller of what is in ``best``, by slot and point of the family, and the values of some points there."""
    whole = np.broadcast_to(values, (len(at.slots), len(at.points)))
    if len(at.starts) < len(at.points):
        whole = np.minimum.reduceat(whole, at.starts, axis=1)
    points = at.points[at.starts]
    for slot, found in zip(at.slots.tolist(), whole, strict=True):  # in half the time of all slots at once
        row = best[slot]
        row[points] = np.minimum(row.take(points), found)
