"""Compressed attention, hyper-connections and the scores of an indexer, against DeepSeek-V4 as others count it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shardplan import estimate
from shardplan.base.errors import PlanError
from shardplan.inputs.compressed import CompressedAttention
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.readers.catalog import load_model
from shardplan.inputs.software import Software
from shardplan.physics.workload.attention import SCORES_AT_ONCE, latent_attention
from shardplan.physics.workload.communication import Shard
from shardplan.physics.workload.compressed import compressed_attention
from shardplan.physics.workload.layer import layer_block
from shardplan.physics.workload.ops import AttentionCore, Block, Matmul, StreamPass

FLASH = load_model("deepseek-v4-flash")
GLM_5 = load_model("glm-5")
GB = 1e9


def shard(hidden_size: int = 4096, *, length: int = 4096, software: Software | None = None, **fields: Any) -> Shard:
    plan = Plan(**fields)
    job = Job(sequence_length=length, global_batch_size=1, software=software or Software())
    return Shard.of(hidden_size, job, PlanNumbers.of(plan, plan.tp * plan.cp, job))


def attention_of(rate: int | None) -> CompressedAttention:
    mixers = [layer.mixer for layer in FLASH.layers]
    return next(each for each in mixers if isinstance(each, CompressedAttention) and each.compress_rate == rate)


def core(block: Block, name: str = "core") -> AttentionCore:
    return next(each for each in block.operators if isinstance(each, AttentionCore) and each.name == name)


def scores(block: Block) -> StreamPass:
    return next(each for each in block.operators if each.name == "index_scores" and isinstance(each, StreamPass))


def test_flop_per_token_are_those_of_megatron_bridge() -> None:
    """Megatron-Bridge, performance summary of August 2026: 748 TFLOP/s and 8,224 tokens/s per GB300 at 4,096 tokens."""
    job = Job(sequence_length=4096, global_batch_size=2048)
    found = estimate(FLASH, "gb300-nvl72", 128, {"ep": 64, "recompute": "full"}, job=job)
    assert found.model_flops_per_token == pytest.approx(748e12 / 8224, rel=0.005)


@pytest.mark.parametrize(
    ("rate", "compressed"),
    [(None, 0.0), (4, 512 * (1 - 512 * 4 / (2 * 4096))), (128, 4096 / 2 / 128)],
)
def test_keys_of_a_query(rate: int | None, compressed: float) -> None:
    """Window and compressed keys as Megatron-Bridge counts them (flop_utils.py), with the first window's triangle."""
    window = 128 - 128 * 128 / (2 * 4096)
    assert core(compressed_attention(attention_of(rate), shard())).keys == pytest.approx(window + compressed)


def test_matrix_products_are_the_weights() -> None:
    """Every weight of a layer's attention is multiplied once per token, less norms, sinks and biases by position."""
    for rate in (None, 4, 128):
        config = attention_of(rate)
        products = compressed_attention(config, shard()).operators
        flops = sum(float(each.flops) for each in products if isinstance(each, Matmul))
        weights = config.num_parameters(4096)
        assert flops / (2 * 4096) == pytest.approx(weights, rel=2e-3)
        assert flops / (2 * 4096) < weights


def test_streams_are_kept_and_sent() -> None:
    """Four streams of a layer's two blocks are kept; ``mhc`` frees those that are not the layer's input."""
    one = shard()
    layer = FLASH.layers[2]
    plain = layer_block(replace(layer, streams=1), one)
    wide = layer_block(layer, one)
    added = sum(float(each.bytes) for each in wide.saved) - sum(float(each.bytes) for each in plain.saved)
    assert added == 2 * (4 + 1) * 4096 * 4096 * 2
    freed = [each for each in wide.saved if each.modules == ("mhc",)]
    assert sum(float(each.bytes) for each in freed if not each.layer_input) == (4 + 2) * 4096 * 4096 * 2
    assert FLASH.residual_size == 4 * 4096


def test_mhc_is_recomputed_where_there_are_streams() -> None:
    job = Job(sequence_length=4096, global_batch_size=128)
    plans = [{"ep": 64, "recompute": recompute} for recompute in ("none", "mhc")]
    none, mhc = (estimate(FLASH, "gb300-nvl72", 128, plan, job=job) for plan in plans)
    assert mhc.step_time > none.step_time
    assert mhc.peak_memory_bytes < none.peak_memory_bytes
    with pytest.raises(PlanError, match="mhc for hyper-connections"):
        estimate(
            "llama-3.1-8b", "dgx-h100", 8, {"recompute": "mhc"}, job=Job(sequence_length=4096, global_batch_size=8)
        )


@pytest.mark.parametrize("cp", [1, 2, 8])
def test_scores_of_an_indexer_are_quadratic(cp: int) -> None:
    """A rank scores its queries against all keys of the sequence: s^2 / cp scores, in 4 bytes, written and read."""
    mixer = GLM_5.layers[0].mixer
    found = {
        length: scores(latent_attention(mixer, shard(6144, length=length, cp=cp)))  # type: ignore[arg-type]
        for length in (8192, 16384)
    }
    assert float(found[8192].forward_bytes) == 8 * 8192 * 8192 / cp
    assert float(found[16384].forward_bytes) == 4 * float(found[8192].forward_bytes)
    assert float(found[8192].held) == min(4 * 8192 * 8192 / cp, SCORES_AT_ONCE)


def test_eager_kernels_hold_the_scores_of_all_heads() -> None:
    """GlmMoeDsaIndexer of transformers: [batch, queries, heads, keys] in fp32, and the rectified ones."""
    mixer = GLM_5.layers[0].mixer
    eager = scores(latent_attention(mixer, shard(6144, length=8192, software=Software(kernels="eager"))))  # type: ignore[arg-type]
    assert float(eager.held) == 2 * 32 * 4 * 8192 * 8192
    job = Job(sequence_length=32768, global_batch_size=64)
    fused, slow = (
        estimate("glm-5", "gb300-nvl72", 64, {"ep": 64, "recompute": "full"}, job=replace(job, software=software))
        for software in (Software(), Software(kernels="eager"))
    )
    assert slow.peak_memory_bytes - fused.peak_memory_bytes > 2 * 32 * 4 * 32768**2 / 2


def test_compressed_keys_leave_a_quarter_of_the_scores() -> None:
    """An indexer that scores one key of four tokens: a quarter of the matrix."""
    found = scores(compressed_attention(attention_of(4), shard(length=65536, cp=4)))
    assert float(found.forward_bytes) == 8 * 65536 * 65536 / 4 / 4


def test_a_ring_exchanges_latents_where_keys_are_selected() -> None:
    """512 + 64 channels of latents and 128 of the indexer's keys per token, whatever the heads."""
    mixer = GLM_5.layers[0].mixer
    block = latent_attention(mixer, shard(6144, length=8192, cp=2))  # type: ignore[arg-type]
    ring = next(each for each in block.collectives if each.name == "ring")
    assert float(ring.bytes) == 4096 * (512 + 64 + 128) * 2
    assert core(block).steps == 1
