"""Dense decoders in the line of Llama: RMSNorm, rotary positions and gated MLPs, laid out as in ``transformers``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from shardplan.inputs.layers import Attention, QKNorm
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.readers.hf.fields import ConfigFields
from shardplan.inputs.readers.hf.parts import attention, decoder, mlp, repeated, sliding, stack, windowed


def llama(fields: ConfigFields) -> ModelConfig:
    """Llama 2 and 3, and the many that have its layers: RMSNorm, rotary positions, gated MLP, no biases by default."""
    return _llama_like(fields, attention(fields, qkv_bias=fields.flag("attention_bias", default=False)))


def _llama_like(fields: ConfigFields, base: Attention, *, gated: bool = True) -> ModelConfig:
    feed_forward = mlp(fields, gated=gated, bias=fields.flag("mlp_bias", default=False))
    return decoder(fields, repeated(fields, base, feed_forward), tie=False)


def arcee(fields: ConfigFields) -> ModelConfig:
    """Arcee: Llama with a squared ReLU and no gate."""
    return _llama_like(fields, attention(fields, qkv_bias=fields.flag("attention_bias", default=False)), gated=False)


def internlm(fields: ConfigFields) -> ModelConfig:
    """InternLM 1 and 2: Llama, with biases on attention where ``bias`` says."""
    default = fields.model_type == "internlm"
    return _llama_like(fields, attention(fields, qkv_bias=fields.flag("bias", default)))


def baichuan(fields: ConfigFields) -> ModelConfig:
    """Baichuan 1 and 2: Llama; the files of the 13B, which uses ALiBi, state ``model_max_length`` only."""
    rotary = "max_position_embeddings" in fields.values
    return _llama_like(fields, replace(attention(fields), rotary=rotary))


def seed_oss(fields: ConfigFields) -> ModelConfig:
    """Seed-OSS: Llama with biases on queries, keys and values."""
    qkv, out = fields.flag("attention_bias", default=True), fields.flag("attention_out_bias", default=False)
    return _llama_like(fields, attention(fields, qkv_bias=qkv, output_bias=out, head_dim=128, kv_required=True))


def smollm3(fields: ConfigFields) -> ModelConfig:
    """SmolLM3: Llama, every fourth layer without positions."""
    base = attention(fields, qkv_bias=fields.flag("attention_bias", default=False), kv_required=True)
    n, every = fields.num_layers, fields.count("no_rope_layer_interval", 4)
    fields.understood("sliding_window", "max_window_layers")
    rotary = fields.counts("no_rope_layers", maximum=1, length=n) or [int((i + 1) % every != 0) for i in range(n)]
    plain = replace(base, rotary=False)
    slides = sliding(fields, lambda i: fields.flag("use_sliding_window", default=False) and not rotary[i])
    window = fields.optional_count("sliding_window") if any(slides) else None
    bases = [base if rotates else plain for rotates in rotary]
    mixers = [replace(mixer, window=window) if slide else mixer for mixer, slide in zip(bases, slides, strict=True)]
    feed_forward = mlp(fields, gated=True, bias=fields.flag("mlp_bias", default=False))
    return decoder(fields, stack(mixers, [feed_forward] * n), tie=True)


def ernie(fields: ConfigFields) -> ModelConfig:
    """ERNIE 4.5 without experts: Llama, tied, with one switch for all biases."""
    bias = fields.flag("use_bias", default=False)
    base = attention(fields, qkv_bias=bias, head_dim=128, kv_required=True)
    return decoder(fields, repeated(fields, base, mlp(fields, gated=True, bias=bias)), tie=True)


def hunyuan(fields: ConfigFields) -> ModelConfig:
    """Hunyuan dense: Llama with norms on queries and keys."""
    hunyuan_fields(fields)
    fields.require("num_experts", expected=1)
    fields.understood("num_experts_per_tok", "n_shared_experts", "moe_intermediate_size")
    base = attention(fields, qkv_bias=fields.flag("attention_bias", default=False))
    return _llama_like(fields, replace(base, qk_norm="head"))


def hunyuan_fields(fields: ConfigFields) -> None:
    """Refuse Hunyuan files of other layers, and pass over what they say of parts that they do not use."""
    for key, usual in (("use_cla", False), ("use_qk_norm", True), ("moe_layer_num_skipped", 0)):
        fields.require(key, expected=usual)
    fields.understood("cla_share_factor", "num_media_embeds", "attention_head_dim")


def mistral(fields: ConfigFields) -> ModelConfig:
    """Mistral: Llama with a sliding window in every layer (4,096 in version 0.1; null in later ones)."""
    mixers = windowed(fields, attention(fields, kv_required=True), [True] * fields.num_layers, default=4096)
    return decoder(fields, stack(mixers, [mlp(fields, gated=True)] * len(mixers)))


def ministral(fields: ConfigFields) -> ModelConfig:
    """Ministral: Mistral whose ``layer_types`` say which layers slide."""
    slides = sliding(fields, lambda _: fields.has("sliding_window"))
    mixers = windowed(fields, attention(fields, kv_required=True), slides)
    return decoder(fields, stack(mixers, [mlp(fields, gated=True)] * len(mixers)))


def phi3(fields: ConfigFields) -> ModelConfig:
    """Phi-3, Phi-4: Llama with a sliding window where the file gives one."""
    mixers = windowed(fields, attention(fields), [True] * fields.num_layers)
    return decoder(fields, stack(mixers, [mlp(fields, gated=True)] * len(mixers)))


def qwen2(fields: ConfigFields) -> ModelConfig:
    """Qwen2, Qwen2.5: Llama with biases on queries, keys and values, which no field says."""
    return _qwen(fields, attention(fields, qkv_bias=True, output_bias=False, kv_required=True))


def qwen3(fields: ConfigFields) -> ModelConfig:
    """Qwen3: Llama with norms on queries and keys, which no field says."""
    bias = fields.flag("attention_bias", default=False)
    return _qwen(fields, replace(attention(fields, qkv_bias=bias, head_dim=128, kv_required=True), qk_norm="head"))


def _qwen(fields: ConfigFields, base: Attention) -> ModelConfig:
    mixers = qwen_windows(fields, base)
    return decoder(fields, stack(mixers, [mlp(fields, gated=True)] * len(mixers)))


def qwen_windows(fields: ConfigFields, base: Attention) -> tuple[Attention, ...]:
    """Qwen's windows: off unless ``use_sliding_window``, then in the layers from ``max_window_layers`` on."""
    on = fields.flag("use_sliding_window", default=False)
    fields.understood("max_window_layers")
    first = fields.count("max_window_layers", 28, minimum=0) if on else 0
    return windowed(fields, base, sliding(fields, lambda i: on and i >= first))


