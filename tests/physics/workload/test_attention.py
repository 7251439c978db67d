from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardplan.inputs.job import Job
from shardplan.inputs.layers import Attention, LatentAttention
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.software import Software
from shardplan.physics.workload.attention import attention, latent_attention, mean_keys
from shardplan.physics.workload.communication import Shard
from shardplan.physics.workload.ops import AttentionCore, Block, Matmul, StreamPass
from shardplan.physics.workload.passes import TRAFFIC

LENGTH = 4096
DEEPSEEK_V3 = LatentAttention(
    num_heads=128, q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128
)


def shard(hidden_size: int, *, length: int = LENGTH, kernel: Any = "flash", **fields: Any) -> Shard:
    plan = Plan(**fields)
    job = Job(sequence_length=length, global_batch_size=1, attention=kernel)
    return Shard.of(hidden_size, job, PlanNumbers.of(plan, plan.tp * plan.cp, job))


def core(block: Block) -> AttentionCore:
    return next(op for op in block.operators if isinstance(op, AttentionCore) and op.name == "core")


def matmul_flops(block: Block) -> float:
    return float(sum(op.flops for op in block.operators if isinstance(op, Matmul)))


@given(st.integers(1, 3000), st.integers(1, 4000))
def test_mean_keys_approximates_the_mask(length: int, window: int) -> None:
    """Counting the mask itself: position i (from 1) sees min(i, w) keys; the formula leaves out half a key."""
    positions = np.arange(1, length + 1)
    seen = np.minimum(positions, window).mean()
    assert mean_keys(length, causal=True, window=window) == pytest.approx(seen, abs=0.5 + 1e-9)
    assert mean_keys(length, causal=True) == pytest.approx(positions.mean(), abs=0.5 + 1e-9)


def test_mean_keys_of_plain_masks() -> None:
    assert mean_keys(8192, causal=True) == 4096
    assert mean_keys(8192, causal=False) == 8192
    assert mean_keys(8192, causal=True, window=8192) == 4096
    assert mean_keys(8192, causal=True, window=10**6) == 4096
    assert mean_keys(8192, causal=True, chunk=2048) == 1024
    assert mean_keys(8192, causal=False, chunk=2048) == 2048
    assert mean_keys(1024, causal=True, chunk=2048) == 512


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_a_window_never_adds_keys(length: int, window: int) -> None:
    seen = mean_keys(length, causal=True, window=window)
    assert 0 < seen <= min(mean_keys(length, causal=True), window)
    assert seen <= mean_keys(length, causal=True, window=window + 1)


def test_multi_head_attention_takes_the_flop_of_the_paper() -> None:
    """8 s h^2 for four projections and 4 s^2 h for the core (arXiv 2205.05198, appendix A)."""
    block = attention(Attention(num_heads=64, num_kv_heads=64, head_dim=96, causal=False), shard(6144))
    assert matmul_flops(block) == 8 * LENGTH * 6144**2
    assert core(block).flops == 4 * LENGTH**2 * 6144


def test_grouped_queries_shrink_keys_and_values_only() -> None:
    """Llama 3 70B: queries and output 2 h^2 each, keys and values an eighth of that."""
    block = attention(Attention(num_heads=64, num_kv_heads=8, head_dim=128), shard(8192))
    assert matmul_flops(block) == 2 * LENGTH * 8192**2 * (2 + 2 / 8)
    assert core(block).flops == 2 * LENGTH**2 * 8192


def test_key_value_heads_are_repeated_beyond_their_number() -> None:
    config = Attention(num_heads=64, num_kv_heads=8, head_dim=128)
    widths = {tp: attention(config, shard(8192, tp=tp)).operators[0] for tp in (8, 16, 32)}
    for tp, qkv in widths.items():
        assert isinstance(qkv, Matmul)
        assert qkv.n == (64 / tp + 2) * 128


def test_latent_attention_takes_the_flop_of_its_matrices() -> None:
    """2 FLOP per weight and token (DeepSeek-V2, arXiv 2405.04434, section 2.1); the core at 192 and 128 channels."""
    block = latent_attention(DEEPSEEK_V3, shard(7168))
    norms = 1536 + 512
    assert matmul_flops(block) == 2 * LENGTH * (DEEPSEEK_V3.num_parameters(7168) - norms)
    assert core(block).flops == 2 * LENGTH * 128 * (LENGTH / 2) * (192 + 128)


