"""``shardplan plan``: the best plans for a model, a cluster and a job."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.plan import (
    ClusterFlags,
    JobFlags,
    ModelArgument,
    OutputFlags,
    OverrideFlags,
    ProfileFlag,
    SearchFlags,
    SoftwareFlags,
    StackFlag,
)
from shardplan.cli.json_target import JsonTarget
from shardplan.cli.numbers import whole
from shardplan.cli.published.methods_plan import OURS, MethodFlag, plan_with_method

if TYPE_CHECKING:
    from shardplan.cli.question import Asked, QuestionFlags
    from shardplan.estimation.question import Question
    from shardplan.frameworks.stack import Stack
    from shardplan.planner.result import SearchResult


MOST_PLANS = 1000


@with_flags
def plan(
    *,
    model: ModelArgument,
    cluster: ClusterFlags,
    job: JobFlags,
    software: SoftwareFlags,
    search: SearchFlags,
    overrides: OverrideFlags,
    output: OutputFlags,
    stack: StackFlag = None,
    profile: ProfileFlag = None,
    method: MethodFlag = None,
) -> int:
    """Find the fastest plan that fits, and say why.

    Every plan of the declared space is evaluated, so that the first is its optimum. Fields of the job that are left out
    take defaults, which the answer states.
    """
    target = output.target()
    target.check(model, cluster.cluster, cluster.accelerator, stack, profile)
    from shardplan.cli.question import QuestionFlags, ask
    from shardplan.frameworks.usual_stack import ALL, ANY

    flags = QuestionFlags(
        cluster=cluster, overrides=overrides, job=job, software=software, stack=stack, profile=profile
    )
    if method not in (None, OURS):
        of_none = replace(flags, stack=flags.stack or ANY)
        return plan_with_method(method, lambda: ask(model, of_none), search, target)
    if stack == ALL:
        return _compare_frameworks(model, flags, search, target)
    asked = ask(model, flags)
    result, of_stack = _search(asked, search)
    _answer(result.stating_what_was_not_searched().assuming((*asked.assumptions, *of_stack)), target)
    return 0 if result.estimates else 1


def _compare_frameworks(model: str | None, flags: QuestionFlags, search: SearchFlags, target: JsonTarget) -> int:
    """The best plan of every published framework, side by side."""
    from shardplan.cli.progress import progress_bar
    from shardplan.cli.question import ask
    from shardplan.frameworks.defaults import switches_in_stack
    from shardplan.frameworks.usual_stack import ANY, published_stacks
    from shardplan.planner.related.frameworks import answers_of
    from shardplan.reports.frameworks import frameworks_record

    question = ask(model, replace(flags, stack=ANY)).question
    fix, limit, exclude = _restrictions(search)
    fields = {*fix, *limit, *exclude}

    def put(stack: Stack) -> tuple[Question, tuple[str, ...]]:
        asked = ask(model, replace(flags, stack=stack.name))
        return asked.question, (*asked.assumptions, *switches_in_stack(stack, fields))

    with progress_bar("searching for each framework") as progress:
        stacks = published_stacks(question.cluster.accelerator.vendor)
        answers = answers_of(stacks, put, fix=fix, limit=limit, exclude=exclude, progress=progress)
    if target.where is not None:
        target.write(frameworks_record(question, answers))
    if not target.is_stdout:
        from shardplan.cli.layout import Page
        from shardplan.cli.show.frameworks import show_frameworks

        show_frameworks(Page(), question, answers)
    return 0 if any(each.best is not None for each in answers) else 1


def _restrictions(flags: SearchFlags) -> tuple[dict[str, tuple[str, ...]], ...]:
    """Values of ``--fix``, ``--limit`` and ``--exclude``. Raises InputError."""
    from shardplan.cli.question import choices

    return tuple(choices(f"--{name}", getattr(flags, name)) for name in ("fix", "limit", "exclude"))


def _search(asked: Asked, flags: SearchFlags) -> tuple[SearchResult, tuple[str, ...]]:
    """The answer, and what was taken from the stack."""
    from shardplan.cli.progress import progress_bar
    from shardplan.frameworks.defaults import switches_in_stack
    from shardplan.planner.search import search_question

    fix, limit, exclude = _restrictions(flags)
    of_stack = switches_in_stack(asked.stack, {*fix, *limit, *exclude})
    with progress_bar("searching") as progress:
        result = search_question(
            asked.question,
            top=whole(flags.top, "--top", most=MOST_PLANS),
            fix=fix,
            limit=limit,
            exclude=exclude,
            progress=progress,
            stack=asked.stack,
        )
    return result, of_stack


def _answer(result: SearchResult, target: JsonTarget) -> None:
    """Writes the file, then says the same in words."""
    from shardplan.reports.explanation import explain, explanation_record
    from shardplan.reports.plan_file import PlanFile, plan_file_record
    from shardplan.reports.recommendation import recommendation

    explanation = explain(result)
    if target.where is not None:
        record = plan_file_record(PlanFile.of(result))
        target.write(record if explanation is None else {**record, "explanation": explanation_record(explanation)})
    if target.is_stdout:
        return
    from shardplan.cli.layout import Page
    from shardplan.cli.show import answer as show_answer
    from shardplan.cli.show import search as show_search

    page = Page()
    show_answer.show_question(page, result.question)
    if explanation is None:
        show_search.show_no_answer(page, result)
        show_search.show_account(page, result)
        nearest = [e for e in (result.smallest, *(each.estimate for each in result.suggestions)) if e is not None]
        if nearest:
            show_answer.show_assumptions(page, nearest[0])
    else:
        assert result.ties is not None
        best = result.estimates[0]
        found = recommendation(result.ties, result.estimates)
        show_answer.show_verdict(page, result.question, best)
        show_search.show_offers(page, result)
        show_search.show_recommended(page, found)
        show_answer.show_memory(page, best)
        show_answer.show_step(page, best)
        show_search.show_plans(page, result, found)
        show_search.show_explanation(page, explanation, result.estimates)
        show_search.show_account(page, result)
        show_answer.show_evidence(page, found.estimate)
        show_answer.show_assumptions(page, best)
    show_answer.show_way_on(page, target, result.question, result.estimates, result.recommended)
