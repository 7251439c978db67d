"""Exhaustive search: every valid plan of the declared space is evaluated, so the best is the optimum of that space."""

from __future__ import annotations

import time
from dataclasses import replace

from shardplan.errors import InputError
from shardplan.estimation.estimate import Estimate, estimate_plans
from shardplan.estimation.question import Question, check_asked
from shardplan.frameworks.defaults import searched_in_stack
from shardplan.frameworks.stack import Stack
from shardplan.frameworks.usual_stack import USUAL, how_chosen, stack_for
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.defaults import default_job
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.profile import Profile
from shardplan.planner.layouts import KnownPipelines
from shardplan.planner.ranking import Cell, different_cells
from shardplan.planner.related.neighbours import offers_of
from shardplan.planner.related.suggestions import suggest
from shardplan.planner.result import SearchResult
from shardplan.planner.robustness import Ties, recommended_of, ties_of
from shardplan.planner.space import Given, Restrictions, as_lists, declare
from shardplan.planner.stopping import Stop
from shardplan.planner.survey import Progress, Survey, survey_of


def search(
    model: ModelConfig,
    cluster: Cluster,
    job: Job | None = None,
    *,
    num_accelerators: int,
    top: int = 10,
    fix: Given | None = None,
    limit: Given | None = None,
    exclude: Given | None = None,
    profile: Profile | None = None,
    progress: Progress | None = None,
    stop: Stop | None = None,
    stack: str | Stack | None = USUAL,
) -> SearchResult:
    """Finds the fastest plans that fit. Without ``job`` the default one for this model and world size is taken.

    ``fix`` and ``limit`` replace the candidates of a field, ``exclude`` takes values away: ``fix={"tp": 8}``,
    ``limit={"tp": [4, 8]}``. A value that is no list stands for a list of it. That nothing fits is an answer: no
    estimates, but suggestions. Only plans that a training framework can run are listed: ``stack``, or the usual one of
    the accelerator. Fields of the job that are at their default, and of the plan those that a search does not vary, are
    the framework's own. With ``stack=None`` no framework limits the plans.
    ``stop`` is asked between pieces of work, such as a ``Deadline``. Raises ``InputError`` for unknown fields or
    values, for what the framework never runs and for ``top`` below one, ``SearchStopped`` where ``stop`` says yes.
    """
    check_asked(model=model, cluster=cluster, job=job, profile=profile)
    assumed: tuple[str, ...] = ()
    if job is None:
        job, assumed = default_job(model, cluster, num_accelerators)
    vendor = cluster.accelerator.vendor
    known = stack_for(stack, vendor)
    chosen = (how_chosen(known, vendor),) if stack == USUAL else ()
    job, of_stack = searched_in_stack(known, job, {*as_lists(fix), *as_lists(limit), *as_lists(exclude)})
    question = Question(model=model, cluster=cluster, num_accelerators=num_accelerators, job=job, given_profile=profile)
    result = search_question(
        question, top=top, fix=fix, limit=limit, exclude=exclude, progress=progress, stop=stop, stack=known
    )
    return result.assuming((*assumed, *chosen, *of_stack))


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
