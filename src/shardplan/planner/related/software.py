"""What a framework can do with the same plan: values of its software that the user could choose instead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from shardplan.estimation.estimate import Estimate, price_plans
from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan
from shardplan.inputs.software import OF_EXPERTS
from shardplan.physics.frameworks.options import options_of
from shardplan.physics.frameworks.runnable import refusals
from shardplan.physics.frameworks.stack import Stack


class OtherSoftware(NamedTuple):
    """A plan under another value of one field of the software."""

    field: str
    old: str | bool
    new: str | bool
    question: Question
    """The question with the new value."""
    priced: PricedPlan
    """The plan under it."""

    @property
    def key(self) -> str:
        """The field as records name it: ``software.moe_dispatcher``."""
        return f"software.{self.field}"


def other_software(question: Question, now: Estimate, stack: Stack) -> Iterator[OtherSoftware]:
    """The plan of ``now`` under every other value that its framework has and allows for it, where that matters."""
    can, software, plan = stack.can_run, question.job.software, now.plan
    for field, values in ({} if can is None or can.software is None else can.software).items():
        if field in OF_EXPERTS and not question.model.is_moe:
            continue
        old = getattr(software, field)
        for new in (value for value in values if value != old):
            changed: dict[str, Any] = {field: new}
            other = replace(question, job=replace(question.job, software=replace(software, **changed)))
            if refusals(stack, plan, other.setting):
                continue
            priced = price_plans(other, [plan])[0]
            if (priced.step_time, priced.peak_memory_bytes) != (now.step_time, now.peak_memory_bytes):
                yield OtherSoftware(field, old, new, other, priced)


def options_for(other: OtherSoftware, plan: Plan, stack: Stack, question: Question) -> tuple[str, ...]:
    """Options of the framework that the new value needs, and the plan alone does not."""
    before, after = (options_of(stack, each.setting, plan) for each in (question, other.question))
    if before is None or after is None:
        return ()
    return tuple(option for option in after.options if option not in before.options)
