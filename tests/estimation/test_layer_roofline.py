"""Operators on the roofline: FLOP and bytes counted by hand for Llama 3.1 8B on one accelerator."""

from __future__ import annotations

from typing import Any

from shardplan.api.questions import question
from shardplan.estimation.parts.layer_operators import RooflinePoint
from shardplan.estimation.priced import PricedPlan
from shardplan.inputs.plan import Plan

HIDDEN, HEADS, KEY_HEADS, HEAD, MLP, TOKENS = 4096, 32, 8, 128, 14336, 8192


def _points(job: dict[str, Any] | None = None, **plan: object) -> dict[str, RooflinePoint]:
    asked = question("llama-3.1-8b", "dgx-h100", 8, global_batch_size=8, sequence_length=TOKENS, **(job or {}))
    return {each.name: each for each in PricedPlan.of(asked, Plan(**plan)).roofline.points}  # type: ignore[arg-type]


def test_flops_and_bytes_are_those_of_the_shapes() -> None:
    found = _points()
    wide = (HEADS + 2 * KEY_HEADS) * HEAD
    assert found["qkv"].flops == 2 * TOKENS * HIDDEN * wide
    assert found["qkv"].num_bytes == 2 * (TOKENS * HIDDEN + HIDDEN * wide + TOKENS * wide)
    assert found["core"].flops == 2 * TOKENS * HEADS * TOKENS / 2 * 2 * HEAD  # half the keys, under a causal mask
    assert found["core"].num_bytes == 2 * 2 * HEAD * TOKENS * (HEADS + KEY_HEADS)  # q and output; k and v, once each


def test_a_memory_bound_pass_counts_one_flop_for_each_element() -> None:
    found = [each for each in _points().values() if each.kind == "memory-bound pass"]
    assert {"norm", "rope", "mlp_activation"} <= {each.name for each in found}
    assert all(each.intensity == 0.5 for each in found)  # bf16


def test_nothing_is_above_the_roof() -> None:
    asked = question("llama-3.1-8b", "dgx-h100", 8, global_batch_size=8)
    roofline = PricedPlan.of(asked, Plan()).roofline
    assert all(each.rate <= roofline.peak for each in roofline.points)
    assert all(each.bandwidth <= roofline.memory_bandwidth for each in roofline.points)


def test_tensor_parallel_ranks_share_the_heads() -> None:
    whole, shared = _points()["core"], _points(tp=8)["core"]
    assert shared.flops == whole.flops / 8
    assert shared.num_bytes == whole.num_bytes / 8


def test_unfused_attention_writes_and_reads_every_score() -> None:
    """2 bytes of each, of all keys: the mask of a whole matrix leaves none out."""
    fused, unfused = _points()["core"], _points({"attention": "unfused"})["core"]
    assert unfused.num_bytes - fused.num_bytes == 2 * 2 * TOKENS * HEADS * TOKENS
