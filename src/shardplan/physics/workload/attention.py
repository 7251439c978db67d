"""Softmax attention under a plan: grouped-query and latent (MLA), full, sliding-window, chunked or sparse.

Also the number of keys that a query meets under a mask, packed documents included, and how evenly ranks attend.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import Numbers, different, share
from shardplan.base.fields import replace
from shardplan.inputs.documents import Documents, normal
from shardplan.inputs.layers import Attention, LatentAttention
from shardplan.physics.workload.communication import (
    FP32_BYTES,
    Shard,
    context_exchange,
    summa_exchange,
    tensor_exchange,
)
from shardplan.physics.workload.ops import AttentionCore, Block, Matmul, Operator, Saved
from shardplan.physics.workload.passes import TRAFFIC

TINY: Final = 1e-300


def mean_keys(
    sequence_length: float,
    *,
    causal: bool,
    window: int | None = None,
    chunk: int | None = None,
    documents: Documents | None = None,
) -> float:
    r"""Keys that a query meets on average: :math:`s/2` under a causal mask, :math:`w - w^2/2s` in a sliding window.

    A chunk of :math:`c` tokens is a sequence of its own, :math:`c/2`. So is a document (Llama 3, arXiv 2407.21783,
    section 3.2: no attention between documents of a sequence): of n documents of :math:`l` tokens and the rest r of a
    sequence, each token meets

    .. math:: \bar{s} = \frac{n\,l\,\bar{s}(l) + r\,\bar{s}(r)}{s}

    keys. Documents of different lengths follow each other from one sequence to the next, which cuts the first and the
    last (:func:`keys_of_lengths`).
    """
    s = float(sequence_length)
    if chunk is not None and chunk < s:
        return mean_keys(chunk, causal=causal, documents=documents)
    if documents is None or documents.fill(s):
        return float(keys_of_one(s, causal=causal, window=window))
    if documents.spread:
        reach = s if window is None else min(s, float(window))
        return (1 if causal else 2) * keys_of_lengths(documents, s, reach)
    whole, rest = divmod(s, documents.length)
    of_whole, of_rest = (keys_of_one(length, causal=causal, window=window) for length in (documents.length, rest))
    return float(whole * documents.length * of_whole + rest * of_rest) / s


def keys_of_one(s: Numbers, *, causal: bool, window: int | None) -> Numbers:
    """The same in one document of s tokens, none at 0."""
    if not causal:
        return np.minimum(s, 2.0 * window) if window is not None else s
    reach = np.minimum(s, window) if window is not None else s
    return reach - reach * reach / np.maximum(2 * s, TINY)


def document_length(sequence_length: float, documents: Documents | None) -> float:
    r"""Mean length of the document that a token is in, :math:`\sum l^2 / \sum l`. [tokens]

    Kernels whose rate falls as :math:`l / (l + l_0)` with the length of a document take, over all documents of a
    sequence, the time that they take where all have this length.
    """
    if documents is None:
        return float(sequence_length)
    return 2 * mean_keys(sequence_length, causal=True, documents=documents)


@lru_cache(maxsize=256)
def keys_of_lengths(documents: Documents, s: float, reach: float) -> float:
    r"""Keys up to ``reach`` tokens back that a query meets among documents of log-normal lengths, causal mask.

    .. math:: \int_0^w (1 - \frac{a}{s}) \frac{E[(l - a)^+]}{m}\,da, \quad
        \lim_{s, w \to \infty} = \frac{E[l^2]}{2\,m}

    A token has at least a tokens of its document before it in a stream of documents with the probability
    :math:`E[(l - a)^+] / m` (the age of a renewal process), and before it in its sequence with :math:`1 - a/s`.
    In closed form with the partial moments :math:`M_k = E[l^k;\, l < w]` and :math:`\bar{M}_k = E[l^k;\, l \ge w]`:

    .. math:: \frac{1}{m} [\frac{M_2}{2} - \frac{M_3}{6 s} + \bar{M}_1 (w - \frac{w^2}{2 s})
        - \bar{M}_0 (\frac{w^2}{2} - \frac{w^3}{3 s})]
    """
    w = reach
    below = [_moment(documents, power, w, sign=1) for power in (2, 3)]
    above = [_moment(documents, power, w, sign=-1) for power in (0, 1)]
    inside = below[0] / 2 - below[1] / (6 * s)
    return (inside + above[1] * (w - w * w / (2 * s)) - above[0] * (w * w / 2 - w**3 / (3 * s))) / documents.length


def _moment(documents: Documents, power: int, bound: float, *, sign: int) -> float:
    r""":math:`E[l^k]` of the lengths below the bound (``sign`` 1) or above it (-1).

    .. math:: E[l^k;\, l < w] = m^k e^{k (k - 1) \sigma^2 / 2}\,
        \Phi\left(\frac{\ln(w/m) + \sigma^2/2 - k \sigma^2}{\sigma}\right)
    """
    spread = documents.spread
    whole = documents.length**power * math.exp(power * (power - 1) * spread**2 / 2)
    at = (math.log(bound / documents.length) + spread**2 / 2 - power * spread**2) / spread
    return whole * normal().cdf(sign * at)


MOST_SEQUENCES: Final = 256
MOST_DOCUMENTS: Final = 2**18
"""Documents that are looked at; of longer sequences only this number of the first, which are shared less evenly."""


def slowest_rank(
    ranks: Numbers,
    sequence_length: int,
    *,
    causal: bool,
    window: int | None = None,
    chunk: int | None = None,
    documents: Documents | None,
) -> Numbers:
    r"""Products of the rank that attends most, relative to the average one, where n ranks share every sequence.

    Rank i holds the pieces i and 2 n - 1 - i of 2 n equal ones, which balances a causal mask (Llama 3, arXiv
    2407.21783, section 3.3.2; zigzag order of Transformer Engine). Documents do not end where pieces do, so that with
    them some ranks attend more than others, and all wait for those in every layer:

    .. math:: \frac{E[\max_i W_i]}{E[W_i]}

    Without documents all attend alike. Documents of one length have the same borders in every sequence, and pairs of
    query and key are counted. Of a distribution, ``MOST_SEQUENCES`` sequences are drawn from one stream, always the
    same; their mean is sure to about 2 %. One number per number of ranks; the micro-batches of other replicas are taken
    to be as long.
    """
    if documents is None:
        return 1.0
    distinct, at = np.unique(np.asarray(ranks), return_inverse=True)
    found = [
        _slowest(int(each), float(sequence_length), causal=causal, window=window, chunk=chunk, documents=documents)
        for each in distinct
    ]
    return found[0] if np.ndim(ranks) == 0 else np.asarray(found)[at].reshape(np.shape(ranks))


@lru_cache(maxsize=1024)
def _slowest(
    ranks: int, s: float, *, causal: bool, window: int | None, chunk: int | None, documents: Documents
) -> float:
    if ranks == 1:
        return 1.0
    shortest = min(documents.length, chunk or math.inf)
    s = min(s, MOST_DOCUMENTS * shortest)
    count = int(np.clip(MOST_DOCUMENTS * shortest / s, 1, MOST_SEQUENCES)) if documents.spread else 1
    borders = _borders(documents, s, count, chunk)
    pieces = np.arange(count)[:, None] * s + np.arange(2 * ranks + 1) * (s / (2 * ranks))
    work = np.diff(_pairs_before(pieces, borders, causal=causal, window=window), axis=1)
    of_rank = work[:, :ranks] + work[:, : ranks - 1 : -1]
    return float(of_rank.max(axis=1).mean() / of_rank.mean())


@lru_cache(maxsize=16)
def _borders(documents: Documents, s: float, count: int, chunk: int | None) -> NDArray[np.float64]:
    """Where documents, chunks and ``count`` sequences of s tokens begin in a stream, and where it ends."""
    starts = np.cumsum(_drawn(documents, count * s)) if documents.spread else np.arange(0, s, documents.length)
    of_sequence = np.arange(0, s, chunk or s)
    sequences = (np.arange(count)[:, None] * s + of_sequence).ravel()
    inside = starts[starts < count * s]
    return different(np.concatenate((inside, sequences, [count * s])))


def _drawn(documents: Documents, total: float) -> NDArray[np.float64]:
    """Lengths that fill ``total`` tokens, always the same: log-normal by the method of Box and Muller (1958)."""
    source = np.random.Generator(np.random.PCG64(0))
    lengths = np.empty(0)
    while lengths.sum() < total:
        first, second = source.random((2, int(total / documents.length) + MOST_SEQUENCES))
        normal = np.sqrt(-2 * np.log1p(-first)) * np.cos(2 * np.pi * second)
        drawn = documents.length * np.exp(documents.spread * normal - documents.spread**2 / 2)
        lengths = np.concatenate((lengths, drawn))
    return lengths


def _pairs_before(
    places: NDArray[np.float64], borders: NDArray[np.float64], *, causal: bool, window: int | None
) -> NDArray[np.float64]:
    """Pairs of a query before each place in a stream and a key that it meets."""
    lengths = np.diff(borders)
    before = np.concatenate(([0.0], np.cumsum(lengths * keys_of_one(lengths, causal=causal, window=window))))
    at = np.clip(np.searchsorted(borders, places, side="right") - 1, 0, len(lengths) - 1)
    part = places - borders[at]
    return before[at] + part * keys_of_one(part if causal else lengths[at], causal=causal, window=window)


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
        Saved(name="core_output", modules=ALWAYS, bytes=shard.tokens * query * kept_output(shard)),
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
    shared by tensor-parallel ranks; the latents are gathered. Where an indexer selects keys, ranks that share a
    sequence exchange latents and the indexer's keys, and a query reads all that was selected: no tile is half masked.
    FlashMLA's kernel reaches 640 TFLOP/s on an H800 and 1,450 on a B200 so, 0.65 and 0.64 of peak, which is what fused
    kernels reach on long sequences (README of FlashMLA, commit 9241ae3; forward alone).
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
        Saved(name="core_output", modules=ALWAYS, bytes=shard.tokens * values * kept_output(shard)),
        *_saved_scores(config.num_heads, shard),
    )
    gathered = shard.hidden_size if config.q_lora_rank is None else ranks
    by_heads = config.index_topk is None or shard.numbers.cp_comm == "a2a"
    exchanged = keys + values if by_heads else latent + config.index_head_dim / config.index_pool
    collectives = (
        *tensor_exchange(shard, "attention", ALWAYS, gathered, quantised_inputs=config.q_lora_rank is None),
        *summa_exchange(shard, operators),
        *context_exchange(shard, query, exchanged, values),
    )
    return Block(operators=operators, collectives=collectives, saved=saved)


def _core(config: Attention | LatentAttention, shard: Shard) -> AttentionCore:
    window, chunk = _locality(config)
    length, documents = shard.job.sequence_length, shard.job.packed
    selects = isinstance(config, LatentAttention) and config.index_topk is not None
    if isinstance(config, Attention):
        dims = (config.head_dim, config.head_dim)
    else:
        dims = (config.qk_head_dim, config.v_head_dim)
    local = length if selects else min(window or length, chunk or length)
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
            length if selects else _seen_at_once(shard), min(local, document_length(length, documents))
        ),
        fused=shard.job.attention == "flash",
        steps=shard.numbers.cp if shard.rings and not selects else 1,
        merged_elements=(
            0.0 if selects else _merged(shard, dims[1] * share(config.num_heads, shard.columns), causal=config.causal)
        ),
        load=_load(shard, causal=config.causal, window=window, chunk=chunk),
    )


def _load(shard: Shard, *, causal: bool, window: int | None = None, chunk: int | None = None) -> Numbers:
    """Of the slowest of the ranks that share queries; an all-to-all gives every rank whole sequences of some heads."""
    numbers, job = shard.numbers, shard.job
    ranks = numbers.tp_rows if numbers.cp_comm == "a2a" else numbers.sequence_shards
    return slowest_rank(ranks, job.sequence_length, causal=causal, window=window, chunk=chunk, documents=job.packed)


def same_load(shard: Shard, *, window: int | None) -> Numbers:
    """The same under a causal mask, for mixers of other files."""
    return _load(shard, causal=True, window=window)


def _seen_at_once(shard: Shard) -> Numbers:
    """Length that one kernel sees: a ring attends to one rank's keys and values at a time."""
    length = shard.job.sequence_length
    return length / shard.numbers.cp if shard.rings else length


