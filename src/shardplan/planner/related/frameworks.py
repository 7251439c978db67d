"""One question asked of several training frameworks: the plan to take of each, and what each cannot do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from shardplan.errors import NotRunnableError
from shardplan.estimation.estimate import Estimate, estimate_plan
from shardplan.estimation.question import Question
from shardplan.fields import dataclass
from shardplan.frameworks.runnable import Refusal, refusals
from shardplan.frameworks.stack import Stack
from shardplan.inputs.plan import Plan
from shardplan.planner.layouts import KnownPipelines
from shardplan.planner.restrictions import Given
from shardplan.planner.result import SearchResult
from shardplan.planner.search import search_question
from shardplan.planner.stopping import Stop
from shardplan.planner.survey import Progress
from shardplan.validity.rules import broken_rule

Put = Callable[[Stack], tuple[Question, tuple[str, ...]]]
"""The question as it is put to a framework, with its defaults, and what was assumed in putting it."""


@dataclass(frozen=True, kw_only=True)
class FrameworkAnswer:
    """What one framework makes of the question."""

    stack: Stack
    """The framework."""
    result: SearchResult | None = None
    """None where the framework runs nothing of what is asked."""
    refused: NotRunnableError | None = None
    """Why it runs nothing of what is asked."""
    missing: tuple[Refusal, ...] = ()
    """Rules of the framework that the first plan breaks: that of the framework that is fastest with its own."""
    first: Estimate | None = None
    """The first plan as this framework runs it; None where it cannot."""

    @property
    def best(self) -> Estimate | None:
        """The plan to take: that which its own search recommends; None where nothing fits."""
        return None if self.result is None else self.result.recommended

    @property
    def fastest(self) -> Estimate | None:
        """The fastest plan of its own search, which may be another; None where nothing fits."""
        return self.result.estimates[0] if self.result is not None and self.result.estimates else None


def answers_of(
    stacks: Sequence[Stack],
    put: Put,
    *,
    fix: Given | None = None,
    limit: Given | None = None,
    exclude: Given | None = None,
    stop: Stop | None = None,
    progress: Progress | None = None,
) -> tuple[FrameworkAnswer, ...]:
    """As ``search_frameworks``, for a question that ``put`` puts to each framework."""
    known, found = KnownPipelines(), []
    for number, stack in enumerate(stacks):
        if progress is not None:
            progress(number, len(stacks))
        question, assumed = put(stack)
        try:
            result = search_question(
                question, top=1, fix=fix, limit=limit, exclude=exclude, stop=stop, known=known, stack=stack
            )
        except NotRunnableError as error:
            found.append(FrameworkAnswer(stack=stack, refused=error))
        else:
            found.append(FrameworkAnswer(stack=stack, result=result.assuming(assumed)))
    return _compared(found)


def _compared(answers: Sequence[FrameworkAnswer]) -> tuple[FrameworkAnswer, ...]:
    """The same, by the times of the plans to take, with what each makes of the first of these plans."""
    ordered = sorted(answers, key=lambda each: float("inf") if each.best is None else each.best.step_time)
    if not ordered or ordered[0].best is None:
        return tuple(ordered)
    return tuple(_with_first(each, ordered[0].best.plan) for each in ordered)


def _with_first(answer: FrameworkAnswer, first: Plan) -> FrameworkAnswer:
    """An answer with what the framework makes of the first plan."""
    if answer.result is None:
        return answer
    question = answer.result.question
    setting = question.setting
    missing = refusals(answer.stack, first, setting)
    is_valid = not missing and broken_rule(setting, first) is None
    return replace(answer, missing=missing, first=estimate_plan(question, first) if is_valid else None)
