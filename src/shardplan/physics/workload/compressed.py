"""Attention to a window and to compressed keys under a plan, and hyper-connections between residual streams.

Operators follow the modules of DeepSeek-V4 in ``transformers`` and, where kernels fuse them, Megatron Core's
(``hyper_connection.py``).
"""

from __future__ import annotations

from typing import Final

from shardplan.base.arrays import Numbers, share
from shardplan.base.fields import replace
from shardplan.inputs.compressed import CompressedAttention
from shardplan.physics.workload.attention import ALWAYS, CORE, UP, index_scores, kept_output, mean_keys, same_load
from shardplan.physics.workload.communication import Shard, context_exchange, summa_exchange, tensor_exchange
from shardplan.physics.workload.ops import AttentionCore, Block, Matmul, Operator, Saved
from shardplan.physics.workload.passes import TRAFFIC

STREAMS: Final = ("mhc",)
"""Recomputation that frees what hyper-connections keep (``mhc`` of Megatron Core)."""


def compressed_attention(config: CompressedAttention, shard: Shard) -> Block:
    """Low-rank query, one key that serves as value, compressed keys, core, grouped projection.

    Projections down and those of the compressors run on split tokens, as those of latent attention do.
    """
    heads = share(config.num_heads, shard.columns)
    query, groups = heads * config.head_dim, share(config.o_groups, shard.columns)
    tokens, split, h = shard.tokens, shard.split_tokens, shard.hidden_size
    pooled = 2 * config.compressed_channels
    operators: tuple[Operator, ...] = (
        Matmul(name="q_down", modules=ALWAYS, m=split, k=h, n=config.q_lora_rank),
        Matmul(name="q_up", modules=UP, m=tokens, k=config.q_lora_rank, n=query),
        Matmul(name="kv_down", modules=ALWAYS, m=split, k=h, n=config.head_dim),
        *_compressor("compress", shard, pooled),
        TRAFFIC["rope"].at("rope", UP, tokens * (query + config.head_dim), shard.element),
        *_indexer(config, shard),
        _core(config, shard, heads),
        TRAFFIC["rope"].at("rope_output", ALWAYS, tokens * heads * config.rope_head_dim, shard.element),
        Matmul(name="proj_a", modules=ALWAYS, m=tokens, k=query / groups, n=config.o_lora_rank, count=groups),
        Matmul(name="proj", modules=ALWAYS, m=tokens, k=groups * config.o_lora_rank, n=h),
    )
    ranks = config.q_lora_rank + config.head_dim
    saved = (
        Saved(name="latents", modules=ALWAYS, bytes=split * ranks * (shard.element + shard.linear_input)),
        Saved(name="compressor_output", modules=ALWAYS, bytes=split * pooled * shard.element),
        Saved(name="qkv", modules=UP, bytes=tokens * (query + config.head_dim) * shard.element),
        Saved(name="core_output", modules=ALWAYS, bytes=tokens * query * kept_output(shard)),
        Saved(name="softmax_statistics", modules=CORE, bytes=tokens * heads * 4.0),
        Saved(name="proj_input", modules=ALWAYS, bytes=tokens * groups * config.o_lora_rank * shard.linear_input),
    )
    compressed = 0.0 if config.compress_rate is None else config.head_dim / config.compress_rate
    collectives = (
        *tensor_exchange(shard, "attention", ALWAYS, ranks + compressed, quantised_inputs=False),
        *summa_exchange(shard, operators),
        *context_exchange(shard, query, config.head_dim + compressed + _index_keys(config), query),
    )
    return Block(operators=operators, collectives=collectives, saved=saved)


def _compressor(name: str, shard: Shard, pooled: Numbers) -> tuple[Operator, ...]:
    """Keys and gates of every token, and their pooling over windows."""
    if not pooled:
        return ()
    split = shard.split_tokens
    return (
        Matmul(name=name, modules=ALWAYS, m=split, k=shard.hidden_size, n=pooled, low_precision=False),
        TRAFFIC["pooling"].at(f"{name}_pooling", ALWAYS, split * pooled / 2, shard.element),
    )


