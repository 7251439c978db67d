"""One question asked of several training frameworks: the recommended plan of each, and what each cannot do.

Where no framework is named and the usual one has not what is wanted, an answer is for the one that is fastest with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from shardplan.base.errors import NotRunnableError
from shardplan.base.fields import dataclass
from shardplan.base.units import format_time
from shardplan.estimation.estimate import Estimate, estimate_plan
from shardplan.estimation.question import PosedQuestion, Question
from shardplan.inputs.counts import MAX_NUM_ACCELERATORS
from shardplan.inputs.plan import Plan
from shardplan.inputs.software import CHOSEN
from shardplan.physics.frameworks.runnable import Refusal, refusals
from shardplan.physics.frameworks.stack import Stack
from shardplan.physics.validity import broken_rule
from shardplan.planner.related.counts import can_fit
from shardplan.planner.restrictions import Given
from shardplan.planner.result import SearchResult
from shardplan.planner.scope import Scope
from shardplan.planner.search import search_question
from shardplan.planner.stopping import Stop
from shardplan.planner.survey import Progress

Posed = Callable[[Stack], tuple[Question, tuple[str, ...]]]
"""The question under a framework, with its defaults, and what was assumed."""


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
    own_software: tuple[str, ...] = ()
    """Choices of the first plan that this framework does not have, in place of which it runs its own."""

    def __repr__(self) -> str:
        why = "nothing fits" if self.refused is None else self.refused.message
        return f"<FrameworkAnswer: {self.stack.label}: {why if self.best is None else self.best}>"

    @property
    def best(self) -> Estimate | None:
        """The recommended plan: that which its own search recommends; None where nothing fits."""
        return None if self.result is None else self.result.recommended

    @property
    def fastest(self) -> Estimate | None:
        """The fastest plan of its own search, which may be another; None where nothing fits."""
        return self.result.estimates[0] if self.result is not None and self.result.estimates else None


def answers_of(
    stacks: Sequence[Stack],
    posed: Posed,
    *,
    fix: Given | None = None,
    limit: Given | None = None,
    exclude: Given | None = None,
    use_all: bool = False,
    stop: Stop | None = None,
    progress: Progress | None = None,
) -> tuple[FrameworkAnswer, ...]:
    """As ``search_frameworks``, for a question that ``posed`` gives for each framework."""
    scope, found = Scope.of(fix=fix, limit=limit, exclude=exclude, stop=stop), []
    for number, stack in enumerate(stacks):
        if progress is not None:
            progress(number, len(stacks))
        question, assumed = posed(stack)
        try:
            result = search_question(question, top=1, use_all=use_all, **vars(scope) | {"stack": stack})
        except NotRunnableError as error:
            found.append(FrameworkAnswer(stack=stack, refused=error))
        else:
            found.append(FrameworkAnswer(stack=stack, result=result.assuming(assumed)))
    return _compared(found)


MOST_DOUBLINGS: Final = 12
"""Times that the accelerators are doubled to find a size at which frameworks can be compared."""


def under_fastest(
    posed: PosedQuestion,
    *,
    fix: Given | None = None,
    limit: Given | None = None,
    exclude: Given | None = None,
    stop: Stop | None = None,
) -> PosedQuestion:
    """The question under the framework whose recommended plan is the fastest, where one is to be chosen; else as it is.

    Every framework is searched, but for plans that are slower than what was found. Where nothing fits on so many
    accelerators, the frameworks are compared on the fewest times two on which something does; where nothing ever fits,
    the first is taken. Raises InputError.
    """
    if not posed.under:
        return posed
    scope = Scope.of(fix=fix, limit=limit, exclude=exclude, stop=stop)
    for doubling in range(MOST_DOUBLINGS):
        number = posed.question.num_accelerators * 2**doubling
        if number > MAX_NUM_ACCELERATORS or not can_fit(replace(posed.question, num_accelerators=number), scope):
            continue
        found = _times_of(posed, number, scope)
        if found:
            fastest = min(found, key=lambda name: found[name])
            return posed.under[fastest](_why_fastest(fastest, found, [*posed.under], number if doubling else None))
    return posed


def _times_of(posed: PosedQuestion, number: int, scope: Scope) -> dict[str, float]:
    """Step times of the plans to take of frameworks, but of those that are slower than an earlier one. [s]"""
    times: dict[str, float] = {}
    for name, under in posed.under.items():
        asked = under("")
        question, of_stack = replace(asked.question, num_accelerators=number), vars(scope) | {"stack": asked.stack}
        within = min(times.values(), default=math.inf)
        try:
            result = search_question(question, top=1, suggestions=False, prune=True, within=within, **of_stack)
        except NotRunnableError:
            continue
        if result.recommended is not None:
            times[name] = result.recommended.step_time
    return times


def _why_fastest(fastest: str, times: Mapping[str, float], names: Sequence[str], number: int | None) -> str:
    """Why a framework was taken, with the times of those that were found to be slower."""
    others = [f"{format_time(time)} under {name}" for name, time in times.items() if name != fastest]
    left = [name for name in names if name not in times]
    slower = f"; no faster or unable to run a plan that fits: {', '.join(left)}" if left else ""
    where = "" if number is None else f" on {number:,} accelerators"
    said = ", ".join([f"{format_time(times[fastest])} a step{where}", *others])
    return f"the fastest of the {len(names)} that have: {said}{slower}"


def _compared(answers: Sequence[FrameworkAnswer]) -> tuple[FrameworkAnswer, ...]:
    """The same, by the times of the plans to take, with what each makes of the first of these plans."""
    ordered = sorted(answers, key=lambda each: float("inf") if each.best is None else each.best.step_time)
    if not ordered or ordered[0].best is None:
        return tuple(ordered)
    return tuple(_with_first(each, ordered[0].best) for each in ordered)


def _with_first(answer: FrameworkAnswer, first: Estimate) -> FrameworkAnswer:
    """An answer with what the framework makes of the first plan, on as many accelerators as that uses."""
    if answer.result is None:
        return answer
    question, plan = answer.result.question.leaving_idle(first.num_accelerators_used), first.plan
    setting = question.setting
    own = _not_offered(answer.stack, plan)
    open_ones: dict[str, Any] = dict.fromkeys(own)
    plan = replace(plan, **open_ones)
    missing = refusals(answer.stack, plan, setting)
    is_valid = not missing and broken_rule(setting, plan) is None
    found = estimate_plan(question, plan) if is_valid else None
    return replace(answer, missing=missing, first=found, own_software=own)


def _not_offered(stack: Stack, plan: Plan) -> tuple[str, ...]:
    """Choices of software of a plan that a framework does not have."""
    can = stack.can_run
    offered = {} if can is None or can.software is None else can.software
    stated = {name: getattr(plan, name) for name in CHOSEN if getattr(plan, name) is not None}
    return tuple(name for name, value in stated.items() if value not in offered.get(name, (value,)))
