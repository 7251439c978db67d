"""Plans in words and as flags."""

from __future__ import annotations

from dataclasses import fields, replace

from tests.examples import SMALL, cluster

from shardplan.estimation.estimate import estimate_plan, in_framework
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.physics.frameworks.stack import load_stack
from shardplan.reports.texts.plan import (
    changed_fields,
    field_text,
    plan_flags,
    plan_words,
    short_changes,
    short_policy,
    short_recompute,
    short_sharding,
    variant_flag,
)

QUESTION = Question(
    model=SMALL, cluster=cluster(), num_accelerators=16, job=Job(sequence_length=2048, global_batch_size=64)
)


def test_values_read_like_flags() -> None:
    assert [field_text(value) for value in (4, "zero1", True, False, None, (1, 2))] == [
        "4",
        "zero1",
        "on",
        "off",
        "-",
        "1,2",
    ]


def test_a_default_plan_has_no_flags() -> None:
    assert changed_fields(Plan()) == {}
    unlimited = estimate_plan(QUESTION, Plan())
    assert plan_flags(QUESTION, unlimited) == ["--stack any"]
    assert plan_flags(QUESTION, in_framework(unlimited, load_stack("megatron-lm"), QUESTION)) == []


def test_flags_name_every_changed_field() -> None:
    plan = Plan(tp=2, pp=2, overlap_dp=False, cp_comm="a2a", recompute="full", stage_layers=(3, 5))
    assert plan_flags(QUESTION, estimate_plan(QUESTION, plan)) == [
        "--stack any", "--tp 2", "--pp 2", "--recompute full", "--cp-comm a2a", "--no-overlap-dp", "--stage-layers 3,5",
    ]  # fmt: skip


def test_words_leave_degrees_of_one_out() -> None:
    plan = Plan(tp=2, recompute="full", recompute_num_layers=1, offload="optimizer")
    assert plan_words(estimate_plan(QUESTION, plan)) == [
        "tp 2", "pp 1", "dp 8", "micro-batch 1 x 8", "zero1", "recompute full in 1 of 8 layers", "offload optimizer",
    ]  # fmt: skip


def test_tables_have_short_words() -> None:
    assert short_policy("layernorm,activation,mlp") == "norm+act+mlp"
    assert short_policy("none") == "none"
    assert short_recompute(Plan(recompute="full", recompute_num_layers=12)) == "full/12"


def test_changes_say_what_is_new_and_not_what_follows() -> None:
    plan = Plan(tp=4, pp=2, vp=3, sharding="zero3", recompute="none", offload="optimizer")
    changes: dict[str, object] = {field.name: getattr(plan, field.name) for field in fields(Plan)}
    words = short_changes({name: changes[name] for name in ("pp", "vp", "sharding", "recompute", "offload")}, plan)
    assert words == ["pp 2", "zero3", "no recomputation", "offload optimizer"]
    assert short_changes({"vp": 3, "micro_batch_size": 1}, plan) == ["vp 3", "micro-batch 1"]


def test_the_variant_to_try_next_is_valid() -> None:
    assert variant_flag(QUESTION, Plan(tp=2)) == "--recompute full"
    assert variant_flag(QUESTION, Plan(tp=2, micro_batch_size=8)) == "--micro-batch-size 4"
    odd = replace(QUESTION, num_accelerators=1, job=replace(QUESTION.job, global_batch_size=7))
    assert variant_flag(odd, Plan(micro_batch_size=7)) == "--recompute full"
    assert variant_flag(odd, Plan(micro_batch_size=7, recompute="full")) == "--recompute none"


def test_sharding_over_some_ranks_says_over_how_many() -> None:
    assert short_sharding(Plan(sharding="zero3")) == "zero3"
    assert short_sharding(Plan(sharding="hsdp", sharding_degree=64)) == "hsdp/64"
