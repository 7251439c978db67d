"""Dense decoders with the layout of ``transformers``: relatives of Llama, and Gemma."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from shardplan.inputs.layers import MLP, Attention, MixtureOfExperts
from shardplan.inputs.readers.hf.family import (
    ATTENTION_BIAS,
    MLP_BIAS,
    ROUTING,
    ModelFamily,
    all_but_every,
    attention,
    every_layer,
    experts,
    flag,
    mlp,
    norm_if,
    sliding,
    windowed,
)
from shardplan.inputs.readers.hf.fields import ConfigFields, shown


def _smollm3_mixers(fields: ConfigFields) -> Sequence[Attention]:
    """Attention in which every fourth layer has no positions; windows, if asked for, only in those layers."""
    base = attention(fields, qkv_bias=ATTENTION_BIAS(fields), kv_required=True)
    n, every = fields.num_layers, fields.count("no_rope_layer_interval", 4)
    fields.understood("sliding_window", "max_window_layers")
    rotary = fields.counts("no_rope_layers", maximum=1, length=n) or [int((i + 1) % every != 0) for i in range(n)]
    slides = sliding(fields, lambda i: fields.flag("use_sliding_window", default=False) and not rotary[i])
    window = fields.optional_count("sliding_window") if any(slides) else None
    bases = [base if rotates else replace(base, rotary=False) for rotates in rotary]
    return [replace(mixer, window=window) if slide else mixer for mixer, slide in zip(bases, slides, strict=True)]


def qwen_slides(fields: ConfigFields) -> Sequence[bool]:
    """Qwen's windows: off unless ``use_sliding_window``, then in the layers from ``max_window_layers`` on."""
    on = fields.flag("use_sliding_window", default=False)
    fields.understood("max_window_layers")
    first = fields.count("max_window_layers", 28, minimum=0) if on else 0
    return sliding(fields, lambda i: on and i >= first)


def _cohere_slides(fields: ConfigFields) -> Sequence[bool]:
    pattern = fields.count("sliding_window_pattern", fields.count("layer_switch", 4))
    return all_but_every(pattern)(fields)


def _exaone_mixers(fields: ConfigFields) -> Sequence[Attention]:
    """Attention in which three of four layers slide in the large model; if some slide, the others have no positions."""
    base = replace(attention(fields), qk_norm="head")
    fields.understood("sliding_window_pattern")
    if not fields.has("sliding_window"):
        fields.understood("layer_types")
        return [base] * fields.num_layers
    mixers = windowed(fields, base, sliding(fields, _exaone_slides(fields)))
    return [mixer if mixer.window else replace(mixer, rotary=False) for mixer in mixers]


def _exaone_slides(fields: ConfigFields) -> Callable[[int], bool]:
    """Whether a layer slides: by the letters of the repeated pattern, or all but every n-th; never the last one."""
    if isinstance(fields.values.get("sliding_window_pattern"), str):
        letters = fields.letters("sliding_window_pattern", {"L": "local", "G": "global"}) or ()
        return lambda i: letters[i % len(letters)] == "local" and i + 1 < fields.num_layers
    every = fields.count("sliding_window_pattern", 4)
    return lambda i: (i + 1) % every != 0


def _apertus_mlp(fields: ConfigFields) -> MLP:
    learned = 2 if (fields.word("hidden_act") or "xielu") == "xielu" else 0
    return replace(mlp(fields, gated=False), num_activation_parameters=learned)


HUNYUAN: Final[Mapping[str, Any]] = {"use_cla": False, "use_qk_norm": True, "moe_layer_num_skipped": 0}
"""Values that Hunyuan files must have for the layers that are read."""
HUNYUAN_PASSED: Final = ("cla_share_factor", "num_media_embeds", "attention_head_dim")
"""Fields of Hunyuan files about parts that their layers do not use."""

