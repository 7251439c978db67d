"""Plans as text and as flags."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, fields, replace
from typing import Final

from shardplan.base.words import switch_word
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan
from shardplan.inputs.software import CHOSEN
from shardplan.physics.frameworks.defaults import usual_fields
from shardplan.physics.frameworks.stack import Stack
from shardplan.physics.frameworks.usual_stack import ANY, stack_of_label, usual_stack
from shardplan.physics.validity import broken_rule

NAMED = ("tp", "cp", "pp", "vp", "ep", "etp", "micro_batch_size", "sharding", "recompute", "recompute_num_layers")
"""Fields that ``plan_words`` puts in its own words."""
SHORT = {
    "layernorm": "norm",
    "activation": "act",
    "core_attn": "attn",
    "mla_up_proj": "mla",
    "shared_experts": "shared",
}
"""Modules that are recomputed, in tables."""


def field_name(key: str) -> str:
    """A field of a plan, a job or its software as text: ``moe dispatcher`` for ``software.moe_dispatcher``."""
    return key.rpartition(".")[2].replace("_", " ")


def field_text(value: object) -> str:
    """A field of a plan as text: numbers and names as they are, flags as on and off, ``-`` where left open."""
    if value is None:
        return "-"
    return ",".join(str(part) for part in value) if isinstance(value, tuple) else switch_word(value)


def changed_fields(plan: Plan) -> dict[str, object]:
    """Fields of a plan that differ from their defaults."""
    return {f.name: value for f in fields(plan) if (value := getattr(plan, f.name)) != f.default}


def plan_words(estimate: Estimate) -> list[str]:
    """A plan as text, degrees of one left out: ``tp 4``, ``pp 8``, ``dp 16``, ``micro-batch 1 x 32``, ``zero1`` ..."""
    plan = estimate.plan
    degrees = {name: getattr(plan, name) for name in ("tp", "cp", "pp", "vp", "ep", "etp")}
    words = [f"{name} {degree}" for name, degree in degrees.items() if degree > 1 or name in ("tp", "pp")]
    words += [f"dp {estimate.dp}", f"micro-batch {plan.micro_batch_size} x {estimate.num_microbatches}", plan.sharding]
    if plan.recompute != "none":
        words.append(f"recompute {recompute_text(estimate)}")
    return words + [f"{name.replace('_', ' ')} {field_text(value)}" for name, value in other_fields(plan).items()]


def other_fields(plan: Plan) -> dict[str, object]:
    """Fields of a plan that are not as usual and make a difference, but for those that have words of their own."""
    others = {n: v for n, v in changed_fields(plan).items() if n not in NAMED and _matters(n, plan)}
    return {name: value for name, value in others.items() if value != CHOSEN.get(name)}


NEEDED: Final = {
    "sequence_parallel": "tp", "overlap_tp": "tp", "cp_comm": "cp", "overlap_pp": "pp", "overlap_ep": "ep",
    "microbatch_group_size": "vp",
}  # fmt: skip
"""Switches that do nothing where a degree is one."""


def _matters(name: str, plan: Plan) -> bool:
    """Whether a field makes a difference in this plan."""
    return name not in NEEDED or getattr(plan, NEEDED[name]) > 1


def recompute_text(estimate: Estimate) -> str:
    """What is recomputed, and in how many of the layers where not in all: ``full in 60 of 80 layers``."""
    plan, layers = estimate.plan, estimate.stage_layers
    if plan.recompute == "none" or plan.recompute_num_layers is None:
        return plan.recompute
    count = sum(min(plan.recompute_num_layers, each) for each in layers)
    return plan.recompute if count == sum(layers) else f"{plan.recompute} in {count} of {sum(layers)} layers"


def short_policy(policy: str) -> str:
    """A recomputation policy, short enough for a table: ``norm+act+mlp``."""
    return "+".join(SHORT.get(part, part) for part in policy.split(","))


def short_recompute(plan: Plan) -> str:
    """What is recomputed, short enough for a table; ``full/12`` for 12 layers of each stage."""
    text = short_policy(plan.recompute)
    return text if plan.recompute_num_layers is None else f"{text}/{plan.recompute_num_layers}"


def short_sharding(plan: Plan) -> str:
    """What is sharded; ``hsdp/64`` over 64 ranks where not over all."""
    return plan.sharding if plan.sharding_degree is None else f"{plan.sharding}/{plan.sharding_degree}"


def short_changes(changes: dict[str, object], plan: Plan) -> list[str]:
    """Fields in which ``plan`` differs from another, in few words; what only follows from these is left out."""
    words = [f"{name} {changes[name]}" for name in ("tp", "cp", "pp", "ep", "etp") if name in changes]
    if "vp" in changes and "pp" not in changes:
        words.append(f"vp {plan.vp}")
    if "micro_batch_size" in changes:
        words.append(f"micro-batch {plan.micro_batch_size}")
    if "sharding" in changes:
        words.append(plan.sharding)
    if {"recompute", "recompute_num_layers"} & changes.keys():
        words.append("no recomputation" if plan.recompute == "none" else f"recompute {short_recompute(plan)}")
    left_out = (*NAMED, "placement", "stage_layers")
    others = {name: value for name, value in changes.items() if name not in left_out and value is not None}
    return words + [f"{name.replace('_', ' ')} {field_text(value)}" for name, value in others.items()]


def plan_flags(question: Question, estimate: Estimate) -> list[str]:
    """The flags of ``shardplan estimate`` that describe a plan, given those of the question.

    Fields at their default are left out, unless the plan's framework would fill them with something else.
    """
    plan, stack = estimate.plan, stack_of_label(estimate.framework)
    given = changed_fields(plan)
    for name in () if stack is None else _filled_otherwise(stack, plan, question, given):
        given[name] = getattr(plan, name)
    usual = {name: getattr(question.job.software, name) for name in CHOSEN}
    stated = {name: value for name, value in given.items() if value is not None and value != usual.get(name)}
    flags = [_flag(name.replace("_", "-"), value) for name, value in stated.items()]
    used = [f"--gpus {question.num_accelerators}"] if question.num_idle else []
    return [*used, *_stack_flags(stack, estimate, question), *flags]


def flags_text(question: Question, estimate: Estimate) -> str:
    """The same as one line to copy."""
    return " ".join(plan_flags(question, estimate)) or "none: every field has its default"


def _filled_otherwise(stack: Stack, plan: Plan, question: Question, given: Collection[str]) -> list[str]:
    """Fields that the framework fills with another value than the plan has."""
    filled = usual_fields(
        stack,
        asdict(plan),
        given,
        model=question.model,
        job=question.job,
        num_accelerators=question.num_accelerators,
    )
    names = [name for name, value in filled.items() if value != getattr(plan, name)]
    return ["vp" if name == "stage_layers" else name for name in names]  # a stated vp leaves layers shared out evenly


def _stack_flags(stack: Stack | None, estimate: Estimate, question: Question) -> list[str]:
    """The flag that names the framework, where it is not the usual one of the accelerator."""
    usual = usual_stack(question.cluster.accelerator.vendor)
    if stack is None:
        return [] if usual is None or estimate.framework is not None else [f"--stack {ANY}"]
    return [] if usual is not None and usual.label == stack.label else [f"--stack {stack.versioned_name}"]


def _flag(name: str, value: object) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name} {field_text(value)}"


def variant_flag(question: Question, plan: Plan) -> str:
    """A flag that turns ``plan`` into another valid one, to try next: one that needs less memory, if there is one."""
    setting = question.setting
    sizes = [plan.micro_batch_size // 2, *([2 * plan.micro_batch_size] if plan.recompute == "full" else [])]
    for size in sizes:
        if size and broken_rule(setting, replace(plan, micro_batch_size=size)) is None:
            return f"--micro-batch-size {size}"
    return "--recompute none" if plan.recompute == "full" else "--recompute full"
