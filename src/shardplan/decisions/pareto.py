r"""The plans that no other is better than: in step time, memory headroom, and step time where things are worse.

A plan q dominates a plan p where it is no worse in step time T, peak memory M and pessimistic step time
:math:`\hat T` (``planner.robustness``), and better in one of them. The front is what no plan of the space that fits
dominates. It is exact, though few plans are priced one by one. The survey gives for every cell of plans (all chunks per
rank of otherwise equal plans) the least step time and the least memory. Since :math:`T \le \hat T`, a cell is out where

.. math:: \hat T_q \le \min T, \quad M_q \le \min M

for a plan q that has been priced: the plans of the cells that no other dominates by their least values. What is left is
priced, and compared in all three.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shardplan.decisions.searching import Searches
from shardplan.estimation.estimate import Estimate, estimate_plan, estimate_plans
from shardplan.estimation.question import Question
from shardplan.fields import dataclass
from shardplan.planner.evaluation import Table
from shardplan.planner.objective import SMALLEST
from shardplan.planner.ranking import different_cells
from shardplan.planner.related.forms import plainest, plan_to_take_of
from shardplan.planner.robustness import pessimistic_times, tested_by
from shardplan.planner.survey import Survey
from shardplan.planner.tied import PricedPlans, priced_cells

Masks = Sequence[NDArray[np.bool_]]
"""Cells of every table."""


@dataclass(frozen=True, kw_only=True)
class ParetoPoint:
    """A plan that no other is better than in every respect."""

    estimate: Estimate
    """Its step time and its memory."""
    pessimistic_time: float
    """Step time where network, overlap and host are worse and plans that nobody measured are slower. [s]"""

    @property
    def headroom_bytes(self) -> float:
        """Memory that is left on the fullest accelerator. [bytes]"""
        return self.estimate.usable_memory_bytes - self.estimate.peak_memory_bytes


@dataclass(frozen=True, kw_only=True)
class ParetoFront:
    """The front of a space."""

    question: Question
    """What was asked."""
    points: tuple[ParetoPoint, ...]
    """The fastest first; none where nothing fits."""
    recommended: Estimate | None
    """The plan to take, as ``plan`` recommends it; it may be off the front by what counts as alike."""
    num_plans_evaluated: int
    """Valid plans."""
    num_plans_feasible: int
    """Those that fit: the front is of these."""
    num_plans_priced: int
    """Those that were compared in all three respects."""
    assumptions: tuple[str, ...] = ()
    """What was assumed in putting the question."""


def pareto_front(question: Question, searches: Searches) -> ParetoFront:
    """The front over all plans of the space that fit. Raises ``InputError``."""
    survey = searches.survey(question)
    if not survey.num_feasible:
        return _front_of(survey, (), None, 0)
    priced = _candidates(survey)
    values = np.stack([priced.step_time, priced.peak_memory_bytes, pessimistic_times(question, priced)])
    chosen = not_dominated(values)
    chosen = chosen[np.argsort(values[0, chosen], kind="stable")]
    estimates = estimate_plans(question, [priced.plan(int(index)) for index in chosen])
    points = tuple(
        ParetoPoint(estimate=estimate, pessimistic_time=float(values[2, index]))
        for estimate, index in zip(estimates, chosen, strict=True)
    )
    return _front_of(survey, points, _recommended(question, survey, searches), len(priced.step_time))


def _front_of(
    survey: Survey, points: tuple[ParetoPoint, ...], recommended: Estimate | None, num_priced: int
) -> ParetoFront:
    return ParetoFront(
        question=survey.question,
        points=points,
        recommended=recommended,
        num_plans_evaluated=survey.num_evaluated,
        num_plans_feasible=survey.num_feasible,
        num_plans_priced=num_priced,
    )


def _recommended(question: Question, survey: Survey, searches: Searches) -> Estimate | None:
    """The plan to take, as the search chooses it."""
    cells = different_cells(survey.tables, 1)
    priced = survey.with_prices(cells).priced
    if priced is None:
        return None
    fastest, tested = priced.index_of(cells[0]), tested_by(searches.stack, question)
    space = searches.space(question)
    priced, best = plan_to_take_of(question, priced, fastest, space, tested)
    plain = plainest(space, question, priced.plan(best), priced.needs(best))
    return estimate_plan(question, plain)


def _candidates(survey: Survey) -> PricedPlans:
    """All plans that can be on the front, priced."""
    question, tables = survey.question, survey.tables
    memory = [table.best for table in survey.under(SMALLEST).tables]
    ideal = _without_dominated_cells(tables, memory)
    known = priced_cells(question, tables, ideal)
    pessimistic = pessimistic_times(question, known)
    kept = [
        cells | (np.isfinite(table.best) & ~_is_out(table.best, least, pessimistic, known.peak_memory_bytes))
        for cells, table, least in zip(ideal, tables, memory, strict=True)
    ]
    return priced_cells(question, tables, kept)


def _without_dominated_cells(tables: Sequence[Table], memory: Sequence[NDArray[np.float64]]) -> Masks:
    """Cells of which no other has both less time and less memory, by the least values of each."""
    times = np.concatenate([table.best.ravel() for table in tables])
    least = np.concatenate([each.ravel() for each in memory])
    order = np.lexsort((least, times))
    before = np.minimum.accumulate(np.concatenate([[np.inf], least[order][:-1]]))
    chosen = np.zeros(len(times), dtype=bool)
    chosen[order] = np.isfinite(times[order]) & (least[order] < before)
    ends = np.cumsum([table.best.size for table in tables])[:-1]
    parts = np.split(chosen, ends)
    return [part.reshape(table.best.shape) for part, table in zip(parts, tables, strict=True)]


def _is_out(
    times: NDArray[np.float64],
    memory: NDArray[np.float64],
    pessimistic: NDArray[np.float64],
    known_memory: NDArray[np.float64],
) -> NDArray[np.bool_]:
    """Cells that a known plan dominates, by their least time and memory."""
    order = np.argsort(pessimistic, kind="stable")
    least_memory = np.minimum.accumulate(known_memory[order])
    place = np.searchsorted(pessimistic[order], times, side="right") - 1
    return np.asarray((place >= 0) & (least_memory[np.maximum(place, 0)] <= memory))


def not_dominated(values: NDArray[np.float64]) -> NDArray[np.intp]:
    """Positions of the columns that no other is better than: less is better in every row. One of equal columns."""
    _, first = np.unique(values, axis=1, return_index=True)
    order = first[np.lexsort(values[::-1, first])]
    kept: list[NDArray[np.float64]] = []
    chosen: list[int] = []
    front = np.empty((len(values), 0))
    for index in order:
        column = values[:, index]
        if np.any(np.all(front <= column[:, None], axis=0)):
            continue
        chosen.append(int(index))
        kept.append(column)
        front = np.stack(kept, axis=1)
    return np.asarray(chosen, dtype=np.intp)