def test_latent_projections_are_not_shared_by_tensor_ranks() -> None:
    """Down-projections run on split tokens, so that their FLOP are shared all the same."""
    alone, shared = (latent_attention(DEEPSEEK_V3, shard(7168, tp=tp)) for tp in (1, 8))
    assert 8 * matmul_flops(shared) == pytest.approx(matmul_flops(alone), rel=1e-14)
    repeated = latent_attention(DEEPSEEK_V3, shard(7168, tp=8, sequence_parallel=False))
    downs = 2 * LENGTH * 7168 * (1536 + 576)
    assert 8 * matmul_flops(repeated) == pytest.approx(matmul_flops(alone) + 7 * downs, rel=1e-14)


def test_sparse_attention_meets_the_selected_keys() -> None:
    """DeepSeek-V3.2: 2,048 selected keys per query, by an indexer of 64 heads of 128 channels."""
    config = LatentAttention(
        num_heads=128, q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
        index_topk=2048, index_num_heads=64, index_head_dim=128,
    )  # fmt: skip
    length = 131072
    block = latent_attention(config, shard(7168, length=length))
    assert core(block).keys == pytest.approx(2048, rel=0.01)
    index = next(op for op in block.operators if op.name == "index")
    assert isinstance(index, AttentionCore)
    assert (index.steps, index.merged_elements) == (1, 0)
    assert index.flops == 2 * length * (length / 2) * 64 * 128


def test_a_layer_that_reuses_selected_keys_has_no_indexer() -> None:
    """GLM-5 with shared indexers: most layers take the keys that an earlier one selected."""
    config = LatentAttention(
        num_heads=64, q_lora_rank=2048, kv_lora_rank=512, qk_nope_head_dim=192, qk_rope_head_dim=64, v_head_dim=256,
        index_topk=2048,
    )  # fmt: skip
    block = latent_attention(config, shard(6144, length=8192))
    assert not any(op.name.startswith("index") for op in block.operators)
    assert core(block).keys < 2048


def test_unfused_scores_pass_through_memory() -> None:
    config = Attention(num_heads=64, num_kv_heads=64, head_dim=96, rotary=False)
    fused = {op.name for op in attention(config, shard(6144)).operators}
    unfused = {op.name for op in attention(config, shard(6144, kernel="unfused")).operators}
    assert unfused - fused == {"softmax"}


@pytest.mark.parametrize("cp", [2, 8])
def test_context_ranks_share_queries_and_meet_all_keys(cp: int) -> None:
    config = Attention(num_heads=64, num_kv_heads=8, head_dim=128)
    alone, shared = (core(attention(config, shard(8192, cp=each))) for each in (1, cp))
    assert shared.flops * cp == alone.flops
    assert shared.keys == alone.keys


def test_a_ring_attends_to_one_rank_s_keys_at_a_time() -> None:
    config = Attention(num_heads=32, num_kv_heads=8, head_dim=128)
    alone = core(attention(config, shard(4096)))
    ring, gathered = (core(attention(config, shard(4096, cp=4, cp_comm=comm))) for comm in ("p2p", "allgather"))
    assert (alone.rate_length, ring.rate_length, gathered.rate_length) == (LENGTH, LENGTH / 4, LENGTH)
    assert alone.merged_elements == gathered.merged_elements == 0
    assert (alone.steps, ring.steps, gathered.steps) == (1, 4, 1)
    # steps 1 to 3 of a balanced ring: on average three quarters of the queries get a partial output
    assert ring.merged_elements == 3 * 0.75 * (LENGTH / 4) * 4096
    whole = core(attention(replace(config, causal=False), shard(4096, cp=4, cp_comm="p2p")))
    assert whole.merged_elements == 3 * (LENGTH / 4) * 4096
    windowed = Attention(num_heads=32, num_kv_heads=8, head_dim=128, window=512)
    assert core(attention(windowed, shard(4096, cp=4))).rate_length == 512


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_every_step_of_a_balanced_ring_attends_to_as_many_pairs(ranks: int) -> None:
    """By counting unmasked pairs of the zigzag order: rank r holds the pieces r and 2 n - 1 - r of 2 n."""
    piece = 3
    tokens = [[c * piece + i for c in (r, 2 * ranks - 1 - r) for i in range(piece)] for r in range(ranks)]
    for mine in tokens:
        seen = [sum(k < q for q in mine for k in keys) for keys in tokens]  # the diagonal aside
        half = (2 * piece) ** 2 / 2
        assert sorted(seen) == [half - piece] + [half] * (ranks - 1)


