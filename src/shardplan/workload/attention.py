"""Softmax attention under a plan: grouped-query and latent (MLA), full, sliding-window, chunked or sparse."""

from __future__ import annotations

import numpy as np

from shardplan.arrays import Numbers, share
from shardplan.inputs.layers import Attention, LatentAttention
from shardplan.workload.communication import context_exchange, summa_exchange, tensor_exchange
from shardplan.workload.keys import document_length, mean_keys, slowest_rank
from shardplan.workload.ops import AttentionCore, Block, Matmul, Operator, Saved
from shardplan.workload.passes import TRAFFIC
from shardplan.workload.shard import Shard

ALWAYS = ()
"""Operators that only full recomputation repeats."""
CORE = ("core_attn",)
UP = ("mla_up_proj",)


def attention(config: Attention, shard: Shard) -> Block:
    """Grouped-query attention: projection, rotation, core, projection.

    Heads are shared by tensor-parallel ranks; key-value heads are repeated where there are fewer of them than ranks.
    """
    query = share(config.num_heads, shard.columns) * config.head_dim
    keys_values = 2 * share(config.num_kv_heads, shard.columns) * config.head_dim
    gate = query if config.output_gate else 0.0
    projected = keys_values / 2 if config.tied_kv else keys_values
    operators: tuple[Operator, ...] = (
        Matmul(
            name="qkv", modules=ALWAYS, m=shard.tokens, k=shard.hidden_size, n=query + gate + projected,
            parts=(query + gate, keys_values / 2, *([] if config.tied_kv else [keys_values / 2])),
        ),
        *_rotation(config, shard, query + keys_values / 2),
        _core(config, shard),
        *_softmax_passes(config.num_heads, shard),
        Matmul(name="proj", modules=ALWAYS, m=shard.tokens, k=query, n=shard.hidden_size),
    )  # fmt: skip
    saved = (
        Saved(name="qkv", modules=ALWAYS, bytes=shard.tokens * (query + gate + keys_values) * shard.element),
        Saved(name="core_output", modules=ALWAYS, bytes=shard.tokens * query * _kept_output(shard)),
        *_saved_rotation(config, shard, query + keys_values / 2),
        *_saved_scores(config.num_heads, shard),
    )
    collectives = (
        *tensor_exchange(shard, "attention", ALWAYS, shard.hidden_size),
        *summa_exchange(shard, operators),
        *context_exchange(shard, query, keys_values, query),
    )
    return Block(operators=operators, collectives=collectives, saved=saved)


def latent_attention(config: LatentAttention, shard: Shard) -> Block:
    """Multi-head latent attention (MLA; DeepSeek-V2, arXiv 2405.04434).

    Low-rank projections down, up per head, core, projection. The projections down run on split tokens and are not
    shared by tensor-parallel ranks; the latents are gathered.
    """
    heads = share(config.num_heads, shard.columns)
    query, keys, values = (heads * width for width in (config.qk_head_dim, config.qk_head_dim, config.v_head_dim))
    latent = config.kv_lora_rank + config.qk_rope_head_dim
    up = heads * (config.qk_nope_head_dim + config.v_head_dim)
    operators: tuple[Operator, ...] = (
        *_query_projection(config, shard, query),
        _linear("kv_down", ALWAYS, shard.split_tokens, shard.hidden_size, latent),
        _linear("kv_up", UP, shard.tokens, config.kv_lora_rank, up),
        *_latent_rotation(config, shard, query + keys),
        *_indexer(config, shard),
        _core(config, shard),
        *_softmax_passes(config.num_heads, shard),
        _linear("proj", ALWAYS, shard.tokens, values, shard.hidden_size),
    )
    ranks = (config.q_lora_rank or 0) + latent
    saved = (
        Saved(name="latents", modules=ALWAYS, bytes=shard.split_tokens * ranks * (shard.element + shard.linear_input)),
        Saved(name="qkv", modules=UP, bytes=shard.tokens * (query + keys + values) * shard.element),
        Saved(name="core_output", modules=ALWAYS, bytes=shard.tokens * values * _kept_output(shard)),
        *_saved_scores(config.num_heads, shard),
    )
    gathered = shard.hidden_size if config.q_lora_rank is None else ranks
    collectives = (
        *tensor_exchange(shard, "attention", ALWAYS, gathered, quantised_inputs=config.q_lora_rank is None),
        *summa_exchange(shard, operators),
        *context_exchange(shard, query, keys + values, values),
    )
    return Block(operators=operators, collectives=collectives, saved=saved)


