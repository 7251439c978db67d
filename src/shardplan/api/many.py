"""``shardplan.search_many``: many questions at once, of which what they share is worked out once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from shardplan.api.answers import SearchAnswer
from shardplan.api.questions import PutQuestion, StackLike, ask, choices_of
from shardplan.errors import InputError, check_kind, shown
from shardplan.estimation.question import Question
from shardplan.frameworks.defaults import switches_in_stack
from shardplan.frameworks.usual_stack import USUAL, Wanted, chosen_stack
from shardplan.planner.layouts import KnownPipelines
from shardplan.planner.restrictions import Given
from shardplan.planner.search import search_question
from shardplan.planner.stopping import Stop

NEEDED = ("model", "cluster", "num_accelerators")
"""Arguments that every question has."""


def search_many(
    questions: Iterable[Question | Mapping[str, Any]],
    *,
    top: int = 1,
    fix: Given | None = None,
    limit: Given | None = None,
    exclude: Given | None = None,
    stop: Stop | None = None,
    stack: StackLike = USUAL,
) -> Iterator[SearchAnswer]:
    """The answer to every question, in their order, each as it is found; the same as :func:`search` gives.

    A question is a mapping of arguments of :func:`search`, such as ``{"model": "llama-3.1-70b", "cluster": "dgx-h100",
    "num_accelerators": 512, "global_batch_size": 512}``, or a :func:`question`, whose job stays as it is. Plans are
    those that a framework can run: that of the mapping, ``stack``, or the usual one of the accelerator; with
    ``stack=None`` no framework limits them.

    Questions about one model share its pipelines, however much they differ in size, network, job and constants. An
    answer names its changes where nothing fits only if it is asked for them (``SearchAnswer.suggestions`` stay empty).
    ``stop`` is asked between pieces of work; raises ``SearchStopped`` where it says yes, all earlier answers given.
    """
    known = KnownPipelines()
    check_kind("questions", questions, Iterable, hint="a list of mappings or questions")
    choices = choices_of(fix=fix, limit=limit, exclude=exclude)
    restricted = {name for each in choices.values() for name in each or ()}
    for each in questions:
        put = _put(each, stack)
        found = search_question(
            put.question, top=top, stop=stop, known=known, suggestions=False, stack=put.stack, **choices
        )
        yield SearchAnswer.of(found.assuming((*put.assumptions, *switches_in_stack(put.stack, restricted))))


def _put(asked: object, stack: StackLike) -> PutQuestion:
    """The question that is meant, and the framework that its plans are for. Raises InputError."""
    if isinstance(asked, Question):
        job = {"train": asked.job.train, "documents": asked.job.documents}
        known, chosen = chosen_stack(stack, asked.cluster.accelerator.vendor, Wanted.of(asked.model, job))
        return PutQuestion(asked, known, chosen)
    check_kind("each of questions", asked, Mapping, Question, hint="a mapping of arguments of search")
    assert isinstance(asked, Mapping)
    missing = [name for name in NEEDED if name not in asked]
    if missing or not all(isinstance(name, str) for name in asked):
        raise InputError(
            f"a question has no {', '.join(missing)}" if missing else f"a question has the keys {shown([*asked])}",
            rule=f"every question names {', '.join(NEEDED)}",
            hint='{"model": "llama-3.1-70b", "cluster": "dgx-h100", "num_accelerators": 512}',
        )
    return ask(**{"stack": stack, **asked})