def test_latents_are_kept_of_split_tokens_in_two_forms() -> None:
    """Latents of queries and keys, and rotary keys: before their norms in 16 bits, and behind them for the products."""
    whole, split = (
        {tensor.name: float(tensor.bytes) for tensor in latent_attention(DEEPSEEK_V3, shard(7168, tp=tp)).saved}
        for tp in (1, 8)
    )
    assert whole["latents"] == LENGTH * (1536 + 512 + 64) * (2 + 2) == 8 * split["latents"]
    assert whole["qkv"] == 2 * LENGTH * 128 * (192 + 192 + 128) == 8 * split["qkv"]
    assert whole["core_output"] == 2 * LENGTH * 128 * 128
    assert whole["softmax_statistics"] == 4 * LENGTH * 128


def test_keys_that_serve_as_values_are_projected_once_and_kept_for_both() -> None:
    config = Attention(num_heads=16, num_kv_heads=4, head_dim=64)
    both, tied = (attention(replace(config, tied_kv=each), shard(1024)) for each in (False, True))
    first, second = (next(op for op in block.operators if isinstance(op, Matmul)) for block in (both, tied))
    assert (first.n, second.n) == ((16 + 2 * 4) * 64, (16 + 4) * 64)
    assert both.saved == tied.saved


def test_a_gated_output_is_projected_and_kept_with_the_queries() -> None:
    """As many gates as query channels (Qwen3-Next: doubled query projection)."""
    config = Attention(num_heads=16, num_kv_heads=4, head_dim=64, output_gate=True)
    block = attention(config, shard(1024))
    first = next(op for op in block.operators if isinstance(op, Matmul))
    assert first.n == (2 * 16 + 2 * 4) * 64
    assert first.parts == (2 * 16 * 64, 4 * 64, 4 * 64)
    kept = {tensor.name: tensor.bytes for tensor in block.saved}
    assert kept["qkv"] == 2 * LENGTH * (2 * 16 + 2 * 4) * 64
    assert kept["core_output"] == 2 * LENGTH * 16 * 64


def test_eight_bit_training_keeps_the_output_of_the_core_in_two_formats() -> None:
    """In 16 bits for the core's backward pass, and in 8 bits as the input of the projection."""
    job = Job(sequence_length=LENGTH, global_batch_size=1, precision="fp8")
    narrow = Shard.of(1024, job, PlanNumbers.of(Plan(), 1, job))
    block = attention(Attention(num_heads=16, num_kv_heads=16, head_dim=64), narrow)
    assert {tensor.name: tensor.bytes for tensor in block.saved}["core_output"] == (2 + 1) * LENGTH * 1024


def test_rotated_queries_and_keys_are_kept_beside_a_packed_projection() -> None:
    """The packed output holds the values, so it cannot go: 16 + 4 more heads of 64 channels in 16 bits."""
    kept = []
    for packed in (False, True):
        job = Job(sequence_length=LENGTH, global_batch_size=1, software=Software(packed_projection=packed))
        of = Shard.of(1024, job, PlanNumbers.of(Plan(), 1, job))
        block = attention(Attention(num_heads=16, num_kv_heads=4, head_dim=64), of)
        kept.append(sum(float(tensor.bytes) for tensor in block.saved))
    assert kept[1] - kept[0] == 2 * LENGTH * (16 + 4) * 64


def test_without_latents_of_queries_the_layer_s_input_is_gathered() -> None:
    """DeepSeek-V2-Lite projects queries from the hidden state; latents of keys and values alone are kept."""
    lite = replace(DEEPSEEK_V3, num_heads=16, q_lora_rank=None)
    block = latent_attention(lite, shard(2048, tp=4, sequence_parallel=True))
    kept = {tensor.name: float(tensor.bytes) for tensor in block.saved}
    assert kept["latents"] == LENGTH / 4 * (512 + 64) * (2 + 2)
    gathered = {item.name: float(item.bytes) for item in block.collectives}
    assert gathered["attention_gather"] == gathered["attention_scatter"] == 2 * LENGTH * 2048


T = LENGTH // 2
"""Tokens of a rank of two context-parallel ones."""


