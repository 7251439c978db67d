"""The candidates of a search whose plans are for one framework: what its record says that it can run.

Overlaps of tensor parallelism and of experts, and the software that the record offers, are varied. Fields that a
search does not vary by itself (exchange of context, other overlaps, sequence parallelism) have the framework's default,
or what it can run instead. Candidates that it never runs, whatever the other fields, are left out; where the user asked
for nothing else, an error says so. All other rules are applied to every plan (:mod:`planner.masks`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any, Final, get_args

import numpy as np

from shardplan.base.arrays import Flags, all_hold, any_holds
from shardplan.base.errors import InputError, NotRunnableError
from shardplan.base.fields import replace
from shardplan.base.words import switch_word
from shardplan.estimation.question import Question
from shardplan.inputs.plan import OP_SAC, CpComm, Plan, TpKind, recompute_modules
from shardplan.inputs.plan_numbers import Degrees, Setting, data_parallel_degree, degrees_with
from shardplan.inputs.software import CHOSEN, OF_EXPERTS, check_experts
from shardplan.physics.frameworks.capabilities import ANY_PLACEMENT, RECOMPUTE_WORDS
from shardplan.physics.frameworks.defaults import SEARCHED_SWITCHES
from shardplan.physics.frameworks.entry_rules import MODEL
from shardplan.physics.frameworks.libraries import rules_without
from shardplan.physics.frameworks.runnable import FrameworkRule, rules_of
from shardplan.physics.frameworks.stack import Stack
from shardplan.physics.frameworks.stage_layers import layers_by_cost

Axes = dict[str, tuple[Any, ...]]
Rules = tuple[FrameworkRule, ...]

MOST_WORDS: Final = 8
"""Combinations of words, each asked of all numbers at once, up to which rules are asked whether they always hold."""
NUMBERS: Final = ("tp", "tp_rows", "cp", "pp", "vp", "ep", "etp", "micro_batch_size")
"""Fields of which rules are asked for all candidates at once."""
ALTERNATIVES: Final[Mapping[str, tuple[Any, ...]]] = {
    "sequence_parallel": (True, False),
    "tp_kind": get_args(TpKind),
    "cp_comm": get_args(CpComm),
    "overlap_tp": (False, True),
    "overlap_dp": (True, False),
    "overlap_pp": (None, True, False),
    "overlap_ep": (False, True),
}
"""Values of the fields that a search does not vary by itself, and of those that it varies for a framework."""
VARIED: Final = ("overlap_tp", "overlap_ep")
"""Those of them that it varies."""
CHOICES: Final = (*VARIED, "moe_dispatcher", "cuda_graphs")
"""Fields of which every value changes the prices of blocks and no pipeline, group or state."""
IN_EFFECT: Final[Mapping[str, tuple[str, ...]]] = {
    "sequence_parallel": ("tp",),
    "tp_kind": ("tp",),
    "cp_comm": ("cp",),
    "overlap_tp": ("tp",),
    "overlap_pp": ("pp",),
    "overlap_ep": ("ep",),
    "schedule": ("pp",),
    "microbatch_group_size": ("vp",),
}
"""Fields that mean nothing where these degrees are one: a framework is asked where they are more."""
_PLAN: Final = {each.name: each.default for each in fields(Plan)}


def framework_axes(stack: Stack, question: Question, axes: Axes, restricted: Collection[str]) -> Axes:
    """Candidates that differ from those of a search for no framework, before its rules are asked."""
    can, usual, setting = stack.can_run, stack.plan_fields(), question.setting
    if can is None:
        kept = (*SEARCHED_SWITCHES, *VARIED)
        return {name: (usual[name],) for name in kept if name in usual and name not in restricted}
    own = software_axes(stack, setting, question.stated_software) | {
        name: tuple(dict.fromkeys((usual.get(name, _PLAN[name]), *ALTERNATIVES[name]))) for name in ALTERNATIVES
    }
    for name in VARIED:
        if getattr(can, name) is None:  # nothing says that the framework has it
            own[name] = own[name][:1]
    if not setting.model.is_moe:
        own["overlap_ep"] = own["overlap_ep"][:1]
    words = _words(stack, setting, axes["recompute"])
    own["recompute"] = _policies(axes["recompute"], words, str(usual.get("recompute", "none")))
    if can.placements and ANY_PLACEMENT not in can.placements:
        own["placement"] = can.placements
    if can.schedules and not {"1f1b", "interleaved"} & {*can.schedules}:
        own["schedule"] = (None, *can.schedules)
    if closes_by_cost(stack, restricted):
        closed = (layers_by_cost(setting.model, pp) for pp in axes["pp"] if pp > 1)
        own["stage_layers"] = (None, *(layers for layers in closed if layers is not None))
    return own


def software_axes(stack: Stack, setting: Setting, stated: Collection[str] = ()) -> Axes:
    """Fields of the software of which the framework offers several values; what is usual comes first.

    Not those that are ``stated``, nor those that make no difference in the model.
    """
    offered = {} if stack.can_run is None or stack.can_run.software is None else stack.can_run.software
    names = [name for name in CHOSEN if name in offered and name not in stated]
    found = {}
    for name in names if setting.model.is_moe else [name for name in names if name not in OF_EXPERTS]:
        values = dict.fromkeys((getattr(setting.job.software, name), *offered[name]))
        found[name] = tuple(each for each in values if setting.model.is_moe or each != OF_ROUTER)
    return {name: values for name, values in found.items() if len(values) > 1}


OF_ROUTER: Final = "router"
"""Graphs that hold nothing without experts."""


def closes_by_cost(stack: Stack, restricted: Collection[str]) -> bool:
    """Whether stages are those that the framework closes by the cost of their layers."""
    return stack.stages_by_cost and stack.can_run is not None and "stage_layers" not in restricted


def check_software(stack: Stack | None, question: Question, given: Axes) -> None:
    """Raises ``NotRunnableError`` for software that makes no difference in the model, or that the framework has not."""
    for name in (name for name in CHOSEN if name in given):
        stated = getattr(question.job.software, name)
        if name in question.stated_software and stated not in given[name]:
            asked = " or ".join(map(switch_word, given[name]))
            raise InputError(
                f"{name} is {switch_word(stated)} for the job and {asked} for the plan",
                rule="what --software states of the job holds for all of its plans",
                hint=f"state {name} once, for the job or for the plan",
            )
        check_experts([name], question.model.name, is_moe=question.model.is_moe)
        if stack is None or stack.can_run is None:
            continue
        offered = (stack.can_run.software or {}).get(name, ())
        known = dict.fromkeys((getattr(question.job.software, name), *offered))
        for value in (value for value in given[name] if value not in known):
            words = ", ".join(f"{name}={switch_word(each)}" for each in known)
            raise NotRunnableError(
                f"{stack.label} has no {name} {switch_word(value)}",
                rule=f"a plan runs by software that its framework has ({stack.label}: {words})",
                hint=f"set {name} to {' or '.join(switch_word(each) for each in known)}, or name another --stack",
            )


def binding_rules(stack: Stack, setting: Setting, declared: Axes, without: Collection[str] = ()) -> Rules:
    """Rules of the framework but those that hold for all candidates ``declared``, in their order.

    ``without``: libraries that are not installed.
    """
    rules = (*rules_without(stack, without), *rules_of(stack))
    holding = {id(each) for alike in _alike(rules) if _always_hold(alike, setting, declared) for each in alike}
    return tuple(rule for rule in rules if id(rule) not in holding)


def runnable_axes(
    stack: Stack, setting: Setting, axes: Axes, declared: Axes, given: Collection[str], *, binding: Rules
) -> Axes:
    """``axes`` without what the framework never runs; of fields that are not searched the first that is left.

    ``declared``: all candidates, those that depend on the depth among them; ``binding``: rules that not all keep.
    Raises ``NotRunnableError`` where a rule holds for none of the candidates that are ``given``.
    """
    if stack.can_run is None:
        return axes
    _check(stack, binding, setting, declared, given)
    kept = dict(axes)
    for name in (name for name, values in axes.items() if name not in given and len(values) > 1):
        asked = _alike(rule for rule in binding if name in rule.reads)
        found = axes[name]
        for alike in asked:
            found = _runnable(alike, setting, {**declared, **kept, name: found}, name)
        kept[name] = found or axes[name]
    for name in (name for name in ALTERNATIVES if name in kept and name not in (*given, *VARIED)):
        kept[name] = kept[name][:1]
    losses = kept.get("fused_loss", ())
    if len(losses) > 1 and "fused_loss" not in given and not any("fused_loss" in rule.reads for rule in binding):
        kept["fused_loss"] = (True,)  # it takes neither more time nor more memory
    stated = {*stack.plan_fields(), *given}
    return {name: each for name, each in kept.items() if name in stated or not _is_default(name, each)}


def _is_default(name: str, values: tuple[Any, ...]) -> bool:
    """Whether a field that is not searched is left at its default."""
    return name in ALTERNATIVES and values == (_PLAN[name],)


def _words(stack: Stack, setting: Setting, usual: Collection[str]) -> tuple[str, ...]:
    """What the framework can recompute in this model, whatever else the plan has; what is usual where it is silent."""
    if stack.can_run is None or stack.can_run.recompute is None:
        return tuple(word for word in RECOMPUTE_WORDS if word != OP_SAC or word in usual)
    rules = [rule for rule in rules_of(stack) if rule.reads == ("recompute",)]
    plans = [Degrees.of(Plan(recompute=word)) for word in RECOMPUTE_WORDS]
    runs = (all(np.all(rule.holds(setting, plan)) for rule in rules) for plan in plans)
    return tuple(word for word, can_run in zip(RECOMPUTE_WORDS, runs, strict=True) if can_run)


def _policies(usual: tuple[str, ...], words: Collection[str], of_stack: str) -> tuple[str, ...]:
    """The usual policies, made of what the framework can recompute, and its own default."""
    named = {"full", OP_SAC, "none"}
    modules = [() if policy in named else recompute_modules(policy) for policy in usual]
    ladder = [",".join(module for module in each if module in words) for each in modules]
    ladder = ["selective" if policy == "core_attn" else policy for policy in ladder if policy]
    whole = [word for word in (OP_SAC, "full") if word in words]
    return tuple(dict.fromkeys(["none", *ladder, *whole, of_stack]))


def _check(stack: Stack, rules: Iterable[FrameworkRule], setting: Setting, axes: Axes, given: Collection[str]) -> None:
    """Raises ``NotRunnableError`` for the first rule that no candidate keeps: one that is broken alone, if any is."""
    for alike in _alike(rules):
        names: list[str | None] = [name for name in alike[0].reads if name in given]
        for name in names or [None]:
            if not _ever_hold(alike, setting, axes, name):
                alone = (rule for rule in alike if not _ever_hold([rule], setting, axes, name))
                raise _refused(stack, next(alone, alike[0]), setting, axes, given)


def _alike(rules: Iterable[FrameworkRule]) -> list[list[FrameworkRule]]:
    """Rules that read the same fields together: those with and without a pipeline leave nothing only as one."""
    found: dict[frozenset[str], list[FrameworkRule]] = {}
    for rule in rules:
        found.setdefault(frozenset(rule.reads), []).append(rule)
    return [*found.values()]


def _refused(
    stack: Stack, rule: FrameworkRule, setting: Setting, axes: Axes, given: Collection[str]
) -> NotRunnableError:
    """What is asked for, the framework's rule, and what the framework can do instead."""
    names = [name for name in rule.reads if name in given]
    first = {name: axes[name][0] for name in (*rule.reads, *IN_EFFECT.get(rule.field, ())) if axes.get(name)}
    for name in {each for own in names for each in IN_EFFECT.get(own, ())}:
        first[name] = max(axes[name])
    plan = Plan(**first)
    values = ", ".join(f"{name}={','.join(map(str, axes[name]))}" for name in names)
    flag = f"--fix {values}" if len(names) == 1 else values or rule.flag
    others = f", or leave {' or '.join(names)} free" if names else ""
    known = f"`shardplan stacks {stack.name}` shows what it can run, --stack names another"
    asked = f"of {setting.model.name}" if rule.field == MODEL else f"with {flag}"
    return NotRunnableError(
        f"{stack.label} runs no plan {asked}: {rule.name} ({rule.message(setting, plan)})",
        rule=rule.name,
        hint=f"{rule.hint(setting, plan)}{others}; {known}",
    )


