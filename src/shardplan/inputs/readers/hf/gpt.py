"""Decoders like GPT: mostly LayerNorm, biases and MLPs without a gate, with the layout of ``transformers``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from shardplan.inputs.layers import MLP, Attention
from shardplan.inputs.readers.hf.family import (
    ALL_HEADS,
    ATTENTION_BIAS,
    MLP_BIAS,
    ModelFamily,
    attention,
    count,
    every_layer,
    flag,
)
from shardplan.inputs.readers.hf.fields import ConfigFields


def _gpt_neo_mixers(fields: ConfigFields) -> Sequence[Attention]:
    """Windows in every second layer, or where ``attention_layers`` says."""
    n = fields.num_layers
    base = replace(attention(fields, output_bias=True, num_kv_heads=ALL_HEADS(fields)), rotary=False)
    kinds = fields.kinds("attention_layers", ("global", "local"), length=n)
    local = replace(base, window=fields.count("window_size", 256))
    usual = [[["global", "local"], n // 2]]
    if kinds or fields.values.get("attention_types") == usual:
        fields.understood("attention_types")
    return [local if kind == "local" else base for kind in (kinds or ("global", "local") * n)[:n]]


def _wide_mlp(fields: ConfigFields) -> MLP:
    """BLOOM's MLP: four times as wide as the hidden size, whatever the file says."""
    return MLP(intermediate_size=4 * fields.count("hidden_size"), gated=False, bias=True)


def _mpt_has_bias(fields: ConfigFields) -> bool:
    return not fields.flag("no_bias", default=True)


def _mpt_mixer(fields: ConfigFields) -> Attention:
    core = fields.part("attn_config")
    core.require("qk_ln", expected=False)
    heads = ALL_HEADS(fields)
    kind = core.word("attn_type") or "multihead_attention"
    kv_heads = {"multihead_attention": heads, "multiquery_attention": 1}.get(str(kind)) or core.count("kv_n_heads")
    base = attention(fields, qkv_bias=_mpt_has_bias(fields), num_kv_heads=kv_heads)
    return replace(base, rotary=core.flag("rope", default=False))


def _mpt_mlp(fields: ConfigFields) -> MLP:
    inner = fields.part("ffn_config")
    inner.require("ffn_type", expected="mptmlp")
    width = inner.optional_count("ffn_hidden_size") or _mpt_width(fields)
    return MLP(intermediate_size=width, gated=False, bias=_mpt_has_bias(fields))


def _mpt_width(fields: ConfigFields) -> int:
    width = fields.ratio("expansion_ratio", 4) * fields.count("hidden_size")
    if width != int(width):
        raise fields.error(
            f"expansion_ratio times d_model is {width}",
            rule="expansion_ratio times d_model is a whole number",
            hint="correct expansion_ratio",
        )
    return int(width)


def _mpt_positions(fields: ConfigFields) -> int:
    """Learned positions, if neither ALiBi nor rotary positions are asked for."""
    core = fields.part("attn_config")
    placed = core.flag("alibi", default=True), core.flag("rope", default=False)
    learned = fields.flag("learned_pos_emb", default=True) and not any(placed)
    return fields.count("max_position_embeddings") if learned else 0


def _falcon_mixer(fields: ConfigFields) -> Attention:
    new, heads = fields.flag("new_decoder_architecture", default=False), ALL_HEADS(fields)
    shared = 1 if fields.flag("multi_query", default=True) else heads
    kv_heads = fields.count("num_key_value_heads", heads) if new else shared
    given = kv_heads if new else heads  # files of the older layout state query heads, and multi_query decides
    base = attention(fields, qkv_bias=fields.flag("bias", default=False), num_kv_heads=given)
    return replace(base, num_kv_heads=kv_heads, rotary=not fields.flag("alibi", default=False))


def _falcon_is_parallel(fields: ConfigFields) -> bool:
    new = fields.flag("new_decoder_architecture", default=False)
    return new or fields.flag("parallel_attn", default=True)


def _falcon_norms(fields: ConfigFields) -> int:
    """A norm for attention and MLP each (40B, 180B), or one for both (7B)."""
    usual = 2 if fields.flag("new_decoder_architecture", default=False) else 1
    return fields.count("num_ln_in_parallel_attn", usual) if _falcon_is_parallel(fields) else 2


_LAYER_NORM: Final[dict[str, Any]] = {"norm_bias": True}
_PARALLEL: Final = flag("use_parallel_residual")
_USE_BIAS: Final = flag("use_bias", default=True)