_INTERNLM: Final = ModelFamily("InternLM 1 and 2: Llama, with biases on attention where ``bias`` says.")._replace(
    qkv_bias=flag("bias"), mlp_bias=MLP_BIAS
)
_LLAMA: Final = ModelFamily(
    "Llama 2 and 3, and the many that have its layers: RMSNorm, rotary positions, gated MLP, no biases by default."
)._replace(qkv_bias=ATTENTION_BIAS, mlp_bias=MLP_BIAS)
_MINISTRAL: Final = ModelFamily("Ministral: Mistral whose ``layer_types`` say which layers slide.")._replace(
    kv_required=True, slides=lambda fields: sliding(fields, lambda _: fields.has("sliding_window"))
)
_QWEN2: Final = ModelFamily(
    "Qwen2, Qwen2.5: Llama with biases on queries, keys and values, which no field says."
)._replace(qkv_bias=True, output_bias=False, kv_required=True, slides=qwen_slides)
_QWEN3: Final = ModelFamily("Qwen3: Llama with norms on queries and keys, which no field says.")._replace(
    qkv_bias=ATTENTION_BIAS, head_dim=128, kv_required=True, attention={"qk_norm": "head"}, slides=qwen_slides
)
_GLM: Final = ModelFamily("GLM-4 of 2024: Llama with biases on queries, keys and values.")._replace(
    qkv_bias=flag("attention_bias", default=True), output_bias=False, kv_required=True, head_dim=128
)
_OLMO2: Final = _LLAMA.called(
    "OLMo 2: norms behind attention and MLP, and on all projected queries and keys."
)._replace(attention={"qk_norm": "full"})
_COHERE: Final = ModelFamily("Command R: attention and MLP in parallel behind one norm, tied.")._replace(
    qkv_bias=ATTENTION_BIAS,
    kv_required=True,
    attention={"qk_norm": norm_if("use_qk_norm", "full")},
    num_norms=1,
    parallel_residual=True,
    tie=True,
)

LLAMA: Final[Mapping[str, ModelFamily]] = {
    "apertus": ModelFamily(
        "Apertus: norms on queries and keys, and a learned activation (xIELU) without a gate."
    )._replace(
        required={"qk_norm": True, "post_norm": False},
        qkv_bias=ATTENTION_BIAS,
        attention={"qk_norm": "head"},
        mlps=_apertus_mlp,
    ),
    "aquila": _LLAMA,
    "arcee": _LLAMA.called("Arcee: Llama with a squared ReLU and no gate.")._replace(gated=False),
    "baichuan": ModelFamily(
        "Baichuan 1 and 2: Llama; the files of the 13B, which uses ALiBi, state ``model_max_length`` only."
    )._replace(attention={"rotary": lambda fields: "max_position_embeddings" in fields.values}, mlp_bias=MLP_BIAS),
    "code_llama": _LLAMA,
    "cohere": _COHERE,
    "cohere2": _COHERE.called(
        "Command A: as Command R; three of four layers slide, the fourth sees all keys without positions."
    )._replace(
        required={"use_gated_activation": True, "use_parallel_block": True},
        attention={},
        slides=_cohere_slides,
        window=4096,
        rotates_only_where_it_slides=True,
    ),
    "ernie4_5": ModelFamily("ERNIE 4.5 without experts: Llama, tied, with one switch for all biases.")._replace(
        qkv_bias=flag("use_bias"), head_dim=128, kv_required=True, mlp_bias=flag("use_bias"), tie=True
    ),
    "exaone4": ModelFamily(
        "EXAONE 4: norms behind attention and MLP, and on queries and keys; "
        "three of four layers slide in the large one."
    )._replace(mixers=_exaone_mixers, mlp_bias=lambda fields: not fields.has("sliding_window") and MLP_BIAS(fields)),
    "glm": _GLM,
    "glm4": _GLM.called("GLM-4-0414: as GLM-4, with four norms per layer.")._replace(num_norms=4),
    "granite": _LLAMA,
    "hunyuan_v1_dense": _LLAMA.called("Hunyuan dense: Llama with norms on queries and keys.")._replace(
        required={**HUNYUAN, "num_experts": 1},
        understood=(*HUNYUAN_PASSED, "num_experts_per_tok", "n_shared_experts", "moe_intermediate_size"),
        attention={"qk_norm": "head"},
    ),
    "internlm": _INTERNLM._replace(qkv_bias=flag("bias", default=True)),
    "internlm2": _INTERNLM,
    "llama": _LLAMA,
    "ministral": _MINISTRAL,
    "ministral3": _MINISTRAL,
    "mistral": ModelFamily(
        "Mistral: Llama with a sliding window in every layer (4,096 in version 0.1; null in later ones)."
    )._replace(kv_required=True, slides=every_layer, window=4096),
    "olmo": _LLAMA.called("OLMo 1: Llama whose norms have no weights.")._replace(model={"norm_weight": False}),
    "olmo2": _OLMO2,
    "olmo3": _OLMO2.called("OLMo 3: OLMo 2 with a sliding window in three of four layers.")._replace(
        slides=all_but_every(4), window=4096, mlp_bias=False
    ),
    "phi3": ModelFamily("Phi-3, Phi-4: Llama with a sliding window if the file gives one.")._replace(
        slides=every_layer
    ),
    "qwen2": _QWEN2,
    "qwen2_5_vl": _QWEN2,
    "qwen2_5_vl_text": _QWEN2,
    "qwen2_vl": _QWEN2,
    "qwen2_vl_text": _QWEN2,
    "qwen3": _QWEN3,
    "qwen3_vl_text": _QWEN3,
    "seed_oss": ModelFamily("Seed-OSS: Llama with biases on queries, keys and values.")._replace(
        qkv_bias=flag("attention_bias", default=True),
        output_bias=flag("attention_out_bias"),
        head_dim=128,
        kv_required=True,
        mlp_bias=MLP_BIAS,
    ),
    "smollm3": ModelFamily("SmolLM3: Llama, every fourth layer without positions.")._replace(
        mixers=_smollm3_mixers, mlp_bias=MLP_BIAS, tie=True
    ),
}
"""``model_type`` to the row of its family."""


