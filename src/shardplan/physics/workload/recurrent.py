"""Mixers that carry a state along the sequence under a plan. Their scans are memory-bound passes.

The scan of Mamba-2 is measured (``state_space_scan_bytes`` of the profile); those of other kinds take the same bytes
for an element of their output.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from shardplan.base.arrays import Numbers, is_zero
from shardplan.base.fields import replace
from shardplan.inputs.recurrent import (
    DeltaAttention,
    LightningAttention,
    LinearAttention,
    SelectiveScan,
    ShortConvolution,
    StateSpace,
)
from shardplan.physics.workload.communication import Shard, heads_exchange, tensor_exchange
from shardplan.physics.workload.ops import Block, Collective, Matmul, Operator, Saved, StreamPass
from shardplan.physics.workload.passes import TRAFFIC


def state_space(config: StateSpace, shard: Shard) -> Block:
    r"""Mamba-2 (arXiv 2405.21060): projection, convolution, scan, projection.

    FLOP of the scan: :math:`7\,d_{inner} n` per token, as Megatron counts it. The backward pass convolves again rather
    than keep the result (mamba_ssm, mamba_split_conv1d_scan_combined). A norm behind the gate, a kernel of its own in
    Megatron Core (ssm/mamba_mixer.py), keeps its input next to what the scan keeps before the gate.
    """
    inner = config.inner_size / shard.columns
    conv = config.conv_size / shard.columns
    projected = inner + conv + config.num_heads / shard.columns
    scan_flops = 7.0 * shard.tokens * inner * config.state_size
    mixer = _recurrent_mixer(shard, projected, conv, inner, scan_flops, convolves_again=True)
    if not config.gated_norm:
        return mixer
    normed = Saved(name="scan_norm_input", modules=(), bytes=shard.tokens * inner * shard.element)
    return mixer + Block(saved=(normed,))


def selective_scan(config: SelectiveScan, shard: Shard) -> Block:
    r"""Mamba-1 (arXiv 2312.00752): projection, convolution, selection of step size, B and C, scan, projection.

    FLOP of the scan: :math:`9\,d_{inner} n` per token (state-spaces/mamba, issue 110). Step size, B and C are products
    of all inner channels, which tensor-parallel ranks add up. The backward pass convolves again (mamba_ssm,
    MambaInnerFn).
    """
    inner = config.inner_size / shard.columns
    scan_flops = 9.0 * shard.tokens * inner * config.state_size
    mixer = _recurrent_mixer(shard, 2 * inner, inner, inner, scan_flops, convolves_again=True)
    selected = config.selection_size
    products = (
        Matmul(name="selection", modules=(), m=shard.tokens, k=inner, n=selected),
        Matmul(name="step_size", modules=(), m=shard.tokens, k=config.dt_rank, n=inner),
    )
    size = shard.tokens * selected * shard.element
    added = Collective(name="selection_sum", modules=(), kind="all_reduce", dimension="tp", bytes=size)
    saved = (
        Saved(name="selection_output", modules=(), bytes=size),
        Saved(name="step_size_output", modules=(), bytes=shard.tokens * inner * shard.element),
    )
    sums = () if shard.summa else (added, replace(added, name="selection_sum_back", direction="backward"))
    # the products stand before the scan: the last product of a mixer is that of its output
    operators = (*mixer.operators[:2], *products, *mixer.operators[2:])
    return replace(mixer, operators=operators) + Block(collectives=sums, saved=saved)


def linear_attention(config: LinearAttention, shard: Shard) -> Block:
    r"""Gated delta net (arXiv 2412.06464): queries, keys, values and gates, convolution, delta-rule scan, projection.

    FLOP of the scan: :math:`7\,d_v d_k` per token and value head.
    """
    inner = config.value_size / shard.columns
    conv = (2 * config.key_size + config.value_size) / shard.columns
    projected = conv + inner + 2 * config.num_value_heads / shard.columns
    scan_flops = 7.0 * shard.tokens * inner * config.key_head_dim
    return _recurrent_mixer(shard, projected, conv, inner, scan_flops, convolves_again=False)


def delta_attention(config: DeltaAttention, shard: Shard) -> Block:
    r"""Kimi delta attention (arXiv 2510.26692): a gated delta net whose decay and output gate are of low rank.

    FLOP of the scan: :math:`7\,d^2` per token and head, as for one decay per head: the decay of a channel is one
    product as well. Every rank projects down to the rank of the gates itself, and up to its own channels.
    """
    inner = config.inner_size / shard.columns
    scan_flops = 7.0 * shard.tokens * inner * config.head_dim
    projected = 3 * inner + config.num_heads / shard.columns
    mixer = _recurrent_mixer(shard, projected, 3 * inner, inner, scan_flops, convolves_again=False)
    rank, tokens = config.head_dim, shard.tokens
    products = (
        Matmul(name="gates_down", modules=(), m=tokens, k=shard.hidden_size, n=2 * rank),
        Matmul(name="gates_up", modules=(), m=tokens, k=rank, n=inner, count=2),
    )
    saved = (
        Saved(name="gates_down_output", modules=(), bytes=tokens * 2 * rank * shard.element),
        Saved(name="gates_up_output", modules=(), bytes=tokens * 2 * inner * shard.element),
    )
    operators = (*mixer.operators[:1], *products, *mixer.operators[1:])
    return replace(mixer, operators=operators) + Block(saved=saved)


def lightning_attention(config: LightningAttention, shard: Shard) -> Block:
    r"""Lightning attention (arXiv 2501.08313, section 2.2): projection, scan, norm and gate, projection.

    FLOP of the scan: :math:`5\,d^2` per token and head, for the decay of the state, the outer product of key and value
    that is added to it, and the product with the query.
    """
    inner = config.inner_size / shard.columns
    scan_flops = 5.0 * shard.tokens * inner * config.head_dim
    return _recurrent_mixer(shard, 4 * inner, 0.0, inner, scan_flops, convolves_again=False)


def short_convolution(config: ShortConvolution, shard: Shard) -> Block:
    r"""Gated short convolution (LFM2): projection to B, C and x, :math:`C \odot conv(B \odot x)`, projection.

    Context-parallel ranks exchange the last few tokens of their neighbour alone, which is not counted.
    """
    tokens, element = shard.tokens, shard.element
    channels = config.num_channels / shard.columns
    operators: tuple[Operator, ...] = (
        Matmul(name="in_proj", modules=(), m=tokens, k=shard.hidden_size, n=3 * channels),
        TRAFFIC["gate"].at("gate_in", (), tokens * channels, element),
        TRAFFIC["conv"].at("conv", (), tokens * channels, element),
        TRAFFIC["gate"].at("gate", (), tokens * channels, element),
        Matmul(name="out_proj", modules=(), m=tokens, k=channels, n=shard.hidden_size),
    )
    saved = (
        Saved(name="in_proj_output", modules=(), bytes=tokens * 3 * channels * element),
        Saved(name="conv_input", modules=(), bytes=tokens * channels * element),
        Saved(name="conv_output", modules=(), bytes=tokens * channels * element),
        Saved(name="out_proj_input", modules=(), bytes=tokens * channels * shard.linear_input),
    )
    exchange = tensor_exchange(shard, "mixer", (), shard.hidden_size)
    return Block(operators=operators, collectives=exchange, saved=saved)


def _recurrent_mixer(
    shard: Shard, projected: Numbers, conv: Numbers, inner: Numbers, scan_flops: Numbers, *, convolves_again: bool
) -> Block:
    """``conv``: channels that are convolved, 0 without a convolution."""
    tokens, element = shard.tokens, shard.element
    convolution: tuple[Operator, ...] = (
        TRAFFIC["conv twice" if convolves_again else "conv"].at("conv", (), tokens * conv, element),
    )
    # No module names the scan: core_attn is a part of attention layers, so only full recomputation runs a scan again.
    operators: tuple[Operator, ...] = (
        Matmul(name="in_proj", modules=(), m=tokens, k=shard.hidden_size, n=projected),
        *(() if is_zero(conv) else convolution),
        StreamPass(
            name="scan", modules=(), forward_bytes=tokens * inner, backward_bytes=2 * tokens * inner,
            scan=True, flops=scan_flops,
        ),
        TRAFFIC["gate"].at("gate", (), tokens * inner, element),
        Matmul(name="out_proj", modules=(), m=tokens, k=inner, n=shard.hidden_size),
    )  # fmt: skip
    keeps = not convolves_again and not is_zero(conv)
    convolved = (Saved(name="conv_output", modules=(), bytes=tokens * conv * element),) if keeps else ()
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


RECURRENT_BLOCKS: Final[Mapping[type, Callable[[Any, Shard], Block]]] = {
    StateSpace: state_space,
    SelectiveScan: selective_scan,
    LinearAttention: linear_attention,
    DeltaAttention: delta_attention,
    LightningAttention: lightning_attention,
    ShortConvolution: short_convolution,
}
"""What each of these mixers does under a plan."""
