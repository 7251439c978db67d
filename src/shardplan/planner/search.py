"""Exhaustive search: every valid plan of the declared space is priced, or shown to be slower than all that is listed.

So the best is the optimum of that space.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial

from shardplan.errors import InputError
from shardplan.estimation.estimate import Estimate, estimate_plans
from shardplan.estimation.question import Question
from shardplan.fields import replace
from shardplan.frameworks.stack import Stack
from shardplan.planner.answers import Answers
from shardplan.planner.layouts import KnownPipelines
from shardplan.planner.pruning.goals import Listing
from shardplan.planner.ranking import Cell, different_cells
from shardplan.planner.related.neighbours import has_enough_layouts, offers_of
from shardplan.planner.related.sampling import sample_of
from shardplan.planner.related.suggestions import suggest
from shardplan.planner.restrictions import Given, Restrictions, as_lists
from shardplan.planner.result import SearchResult
from shardplan.planner.retiming import Retiming, check_number, retime
from shardplan.planner.robustness import Ties, recommended_of, ties_of
from shardplan.planner.space import Space, declare
from shardplan.planner.stopping import Stop
from shardplan.planner.survey import Progress, Survey, survey_of
from shardplan.planner.tied import PricedPlans


def search_question(
    question: Question,
    *,
    top: int = 10,
    fix: Given | None = None,
    limit: Given | None = None,
    exclude: Given | None = None,
    progress: Progress | None = None,
    stop: Stop | None = None,
    known: KnownPipelines | None = None,
    suggestions: bool = True,
    offers: bool = True,
    stack: Stack | None = None,
    simulate_top: int | None = None,
    simulated: Progress | None = None,
    prune: bool = False,
    within: float = math.inf,
) -> SearchResult:
    """As ``search``, for a question already put.

    ``known``: pipelines of earlier questions. ``suggestions``: whether to look for changes where nothing fits and, with
    ``offers``, for neighbouring counts and batches where something does. ``simulated``: called with plans simulated and
    plans in all. ``within``: with ``prune``, the longest step of use; where the fastest takes longer, no plan is listed
    and of those that fit only some are counted. [s]
    """
    started = time.perf_counter()
    check_top(top)
    check_number(simulate_top)
    restrictions = Restrictions(fix=as_lists(fix), limit=as_lists(limit), exclude=as_lists(exclude))
    space = declare(question, restrictions, stack)
    goal = Listing(top, within if prune else math.inf)
    survey = survey_of(question, space, goal=goal, counts=not prune, progress=progress, stop=stop, known=known)
    cells = _listed(survey, goal)
    survey = survey.with_prices(cells) if cells else survey
    retimes = None if simulate_top is None else partial(retime, most=simulate_top, progress=simulated, stop=stop)
    result = _result_of(survey, space, _answers(question, survey, cells, retimes), time.perf_counter() - started)
    if suggestions:
        result = _with_changes(result, restrictions, survey, stack, offers=offers, stop=stop)
    result = result.assuming(space.not_searched)
    return result if stack is None else result.run_by(stack.label)


def _listed(survey: Survey, goal: Listing) -> list[Cell]:
    """The best different plans, the fastest first; none where it takes longer than the goal's longest step of use."""
    cells = different_cells(survey.tables, goal.top)
    return [] if cells and cells[0].value > goal.within else cells


def _result_of(survey: Survey, space: Space, answers: Found, search_time: float) -> SearchResult:
    """The search as it is told, before changes of the question are looked at."""
    estimates, ties = answers
    return SearchResult(
        question=survey.question,
        space=space.declared(),
        estimates=estimates,
        ties=ties,
        num_plans_evaluated=survey.num_evaluated,
        num_plans_feasible=survey.num_feasible,
        num_plans_pruned=survey.num_pruned,
        rejected=dict((+survey.rejected).most_common()),
        search_time=search_time,
        best_where=survey.best_where,
        best_of_each=survey.best_of_each,
        sample=partial(sample_of, survey.question, survey.tables),
    )


def _with_changes(
    result: SearchResult,
    restrictions: Restrictions,
    survey: Survey,
    stack: Stack | None,
    *,
    offers: bool,
    stop: Stop | None,
) -> SearchResult:
    """With changes of the question that would help: what would fit where nothing does, else neighbouring pairs."""
    if not result.estimates:
        return suggest(result, restrictions, survey, stack, stop=stop)
    if not offers or has_enough_layouts(result.question):
        return result
    fastest = min(result.estimates, key=lambda each: each.step_time)
    known = survey.tables[0].tables.known
    return replace(result, offers=offers_of(result.question, fastest, restrictions, stack, known=known, stop=stop))


Retime = Callable[[Question, PricedPlans, Sequence[int]], Retiming]
Found = tuple[Sequence[Estimate], Ties | None]


def _answers(question: Question, survey: Survey, cells: list[Cell], retimes: Retime | None) -> Found:
    """The plans of listed cells with full answers, fastest first, and the ties; nothing where nothing fits."""
    if survey.priced is None or not cells:
        return (), None
    found = [index for cell in cells if (index := survey.priced.index_of(cell)) is not None]
    best = recommended_of(question, survey.priced, fastest=found[0] if found else None)
    if retimes is not None:
        return _retimed(question, survey.priced, found, retimes(question, survey.priced, [*found[:1], best, *found]))
    answers, taken = _estimates(question, survey.priced, found, best)
    return answers, ties_of(question, survey.priced, found, (best, taken))


def _retimed(question: Question, priced: PricedPlans, found: list[int], retiming: Retiming) -> Found:
    """As ``_answers``, by simulated times: the list, the ties among the plans that were simulated, and the best."""
    listed, chosen = retiming.listed(found), retiming.chosen
    best = recommended_of(question, retiming.priced, fastest=retiming.local(listed[0]) if listed else None)
    answers, taken = _estimates(question, priced, listed, int(chosen[best]))
    shown = [place for index in listed if (place := retiming.local(index)) is not None]
    plans = {index: priced.plan(index) for index in (*listed, int(chosen[best]))}
    ties = ties_of(question, retiming.priced, shown, (best, taken), whole=priced)
    return answers, replace(ties, retimed=retiming.account(plans))


def _estimates(question: Question, priced: PricedPlans, listed: Sequence[int], best: int) -> tuple[Answers, Answers]:
    """Full answers for the plans at ``listed``, and for that at ``best``; either is read with the first of the list."""
    plans = [priced.plan(index) for index in dict.fromkeys((*listed, best))]
    chosen = listed.index(best) if best in listed else len(listed)
    every = Answers(len(plans), lambda places: estimate_plans(question, [plans[place] for place in places]))

    def read(places: Sequence[int]) -> Sequence[Estimate]:
        return every.at([*places, 0, chosen])[: len(places)]

    return Answers(len(listed), read), Answers(1, lambda _places: read([chosen]))


def check_top(top: int) -> None:
    """Raises InputError where no plan is listed."""
    if isinstance(top, bool) or not isinstance(top, int) or top < 1:
        raise InputError(
            f"top is {str(top)[:40]}; a search lists at least one plan",
            rule="top is a whole number of 1 or more",
            hint="give top=1 for the fastest alone",
        )