def cohere(fields: ConfigFields) -> ModelConfig:
    """Command R: attention and MLP in parallel behind one norm, tied."""
    base = attention(fields, qkv_bias=fields.flag("attention_bias", default=False), kv_required=True)
    norm: QKNorm = "full" if fields.flag("use_qk_norm", default=False) else "none"
    layers = repeated(fields, replace(base, qk_norm=norm), mlp(fields, gated=True), num_norms=1, parallel_residual=True)
    return decoder(fields, layers, tie=True)


def cohere2(fields: ConfigFields) -> ModelConfig:
    """Command A: as Command R; three of four layers slide, the fourth sees all keys without positions."""
    base = attention(fields, qkv_bias=fields.flag("attention_bias", default=False), kv_required=True)
    for key in ("use_gated_activation", "use_parallel_block"):
        fields.require(key, expected=True)
    pattern = fields.count("sliding_window_pattern", fields.count("layer_switch", 4))
    slides = sliding(fields, lambda i: (i + 1) % pattern != 0)
    mixers = [m if m.window else replace(m, rotary=False) for m in windowed(fields, base, slides, default=4096)]
    feed_forward = [mlp(fields, gated=True)] * len(mixers)
    return decoder(fields, stack(mixers, feed_forward, num_norms=1, parallel_residual=True), tie=True)


def glm(fields: ConfigFields) -> ModelConfig:
    """GLM-4 of 2024: Llama with biases on queries, keys and values."""
    return _glm(fields, num_norms=2)


def glm4(fields: ConfigFields) -> ModelConfig:
    """GLM-4-0414: as GLM-4, with four norms per layer."""
    return _glm(fields, num_norms=4)


