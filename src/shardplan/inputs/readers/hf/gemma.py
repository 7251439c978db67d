"""The Gemma decoders: large heads, four norms per layer, windows in most layers, laid out as in ``transformers``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from shardplan.inputs.layers import MLP, Attention, MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.readers.hf.fields import ConfigFields, shown
from shardplan.inputs.readers.hf.moe import ROUTING
from shardplan.inputs.readers.hf.parts import attention, decoder, experts, mlp, repeated, sliding, stack, windowed


def gemma(fields: ConfigFields) -> ModelConfig:
    """Gemma 1: Llama with heads of 256, tied."""
    base = attention(fields, qkv_bias=fields.flag("attention_bias", default=False), head_dim=256, kv_required=True)
    feed_forward = mlp(fields, gated=True, bias=fields.flag("mlp_bias", default=False))
    return decoder(fields, repeated(fields, base, feed_forward), tie=True)


def gemma2(fields: ConfigFields) -> ModelConfig:
    """Gemma 2: four norms per layer, every other layer slides, the first one included."""
    return _gemma(fields, attention(fields, head_dim=256, kv_required=True), pattern=2)


def gemma3(fields: ConfigFields) -> ModelConfig:
    """Gemma 3: four norms per layer, norms on queries and keys, every sixth layer sees all keys."""
    base = replace(attention(fields, head_dim=256, kv_required=True), qk_norm="head")
    return _gemma(fields, base, pattern=fields.count("sliding_window_pattern", 6))


def _gemma(fields: ConfigFields, base: Attention, *, pattern: int) -> ModelConfig:
    base = replace(base, qkv_bias=(bias := fields.flag("attention_bias", default=False)), output_bias=bias)
    mixers = windowed(fields, base, sliding(fields, lambda i: (i + 1) % pattern != 0), default=4096)
    return decoder(fields, stack(mixers, [mlp(fields, gated=True)] * len(mixers), num_norms=4), tie=True)


def gemma4(fields: ConfigFields) -> ModelConfig:
    """Gemma 4 (not E2B and E4B): Gemma 3 with larger heads where a layer sees all keys; experts next to the MLP."""
    _refuse_layer_inputs(fields)
    fields.understood("num_global_key_value_heads", "global_head_dim", "vocab_size_per_layer_input", *ROUTING)
    moe = fields.flag("enable_moe_block", default=False)
    # In layers with experts the MLP runs next to them, so that it is an expert that all tokens visit. They have three
    # more norms; the router scales its input per channel, as a norm does, and its scores per expert, as a bias does.
    block: MLP | MixtureOfExperts = mlp(fields, gated=True)
    if moe:
        routed = experts(fields, shared_width=fields.count("intermediate_size"))
        block = replace(routed, router_bias=True)
    mixers = _gemma4_mixers(fields)
    return decoder(fields, stack(mixers, [block] * len(mixers), num_norms=8 if moe else 4), tie=True)


def _refuse_layer_inputs(fields: ConfigFields) -> None:
    """Raise for the small Gemma 4 models: where the file does not say, layers have inputs of their own."""
    default = 0 if fields.model_type == "gemma4_unified_text" else 256
    size = fields.count("hidden_size_per_layer_input", default, minimum=0)
    if size:
        raise fields.error(
            f"hidden_size_per_layer_input is {size}: inputs of their own for every layer have no cost model",
            rule="the architecture is supported",
            hint="set hidden_size_per_layer_input to 0 to plan the layers without them",
        )


def _gemma4_mixers(fields: ConfigFields) -> list[Attention]:
    """Layers that see all keys have heads of 512 and may use their keys as values; the last layer is always one."""
    n = fields.num_layers
    bias, tied = fields.flag("attention_bias", default=False), fields.flag("attention_k_eq_v", default=False)
    base = replace(attention(fields, qkv_bias=bias, head_dim=256, kv_required=True), qk_norm="head")
    slides = (*sliding(fields, lambda i: (i + 1) % 6 != 0)[: n - 1], False)
    default = 1024 if fields.model_type == "gemma4_unified_text" else 512
    local = replace(base, window=fields.optional_count("sliding_window", default))
    mixers = [local if slide else replace(base, tied_kv=tied) for slide in slides]
    if fields.has("per_layer_config"):
        return _overridden(fields, mixers)
    heads = fields.count("num_global_key_value_heads", base.num_kv_heads) if tied else base.num_kv_heads
    size = fields.count("global_head_dim", 512)
    return [m if m.window else replace(m, head_dim=size, num_kv_heads=heads) for m in mixers]


def _overridden(fields: ConfigFields, mixers: list[Attention]) -> list[Attention]:
    """``mixers`` with the head sizes and numbers that ``per_layer_config`` gives single layers."""
    overrides = fields.part("per_layer_config")
    changed = list(mixers)
    for key in overrides.values:
        layer = int(key) if key.isascii() and key.isdigit() and len(key) < 8 else len(mixers)
        if layer >= len(mixers):
            raise fields.error(
                f"per_layer_config names the layer {shown(key)} of {len(mixers)}",
                rule="per_layer_config names layers of the model, from 0",
                hint="correct per_layer_config, or leave it out",
            )
        changed[layer] = _with_own_heads(overrides.part(key), mixers[layer])
    return changed


def _with_own_heads(own: ConfigFields, mixer: Attention) -> Attention:
    if unknown := own.values.keys() - {"head_dim", "num_key_value_heads"}:
        raise own.error(
            f"{shown(min(unknown))} of a single layer has no cost model",
            rule="the architecture is supported",
            hint="give single layers their own head_dim and num_key_value_heads only",
        )
    num_kv_heads = own.count("num_key_value_heads", mixer.num_kv_heads)
    return replace(mixer, head_dim=own.count("head_dim", mixer.head_dim), num_kv_heads=num_kv_heads)


FAMILIES: Final[Mapping[str, Callable[[ConfigFields], ModelConfig]]] = {
    "gemma": gemma,
    "gemma2": gemma2,
    "gemma3_text": gemma3,
    "gemma4_text": gemma4,
    "gemma4_unified_text": gemma4,
}
"""``model_type`` to the reader of its family."""
