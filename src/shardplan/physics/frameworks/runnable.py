"""What a framework refuses to run: the rules that follow from its capability record.

A rule has the form of those of validity: it holds or not for one plan or for arrays of candidates, and says for one
plan which value breaks it and which knob to turn. ``reads`` names the fields it looks at, so that a search can ask it
once for each of their distinct values.

What a framework does not refuse may still never have been run. A plan is untested where an aspect of the record
concerns it and no source covers it: a test or a recipe in its repository, or a published run. A record without the
entry ``shown`` shows nothing, so that all its plans are untested; without a record nothing is known, and nothing is
said.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import Flags, all_hold
from shardplan.base.fields import dataclass, replace
from shardplan.base.words import switch_word
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import Degrees, Setting, differing_in_numbers
from shardplan.inputs.software import Software
from shardplan.physics.frameworks.capabilities import OFFERED, Capabilities, Exclusion
from shardplan.physics.frameworks.conditions import FACTS, Condition, KnownFacts, plan_fields
from shardplan.physics.frameworks.entry_rules import MODEL, TEMPLATES, Template
from shardplan.physics.frameworks.option_entries import VALUES
from shardplan.physics.frameworks.shown import Aspect
from shardplan.physics.frameworks.stack import Same, Stack


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
    own_script: bool = False
    """Whether a training script of one's own can run what breaks it."""

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
    own_script: bool
    """Whether a training script of one's own can run it."""


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
        own_script=rule.own_script,
    )


def _excluded(each: Exclusion) -> FrameworkRule:
    """The rule that an exclusion of a record states."""
    rule = rule_against(
        each.when,
        rule=each.rule,
        field=each.field,
        instead=each.instead,
        source=each.source,
        from_memory=each.from_memory,
    )
    return replace(rule, own_script=each.own_script)


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


NOTHING_SHOWN: Final = "its record names no test, recipe or run of any plan"


def untested(stack: Stack | None, setting: Setting, degrees: Degrees, *, leaving_out: Collection[str] = ()) -> Flags:
    """Whether nothing shows that the framework runs the plan, or each of the candidates, of ``degrees``.

    ``leaving_out``: aspects that read one of these fields do not count, as another value of it may be shown to run.
    """
    can = None if stack is None else stack.can_run
    if can is None:
        return False
    if can.shown is None or setting.companions:
        return True
    known = KnownFacts(FACTS, setting, degrees)
    found: Flags = False
    for aspect in can.shown:
        lacks = False if not {*leaving_out}.isdisjoint(aspect.names) else aspect.lacks(known)
        if lacks is not False:
            found = np.logical_or(found, lacks)
    return found


def untested_aspects(stack: Stack | None, setting: Setting, plan: Plan) -> tuple[str, ...]:
    """What nothing shows of one plan, each as a sentence; none where all of it is shown or there is no record."""
    can = None if stack is None else stack.can_run
    if stack is None or can is None:
        return ()
    if can.shown is None:
        return (f"{stack.label}: {NOTHING_SHOWN}",)
    known = KnownFacts(VALUES, setting, Degrees.of(plan))
    lacking = [each.asked(known) for each in can.shown if bool(np.any(each.lacks(known)))]
    lacking += [f"a frozen companion ({each.model.name})" for each in setting.companions]
    return tuple(f"{stack.label}: no test or recipe runs {each}" for each in lacking)


def all_tested(stack: Stack, setting: Setting, plans: Sequence[Plan]) -> NDArray[np.bool_]:
    """Whether something shows that the framework runs each of several plans; those alike but for numbers at once."""
    found = np.zeros(len(plans), dtype=bool)
    for alike in differing_in_numbers(plans):
        found[alike] = np.logical_not(untested(stack, setting, Degrees.of_all([plans[place] for place in alike])))
    return found


def fields_that_decide(stack: Stack | None) -> tuple[str, ...]:
    """Fields of a plan that decide whether it is tested, so that a search can ask once for their distinct values."""
    return () if stack is None else _fields_that_decide(Same(stack))


@lru_cache(maxsize=64)
def _fields_that_decide(same: Same) -> tuple[str, ...]:
    aspects: tuple[Aspect, ...] = () if same.stack.can_run is None else same.stack.can_run.shown or ()
    return plan_fields(dict.fromkeys(name for each in aspects for name in each.names))