def _glm(fields: ConfigFields, *, num_norms: int) -> ModelConfig:
    bias = fields.flag("attention_bias", default=True)
    base = attention(fields, qkv_bias=bias, output_bias=False, kv_required=True, head_dim=128)
    return decoder(fields, repeated(fields, base, mlp(fields, gated=True), num_norms=num_norms))


def olmo(fields: ConfigFields) -> ModelConfig:
    """OLMo 1: Llama whose norms have no weights."""
    base = attention(fields, qkv_bias=fields.flag("attention_bias", default=False))
    return replace(_llama_like(fields, base), norm_weight=False)


def olmo2(fields: ConfigFields) -> ModelConfig:
    """OLMo 2: norms behind attention and MLP, and on all projected queries and keys."""
    base = attention(fields, qkv_bias=fields.flag("attention_bias", default=False))
    return _llama_like(fields, replace(base, qk_norm="full"))


def olmo3(fields: ConfigFields) -> ModelConfig:
    """OLMo 3: OLMo 2 with a sliding window in three of four layers."""
    base = attention(fields, qkv_bias=fields.flag("attention_bias", default=False))
    slides = sliding(fields, lambda i: (i + 1) % 4 != 0)
    mixers = windowed(fields, replace(base, qk_norm="full"), slides, default=4096)
    return decoder(fields, stack(mixers, [mlp(fields, gated=True)] * len(mixers)))


def exaone4(fields: ConfigFields) -> ModelConfig:
    """EXAONE 4: norms behind attention and MLP, and on queries and keys; three of four layers slide in the large one.

    Where some layers slide, those that do not have no positions.
    """
    base = replace(attention(fields), qk_norm="head")
    fields.understood("sliding_window_pattern")
    if not fields.has("sliding_window"):
        fields.understood("layer_types")
        return _llama_like(fields, base)
    mixers = windowed(fields, base, sliding(fields, _exaone_slides(fields)))
    placed = [mixer if mixer.window else replace(mixer, rotary=False) for mixer in mixers]
    return decoder(fields, stack(placed, [mlp(fields, gated=True)] * len(placed)))


def _exaone_slides(fields: ConfigFields) -> Callable[[int], bool]:
    """Whether a layer slides: by the letters of the pattern, repeated, or all but every so many; never the last one."""
    if isinstance(fields.values.get("sliding_window_pattern"), str):
        letters = fields.letters("sliding_window_pattern", {"L": "local", "G": "global"}) or ()
        return lambda i: letters[i % len(letters)] == "local" and i + 1 < fields.num_layers
    every = fields.count("sliding_window_pattern", 4)
    return lambda i: (i + 1) % every != 0


def apertus(fields: ConfigFields) -> ModelConfig:
    """Apertus: norms on queries and keys, and a learned activation (xIELU) without a gate."""
    for key, usual in (("qk_norm", True), ("post_norm", False)):
        fields.require(key, expected=usual)
    base = replace(attention(fields, qkv_bias=fields.flag("attention_bias", default=False)), qk_norm="head")
    learned = 2 if (fields.word("hidden_act") or "xielu") == "xielu" else 0
    feed_forward = replace(mlp(fields, gated=False), num_activation_parameters=learned)
    return decoder(fields, repeated(fields, base, feed_forward))


FAMILIES: Final[Mapping[str, Callable[[ConfigFields], ModelConfig]]] = {
    "apertus": apertus,
    "aquila": llama,
    "arcee": arcee,
    "baichuan": baichuan,
    "code_llama": llama,
    "cohere": cohere,
    "cohere2": cohere2,
    "ernie4_5": ernie,
    "exaone4": exaone4,
    "glm": glm,
    "glm4": glm4,
    "granite": llama,
    "hunyuan_v1_dense": hunyuan,
    "internlm": internlm,
    "internlm2": internlm,
    "llama": llama,
    "ministral": ministral,
    "ministral3": ministral,
    "mistral": mistral,
    "olmo": olmo,
    "olmo2": olmo2,
    "olmo3": olmo3,
    "phi3": phi3,
    "qwen2": qwen2,
    "qwen2_5_vl": qwen2,
    "qwen2_5_vl_text": qwen2,
    "qwen2_vl": qwen2,
    "qwen2_vl_text": qwen2,
    "qwen3": qwen3,
    "qwen3_vl_text": qwen3,
    "seed_oss": seed_oss,
    "smollm3": smollm3,
}
"""``model_type`` to the reader of its family."""
