"""What a framework refuses to run: the rules that follow from its capability record.

A rule has the form of those of validity: it holds or not for one plan or for arrays of candidates, and says for one
plan which value breaks it and which knob to turn. ``reads`` names the fields it looks at, so that a search can ask it
once for each of their distinct values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from functools import lru_cache

import numpy as np

from shardplan.arrays import Flags, all_hold
from shardplan.fields import dataclass
from shardplan.frameworks.capabilities import OFFERED, Capabilities, Exclusion
from shardplan.frameworks.conditions import FACTS, Condition, plan_fields
from shardplan.frameworks.entry_rules import MODEL, TEMPLATES, Template
from shardplan.frameworks.stack import Same, Stack
from shardplan.inputs.degrees import Degrees, Setting, differing_in_numbers
from shardplan.inputs.plan import Plan
from shardplan.inputs.software import Software
from shardplan.words import switch_word


@dataclass(frozen=True)
class FrameworkRule:
    """One rule of a framework."""

    name: str
    """The rule, as a sentence about the framework."""
    field: str
    """The field of the plan or the job that it concerns."""
    reads: tuple[str, ...]
    """Fields of the plan that decide it; none where job and model do."""
    holds: Callable[[Setting, Degrees], Flags]
    """Whether the framework can run a plan, or each of many."""
    message: Callable[[Setting, Plan], str]
    """The values of one plan that break it."""
    hint: Callable[[Setting, Plan], str]
    """What the framework can do instead."""
    source: str = ""
    from_memory: bool = False

    @property
    def flag(self) -> str:
        """The field's flag on the command line; the model has none and comes first."""
        if self.field in OFFERED:
            return f"{Software.SHARED_FLAG} {self.field}"
        return "MODEL" if self.field == MODEL else f"--{self.field.replace('_', '-')}"


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why a framework cannot run a plan."""

    framework: str
    """The stack's name and the version of its record, such as ``deepspeed 0.19.6``."""
    rule: str
    """The framework's rule, as a sentence."""
    field: str
    """The field of the plan or the job that it concerns."""
    flag: str
    message: str
    """The values that break the rule."""
    hint: str
    """What the framework can do instead."""
    source: str
    from_memory: bool


def refusals(stack: Stack, plan: Plan, setting: Setting) -> tuple[Refusal, ...]:
    """Every rule of the framework that ``plan`` breaks; none where it can run it, or where there is no record."""
    degrees = Degrees.of(plan)
    broken = (rule for rule in rules_of(stack) if not bool(np.all(rule.holds(setting, degrees))))
    return tuple(_refusal(stack, rule, plan, setting) for rule in broken)


def all_run(stack: Stack, setting: Setting, plans: Sequence[Plan]) -> list[bool]:
    """Whether the framework can run each of several plans; those that differ in numbers alone are asked at once."""
    found = np.zeros(len(plans), dtype=bool)
    for alike in differing_in_numbers(plans):
        found[alike] = runs(stack, setting, Degrees.of_all([plans[place] for place in alike]))
    return found.tolist()


def runs(stack: Stack, setting: Setting, degrees: Degrees) -> Flags:
    """Whether the framework can run the plan, or each of the candidates, of ``degrees``."""
    return all_hold(rule.holds(setting, degrees) for rule in rules_of(stack))


def rules_of(stack: Stack) -> tuple[FrameworkRule, ...]:
    """The rules of a stack's record, in the order in which they are best named."""
    return () if stack.can_run is None else _rules_of(Same(stack))


@lru_cache(maxsize=64)
def _rules_of(same: Same) -> tuple[FrameworkRule, ...]:
    stack = same.stack
    can = stack.can_run
    assert can is not None
    bound = (_bound(template, stack.name, can) for template in TEMPLATES if getattr(can, template.entry) is not None)
    return (*bound, *(_excluded(each) for each in can.refuses))


def _refusal(stack: Stack, rule: FrameworkRule, plan: Plan, setting: Setting) -> Refusal:
    return Refusal(
        framework=stack.label,
        rule=rule.name,
        field=rule.field,
        flag=rule.flag,
        message=rule.message(setting, plan),
        hint=rule.hint(setting, plan),
        source=rule.source,
        from_memory=rule.from_memory,
    )


def _excluded(each: Exclusion) -> FrameworkRule:
    """The rule that an exclusion of a record states."""
    return rule_against(
        each.when,
        rule=each.rule,
        field=each.field,
        instead=each.instead,
        source=each.source,
        from_memory=each.from_memory,
    )


def rule_against(
    when: Condition, *, rule: str, field: str, instead: str, source: str, from_memory: bool
) -> FrameworkRule:
    """The rule that plans of a condition break."""
    return FrameworkRule(
        rule,
        field,
        plan_fields(when.names),
        lambda s, d: np.logical_not(when.holds(s, d)),
        lambda s, p: _values(s, p, when.names),
        lambda _s, _p: instead,
        source,
        from_memory,
    )


def _values(s: Setting, p: Plan, facts: Iterable[str]) -> str:
    """Some facts with their values for one plan, as a person reads them; the model's name where there are none."""
    found = {fact: _value(s, p, fact) for fact in facts}
    words = [f"{fact.replace('_', ' ')} {switch_word(value)}" for fact, value in found.items() if value is not None]
    return ", ".join(words) or s.model.name


def _value(s: Setting, p: Plan, fact: str) -> object:
    """The field of the plan or the job, or a number that follows; None for what the rule says better."""
    known = next((getattr(each, fact) for each in (p, s.job) if fact in {field.name for field in fields(each)}), None)
    if known is None and fact in FACTS:
        followed = FACTS[fact](s, Degrees.of(p))
        known = None if isinstance(followed, bool | np.bool_) else followed
    return known


def _bound(template: Template, framework: str, can: Capabilities) -> FrameworkRule:
    entry = getattr(can, template.entry)
    return FrameworkRule(
        template.rule(framework, entry),
        template.field,
        plan_fields(template.reads),
        lambda s, d: template.holds(entry, s, d),
        lambda s, p: _values(s, p, template.reads),
        lambda s, p: template.hint(entry, s, p),
        can.sources.get(template.entry, ""),
        template.entry in can.from_memory,
    )
