"""Linear-time mixers under a plan: Mamba-2 and the gated delta net. Their scans are memory-bound passes."""

from __future__ import annotations

from shardplan.arrays import Numbers
from shardplan.inputs.recurrent import LinearAttention, StateSpace
from shardplan.workload.communication import heads_exchange, tensor_exchange
from shardplan.workload.ops import Block, Matmul, Operator, Saved, StreamPass
from shardplan.workload.passes import TRAFFIC
from shardplan.workload.shard import Shard


def state_space(config: StateSpace, shard: Shard) -> Block:
    r"""Mamba-2 (arXiv 2405.21060): projection, convolution, scan, projection.

    FLOP of the scan: :math:`7\,d_{inner} n` per token, as Megatron counts it. The backward pass convolves again rather
    than keep the result (mamba_ssm, mamba_split_conv1d_scan_combined).
    """
    inner = config.inner_size / shard.columns
    conv = config.conv_size / shard.columns
    projected = inner + conv + config.num_heads / shard.columns
    scan_flops = 7.0 * shard.tokens * inner * config.state_size
    return _recurrent_mixer(shard, projected, conv, inner, scan_flops, convolves_again=True)


def linear_attention(config: LinearAttention, shard: Shard) -> Block:
    r"""Gated delta net (arXiv 2412.06464): queries, keys, values and gates, convolution, delta-rule scan, projection.

    FLOP of the scan: :math:`7\,d_v d_k` per token and value head.
    """
    inner = config.value_size / shard.columns
    conv = (2 * config.key_size + config.value_size) / shard.columns
    projected = conv + inner + 2 * config.num_value_heads / shard.columns
    scan_flops = 7.0 * shard.tokens * inner * config.key_head_dim
    return _recurrent_mixer(shard, projected, conv, inner, scan_flops, convolves_again=False)


def _recurrent_mixer(
    shard: Shard, projected: Numbers, conv: Numbers, inner: Numbers, scan_flops: Numbers, *, convolves_again: bool
) -> Block:
    tokens, element = shard.tokens, shard.element
    # No module names the scan: core_attn is a part of attention layers, so only full recomputation runs a scan again.
    operators: tuple[Operator, ...] = (
        Matmul(name="in_proj", modules=(), m=tokens, k=shard.hidden_size, n=projected),
        TRAFFIC["conv twice" if convolves_again else "conv"].at("conv", (), tokens * conv, element),
        StreamPass(
            name="scan", modules=(), forward_bytes=tokens * inner, backward_bytes=2 * tokens * inner,
            scan=True, flops=scan_flops,
        ),
        TRAFFIC["gate"].at("gate", (), tokens * inner, element),
        Matmul(name="out_proj", modules=(), m=tokens, k=inner, n=shard.hidden_size),
    )  # fmt: skip
    convolved = () if convolves_again else (Saved(name="conv_output", modules=(), bytes=tokens * conv * element),)
    saved = (
        Saved(name="in_proj_output", modules=(), bytes=tokens * projected * element),
        *convolved,
        Saved(name="scan_output", modules=(), bytes=tokens * inner * element),
        Saved(name="out_proj_input", modules=(), bytes=tokens * inner * shard.linear_input),
    )
    # A scan runs along the whole sequence: context-parallel ranks exchange the projected input and the output, heads
    # against sequence, whatever attention layers do (Megatron Core, ssm/mamba_context_parallel.py).
    exchange = (
        *tensor_exchange(shard, "mixer", (), shard.hidden_size),
        *heads_exchange((), tokens * (projected + inner) * element),
    )
    return Block(operators=operators, collectives=exchange, saved=saved)