def _core(config: Attention | LatentAttention, shard: Shard) -> AttentionCore:
    window, chunk = _locality(config)
    length, documents = shard.job.sequence_length, shard.job.packed
    if isinstance(config, Attention):
        dims = (config.head_dim, config.head_dim)
    else:
        dims = (config.qk_head_dim, config.v_head_dim)
    return AttentionCore(
        name="core",
        modules=CORE,
        tokens=shard.tokens,
        num_heads=share(config.num_heads, shard.columns),
        qk_head_dim=dims[0],
        v_head_dim=dims[1],
        keys=mean_keys(length, causal=config.causal, window=window, chunk=chunk, documents=documents),
        scored_keys=float(length),
        rate_length=np.minimum(
            _seen_at_once(shard), min(window or length, chunk or length, document_length(length, documents))
        ),
        fused=shard.job.attention == "flash",
        steps=shard.numbers.cp if shard.numbers.cp_comm == "p2p" else 1,
        merged_elements=_merged(shard, dims[1] * share(config.num_heads, shard.columns), causal=config.causal),
        load=_load(shard, causal=config.causal, window=window, chunk=chunk),
    )


def _load(shard: Shard, *, causal: bool, window: int | None = None, chunk: int | None = None) -> Numbers:
    """Of the slowest of the ranks that share queries; an all-to-all gives every rank whole sequences of some heads."""
    numbers, job = shard.numbers, shard.job
    ranks = numbers.tp_rows if numbers.cp_comm == "a2a" else numbers.sequence_shards
    return slowest_rank(ranks, job.sequence_length, causal=causal, window=window, chunk=chunk, documents=job.packed)


def _seen_at_once(shard: Shard) -> Numbers:
    """Length that one kernel sees: a ring attends to one rank's keys and values at a time."""
    length = shard.job.sequence_length
    return length / shard.numbers.cp if shard.numbers.cp_comm == "p2p" else length


def _merged(shard: Shard, width: Numbers, *, causal: bool) -> Numbers:
    """Elements of a ring's partial outputs, each of three quarters of the queries under a balanced causal mask.

    A step then attends with all queries to half of the keys, or with half of the queries to all, so that all steps make
    the same half of the products (arXiv 2310.01889; zigzag order of Transformer Engine). Without a mask every step
    attends with all queries to all keys.
    """
    queries = (0.75 if causal else 1.0) * shard.tokens
    return (shard.numbers.cp - 1) * queries * width if shard.numbers.cp_comm == "p2p" else 0.0


def _locality(config: Attention | LatentAttention) -> tuple[int | None, int | None]:
    if isinstance(config, Attention):
        return config.window, config.chunk
    return config.index_topk, None


def _query_projection(config: LatentAttention, shard: Shard, query: Numbers) -> tuple[Operator, ...]:
    if config.q_lora_rank is None:
        return (_linear("q", UP, shard.tokens, shard.hidden_size, query),)
    return (
        _linear("q_down", ALWAYS, shard.split_tokens, shard.hidden_size, config.q_lora_rank),
        _linear("q_up", UP, shard.tokens, config.q_lora_rank, query),
    )


