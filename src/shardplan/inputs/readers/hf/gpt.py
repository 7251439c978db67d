"""Decoders in the line of GPT: mostly LayerNorm, biases and MLPs without a gate, laid out as in ``transformers``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from shardplan.inputs.layers import MLP, Attention
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.readers.hf.fields import ConfigFields
from shardplan.inputs.readers.hf.parts import attention, decoder, mlp, repeated, stack, windowed


def gpt2(fields: ConfigFields) -> ModelConfig:
    """GPT-2, GPT-3: LayerNorm, biases, learned positions, tied head."""
    base = replace(attention(fields, qkv_bias=True, num_kv_heads=fields.count("num_attention_heads")), rotary=False)
    return _learned_positions(fields, base)


def gpt_bigcode(fields: ConfigFields) -> ModelConfig:
    """StarCoder: GPT-2 with one key-value head."""
    heads = 1 if fields.flag("multi_query", default=True) else fields.count("num_attention_heads")
    return _learned_positions(fields, replace(attention(fields, qkv_bias=True, num_kv_heads=heads), rotary=False))


def gpt_neo(fields: ConfigFields) -> ModelConfig:
    """GPT-Neo: windows in every second layer, a bias on the output projection only."""
    n = fields.num_layers
    heads = fields.count("num_attention_heads")
    base = replace(attention(fields, output_bias=True, num_kv_heads=heads), rotary=False)
    kinds = fields.kinds("attention_layers", ("global", "local"), length=n)
    local = replace(base, window=fields.count("window_size", 256))
    usual = [[["global", "local"], n // 2]]
    if kinds or fields.values.get("attention_types") == usual:
        fields.understood("attention_types")
    mixers = [local if kind == "local" else base for kind in (kinds or ("global", "local") * n)[:n]]
    feed_forward = mlp(fields, gated=False, bias=True, width=4 * fields.count("hidden_size"))
    return _with_positions(fields, decoder(fields, stack(mixers, [feed_forward] * n), tie=True))


def _learned_positions(fields: ConfigFields, base: Attention) -> ModelConfig:
    feed_forward = mlp(fields, gated=False, bias=True, width=4 * fields.count("hidden_size"))
    return _with_positions(fields, decoder(fields, repeated(fields, base, feed_forward), tie=True))


def _with_positions(fields: ConfigFields, model: ModelConfig) -> ModelConfig:
    return replace(model, norm_bias=True, num_position_embeddings=fields.count("max_position_embeddings"))


def gptj(fields: ConfigFields) -> ModelConfig:
    """GPT-J, CodeGen: attention and MLP in parallel behind one norm, a bias on the head."""
    base = attention(fields, num_kv_heads=fields.count("num_attention_heads"))
    feed_forward = mlp(fields, gated=False, bias=True, width=4 * fields.count("hidden_size"))
    layers = repeated(fields, base, feed_forward, num_norms=1, parallel_residual=True)
    return replace(decoder(fields, layers), norm_bias=True, head_bias=True)


def gpt_neox(fields: ConfigFields) -> ModelConfig:
    """GPT-NeoX, Pythia: attention and MLP in parallel, each behind its own norm."""
    bias = fields.flag("attention_bias", default=True)
    base = attention(fields, qkv_bias=bias, num_kv_heads=fields.count("num_attention_heads"))
    parallel = fields.flag("use_parallel_residual", default=True)
    layers = repeated(fields, base, mlp(fields, gated=False, bias=True), parallel_residual=parallel)
    return replace(decoder(fields, layers), norm_bias=True)


def opt(fields: ConfigFields) -> ModelConfig:
    """OPT: GPT-2 with two unused rows of positions."""
    fields.require("word_embed_proj_dim", fields.count("hidden_size"))
    fields.require("do_layer_norm_before", expected=True)
    bias = fields.flag("enable_bias", default=True)
    base = attention(fields, qkv_bias=bias, num_kv_heads=fields.count("num_attention_heads"))
    layers = repeated(fields, replace(base, rotary=False), mlp(fields, gated=False, bias=bias))
    rows = fields.count("max_position_embeddings") + 2
    return replace(decoder(fields, layers, tie=True), norm_bias=True, num_position_embeddings=rows)


def bloom(fields: ConfigFields) -> ModelConfig:
    """BLOOM: ALiBi instead of positions, a norm behind the embedding."""
    base = attention(fields, qkv_bias=True, num_kv_heads=fields.count("num_attention_heads"))
    feed_forward = MLP(intermediate_size=4 * fields.count("hidden_size"), gated=False, bias=True)
    layers = repeated(fields, replace(base, rotary=False), feed_forward)
    return replace(decoder(fields, layers, tie=True), norm_bias=True, has_embedding_norm=True)


def mpt(fields: ConfigFields) -> ModelConfig:
    """MPT and llm-foundry: no biases; learned positions where neither ALiBi nor rotary positions are asked for."""
    core, inner = fields.part("attn_config"), fields.part("ffn_config")
    core.require("qk_ln", expected=False)
    inner.require("ffn_type", expected="mptmlp")
    alibi, rotary = core.flag("alibi", default=True), core.flag("rope", default=False)
    kind = core.word("attn_type") or "multihead_attention"
    heads = fields.count("num_attention_heads")
    kv_heads = {"multihead_attention": heads, "multiquery_attention": 1}.get(str(kind)) or core.count("kv_n_heads")
    bias = not fields.flag("no_bias", default=True)
    base = replace(attention(fields, qkv_bias=bias, num_kv_heads=kv_heads), rotary=rotary)
    width = inner.optional_count("ffn_hidden_size") or _mpt_width(fields)
    feed_forward = MLP(intermediate_size=width, gated=False, bias=bias)
    learned = fields.flag("learned_pos_emb", default=True) and not alibi and not rotary
    rows = fields.count("max_position_embeddings") if learned else 0
    model = decoder(fields, repeated(fields, base, feed_forward), tie=True)
    return replace(model, norm_bias=bias, num_position_embeddings=rows)


def _mpt_width(fields: ConfigFields) -> int:
    width = fields.ratio("expansion_ratio", 4) * fields.count("hidden_size")
    if width != int(width):
        raise fields.error(
            f"expansion_ratio times d_model is {width}",
            rule="expansion_ratio times d_model is a whole number",
            hint="correct expansion_ratio",
        )
    return int(width)


def falcon(fields: ConfigFields) -> ModelConfig:
    """Falcon: attention and MLP in parallel, behind one norm each (40B, 180B) or one for both (7B)."""
    new, bias = fields.flag("new_decoder_architecture", default=False), fields.flag("bias", default=False)
    heads = fields.count("num_attention_heads")
    shared = 1 if fields.flag("multi_query", default=True) else heads
    kv_heads = fields.count("num_key_value_heads", heads) if new else shared
    stated = kv_heads if new else heads  # files of the older layout state query heads, and multi_query decides
    base = replace(attention(fields, qkv_bias=bias, num_kv_heads=stated), num_kv_heads=kv_heads)
    parallel = new or fields.flag("parallel_attn", default=True)
    num_norms = fields.count("num_ln_in_parallel_attn", 2 if new else 1) if parallel else 2
    feed_forward = mlp(fields, gated=False, bias=bias, width=4 * fields.count("hidden_size"))
    base = replace(base, rotary=not fields.flag("alibi", default=False))
    layers = repeated(fields, base, feed_forward, num_norms=num_norms, parallel_residual=parallel)
    return replace(decoder(fields, layers, tie=True), norm_bias=True)


def phi(fields: ConfigFields) -> ModelConfig:
    """Phi-1.5, Phi-2: biases everywhere, attention and MLP in parallel behind one norm."""
    fields.require("qk_layernorm", expected=False)
    layers = repeated(
        fields,
        attention(fields, qkv_bias=True),
        mlp(fields, gated=False, bias=True, width=4 * fields.count("hidden_size")),
        num_norms=1,
        parallel_residual=True,
    )
    return replace(decoder(fields, layers), norm_bias=True, head_bias=True)


def starcoder2(fields: ConfigFields) -> ModelConfig:
    """StarCoder2: grouped queries, biases, MLP without a gate."""
    bias = fields.flag("use_bias", default=True)
    base = attention(fields, qkv_bias=bias, kv_required=True)
    mixers = windowed(fields, base, [True] * fields.num_layers)
    layers = stack(mixers, [mlp(fields, gated=False, bias=bias)] * len(mixers))
    return replace(decoder(fields, layers, tie=True), norm_bias=True)


def stablelm(fields: ConfigFields) -> ModelConfig:
    """StableLM: Llama with LayerNorm."""
    fields.require("qk_layernorm", expected=False)
    base = attention(fields, qkv_bias=fields.flag("use_qkv_bias", default=False), output_bias=False)
    parallel = fields.flag("use_parallel_residual", default=False)
    norms = 1 if parallel else 2
    layers = repeated(fields, base, mlp(fields, gated=True), num_norms=norms, parallel_residual=parallel)
    return replace(decoder(fields, layers), norm_bias=True)


def nemotron(fields: ConfigFields) -> ModelConfig:
    """Nemotron-4: squared ReLU without a gate, LayerNorm, no other biases."""
    base = attention(fields, qkv_bias=fields.flag("attention_bias", default=False))
    feed_forward = mlp(fields, gated=False, bias=fields.flag("mlp_bias", default=False))
    return replace(decoder(fields, repeated(fields, base, feed_forward)), norm_bias=True)


FAMILIES: Final[Mapping[str, Callable[[ConfigFields], ModelConfig]]] = {
    "bloom": bloom,
    "codegen": gptj,
    "falcon": falcon,
    "gpt2": gpt2,
    "gpt_bigcode": gpt_bigcode,
    "gpt_neo": gpt_neo,
    "gpt_neox": gpt_neox,
    "gptj": gptj,
    "mpt": mpt,
    "nemotron": nemotron,
    "opt": opt,
    "phi": phi,
    "stablelm": stablelm,
    "starcoder2": starcoder2,
}
"""``model_type`` to the reader of its family."""
