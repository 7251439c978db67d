"""Decoders with experts and the layout of ``transformers``, including those with latent attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from shardplan.inputs.layers import MLP, Attention, LatentAttention, Layer, MixtureOfExperts, QKNorm
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.readers.hf.decoders import HUNYUAN, HUNYUAN_PASSED, qwen_slides
from shardplan.inputs.readers.hf.family import (
    ATTENTION_BIAS,
    ModelFamily,
    all_but_every,
    attention,
    every_layer,
    experts,
    first_k_dense,
    flag,
    grouped,
    latent_attention,
    mlp,
    norm_if,
    sliding,
    sparse_step,
)
from shardplan.inputs.readers.hf.fields import ConfigFields


def wide_experts(fields: ConfigFields) -> MixtureOfExperts:
    """Experts as wide as ``intermediate_size``."""
    return experts(fields, width="intermediate_size")


def qwen_experts(fields: ConfigFields) -> MixtureOfExperts:
    """Experts with a shared one of its own width behind a gate (Qwen2-MoE, Qwen3-Next)."""
    shared = fields.count("shared_expert_intermediate_size", minimum=0)
    return experts(fields, shared_width=shared, shared_gate=shared > 0)


def _dense_first(first_k: int) -> Callable[[ConfigFields], Sequence[bool]]:
    """Which layers have experts, as in DeepSeek: by default all after ``first_k`` dense ones; none without experts."""

    def sparse(fields: ConfigFields) -> Sequence[bool]:
        fields.require("mlp_bias", expected=False)
        return first_k_dense(fields, first_k) if fields.has("num_experts") else (False,) * fields.num_layers

    return sparse


def _with_shared(num_shared: int, groups: tuple[int, int] = (1, 1)) -> Callable[[ConfigFields], MixtureOfExperts]:
    """Routed and shared experts of one width, in groups if the router has them.

    ``num_shared`` and ``groups`` (``n_group``, ``topk_group``) are defaults of the class in ``transformers``.
    """

    def moe(fields: ConfigFields) -> MixtureOfExperts:
        shared = fields.optional_count("n_shared_experts", num_shared, minimum=0) or 0
        return grouped(fields, experts(fields, num_shared=shared), groups)

    return moe


def indexed_attention(fields: ConfigFields) -> Sequence[LatentAttention]:
    """Latent attention with an indexer; a layer may reuse the keys that an earlier one selected."""
    fields.count("index_topk")
    base = latent_attention(fields)
    reusing = replace(base, index_num_heads=0, index_head_dim=0)
    n = fields.num_layers
    kinds = fields.kinds("indexer_types", ("full", "shared"), length=n) or fields.letters(
        "index_topk_pattern", {"F": "full", "S": "shared"}
    )
    if kinds:
        return [base if kind == "full" else reusing for kind in kinds]
    every = fields.count("index_topk_freq", 1)
    offset = fields.count("index_skip_topk_offset", 2, minimum=0)
    return [base if max(i - offset + 1, 0) % every == 0 else reusing for i in range(n)]


def _dots_slides(fields: ConfigFields) -> Sequence[bool]:
    first = fields.count("max_window_layers", fields.num_layers, minimum=0)
    return sliding(fields, lambda i: i >= first)


def _llama4_sparse(fields: ConfigFields) -> Sequence[bool]:
    n, every = fields.num_layers, fields.count("interleave_moe_layer_step", 1)
    listed = set(fields.counts("moe_layers", maximum=n - 1))
    return [i in listed if listed else (i + 1) % every == 0 for i in range(n)]


def _llama4_mlps(fields: ConfigFields) -> list[MLP | MixtureOfExperts | None]:
    """MLPs of every layer: always one shared expert; layers without experts have a width of their own."""
    sparse = _llama4_sparse(fields)
    fields.understood("intermediate_size_mlp")
    routed = experts(fields, width="intermediate_size", num_shared=1) if any(sparse) else None
    dense = None if all(sparse) else MLP(intermediate_size=fields.count("intermediate_size_mlp"), gated=True)
    return [routed if is_sparse else dense for is_sparse in sparse]


def _llama4_mixers(fields: ConfigFields) -> list[Attention]:
    """Attention: three of four layers attend in chunks, the fourth to all keys without positions."""
    n, every = fields.num_layers, fields.count("no_rope_layer_interval", 4)
    rotary = fields.counts("no_rope_layers", maximum=1, length=n) or [int((i + 1) % every != 0) for i in range(n)]
    bias = ATTENTION_BIAS(fields)
    whole = replace(attention(fields, qkv_bias=bias, head_dim=128, kv_required=True), rotary=False)
    norm: QKNorm = "l2" if fields.flag("use_qk_norm", default=True) else "none"
    rotating = replace(whole, rotary=True, qk_norm=norm)
    kinds = fields.kinds("layer_types", ("chunked_attention", "full_attention"), length=n)
    chunked = [kind == "chunked_attention" for kind in kinds] if kinds else [bool(rotates) for rotates in rotary]
    bases = [rotating if rotates else whole for rotates in rotary]
    chunk = fields.optional_count("attention_chunk_size", 8192)
    return [replace(base, chunk=chunk) if cut else base for base, cut in zip(bases, chunked, strict=True)]


def _minimax_m2_model(fields: ConfigFields, model: ModelConfig) -> ModelConfig:
    """The model with several multi-token-prediction modules, each of some layers."""
    if any(kind != 1 for kind in fields.counts("attn_type_list", maximum=1, length=fields.num_layers)):
        raise fields.error(
            "attn_type_list names layers of linear attention",
            rule="every layer of a minimax_m2 model attends to all keys (attn_type_list 1)",
            hint="correct attn_type_list; models with linear attention are of the family minimax_m1",
        )
    per_module = fields.count("mtp_transformer_layers", 1) * fields.flag("use_mtp", default=True)
    return replace(model, num_mtp_layers=model.num_mtp_layers * per_module)


def _granite_experts(fields: ConfigFields) -> MixtureOfExperts:
    shared = fields.count("shared_intermediate_size", 0, minimum=0)
    return experts(fields, width="intermediate_size", shared_width=shared)


def _ernie_sparse(fields: ConfigFields) -> Sequence[bool]:
    n = fields.num_layers
    first = fields.count("moe_layer_start_index", 1, minimum=0)
    last = fields.optional_count("moe_layer_end_index", n - 1, minimum=-1)
    every = fields.count("moe_layer_interval", 1)
    last = n - 1 if last is None or last < 0 else last
    return [first <= i <= last and (i + 1) % every == 0 for i in range(n)]


def _ernie_experts(fields: ConfigFields) -> MixtureOfExperts:
    return replace(experts(fields, num_shared=fields.count("n_shared_experts", 0, minimum=0)), router_bias=True)


def _dbrx_experts(fields: ConfigFields) -> MixtureOfExperts:
    inner = fields.part("ffn_config")
    inner.understood("hidden_size")
    return MixtureOfExperts(
        num_experts=inner.count("moe_num_experts"),
        top_k=inner.count("moe_top_k"),
        intermediate_size=inner.count("ffn_hidden_size"),
        gated=True,
    )


def _hunyuan_experts(fields: ConfigFields) -> MixtureOfExperts:
    """Experts next to an MLP of their width that all tokens use."""
    return MixtureOfExperts(
        num_experts=fields.same_count("num_experts"),
        top_k=fields.same_count("num_experts_per_tok", 1),
        intermediate_size=fields.same_count("moe_intermediate_size", fields.count("intermediate_size")),
        gated=True,
        shared_intermediate_size=fields.same_count("n_shared_experts", 1, minimum=0)
        * fields.count("intermediate_size"),
    )


def _bailing_experts(fields: ConfigFields) -> MixtureOfExperts:
    num_shared = fields.optional_count("n_shared_experts", 0, minimum=0) or 0
    width = fields.optional_count("moe_shared_expert_intermediate_size")
    shared = None if width is None else num_shared * width
    return grouped(fields, experts(fields, num_shared=num_shared, shared_width=shared))


def _arctic_layers(fields: ConfigFields) -> tuple[Layer, ...]:
    """Layers with experts next to a dense MLP as wide as the hidden size, which has its own norm."""
    every = fields.count("moe_layer_frequency", 2)
    residual = fields.flag("use_residual", default=False)
    fields.require("parallel_attn_mlp_res", expected=residual)
    base = attention(fields, qkv_bias=ATTENTION_BIAS(fields), kv_required=True)
    width = fields.count("hidden_size") if residual else 0
    routed = experts(fields, width="intermediate_size", shared_width=width)
    with_experts = Layer(mixer=base, mlp=routed, num_norms=3 if residual else 2)
    dense = Layer(mixer=base, mlp=mlp(fields, gated=True), num_norms=2)
    return tuple(with_experts if (i + 1) % every == 0 else dense for i in range(fields.num_layers))


def _grok_experts(fields: ConfigFields) -> MixtureOfExperts:
    widened = int(fields.ratio("widening_factor", 8) * fields.count("hidden_size")) * 2 // 3
    return MixtureOfExperts(
        num_experts=fields.count("num_experts"),
        top_k=fields.count("num_experts_per_tok"),
        intermediate_size=fields.count("intermediate_size", -(-widened // 8) * 8),
        gated=True,
    )


_DEEPSEEK_V2: Final = ModelFamily("DeepSeek-V2 and V2-Lite: latent attention.")._replace(
    mixers=latent_attention, sparse=_dense_first(0), experts=_with_shared(2)
)
_DEEPSEEK_V3: Final = ModelFamily(
    "DeepSeek-V3, Kimi K2, Moonlight, GLM-5: latent attention, by default three dense layers."
)._replace(mixers=latent_attention, sparse=_dense_first(3), experts=_with_shared(1, (8, 4)))
_DEEPSEEK_V32: Final = _DEEPSEEK_V3.called(
    "DeepSeek-V3.2, GLM-5: DeepSeek-V3 with an indexer; a layer may reuse the keys that an earlier one selected."
)._replace(mixers=indexed_attention, understood=("index_topk_freq", "index_skip_topk_offset", "layer_types"))
_GLM4: Final = ModelFamily(
    "GLM-4.5: grouped queries with biases, experts as in DeepSeek-V3, by default one dense layer."
)._replace(
    qkv_bias=ATTENTION_BIAS,
    output_bias=False,
    kv_required=True,
    attention={"qk_norm": norm_if("use_qk_norm", "head")},
    sparse=_dense_first(1),
    experts=_with_shared(1),
)
_GRANITE: Final = ModelFamily("Granite 3 MoE, with a shared expert if the file gives its width.")._replace(
    qkv_bias=ATTENTION_BIAS, experts=_granite_experts
)
_QWEN3: Final = ModelFamily("Qwen3-MoE: norms on queries and keys, no shared expert.")._replace(
    required={"use_qk_norm": True},
    qkv_bias=ATTENTION_BIAS,
    kv_required=True,
    attention={"qk_norm": "head"},
    slides=qwen_slides,
    sparse=sparse_step,
    experts=experts,
)

EXPERTS: Final[Mapping[str, ModelFamily]] = {
    "arctic": ModelFamily(
        "Arctic: experts next to a dense MLP as wide as the hidden size, which has a norm of its own."
    )._replace(
        understood=("intermediate_size", "moe_min_capacity", "moe_train_capacity_factor", "moe_eval_capacity_factor"),
        layers=_arctic_layers,
    ),
    "bailing_moe": ModelFamily(
        "Ling, Ring: grouped queries, experts with shared ones; Ling 2.0 normalises queries and keys."
    )._replace(
        required=dict.fromkeys(("use_bias", "norm_softmax", "multi_gate", "use_sliding_window"), False),
        understood=("max_window_layers", "sliding_window"),
        qkv_bias=flag("use_qkv_bias"),
        output_bias=False,
        attention={"qk_norm": norm_if("use_qk_norm", "head")},
        sparse=lambda fields: first_k_dense(fields, 0),
        experts=_bailing_experts,
    ),
    "dbrx": ModelFamily("DBRX: dimensions of attention and experts in objects of their own.")._replace(
        kv_heads=lambda fields: fields.part("attn_config").count("kv_n_heads"), experts=_dbrx_experts
    ),
    "deepseek": ModelFamily("DeepSeek-MoE 16B: Llama attention.")._replace(
        qkv_bias=ATTENTION_BIAS, sparse=_dense_first(0), experts=_with_shared(0)
    ),
    "deepseek_v2": _DEEPSEEK_V2,
    "deepseek_v3": _DEEPSEEK_V3,
    "deepseek_v32": _DEEPSEEK_V32,
    "dots1": ModelFamily("dots.llm1: norms on queries and keys, experts as in DeepSeek-V3.")._replace(
        qkv_bias=ATTENTION_BIAS,
        attention={"qk_norm": "head"},
        slides=_dots_slides,
        window=4096,
        sparse=_dense_first(0),
        experts=_with_shared(0),
    ),
    "ernie4_5_moe": ModelFamily("ERNIE 4.5: experts from one layer to another, with shared ones.")._replace(
        required={"use_bias": False}, kv_required=True, sparse=_ernie_sparse, experts=_ernie_experts, tie=True
    ),
    "glm4_moe": _GLM4,
    "glm4_moe_lite": ModelFamily("GLM-4.7-Flash: DeepSeek-V3 with one dense layer.")._replace(
        mixers=latent_attention, sparse=_dense_first(1), experts=_with_shared(1)
    ),
    "glm4v_moe_text": _GLM4._replace(qkv_bias=flag("attention_bias", default=True)),
    "glm_moe_dsa": _DEEPSEEK_V32._replace(experts=_with_shared(1)),
    "gpt_oss": ModelFamily(
        "GPT-OSS: biases everywhere, attention sinks, every other layer slides, the first one included."
    )._replace(
        qkv_bias=flag("attention_bias", default=True),
        head_dim=64,
        kv_required=True,
        attention={"sinks": True},
        slides=all_but_every(2),
        window=128,
        experts=lambda fields: experts(fields, width="intermediate_size", bias=True),
    ),
    "granitemoe": _GRANITE,
    "granitemoeshared": _GRANITE,
    "grok-1": ModelFamily(
        "Grok-1: four norms per layer, gated experts in every layer, tied. Also read in the names of its own run.py."
    )._replace(head_dim=128, kv_required=True, experts=_grok_experts, num_norms=4, tie=True),
    "hunyuan_v1_moe": ModelFamily(
        "Hunyuan-A13B: norms on queries and keys, experts next to an MLP of their width that all tokens visit."
    )._replace(
        required={**HUNYUAN, "use_mixed_mlp_moe": True},
        understood=HUNYUAN_PASSED,
        qkv_bias=ATTENTION_BIAS,
        attention={"qk_norm": "head"},
        experts=_hunyuan_experts,
    ),
    "kimi_k2": _DEEPSEEK_V3,
    "llama4_text": ModelFamily(
        "Llama 4: one shared expert always; three of four layers attend in chunks, the fourth to all without positions."
    )._replace(
        understood=("interleave_moe_layer_step", "no_rope_layer_interval"), mixers=_llama4_mixers, mlps=_llama4_mlps
    ),
    "minimax_m2": ModelFamily(
        "MiniMax-M2: norms on all projected queries and keys, narrow experts, several multi-token-prediction modules."
    )._replace(
        head_dim=128,
        kv_required=True,
        attention={"qk_norm": norm_if("use_qk_norm", "full", default=True)},
        experts=wide_experts,
        adjusted=_minimax_m2_model,
    ),
    "mistral4": _DEEPSEEK_V2,
    "mixtral": ModelFamily("Mixtral: Mistral with experts in every layer.")._replace(
        kv_required=True, slides=every_layer, experts=wide_experts
    ),
    "olmoe": ModelFamily("OLMoE: norms on all projected queries and keys.")._replace(
        qkv_bias=ATTENTION_BIAS, attention={"qk_norm": "full"}, experts=wide_experts
    ),
    "solar_open": ModelFamily(
        "Solar Open: GLM-4.5 without dense layers, biases and norms on queries and keys."
    )._replace(required={"attention_bias": False}, head_dim=128, kv_required=True, experts=_with_shared(1)),
    "phimoe": ModelFamily("Phi-3.5-MoE: Mixtral with LayerNorm and biases.")._replace(
        qkv_bias=ATTENTION_BIAS,
        kv_required=True,
        slides=every_layer,
        experts=wide_experts,
        model={"norm_bias": True, "head_bias": flag("lm_head_bias")},
    ),
    "qwen2_moe": ModelFamily("Qwen1.5-MoE, Qwen2-MoE: shared experts of their own width behind a gate.")._replace(
        qkv_bias=flag("qkv_bias", default=True),
        output_bias=False,
        kv_required=True,
        slides=qwen_slides,
        sparse=sparse_step,
        experts=qwen_experts,
    ),
    "qwen3_moe": _QWEN3,
    "qwen3_vl_moe_text": _QWEN3,
}
"""``model_type`` to the row of its family."""