def rank_of_four(hidden_size: int, cp_comm: Any, **fields: Any) -> Shard:
    """One of two tensor-parallel and two context-parallel ranks, in eight bits."""
    job = Job(sequence_length=LENGTH, global_batch_size=1, precision="fp8", **fields)
    return Shard.of(hidden_size, job, PlanNumbers.of(Plan(tp=2, cp=2, cp_comm=cp_comm), 4, job))


def products(block: Block) -> dict[str, tuple[Any, ...]]:
    return {op.name: (op.m, op.k, op.n, op.count) for op in block.operators if isinstance(op, Matmul)}


def kept(block: Block) -> dict[str, Any]:
    """Bytes of a token."""
    return {each.name: each.bytes / T for each in block.saved}


def exchanged(block: Block) -> list[tuple[Any, ...]]:
    """Elements of 16 bits of a token that context-parallel ranks exchange."""
    return [
        (each.name, each.kind, each.bytes / T / 2, each.count) for each in block.collectives if each.dimension == "cp"
    ]


def passes(block: Block) -> list[StreamPass]:
    return [op for op in block.operators if isinstance(op, StreamPass)]


def test_a_rank_s_share_of_windowed_attention_by_hand() -> None:
    """8 of 16 heads with a gate, 2 of 4 key-value heads, all of 64 channels; normed and rotated; a ring of two."""
    config = Attention(
        num_heads=16, num_kv_heads=4, head_dim=64, window=512, output_gate=True, qk_norm="head", causal=True
    )
    block = attention(config, rank_of_four(1024, "p2p", software=Software(packed_projection=True)))
    assert products(block) == {"qkv": (T, 1024, 512 + 512 + 256, 1), "proj": (T, 512, 1024, 1)}
    assert passes(block) == [TRAFFIC["rope"].at("rope", (), 2 * T * (512 + 128), 2)]
    assert core(block) == AttentionCore(
        name="core", modules=("core_attn",), tokens=T, num_heads=8, qk_head_dim=64, v_head_dim=64,
        keys=512 - 512**2 / (2 * LENGTH), scored_keys=LENGTH, rate_length=512, fused=True, steps=2,
        merged_elements=0.75 * T * 512, load=1.0, op_sac=1.0,
    )  # fmt: skip
    assert kept(block) == {
        "qkv": 2 * (512 + 512 + 256), "core_output": (2 + 1) * 512, "rotated": 2 * (512 + 128),
        "softmax_statistics": 4 * 8,
    }  # fmt: skip
    assert exchanged(block) == [("ring", "p2p", 256, 1), ("ring_back", "p2p", 2 * 256, 1)]


@pytest.mark.parametrize(
    ("dropout", "kernel", "kind", "per_score"),
    [
        (False, "fused", "softmax", 2),
        (True, "fused", "softmax with dropout", 5),
        (False, "eager", "softmax of several kernels", 2),
        (True, "eager", "softmax with dropout of several kernels", 5),
    ],
)
def test_a_rank_s_share_of_unfused_attention_in_chunks_by_hand(
    *, dropout: bool, kernel: Any, kind: str, per_score: int
) -> None:
    """Scores of 8 heads and of all keys; keys that serve as values are gathered as both; without rotation no pass."""
    config = Attention(num_heads=16, num_kv_heads=4, head_dim=64, chunk=1024, causal=False, tied_kv=True, rotary=False)
    software = Software(softmax_kernel=kernel)
    block = attention(config, rank_of_four(1024, "allgather", attention="unfused", dropout=dropout, software=software))
    assert products(block) == {"qkv": (T, 1024, 512 + 128, 1), "proj": (T, 512, 1024, 1)}
    assert passes(block) == [TRAFFIC[kind].at("softmax", ("core_attn",), T * 8 * LENGTH, 2)]
    assert core(block) == AttentionCore(
        name="core", modules=("core_attn",), tokens=T, num_heads=8, qk_head_dim=64, v_head_dim=64,
        keys=1024, scored_keys=LENGTH, rate_length=1024, fused=False,
    )  # fmt: skip
    assert kept(block) == {
        "qkv": 2 * (512 + 256), "core_output": (2 + 1) * 512, "scores": per_score * 8 * LENGTH,
    }  # fmt: skip
    assert exchanged(block) == [
        ("keys_values", "all_gather", 2 * 256, 1),
        ("keys_values_again", "all_gather", 2 * 256, 1),
        ("keys_values_back", "reduce_scatter", 2 * 256, 1),
    ]