def _runnable(rules: list[FrameworkRule], setting: Setting, axes: Axes, name: str) -> tuple[Any, ...]:
    """Candidates of a field with which rules that read the same fields ever hold, or where it never matters."""
    reads, candidates = rules[0].reads, axes[name]
    numbers = _numbers(reads)
    if name not in numbers:
        return tuple(each for each in candidates if _ever_hold(rules, setting, {**axes, name: (each,)}, name))
    shape = [len(axes.get(each) or (1,)) for each in numbers]
    others = tuple(place for place, each in enumerate(numbers) if each != name)
    ever = matters = np.zeros(len(candidates), dtype=bool)
    for degrees in _combinations(reads, axes):
        counts = _in_effect(reads, setting, degrees, name)
        held = all_hold([counts, *(rule.holds(setting, degrees) for rule in rules)])
        ever = ever | np.broadcast_to(held, shape).any(axis=others)
        matters = matters | np.broadcast_to(counts, shape).any(axis=others)
    return tuple(each for each, kept in zip(candidates, (ever | ~matters).tolist(), strict=True) if kept)


def _ever_hold(rules: list[FrameworkRule], setting: Setting, axes: Axes, name: str | None) -> bool:
    """Whether rules that read the same fields hold for any candidates of these, where the field ``name`` matters."""
    matters = False
    for degrees in _combinations(rules[0].reads, axes):
        counts = _in_effect(rules[0].reads, setting, degrees, name)
        if any_holds(all_hold([counts, *(rule.holds(setting, degrees) for rule in rules)])):
            return True
        matters = matters or any_holds(counts)
    return not matters


