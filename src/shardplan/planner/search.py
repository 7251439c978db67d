"""Exhaustive search: every valid plan of the declared space is evaluated, so the best is the optimum of that space."""

from __future__ import annotations

import time
from dataclasses import replace

from shardplan.errors import InputError
from shardplan.estimation.estimate import Estimate, estimate_plans
from shardplan.estimation.question import Question
from shardplan.frameworks.stack import Stack
from shardplan.planner.layouts import KnownPipelines
from shardplan.planner.ranking import Cell, different_cells
from shardplan.planner.related.neighbours import offers_of
from shardplan.planner.related.suggestions import suggest
from shardplan.planner.result import SearchResult
from shardplan.planner.robustness import Ties, recommended_of, ties_of
from shardplan.planner.space import Given, Restrictions, as_lists, declare
from shardplan.planner.stopping import Stop
from shardplan.planner.survey import Progress, Survey, survey_of


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
    stack: Stack | None = None,
) -> SearchResult:
    """As ``search``, for a question already put.

    ``known``: pipelines of earlier questions. ``suggestions``: whether to look for changes where nothing fits, and for
    neighbouring counts and batches where something does.
    """
    started = time.perf_counter()
    _check_top(top)
    restrictions = Restrictions(fix=as_lists(fix), limit=as_lists(limit), exclude=as_lists(exclude))
    space = declare(question, restrictions, stack)
    survey = survey_of(question, space, progress=progress, stop=stop, known=known)
    cells = different_cells(survey.tables, top)
    survey = survey.with_prices(cells)
    estimates, ties = _answers(question, survey, cells)
    result = SearchResult(
        question=question,
        space=space.declared(),
        estimates=estimates,
        ties=ties,
        num_plans_evaluated=survey.num_evaluated,
        num_plans_feasible=survey.num_feasible,
        rejected=dict((+survey.rejected).most_common()),
        search_time=time.perf_counter() - started,
        best_where=survey.best_where,
        best_of_each=survey.best_of_each,
    )
    if suggestions and result.estimates:
        known = survey.tables[0].tables.known
        offers = offers_of(question, result.estimates[0], restrictions, stack, known=known, stop=stop)
        result = replace(result, offers=offers)
    elif suggestions:
        result = suggest(result, restrictions, survey, stack)
    result = result.assuming(space.not_searched)
    return result if stack is None else result.run_by(stack.label)


def _answers(question: Question, survey: Survey, cells: list[Cell]) -> tuple[tuple[Estimate, ...], Ties | None]:
    """Full answers for the plans of listed cells, fastest first, and the ties; nothing where nothing fits."""
    if survey.priced is None or not cells:
        return (), None
    found = [index for cell in cells if (index := survey.priced.index_of(cell)) is not None]
    best = recommended_of(question, survey.priced, fastest=found[0] if found else None)
    plans = [survey.priced.plan(index) for index in found]
    answers = estimate_plans(question, plans if best in found else [*plans, survey.priced.plan(best)])
    recommended = answers[found.index(best) if best in found else -1]
    return answers[: len(plans)], ties_of(question, survey.priced, found, (best, recommended))


def _check_top(top: int) -> None:
    if isinstance(top, bool) or not isinstance(top, int) or top < 1:
        raise InputError(
            f"top is {str(top)[:40]}; a search lists at least one plan",
            rule="top is a whole number of 1 or more",
            hint="give top=1 for the fastest alone",
        )
