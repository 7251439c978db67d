"""What is offered in place of a refused plan can be followed: the rule that refused it holds afterwards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import MISSING, fields, replace
from itertools import product
from typing import Any, Final

import pytest
from hypothesis import assume, given, reject
from hypothesis import strategies as st
from tests.strategies import cases

from shardplan.base.errors import ShardplanError
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import Degrees, Setting
from shardplan.inputs.software import Software
from shardplan.physics.frameworks.runnable import refusals
from shardplan.physics.frameworks.stack import list_stacks, load_stack
from shardplan.physics.schedules.registry import list_schedules
from shardplan.physics.validity import broken_rule

SWITCHES: Final = ("overlap_tp", "overlap_dp", "overlap_pp", "overlap_ep", "sequence_parallel")
VARIED: Final[dict[str, tuple[Any, ...]]] = {
    **dict.fromkeys(("tp", "cp", "pp", "vp", "ep", "etp", "micro_batch_size"), (1, 2, 3, 4)),
    **dict.fromkeys(SWITCHES, (True, False)),
    "schedule": (None, *list_schedules()),
    "sharding": ("ddp", "zero1", "zero2", "zero3"),
    "recompute": ("none", "full", "core_attn", "mlp", "layernorm", "moe"),
    "recompute_num_layers": (None, 1, 2, 3),
    "offload": ("none", "optimizer", "activations"),
    "offload_num_layers": (None, 1),
    "cp_comm": ("p2p", "allgather", "a2a"),
}
OWNERS: Final = {each.name: kind for kind in (Software, Job, Plan) for each in fields(kind)}
NAMES: Final = {
    "the schedule": "schedule", "the optimizer": "optimizer", "the global batch size": "global_batch_size",
    "the micro-batch group size": "microbatch_group_size",
}  # fmt: skip
NAMED: Final = "|".join(NAMES)
Change = tuple[str, Any]
"""A field with its new value; a value of None leaves the field out."""


def offers(hint: str) -> Iterator[tuple[Change, ...]]:
    """What a hint offers, each with all that it changes; what is left to the reader to choose is none."""
    text = re.sub(r" \([^)]*\)", "", hint).split(": ")[0]
    for alternative in re.split(r",? or (?=set |turn |leave |recompute |shard |train |[a-z_]+ to |[a-z_]+ o)", text):
        parts = [[*_changes(part)] for part in alternative.split(" and ")]
        yield from product(*parts) if all(parts) else ()


def _changes(part: str) -> Iterator[Change]:
    """The changes of which a part of a hint offers one."""
    part = re.sub(r"^(set|turn) ", "", re.sub(NAMED, lambda found: NAMES[found[0]], part))
    for verb, name in (("recompute", "recompute"), ("shard by", "sharding"), ("train in", "precision")):
        part = re.sub(rf"^{verb} (?!to)", f"{name} to ", part)
    if found := re.fullmatch(r"(\w+) (on|off)", part):
        yield found[1], found[2] == "on"
    if found := re.fullmatch(r"leave (\w+) out", part):
        yield found[1], None
    if found := re.fullmatch(r"(\w+) to (?:(?:tp|pp) )?([\w.-]+(?:, [\w.-]+)*(?:,? or [\w.-]+)?)", part):
        values = re.split(r", | or ", found[2].removesuffix(" or more"))
        yield from ((found[1], int(value) if value.isdigit() else value) for value in values)


def test_offers_are_read() -> None:
    assert [*offers("set sharding to ddp or zero1, or pp to 1")] == [
        (("sharding", "ddp"),), (("sharding", "zero1"),), (("pp", 1),),
    ]  # fmt: skip
    assert [*offers("leave microbatch_group_size out, or set it to pp 4")] == [
        (("microbatch_group_size", None),), (("it", 4),),
    ]  # fmt: skip
    assert [*offers("set sharding to zero3 and recompute to full")] == [(("sharding", "zero3"), ("recompute", "full"))]
    assert [*offers("set vp to 2 or more, or turn overlap_ep off")] == [(("vp", 2),), (("overlap_ep", False),)]
    assert [*offers("choose tp among the divisors of 6")] == []


def _followed(question: Question, plan: Plan, offer: tuple[Change, ...]) -> tuple[Setting, Plan] | None:
    """The question and the plan with what is offered; None where a word is no value of a field."""
    changes: dict[type[Any], dict[str, Any]] = {Plan: {}, Job: {}, Software: {}}
    for name, value in offer:
        if name not in OWNERS:
            return None
        changes[OWNERS[name]][name] = _default(name) if value is None else value
    try:
        job = replace(question.job, software=replace(question.job.software, **changes[Software]), **changes[Job])
        return _setting(question, job), replace(plan, **changes[Plan])
    except ShardplanError:
        return None


def _default(name: str) -> Any:
    found = next(each.default for each in fields(OWNERS[name]) if each.name == name)
    assert found is not MISSING
    return found


def _setting(question: Question, job: Job) -> Setting:
    return Setting.of(question.model, question.cluster, question.num_accelerators, job)


@st.composite
def _asked(draw: st.DrawFn) -> tuple[Question, Plan]:
    """A question and a plan, of which some fields are whatever they are."""
    case = draw(cases())
    names = draw(st.lists(st.sampled_from([*VARIED]), max_size=8, unique=True))
    changes = {name: draw(st.sampled_from(VARIED[name])) for name in names}
    try:
        return case.question, replace(case.plan, **changes)
    except ShardplanError:
        reject()


@given(_asked())
def test_what_frameworks_offer_mends_what_they_refuse(asked: tuple[Question, Plan]) -> None:
    question, plan = asked
    for stack in map(load_stack, list_stacks()):
        for refusal in refusals(stack, plan, _setting(question, question.job)):
            for offer in offers(refusal.hint):
                if (followed := _followed(question, plan, offer)) is not None:
                    left = [(each.rule, each.field) for each in refusals(stack, followed[1], followed[0])]
                    assert (refusal.rule, refusal.field) not in left, (offer, refusal)


@given(_asked())
def test_what_a_rule_offers_leads_to_a_plan_that_keeps_it(asked: tuple[Question, Plan]) -> None:
    """In a step for every number that is wrong: ranks, chunks, micro-batches and groups."""
    question, plan = asked
    setting = _setting(question, question.job)
    broken = broken_rule(setting, plan)
    assume(broken is not None)
    assert broken is not None
    for offer in offers(broken.hint(setting, plan)):
        at = _followed(question, plan, offer)
        for _ in range(3):
            if at is None or broken.holds(at[0], Degrees.of(at[1])):
                break
            following = next(offers(broken.hint(*at)), ())
            at = _followed(replace(question, job=at[0].job), at[1], following) if following else None
        else:
            pytest.fail(f"{offer} for {plan}")