def _indexer(config: LatentAttention, shard: Shard) -> tuple[Operator, ...]:
    """The light heads that choose which keys each query attends to (DeepSeek-V3.2), unless an earlier layer chose."""
    if config.index_topk is None or not config.index_num_heads:
        return ()
    heads = share(config.index_num_heads, shard.columns)
    length, documents = float(shard.job.sequence_length), shard.job.packed
    keys = mean_keys(length, causal=config.causal, documents=documents)
    rank = config.q_lora_rank or shard.hidden_size
    width = config.index_head_dim
    return (
        _linear("index_q", ALWAYS, shard.tokens, rank, heads * width),
        _linear("index_k", ALWAYS, shard.split_tokens, shard.hidden_size, width + config.index_num_heads),
        AttentionCore(
            name="index", modules=CORE, tokens=shard.tokens, num_heads=heads, qk_head_dim=width, v_head_dim=0.0,
            keys=keys, scored_keys=length, rate_length=document_length(length, documents),
            load=_load(shard, causal=config.causal),
        ),
    )  # fmt: skip


def _linear(name: str, modules: tuple[str, ...], m: Numbers, k: Numbers, n: Numbers) -> Matmul:
    return Matmul(name=name, modules=modules, m=m, k=k, n=n)


def _latent_rotation(config: LatentAttention, shard: Shard, rotated: Numbers) -> tuple[Operator, ...]:
    """Rotary embedding, which writes whole queries and keys again."""
    return (TRAFFIC["rope"].at("rope", UP, shard.tokens * rotated, shard.element),) if config.rotary else ()


def _rotation(config: Attention, shard: Shard, rotated: Numbers) -> tuple[Operator, ...]:
    """Rotary embedding and normalisation of queries and keys: read and write each."""
    times = int(config.rotary) + int(config.qk_norm != "none")
    if not times:
        return ()
    return (TRAFFIC["rope"].at("rope", ALWAYS, times * (shard.tokens * rotated), shard.element),)


def _saved_rotation(config: Attention, shard: Shard, rotated: Numbers) -> tuple[Saved, ...]:
    """Rotated queries and keys next to the packed output that holds the values; else they take its place."""
    if not config.rotary or not shard.job.software.packed_projection:
        return ()
    return (Saved(name="rotated", modules=ALWAYS, bytes=shard.tokens * rotated * shard.element),)


def _scores(num_heads: int, shard: Shard) -> Numbers:
    return shard.tokens * share(num_heads, shard.columns) * shard.job.sequence_length


def _softmax_passes(num_heads: int, shard: Shard) -> tuple[Operator, ...]:
    """Unfused kernels write the scores and read them back for masking, softmax (and dropout)."""
    if shard.job.attention == "flash":
        return ()
    several = " of several kernels" if shard.job.software.softmax_kernel == "eager" else ""
    traffic = TRAFFIC[f"softmax{' with dropout' if shard.job.dropout else ''}{several}"]
    return (traffic.at("softmax", CORE, _scores(num_heads, shard), shard.element),)


def _saved_scores(num_heads: int, shard: Shard) -> tuple[Saved, ...]:
    r"""What the core keeps: softmax statistics, or scores.

    Scores take :math:`2 a s^2 b` bytes, with dropout :math:`5 a s^2 b` (arXiv 2205.05198, eq. 1).
    """
    if shard.job.attention == "flash":
        statistics = shard.tokens * share(num_heads, shard.columns) * 4.0
        return (Saved(name="softmax_statistics", modules=CORE, bytes=statistics),)
    per_score = shard.element + (shard.element + 1.0 if shard.job.dropout else 0.0)
    return (Saved(name="scores", modules=CORE, bytes=_scores(num_heads, shard) * per_score),)


def _kept_output(shard: Shard) -> float:
    """Bytes per element of the core's output.

    One copy serves the core's backward pass and the projection's input, unless that is kept in fewer bits.
    """
    quantised = shard.linear_input if shard.linear_input < shard.element else 0.0
    return float(shard.element + quantised)
