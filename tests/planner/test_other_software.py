"""A plan under other software of its framework: priced as the same question would be, and only what it allows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from shardplan import question
from shardplan.estimation.estimate import estimate_plan
from shardplan.frameworks.stack import load_stack
from shardplan.inputs.plan import Plan
from shardplan.planner.related.frameworks import options_for, other_software

MEGATRON = load_stack("megatron-lm")
SPLIT = Plan(ep=16, sharding="zero1")


def test_each_choice_is_priced_as_a_question_of_its_own() -> None:
    asked = question("qwen3-30b-a3b", "dgx-h100", 64, global_batch_size=512, stack="megatron-lm")
    assert asked.job.software.moe_dispatcher == "alltoall"
    found = {(each.field, each.new): each for each in other_software(asked, estimate_plan(asked, SPLIT), MEGATRON)}
    graphs = {("cuda_graphs", "partial"), ("cuda_graphs", "router")}
    assert found.keys() == {("moe_dispatcher", "deepep"), ("moe_dispatcher", "hybridep"), *graphs}
    assert found["cuda_graphs", "partial"].priced.step_time <= found["cuda_graphs", "router"].priced.step_time
    for (field, value), each in found.items():
        changed: dict[str, Any] = {field: value}
        software = replace(asked.job.software, **changed)
        alone = estimate_plan(replace(asked, job=replace(asked.job, software=software)), SPLIT)
        assert each.priced.step_time == alone.step_time
        assert each.priced.peak_memory_bytes == alone.peak_memory_bytes


def test_tokens_that_cross_to_a_node_once_take_less_time_there() -> None:
    asked = question("qwen3-30b-a3b", "dgx-h100", 64, global_batch_size=512, stack="megatron-lm")
    (deep,) = (each for each in other_software(asked, estimate_plan(asked, SPLIT), MEGATRON) if each.new == "deepep")
    assert deep.priced.step_time < estimate_plan(asked, SPLIT).step_time
    assert options_for(deep, SPLIT, MEGATRON, asked) == (
        "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend deepep",
    )


def test_a_dense_model_has_no_dispatcher_to_choose() -> None:
    asked = question("llama-3.1-8b", "dgx-h100", 8, global_batch_size=64, stack="megatron-lm")
    assert {each.field for each in other_software(asked, estimate_plan(asked, Plan(tp=2)), MEGATRON)} == {"cuda_graphs"}
