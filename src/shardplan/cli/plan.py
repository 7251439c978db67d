"""``shardplan plan``: the best plans for a model, a cluster and a job."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shardplan.cli.flags import (
    ClusterFlags,
    JobFlags,
    ModelArgument,
    OutputFlags,
    OverrideFlags,
    SearchFlags,
    with_flags,
)
from shardplan.cli.json_target import JsonTarget
from shardplan.cli.methods_plan import MethodFlag, plan_with_method
from shardplan.cli.numbers import whole

if TYPE_CHECKING:
    from shardplan.planner.result import SearchResult

__all__ = ["plan"]

MOST_PLANS = 1000
SLOW = 0.5
"""Seconds after which a search shows how far it is."""


@with_flags
def plan(
    *,
    model: ModelArgument,
    cluster: ClusterFlags,
    job: JobFlags,
    search: SearchFlags,
    overrides: OverrideFlags,
    output: OutputFlags,
    method: MethodFlag = None,
) -> int:
    """Find the fastest plan that fits, and say why.

    Every plan of the declared space is evaluated, so that the first is its optimum. Fields of the job that are left out
    take defaults, which the answer states.
    """
    target = JsonTarget(output.json)
    target.check()
    from shardplan.cli.question import ask, choices

    if method is not None:
        return plan_with_method(method, lambda: ask(model, cluster, overrides, job), search, target)
    from shardplan.planner.search import search_question

    asked = ask(model, cluster, overrides, job)
    with _progress() as progress:
        result = search_question(
            asked.question,
            top=whole(search.top, "--top", most=MOST_PLANS),
            fix=choices("--fix", search.fix),
            limit=choices("--limit", search.limit),
            exclude=choices("--exclude", search.exclude),
            progress=progress,
        )
    _answer(result.stating_what_was_not_searched().assuming(asked.assumptions), target)
    return 0 if result.estimates else 1


def _answer(result: SearchResult, target: JsonTarget) -> None:
    """Writes the file, then says the same in words."""
    from shardplan.reports.explanation import explain, explanation_record
    from shardplan.reports.plan_file import PlanFile, plan_file_record

    explanation = explain(result)
    if target.where is not None:
        record = plan_file_record(PlanFile.of(result))
        target.write(record if explanation is None else {**record, "explanation": explanation_record(explanation)})
    if target.is_stdout:
        return
    from shardplan.cli import show_answer, show_search
    from shardplan.cli.layout import Page

    page = Page()
    show_answer.show_question(page, result.question)
    if explanation is None:
        show_search.show_no_answer(page, result)
        show_search.show_account(page, result)
        nearest = [e for e in (result.smallest, *(each.estimate for each in result.suggestions)) if e is not None]
        if nearest:
            show_answer.show_assumptions(page, nearest[0])
    else:
        best = result.estimates[0]
        show_answer.show_verdict(page, result.question, best)
        show_answer.show_memory(page, best)
        show_answer.show_step(page, best)
        show_search.show_plans(page, result.estimates)
        show_search.show_explanation(page, explanation, result.estimates)
        show_search.show_account(page, result)
        show_answer.show_assumptions(page, best)
    show_answer.show_way_on(page, target, result.question, result.estimates)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None] | None]:
    """A bar on standard error, where that is a terminal and the search takes its time."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    started = time.monotonic()
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("searching", total=None, visible=False)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, visible=time.monotonic() - started > SLOW)

        yield advance
