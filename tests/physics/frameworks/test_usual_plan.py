"""What a framework makes of a plan where nothing is said."""

from __future__ import annotations

import pytest

from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import Setting
from shardplan.inputs.readers.catalog import load_cluster, load_model
from shardplan.physics.frameworks.runnable import refusals
from shardplan.physics.frameworks.stack import load_stack
from shardplan.physics.frameworks.stage_layers import layers_by_cost
from shardplan.physics.frameworks.usual_stack import usual_chunks, usual_expert_tp, usual_stage_layers


@pytest.mark.parametrize(
    ("wanted", "layers", "pp", "microbatches", "expected"),
    [
        (2, 32, 4, 16, 4),
        (2, 30, 2, 4, 5),  # fifteen layers of a rank: three in each chunk, not five
        (2, 32, 4, 6, 1),  # groups of four micro-batches
        (2, 32, 4, 0, 1),
        (2, 3, 4, 4, 1),  # fewer layers than ranks
        (2, 32, 1, 16, 1),
        (None, 32, 4, 16, 1),
    ],
)
def test_chunks_have_about_the_usual_size(
    wanted: int | None, layers: int, pp: int, microbatches: int, expected: int
) -> None:
    assert usual_chunks(wanted, layers, pp, microbatches) == expected


def test_stages_close_by_cost_where_the_stack_says_so() -> None:
    model = load_model("llama-3.1-8b")
    nanotron = load_stack("nanotron")
    assert usual_stage_layers(nanotron, model, 4, 1) == layers_by_cost(model, 4)
    assert usual_stage_layers(nanotron, model, 4, 2) is None
    assert usual_stage_layers(load_stack("torchtitan"), model, 4, 1) is None


def test_experts_are_split_as_layers_where_ranks_suffice() -> None:
    megatron, moe = load_stack("megatron-lm"), load_model("qwen3-30b-a3b")
    assert usual_expert_tp(megatron, moe, 32, tp=2, ep=4, pp=1) == 2
    assert usual_expert_tp(megatron, moe, 32, tp=2, ep=32, pp=1) == 1
    assert usual_expert_tp(megatron, load_model("llama-3.1-8b"), 32, tp=2, ep=1, pp=1) == 1
    assert usual_expert_tp(load_stack("megatron-bridge"), moe, 32, tp=2, ep=4, pp=1) == 1


@pytest.mark.parametrize("name", ["internevo", "maxtext", "zero-bubble"])
def test_frameworks_that_always_split_experts_over_tp_run_no_other_plan(name: str) -> None:
    """Whole experts on every rank of tp are no plan of theirs, be they shared by ``ep`` or not."""
    stack, moe = load_stack(name), load_model("mixtral-8x7b")
    assert usual_expert_tp(stack, moe, 16, tp=4, ep=2, pp=1) == 4
    job = Job(sequence_length=4096, global_batch_size=64)
    setting = Setting.of(moe, load_cluster("dgx-h100"), 16, job)
    for ep in 1, 2:
        rules = [each.rule for each in refusals(stack, Plan(tp=4, ep=ep, etp=1), setting)]
        assert any("expert-tensor parallelism" in each for each in rules)
        rules = [each.rule for each in refusals(stack, Plan(tp=4, ep=ep, etp=4), setting)]
        assert not any("expert-tensor parallelism" in each for each in rules)