def _merged(shard: Shard, width: Numbers, *, causal: bool) -> Numbers:
    """Elements of a ring's partial outputs, each of three quarters of the queries under a balanced causal mask.

    A step then attends with all queries to half of the keys, or with half of the queries to all, so that all steps make
    the same half of the products (arXiv 2310.01889; zigzag order of Transformer Engine). Without a mask every step
    attends with all queries to all keys.
    """
    queries = (0.75 if causal else 1.0) * shard.tokens
    return (shard.numbers.cp - 1) * queries * width if shard.rings else 0.0


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
    rank = config.q_lora_rank or shard.hidden_size
    width = config.index_head_dim
    gate = width if config.index_pool > 1 else 0
    pooled = TRAFFIC["pooling"].at("index_pooling", ALWAYS, shard.split_tokens * width, shard.element)
    pooling = (pooled,) if gate else ()
    return (
        _linear("index_q", ALWAYS, shard.tokens, rank, heads * width),
        _linear("index_k", ALWAYS, shard.split_tokens, shard.hidden_size, width + config.index_num_heads + gate),
        *pooling,
        *index_scores(shard, heads, width, per_key=config.index_pool),
    )


SCORES_AT_ONCE: Final = 2.0**30
"""Bytes of scores that fused kernels hold at one time (Megatron Core, ``_INDEXER_SCORE_CHUNK_MAX_BYTES``)."""


