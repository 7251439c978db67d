"""Exhaustive search: every valid plan of the declared space is priced, or shown to be slower than all that is listed.

So the best is the optimum of that space. Fewer of the accelerators are searched after it, and answered where they take
less time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import NamedTuple

from shardplan.base.errors import InputError, NotRunnableError, shown
from shardplan.base.fields import replace
from shardplan.estimation.estimate import Estimate, estimate_plans
from shardplan.estimation.question import Question
from shardplan.inputs.plan_numbers import Degrees
from shardplan.physics.frameworks.libraries import needed_libraries
from shardplan.physics.frameworks.stack import Stack
from shardplan.planner.evaluation import sample_of
from shardplan.planner.family import KnownPipelines
from shardplan.planner.priced_plans import PricedPlans
from shardplan.planner.ranking import Cell, different_cells
from shardplan.planner.related.counts import fewer_that_are_faster, has_enough_layouts
from shardplan.planner.related.forms import plainest, recommended_with_software
from shardplan.planner.related.neighbours import Neighbours, has_few_sequences, offers_of
from shardplan.planner.related.suggestions import suggest
from shardplan.planner.restrictions import LIBRARY, Given
from shardplan.planner.result import Answers, FewerCounts, SearchResult, WithoutLibraries
from shardplan.planner.retiming import Retiming, check_number, retime
from shardplan.planner.robustness import PlanFacts, Tested, Ties, recommended_of, ties_of
from shardplan.planner.scope import Scope
from shardplan.planner.software import limited_to
from shardplan.planner.stopping import Stop
from shardplan.planner.survey import Listing, Progress, Survey


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
    use_all: bool = False,
    tested: Tested | None = None,
) -> SearchResult:
    """As ``search``, for a question that is already built.

    ``known``: pipelines of earlier questions. ``suggestions``: whether to look for changes where nothing fits and, with
    ``offers``, for neighbouring counts and batches where something does. ``simulated``: called with plans simulated and
    plans in all. ``within``: with ``prune``, the longest step of use; where the fastest takes longer, no plan is listed
    and of those that fit only some are counted. [s] ``use_all``: whether no accelerator may be left idle.
    ``tested``: which plans something shows to run, where it is not the record of the framework that says so.
    """
    check_top(top)
    check_number(simulate_top)
    known = known or KnownPipelines()
    scope = Scope.of(fix=fix, limit=limit, exclude=exclude, stack=stack, stop=stop, known=known)
    goal = Listing(top, within if prune else math.inf)

    def searched(asked: Question) -> _Searched:
        started = time.perf_counter()
        survey = scope.survey(asked, goal, counts=not prune, progress=progress)
        cells = different_cells(survey.tables, top)
        listed = [] if cells and cells[0].value > goal.within else cells
        return _Searched(survey, listed, time.perf_counter() - started)

    found, fewer = searched(question), None
    search_time = found.search_time
    if not use_all:
        found, fewer = _on_fewer(question, scope, found, within, searched)
    started = time.perf_counter()
    retimes = None if simulate_top is None else partial(retime, most=simulate_top, progress=simulated, stop=stop)
    survey = found.survey.with_prices(found.cells) if found.cells else found.survey
    shown = tested or scope.tested(survey.question)
    answers = _answers(survey, found.cells, retimes, shown)
    result = _result_of(survey, answers, search_time + time.perf_counter() - started)
    result = replace(result, fewer=fewer, without_libraries=cache(partial(_without_libraries, result, scope)))
    if suggestions:
        result = _with_changes(result, question, scope, survey, offers=offers)
    result = result.assuming(survey.space.not_searched)
    return result if stack is None else result.run_by(stack)


class _Searched(NamedTuple):
    """A space that has been searched."""

    survey: Survey
    cells: list[Cell]
    """The plans that are listed, the fastest first; none where it takes longer than the longest step of use."""
    search_time: float
    """[s]"""

    @property
    def fastest(self) -> float:
        """Infinite where no plan is listed. [s]"""
        return self.cells[0].value if self.cells else math.inf


def _on_fewer(
    question: Question, scope: Scope, found: _Searched, within: float, searched: Callable[[Question], _Searched]
) -> tuple[_Searched, FewerCounts]:
    """The space of fewer accelerators where these are faster, else what was ``found`` on all; with what was tried."""
    listed = [cell.tables.family.switches for cell in found.cells] if has_enough_layouts(question) else []
    neighbours = Neighbours(question, limited_to(scope, found.survey.space.axes, listed))
    used, fewer = fewer_that_are_faster(question, min(found.fastest, within), neighbours.time_on)
    if used is None:
        return found, fewer
    found = searched(question.leaving_idle(used))
    return found, replace(fewer, search_time=fewer.search_time + found.search_time)


def _result_of(survey: Survey, answers: Found, search_time: float) -> SearchResult:
    """The search of the question as it was asked, before changes to it are tried."""
    estimates, ties = answers
    return SearchResult(
        question=survey.question,
        space=survey.space.declared(),
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


def _with_changes(result: SearchResult, asked: Question, scope: Scope, survey: Survey, *, offers: bool) -> SearchResult:
    """With changes of what was ``asked`` that would help: what would fit where nothing does, else neighbours."""
    if not result.estimates:
        return suggest(result, scope, survey)
    near = not result.question.num_idle  # where accelerators are idle, their number has been chosen already
    if not offers or (not (near and not has_enough_layouts(asked)) and not _has_few_sequences(survey)):
        return result
    fastest = min(result.estimates, key=lambda each: each.step_time)
    run_alike = limited_to(scope, result.space, [vars(each.plan) for each in result.estimates])
    found = offers_of(asked, fastest, run_alike, keeps_batch=result.fewer is None, near=near)
    return replace(result, offers=found)


def _has_few_sequences(survey: Survey) -> bool:
    """Whether the fastest plan has few sequences for each replica and stage."""
    plan, number = survey.plans(different_cells(survey.tables, 1))[0], survey.question.num_accelerators
    return has_few_sequences(survey.question, plan, number)


def _without_libraries(result: SearchResult, scope: Scope) -> tuple[WithoutLibraries, ...]:
    """What becomes of the recommended plan without the libraries that it needs, one after the other."""
    found: list[WithoutLibraries] = []
    missing, taken = scope.missing_libraries, result.recommended
    question = result.question
    while taken is not None:
        needed = needed_libraries(scope.stack, question.setting, Degrees.of(taken.plan))
        if all(each in missing for each in needed):
            break
        missing = tuple(dict.fromkeys((*missing, *needed)))
        lacking = vars(scope) | {"exclude": {**scope.exclude, LIBRARY: missing}}
        try:
            other = search_question(question, top=1, suggestions=False, use_all=True, **lacking)
        except NotRunnableError:  # what is fixed needs them
            break
        taken = other.recommended
        added = tuple(name for name in missing if name not in scope.missing_libraries)
        found.append(WithoutLibraries(missing=added, step_time=None if taken is None else taken.step_time))
    return tuple(found)


Retime = Callable[[Question, PricedPlans, Sequence[int]], Retiming]
Found = tuple[Sequence[Estimate], Ties | None]


def _answers(survey: Survey, cells: list[Cell], retimes: Retime | None, tested: Tested | None) -> Found:
    """The plans of listed cells with full answers, fastest first, and the ties; nothing where nothing fits."""
    question, space = survey.question, survey.space
    if survey.priced is None or not cells:
        return (), None
    found = [index for cell in cells if (index := survey.priced.index_of(cell)) is not None]
    facts = PlanFacts(question, survey.priced, tested)
    priced, best = recommended_with_software(question, facts, found[0] if found else None, space)
    if retimes is not None:
        retiming = retimes(question, priced, [*found[:1], best, *found])
        return _retimed(question, (survey.priced, priced), found, retiming, tested)
    plainer = plainest(space, question, priced.plan(best), priced.needs(best))
    priced = replace(priced, instead={**priced.instead, best: plainer})
    answers, taken = _estimates(question, priced, found, best)
    return answers, ties_of(question, priced, found, (best, taken), whole=survey.priced)


def _retimed(
    question: Question,
    pools: tuple[PricedPlans, PricedPlans],
    found: list[int],
    retiming: Retiming,
    tested: Tested | None,
) -> Found:
    """As ``_answers``, by simulated times: the list, the ties among the plans that were simulated, and the best.

    ``pools``: the plans of which ties are counted, and these with other forms.
    """
    (whole, priced), listed, chosen = pools, retiming.listed(found), retiming.chosen
    fastest = retiming.local(listed[0]) if listed else None
    best = recommended_of(question, PlanFacts(question, retiming.priced, tested), fastest)
    answers, taken = _estimates(question, priced, listed, int(chosen[best]))
    shown = [place for index in listed if (place := retiming.local(index)) is not None]
    plans = {index: priced.plan(index) for index in (*listed, int(chosen[best]))}
    ties = ties_of(question, retiming.priced, shown, (best, taken), whole=whole)
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
            f"top is {shown(top)}; a search lists at least one plan",
            rule="top is a whole number of 1 or more",
            hint="give top=1 for the fastest alone",
        )
