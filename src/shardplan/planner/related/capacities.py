"""One question for several capacities of the accelerator's memory: the fastest plan stays so as long as it fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from shardplan.estimation.estimate import Estimate, estimate_plan
from shardplan.estimation.question import Question
from shardplan.frameworks.stack import Stack
from shardplan.planner.layouts import KnownPipelines
from shardplan.planner.restrictions import Restrictions
from shardplan.planner.space import declare
from shardplan.planner.survey import survey_of


class Fastest(NamedTuple):
    """The fastest plan of a question."""

    estimate: Estimate | None
    """None where nothing fits."""
    num_plans_evaluated: int
    """Valid plans, each priced in full; their number does not depend on the memory."""


def best_by_capacity(
    questions: Sequence[Question],
    *,
    restrictions: Restrictions | None = None,
    stack: Stack | None = None,
    known: KnownPipelines | None = None,
) -> list[Fastest]:
    """The fastest plan of each of ``questions``, which differ in nothing but the memory of the accelerator.

    Memory decides which plans fit, and nothing else. The plans that fit a smaller memory are among those that fit a
    larger one, so the fastest of these is also the fastest of those as long as it fits. The space is searched again
    only where it does not, and never below a memory in which nothing fits. Raises InputError as ``search`` does.
    """
    known = known or KnownPipelines()
    found: dict[int, Fastest] = {}
    last: Fastest | None = None
    for number in sorted(range(len(questions)), key=lambda place: -questions[place].cluster.accelerator.memory_bytes):
        last = _next(questions[number], last, restrictions or Restrictions(), stack, known)
        found[number] = last
    return [found[number] for number in range(len(questions))]


def _next(
    question: Question, larger: Fastest | None, restrictions: Restrictions, stack: Stack | None, known: KnownPipelines
) -> Fastest:
    """The fastest plan, given that of the same question with ``larger`` memory."""
    if larger is not None and larger.estimate is None:
        return larger
    if larger is not None and larger.estimate is not None:
        again = estimate_plan(question, larger.estimate.plan)
        if again.feasible:
            return larger._replace(estimate=_run_by(again, stack))
    space = declare(question, restrictions, stack)
    survey = survey_of(question, space, known=known)
    return Fastest(_run_by(survey.best_where(), stack), survey.num_evaluated)


def _run_by(estimate: Estimate | None, stack: Stack | None) -> Estimate | None:
    return estimate if estimate is None or stack is None else replace(estimate, framework=stack.label)