def index_scores(shard: Shard, heads: Numbers, width: int, *, per_key: int = 1) -> tuple[Operator, ...]:
    """Scores of an indexer for every query of this rank and every key of the sequence, one of ``per_key`` tokens.

    They are written in fp32, masked ones too, and read to select the largest, which no gradient passes; eager kernels
    do so for every head, and hold those of all heads twice (``GlmMoeDsaIndexer`` of ``transformers``). Each rank of
    several that share a sequence scores its queries against all keys: :math:`s^2 / cp` scores whatever the exchange.
    """
    length, documents = float(shard.job.sequence_length), shard.job.packed
    scored = shard.tokens * length / per_key
    eager = shard.job.software.kernels == "eager"
    matrix = TRAFFIC["index scores of several kernels" if eager else "index scores"]
    whole = scored * FP32_BYTES
    held = 2 * heads * whole if eager else np.minimum(whole, SCORES_AT_ONCE)
    return (
        AttentionCore(
            name="index", modules=CORE, tokens=shard.tokens, num_heads=heads, qk_head_dim=width, v_head_dim=0.0,
            keys=mean_keys(length, causal=True, documents=documents) / per_key, scored_keys=length / per_key,
            rate_length=document_length(length, documents), load=_load(shard, causal=True),
        ),
        replace(matrix.at("index_scores", CORE, scored * (heads if eager else 1.0), FP32_BYTES), held=held),
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

    Scores take :math:`2 a s^2 b` bytes, with dropout :math:`5 a s^2 b` (arXiv 2205.05198, eq. 1). Their gradient is as
    large, which softmax turns into its own in place; dropout makes another of it.
    """
    if shard.job.attention == "flash":
        statistics = shard.tokens * share(num_heads, shard.columns) * 4.0
        return (Saved(name="softmax_statistics", modules=CORE, bytes=statistics),)
    per_score = shard.element + (shard.element + 1.0 if shard.job.dropout else 0.0)
    gradients = (2 if shard.job.dropout else 1) * shard.element / per_score
    return (Saved(name="scores", modules=CORE, bytes=_scores(num_heads, shard) * per_score, gradients=gradients),)


def kept_output(shard: Shard) -> float:
    """Bytes per element of the core's output.

    One copy serves the core's backward pass and the projection's input, unless that is kept in fewer bits.
    """
    quantised = shard.linear_input if shard.linear_input < shard.element else 0.0
    return float(shard.element + quantised)