@pytest.mark.parametrize("cp_comm", ["p2p", "a2a"])
def test_a_rank_s_share_of_sparse_latent_attention_by_hand(cp_comm: Any) -> None:
    """DeepSeek-V3.2: 64 of 128 heads, of 192 and 128 channels; 32 of 64 heads of the indexer, of 128."""
    config = replace(DEEPSEEK_V3, index_topk=2048, index_num_heads=64, index_head_dim=128)
    block = latent_attention(config, rank_of_four(7168, cp_comm))
    assert products(block) == {
        "q_down": (T / 2, 7168, 1536, 1), "q_up": (T, 1536, 64 * 192, 1), "kv_down": (T / 2, 7168, 512 + 64, 1),
        "kv_up": (T, 512, 64 * (128 + 128), 1), "index_q": (T, 1536, 32 * 128, 1),
        "index_k": (T / 2, 7168, 128 + 64, 1), "proj": (T, 64 * 128, 7168, 1),
    }  # fmt: skip
    matrix = TRAFFIC["index scores"].at("index_scores", ("core_attn",), T * LENGTH, 4)
    assert passes(block) == [
        TRAFFIC["rope"].at("rope", ("mla_up_proj",), T * 2 * 64 * 192, 2), replace(matrix, held=4 * T * LENGTH)
    ]  # fmt: skip
    (index,) = (op for op in block.operators if op.name == "index")
    assert index == AttentionCore(
        name="index", modules=("core_attn",), tokens=T, num_heads=32, qk_head_dim=128, v_head_dim=0,
        keys=LENGTH / 2, scored_keys=LENGTH, rate_length=LENGTH,
    )  # fmt: skip
    assert core(block) == AttentionCore(
        name="core", modules=("core_attn",), tokens=T, num_heads=64, qk_head_dim=192, v_head_dim=128,
        keys=2048 - 2048**2 / (2 * LENGTH), scored_keys=LENGTH, rate_length=LENGTH,
    )  # fmt: skip
    assert kept(block) == {
        "latents": (1536 + 512 + 64) / 2 * (2 + 1), "qkv": 2 * 64 * (192 + 192 + 128),
        "core_output": (2 + 1) * 64 * 128, "softmax_statistics": 4 * 64,
    }  # fmt: skip
    latents = 512 + 64 + 128  # and keys of the indexer
    assert exchanged(block) == (
        [("ring", "p2p", latents, 1), ("ring_back", "p2p", 2 * latents, 1)]
        if cp_comm == "p2p"
        else [(name, "all_to_all", 64 * 2 * (192 + 128), 1) for name in ("heads", "heads_back")]
    )
    tensor = {each.name: each.bytes / T / 2 for each in block.collectives if each.name.startswith("attention")}
    assert (tensor["attention_gather"], tensor["attention_scatter"]) == (1536 + 512 + 64, 7168)


def test_queries_without_latents_are_projected_from_the_layer_s_input() -> None:
    """Which is gathered in eight bits, where latents are in sixteen."""
    block = latent_attention(replace(DEEPSEEK_V3, q_lora_rank=None, rotary=False), rank_of_four(7168, "p2p"))
    assert products(block) == {
        "q": (T, 7168, 64 * 192, 1), "kv_down": (T / 2, 7168, 512 + 64, 1), "kv_up": (T, 512, 64 * 256, 1),
        "proj": (T, 64 * 128, 7168, 1),
    }  # fmt: skip
    assert passes(block) == []
    assert kept(block)["latents"] == (512 + 64) / 2 * (2 + 1)
    tensor = {each.name: each.bytes / T for each in block.collectives if each.name.startswith("attention")}
    assert (tensor["attention_gather"], tensor["attention_scatter"]) == (7168, 2 * 7168)


@pytest.mark.parametrize(("topk", "heads"), [(None, 64), (2048, 0)])
def test_an_indexer_needs_heads_and_a_choice(topk: int | None, heads: int) -> None:
    config = replace(DEEPSEEK_V3, index_topk=topk, index_num_heads=heads, index_head_dim=128 if heads else 0)
    names = {op.name for op in latent_attention(config, rank_of_four(7168, "p2p")).operators}
    assert not names & {"index", "index_q", "index_k"}
