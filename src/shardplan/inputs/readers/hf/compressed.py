"""Decoders with several residual streams: DeepSeek-V4 with compressed keys, GLM-5.3 with delta attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from shardplan.inputs.compressed import CompressedAttention
from shardplan.inputs.layers import Layer, Mixer
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.readers.hf.experts import indexed_attention
from shardplan.inputs.readers.hf.family import ModelFamily, experts, feed_forwards, first_k_dense, grouped, stack
from shardplan.inputs.readers.hf.fields import ConfigFields, shown
from shardplan.inputs.readers.hf.hybrids import delta_attention

SLIDING, SPARSE, HEAVY = "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"
_RATES: Final[Mapping[str, int]] = {SPARSE: 4, HEAVY: 128}
"""Default tokens of a compressed key (``DeepseekV4Config`` of ``transformers``)."""


def _kinds(fields: ConfigFields) -> Sequence[str]:
    """Attention of every layer: ``layer_types``, else the older ``compress_ratios``, else the class's default."""
    n = fields.num_layers
    kinds = fields.kinds("layer_types", (SLIDING, SPARSE, HEAVY), length=n)
    ratios = fields.counts("compress_ratios", maximum=max(_RATES.values()))
    if kinds:
        return kinds
    if not ratios:
        return [HEAVY] * min(n, 2) + [SPARSE if i % 2 else HEAVY for i in range(max(n - 2, 0))]
    if len(ratios) < n:
        raise fields.error(
            f"compress_ratios names {len(ratios)} layers of {n}",
            rule="compress_ratios names every layer, and may name blocks of multi-token prediction",
            hint=f"give compress_ratios {n} entries or more, or change num_hidden_layers to {len(ratios)}",
        )
    by_ratio = {0: SLIDING, **{rate: kind for kind, rate in _RATES.items()}}
    for ratio in ratios:
        if ratio not in by_ratio:
            near = min(by_ratio, key=lambda known: abs(known - ratio))
            raise fields.error(
                f"compress_ratios holds {shown(ratio)}",
                rule=f"compress_ratios holds {', '.join(map(str, by_ratio))}",
                hint=f"the nearest is {near}; other rates are given in compress_rates, with layer_types",
            )
    return [by_ratio[ratio] for ratio in ratios[:n]]


def _attentions(fields: ConfigFields) -> Mapping[str, CompressedAttention]:
    """The three kinds of attention that a file describes."""
    for key in ("attention_bias", "mlp_bias"):
        fields.require(key, expected=False)
    fields.require("num_key_value_heads", expected=1)
    rates = fields.part("compress_rates")
    head_dim = fields.count("head_dim", 512)
    slides = CompressedAttention(
        num_heads=fields.count("num_attention_heads"),
        head_dim=head_dim,
        rope_head_dim=fields.count("qk_rope_head_dim", max(head_dim // 8, 1)),
        q_lora_rank=fields.count("q_lora_rank"),
        o_lora_rank=fields.count("o_lora_rank"),
        o_groups=fields.count("o_groups"),
        window=fields.count("sliding_window", 128),
    )
    indexer = {name: fields.count(key) for name, key in _INDEXER.items()}
    rate = {kind: rates.count(kind, usual) for kind, usual in _RATES.items()}
    return {
        SLIDING: slides,
        SPARSE: replace(slides, compress_rate=rate[SPARSE], **indexer),
        HEAVY: replace(slides, compress_rate=rate[HEAVY]),
    }


_INDEXER: Final = {"index_topk": "index_topk", "index_num_heads": "index_n_heads", "index_head_dim": "index_head_dim"}


def _layers(fields: ConfigFields) -> tuple[Layer, ...]:
    """Experts in every layer; in the first ones the token itself chooses them, with the same matrices."""
    fields.kinds("mlp_layer_types", ("hash_moe", "moe"), length=fields.num_layers)
    kinds = _kinds(fields)
    return tuple(_by_kind(fields)[kind] for kind in kinds)


def _by_kind(fields: ConfigFields) -> Mapping[str, Layer]:
    routed = experts(fields, num_shared=fields.count("n_shared_experts", 1, minimum=0))
    streams = fields.count("hc_mult", 4)
    return {
        kind: Layer(mixer=mixer, mlp=routed, num_norms=2, streams=streams)
        for kind, mixer in _attentions(fields).items()
    }


def _with_sliding_prediction(fields: ConfigFields, model: ModelConfig) -> ModelConfig:
    """The model whose blocks of multi-token prediction attend only to their window (last ``compress_ratios``, 0)."""
    return replace(model, mtp_block=_by_kind(fields)[SLIDING])


DELTA, INDEXED = "linear_attention", "indexed_attention"


def _glm_layers(fields: ConfigFields) -> tuple[Layer, ...]:
    """Layers with delta attention; in every fourth one, latent attention to selected keys without positions."""
    fields.require("qk_rope_head_dim", expected=0)
    n = fields.num_layers
    kinds = fields.kinds("layer_types", (DELTA, INDEXED, "full_attention"), length=n)
    delta, indexed = delta_attention(fields), indexed_attention(fields)
    fields.understood("index_kpool_always_select_tail")
    pool = fields.count("index_kpool", 16)
    mixers: list[Mixer] = [
        delta if (kinds[i] == DELTA if kinds else i % 4 != 3) else replace(mixer, index_pool=pool, rotary=False)
        for i, mixer in enumerate(indexed)
    ]
    shared = fields.count("n_shared_experts", 1, minimum=0)
    mlps = feed_forwards(fields, first_k_dense(fields, 3), lambda each: grouped(each, experts(each, num_shared=shared)))
    streams = fields.count("hc_mult", 4)
    return tuple(replace(layer, streams=streams) for layer in stack(fields, mixers, mlps))


COMPRESSED: Final[Mapping[str, ModelFamily]] = {
    "deepseek_v4": ModelFamily(
        "DeepSeek-V4: a short window next to compressed keys, of which an indexer selects some in every other layer; "
        "grouped output projections, experts in every layer, hyper-connections between four streams."
    )._replace(
        layers=_layers,
        adjusted=_with_sliding_prediction,
        understood=("num_hash_layers", "hc_sinkhorn_iters", "intermediate_size"),
    ),
    "glm5_next_text": ModelFamily(
        "GLM-5.3: Kimi delta attention, every fourth layer latent attention to keys that an indexer selects by pools; "
        "experts as in DeepSeek-V3, hyper-connections between four streams, of which the mean is read."
    )._replace(
        layers=_glm_layers,
        model={"averages_streams": True},
        understood=("hc_sinkhorn_iters", "index_topk_freq", "index_skip_topk_offset", "indexer_types"),
    ),
}
"""Families by ``model_type``."""