_GPT2: Final = ModelFamily("GPT-2, GPT-3: LayerNorm, biases, learned positions, tied head.")._replace(
    qkv_bias=True,
    kv_heads=ALL_HEADS,
    attention={"rotary": False},
    gated=False,
    mlp_bias=True,
    widening=4,
    tie=True,
    model=_LAYER_NORM | {"num_position_embeddings": count("max_position_embeddings")},
)
_GPTJ: Final = ModelFamily(
    "GPT-J, CodeGen: attention and MLP in parallel behind one norm, a bias on the head."
)._replace(
    kv_heads=ALL_HEADS,
    gated=False,
    mlp_bias=True,
    widening=4,
    num_norms=1,
    parallel_residual=True,
    model=_LAYER_NORM | {"head_bias": True},
)

GPT: Final[Mapping[str, ModelFamily]] = {
    "bloom": _GPT2.called("BLOOM: ALiBi instead of positions, a norm behind the embedding.")._replace(
        mlps=_wide_mlp, model=_LAYER_NORM | {"has_embedding_norm": True}
    ),
    "codegen": _GPTJ,
    "falcon": _GPTJ.called(
        "Falcon: attention and MLP in parallel, behind one norm each (40B, 180B) or one for both (7B)."
    )._replace(
        mixers=_falcon_mixer,
        mlp_bias=flag("bias"),
        num_norms=_falcon_norms,
        parallel_residual=_falcon_is_parallel,
        tie=True,
        model=_LAYER_NORM,
    ),
    "gpt2": _GPT2,
    "gpt_bigcode": _GPT2.called("StarCoder: GPT-2 with one key-value head.")._replace(
        kv_heads=lambda fields: 1 if fields.flag("multi_query", default=True) else ALL_HEADS(fields)
    ),
    "gpt_neo": _GPT2.called("GPT-Neo: windows in every second layer, a bias on the output projection only.")._replace(
        mixers=_gpt_neo_mixers
    ),
    "gpt_neox": _GPTJ.called("GPT-NeoX, Pythia: attention and MLP in parallel, each behind its own norm.")._replace(
        qkv_bias=flag("attention_bias", default=True),
        widening=None,
        num_norms=2,
        parallel_residual=flag("use_parallel_residual", default=True),
        model=_LAYER_NORM,
    ),
    "gptj": _GPTJ,
    "mpt": ModelFamily(
        "MPT and llm-foundry: no biases; learned positions unless ALiBi or rotary positions are asked for."
    )._replace(
        mixers=_mpt_mixer,
        mlps=_mpt_mlp,
        tie=True,
        model={"norm_bias": _mpt_has_bias, "num_position_embeddings": _mpt_positions},
    ),
    "nemotron": ModelFamily("Nemotron-4: squared ReLU without a gate, LayerNorm, no other biases.")._replace(
        qkv_bias=ATTENTION_BIAS, gated=False, mlp_bias=MLP_BIAS, model=_LAYER_NORM
    ),
    "opt": _GPT2.called("OPT: GPT-2 with two unused rows of positions.")._replace(
        required={"word_embed_proj_dim": count("hidden_size"), "do_layer_norm_before": True},
        qkv_bias=flag("enable_bias", default=True),
        mlp_bias=flag("enable_bias", default=True),
        widening=None,
        model=_LAYER_NORM | {"num_position_embeddings": lambda fields: fields.count("max_position_embeddings") + 2},
    ),
    "phi": _GPTJ.called("Phi-1.5, Phi-2: biases everywhere, attention and MLP in parallel behind one norm.")._replace(
        required={"qk_layernorm": False}, qkv_bias=True, kv_heads=None
    ),
    "stablelm": ModelFamily("StableLM: Llama with LayerNorm.")._replace(
        required={"qk_layernorm": False},
        qkv_bias=flag("use_qkv_bias"),
        output_bias=False,
        num_norms=lambda fields: 1 if _PARALLEL(fields) else 2,
        parallel_residual=_PARALLEL,
        model=_LAYER_NORM,
    ),
    "starcoder2": ModelFamily("StarCoder2: grouped queries, biases, MLP without a gate.")._replace(
        qkv_bias=_USE_BIAS,
        kv_required=True,
        slides=every_layer,
        gated=False,
        mlp_bias=_USE_BIAS,
        tie=True,
        model=_LAYER_NORM,
    ),
}
"""``model_type`` to the row of its family."""
