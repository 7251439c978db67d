"""What a framework makes of a plan where nothing is said."""

from __future__ import annotations

import pytest

from shardplan.frameworks.stack import load_stack
from shardplan.frameworks.stage_layers import layers_by_cost
from shardplan.frameworks.usual_plan import usual_chunks, usual_expert_tp, usual_stage_layers
from shardplan.inputs.readers.catalog import load_model


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