def _gemma4_mlp(fields: ConfigFields) -> MLP | MixtureOfExperts:
    """In layers with experts the MLP runs next to them, so it is an expert that all tokens use.

    The router scales its input per channel, as a norm does, and its scores per expert, as a bias does.
    """
    fields.understood("num_global_key_value_heads", "global_head_dim", "vocab_size_per_layer_input", *ROUTING)
    if not fields.flag("enable_moe_block", default=False):
        return mlp(fields, gated=True)
    return replace(experts(fields, shared_width=fields.count("intermediate_size")), router_bias=True)


def _gemma4_mixers(fields: ConfigFields) -> list[Attention]:
    """Layers that see all keys have heads of 512 and may use their keys as values; the last layer is always one."""
    _refuse_layer_inputs(fields)
    n = fields.num_layers
    bias, tied = ATTENTION_BIAS(fields), fields.flag("attention_k_eq_v", default=False)
    base = replace(attention(fields, qkv_bias=bias, head_dim=256, kv_required=True), qk_norm="head")
    slides = (*all_but_every(6)(fields)[: n - 1], False)
    default = 1024 if fields.model_type == "gemma4_unified_text" else 512
    local = replace(base, window=fields.optional_count("sliding_window", default))
    mixers = [local if slide else replace(base, tied_kv=tied) for slide in slides]
    if fields.has("per_layer_config"):
        return _overridden(fields, mixers)
    heads = fields.count("num_global_key_value_heads", base.num_kv_heads) if tied else base.num_kv_heads
    size = fields.count("global_head_dim", 512)
    return [m if m.window else replace(m, head_dim=size, num_kv_heads=heads) for m in mixers]


def _refuse_layer_inputs(fields: ConfigFields) -> None:
    """Refuses the small Gemma 4 models, whose layers have inputs of their own unless the file says otherwise."""
    default = 0 if fields.model_type == "gemma4_unified_text" else 256
    size = fields.count("hidden_size_per_layer_input", default, minimum=0)
    if size:
        raise fields.error(
            f"hidden_size_per_layer_input is {size}: inputs of their own for every layer have no cost model",
            rule="the architecture is supported",
            hint="set hidden_size_per_layer_input to 0 to plan the layers without them",
        )


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
        own, mixer = overrides.part(key), mixers[layer]
        if unknown := own.values.keys() - {"head_dim", "num_key_value_heads"}:
            raise own.error(
                f"{shown(min(unknown))} of a single layer has no cost model",
                rule="the architecture is supported",
                hint="give single layers their own head_dim and num_key_value_heads only",
            )
        num_kv_heads = own.count("num_key_value_heads", mixer.num_kv_heads)
        changed[layer] = replace(mixer, head_dim=own.count("head_dim", mixer.head_dim), num_kv_heads=num_kv_heads)
    return changed


_GEMMA: Final = ModelFamily("Gemma 1: Llama with heads of 256, tied.")._replace(
    qkv_bias=ATTENTION_BIAS, head_dim=256, kv_required=True, mlp_bias=MLP_BIAS, tie=True
)
_GEMMA2: Final = _GEMMA.called(
    "Gemma 2: four norms per layer, every other layer slides, the first one included."
)._replace(slides=all_but_every(2), window=4096, mlp_bias=False, num_norms=4)
_GEMMA4: Final = ModelFamily(
    "Gemma 4 (not E2B and E4B): Gemma 3 with larger heads in layers that see all keys; experts next to the MLP."
)._replace(
    mixers=_gemma4_mixers,
    mlps=_gemma4_mlp,
    num_norms=lambda fields: 8 if fields.flag("enable_moe_block", default=False) else 4,  # three more with experts
    tie=True,
)

GEMMA: Final[Mapping[str, ModelFamily]] = {
    "gemma": _GEMMA,
    "gemma2": _GEMMA2,
    "gemma3_text": _GEMMA2.called(
        "Gemma 3: four norms per layer, norms on queries and keys, every sixth layer sees all keys."
    )._replace(
        attention={"qk_norm": "head"},
        slides=lambda fields: all_but_every(fields.count("sliding_window_pattern", 6))(fields),
    ),
    "gemma4_text": _GEMMA4,
    "gemma4_unified_text": _GEMMA4,
}
"""``model_type`` to the row of its family."""