def _always_hold(rules: list[FrameworkRule], setting: Setting, axes: Axes) -> bool:
    """Whether rules that read the same fields hold for all candidates of these; no where asking takes long."""
    words = math.prod(len(axes.get(name) or (1,)) for name in rules[0].reads if name not in NUMBERS)
    if words > MOST_WORDS:
        return False
    every = _combinations(rules[0].reads, axes)
    return all(bool(np.all(all_hold(rule.holds(setting, degrees) for rule in rules))) for degrees in every)


def _numbers(reads: tuple[str, ...]) -> list[str]:
    """Those of some fields whose candidates are asked for all at once."""
    return [name for name in NUMBERS if name in reads and not (name == "pp" and "stage_layers" in reads)]


def _combinations(reads: tuple[str, ...], axes: Axes) -> Iterator[Degrees]:
    """Candidates of some fields, numbers along axes of their own."""
    numbers = _numbers(reads)
    words = [name for name in reads if name not in numbers]
    columns: dict[str, Any] = {
        name: np.asarray(axes.get(name) or (1,)).reshape([-1 if each == name else 1 for each in numbers])
        for name in numbers
    }
    for values in itertools.product(*(axes.get(name) or (_PLAN[name],) for name in words)):
        degrees = degrees_with(dict(zip(words, values, strict=True)))
        changes = dict(columns)
        if degrees.plan.schedule is None:
            changes["interleaved"] = np.asarray(columns.get("vp", degrees.vp)) > 1
        yield replace(degrees, **changes)


def _in_effect(reads: tuple[str, ...], setting: Setting, degrees: Degrees, name: str | None) -> Flags:
    """Whether a field makes a difference."""
    if name == "overlap_dp":
        return np.greater(data_parallel_degree(setting, degrees), 1)
    needed = [each for each in IN_EFFECT.get(name or "", ()) if each in reads]
    return all_hold(np.greater(getattr(degrees, each), 1) for each in needed)