def _index_keys(config: CompressedAttention) -> float:
    """Channels of the indexer's keys, per token."""
    return 0.0 if not config.index_topk or not config.compress_rate else config.index_head_dim / config.compress_rate


def _indexer(config: CompressedAttention, shard: Shard) -> tuple[Operator, ...]:
    """A compressor of its own, its queries, and the scores of every query and compressed key."""
    if config.index_topk is None or config.compress_rate is None:
        return ()
    heads, width = share(config.index_num_heads, shard.columns), config.index_head_dim
    return (
        Matmul(name="index_q", modules=ALWAYS, m=shard.tokens, k=config.q_lora_rank, n=heads * width),
        Matmul(
            name="index_weights", modules=ALWAYS, m=shard.split_tokens, k=shard.hidden_size, n=config.index_num_heads
        ),
        *_compressor("index_k", shard, 2 * config.index_channels),
        *index_scores(shard, heads, width, per_key=config.compress_rate),
    )


def _core(config: CompressedAttention, shard: Shard, heads: Numbers) -> AttentionCore:
    r"""Scores and values of :math:`\bar{w} + \min(k, \bar{s} / m)` keys: a window, and compressed ones.

    A query reads the whole of both, so that no tile is half masked and kernels reach what they do on long sequences:
    see :func:`shardplan.physics.workload.attention.latent_attention`.
    """
    length, documents = shard.job.sequence_length, shard.job.packed
    keys = mean_keys(length, causal=True, window=config.window, documents=documents)
    if config.compress_rate is not None:
        rate, topk = config.compress_rate, config.index_topk
        reach = None if topk is None else topk * rate
        keys += mean_keys(length, causal=True, window=reach, documents=documents) / rate
    return AttentionCore(
        name="core", modules=CORE, tokens=shard.tokens, num_heads=heads, qk_head_dim=config.head_dim,
        v_head_dim=config.head_dim, keys=keys, scored_keys=float(length), rate_length=float(length),
        fused=shard.job.attention == "flash", load=same_load(shard, window=config.window),
    )  # fmt: skip


def hyper_connected(block: Block, shard: Shard, streams: int, *, layer_input: bool) -> Block:
    r"""``block`` between s streams, its norm included (manifold-constrained hyper-connections, arXiv 2512.24880).

    A product of :math:`s h` by :math:`(2 + s) s` gives the weights; the block's input is a sum over streams, its output
    is spread over them. Also kept: the streams, which hold what the norm reads, and the block's output.
    """
    split, h = shard.split_tokens, shard.hidden_size
    wide = split * streams * h
    operators: tuple[Operator, ...] = (
        Matmul(name="mix", modules=STREAMS, m=split, k=streams * h, n=(2 + streams) * streams, low_precision=False),
        TRAFFIC["streams"].at("streams", STREAMS, wide, shard.element),
    )
    read = tuple(replace(each, modules=STREAMS) if each.name == "norm_input" else each for each in block.saved)
    saved = (
        Saved(name="streams", modules=STREAMS, bytes=wide * shard.element, layer_input=layer_input),
        Saved(name="block_output", modules=(), bytes=split * h * shard.element),
    )
    return Block(operators=operators, saved=saved) + replace(block, saved=read)


def collapse(shard: Shard, streams: int, *, weighed: bool) -> Block:
    """One stream of several, behind the last layer: their sum, weighed by a product of s h by s, or their mean."""
    split, h = shard.split_tokens, shard.hidden_size
    added = TRAFFIC["collapse"].at("collapse_sum", (), split * streams * h, shard.element)
    if not weighed:
        return Block(operators=(added,))
    weights = Matmul(name="collapse", modules=(), m=split, k=streams * h, n=streams, low_precision=False)
    saved = (Saved(name="streams", modules=(), bytes=split * streams * h * shard.element),)
    return Block(operators=(weights, added), saved=saved)
