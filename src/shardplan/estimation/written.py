"""One plan as people write it, priced in one way wherever it is asked: command line, Python, requests and forms.

What is not given is as usual in the framework, and the answer says so; a plan of an answer or of a file is complete.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, replace

from shardplan.estimation.estimate import Estimate, estimate_plan, in_framework
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan
from shardplan.inputs.software import check_experts
from shardplan.physics.frameworks.defaults import plan_in_stack, stated
from shardplan.physics.frameworks.stack import Stack


def estimate_written(
    question: Question, plan: Plan, stack: Stack | None, given: Collection[str] | None = None
) -> Estimate:
    """The plan with its fields other than the ``given`` ones as usual in the framework; what was taken is assumed.

    Without ``given`` these are the fields that are not at their default, or all where the plan states them. Raises
    ``PlanError`` where the plan breaks a rule, ``NotRunnableError`` where it names a dispatcher without experts.
    """
    given = stated(plan) if given is None else given
    named = [name for name in given if getattr(plan, name, None) is not None]
    check_experts(named, question.model.name, is_moe=question.model.is_moe)
    whole, of_stack = filled(question, plan, stack, given)
    answer = in_framework(estimate_plan(question, whole), stack, question)
    own = () if stack is None else stack.plan_fields()
    at_default = _at_default(plan, whole, {*given, *own})
    return replace(answer, assumptions=(*of_stack, *at_default, *answer.assumptions))


def filled(question: Question, plan: Plan, stack: Stack | None, given: Collection[str]) -> tuple[Plan, tuple[str, ...]]:
    """The plan with its fields other than the ``given`` ones as usual in the framework, and what was taken as text."""
    model, job, number = question.model, question.job, question.num_accelerators
    return plan_in_stack(plan, stack, model=model, job=job, num_accelerators=number, given=given)


def _at_default(plan: Plan, whole: Plan, known: Collection[str]) -> tuple[str, ...]:
    """The fields that took their defaults; those without one follow from others."""
    values = {field.name: getattr(whole, field.name) for field in fields(plan) if field.name not in known}
    kept = {name: value for name, value in values.items() if value is not None and value == getattr(plan, name)}
    texts = ", ".join(f"{name} {value}".lower() for name, value in kept.items())
    return (f"plan fields at their defaults: {texts}",) if texts else ()
