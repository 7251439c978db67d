"""Many questions at once: what they have in common is worked out once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from shardplan.errors import check_kind
from shardplan.estimation.question import Question
from shardplan.frameworks.stack import Stack
from shardplan.frameworks.usual_stack import stack_for
from shardplan.planner.layouts import KnownPipelines
from shardplan.planner.restrictions import Given
from shardplan.planner.result import SearchResult
from shardplan.planner.search import search_question
from shardplan.planner.stopping import Stop


def search_many(
    questions: Iterable[Question],
    *,
    top: int = 1,
    fix: Given | None = None,
    limit: Given | None = None,
    exclude: Given | None = None,
    stop: Stop | None = None,
    stack: str | Stack | None = None,
) -> Iterator[SearchResult]:
    """The answer to every question, in their order, each as it is found; the same as ``search_question`` gives.

    Questions about one model share its pipelines, however much they differ in size, network, job and constants. An
    answer names its changes where nothing fits only if it is asked for them (``SearchResult.suggestions`` stay empty).
    ``stack`` limits the plans to those that a framework can run; the jobs of the questions stay as they are.
    ``stop`` is asked between pieces of work; raises ``SearchStopped`` where it says yes, all earlier answers given.
    """
    known = KnownPipelines()
    check_kind("questions", questions, Iterable)
    for question in questions:
        check_kind("each of questions", question, Question)
        yield search_question(
            question,
            top=top,
            fix=fix,
            limit=limit,
            exclude=exclude,
            stop=stop,
            known=known,
            suggestions=False,
            stack=stack_for(stack, question.cluster.accelerator.vendor),
        )
