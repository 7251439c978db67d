"""Decoders with experts, laid out as in ``transformers``; among them those with latent attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from shardplan.inputs.layers import MLP, Attention, LatentAttention, Layer, MixtureOfExperts, QKNorm
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.readers.hf.fields import ConfigFields
from shardplan.inputs.readers.hf.llama import hunyuan_fields, qwen_windows
from shardplan.inputs.readers.hf.parts import (
    attention,
    decoder,
    experts,
    first_k_dense,
    grouped,
    latent_attention,
    mlp,
    repeated,
    sliding,
    sparse_step,
    stack,
    windowed,
)

ROUTING: Final = (
    "moe_intermediate_size",
    "num_experts",
    "num_experts_per_tok",
    "n_shared_experts",
    "shared_expert_intermediate_size",
    "n_group",
    "topk_group",
)
"""Fields that say nothing of a model whose layers are all dense."""


def feed_forwards(
    fields: ConfigFields, sparse: Sequence[bool], moe: Callable[[], MixtureOfExperts]
) -> list[MLP | MixtureOfExperts]:
    """Experts where ``sparse`` says, a gated MLP of ``intermediate_size`` elsewhere; reads only what occurs."""
    fields.understood("intermediate_size", *ROUTING)
    routed = moe() if any(sparse) else None
    dense = None if all(sparse) else mlp(fields, gated=True)
    chosen = [routed if is_sparse else dense for is_sparse in sparse]
    return [part for part in chosen if part is not None]


def mixtral(fields: ConfigFields) -> ModelConfig:
    """Mixtral: Mistral with experts in every layer."""
    mixers = windowed(fields, attention(fields, kv_required=True), [True] * fields.num_layers)
    return decoder(fields, stack(mixers, [experts(fields, width="intermediate_size")] * len(mixers)))


def phimoe(fields: ConfigFields) -> ModelConfig:
    """Phi-3.5-MoE: Mixtral with LayerNorm and biases."""
    base = attention(fields, qkv_bias=fields.flag("attention_bias", default=False), kv_required=True)
    mixers = windowed(fields, base, [True] * fields.num_layers)
    model = decoder(fields, stack(mixers, [experts(fields, width="intermediate_size")] * len(mixers)))
    return replace(model, norm_bias=True, head_bias=fields.flag("lm_head_bias", default=False))


def qwen2_moe(fields: ConfigFields) -> ModelConfig:
    """Qwen1.5-MoE, Qwen2-MoE: shared experts of their own width behind a gate."""
    bias = fields.flag("qkv_bias", default=True)
    base = attention(fields, qkv_bias=bias, output_bias=False, kv_required=True)
    shared = fields.count("shared_expert_intermediate_size", minimum=0)
    moe = feed_forwards(
        fields, sparse_step(fields), lambda: experts(fields, shared_width=shared, shared_gate=shared > 0)
    )
    return decoder(fields, stack(qwen_windows(fields, base), moe))


def qwen3_moe(fields: ConfigFields) -> ModelConfig:
    """Qwen3-MoE: norms on queries and keys, no shared expert."""
    fields.require("use_qk_norm", expected=True)
    bias = fields.flag("attention_bias", default=False)
    base = replace(attention(fields, qkv_bias=bias, kv_required=True), qk_norm="head")
    moe = feed_forwards(fields, sparse_step(fields), lambda: experts(fields))
    return decoder(fields, stack(qwen_windows(fields, base), moe))


_GROUPS: Final[Mapping[str, tuple[int, int]]] = dict.fromkeys(("deepseek_v3", "deepseek_v32", "kimi_k2"), (8, 4))
"""``n_group`` and ``topk_group`` of the class in ``transformers``, for files that leave them out; other families: 1."""


def _deepseek(
    fields: ConfigFields, mixer: Attention | LatentAttention, *, first_k: int, shared: int
) -> tuple[Layer, ...]:
    """First layers dense, then routed and shared experts of one width, in groups where the router knows them."""
    fields.require("mlp_bias", expected=False)
    sparse = first_k_dense(fields, first_k) if fields.has("num_experts") else (False,) * fields.num_layers
    num_shared = fields.optional_count("n_shared_experts", shared, minimum=0) or 0
    groups = _GROUPS.get(fields.model_type, (1, 1))
    moe = feed_forwards(fields, sparse, lambda: grouped(fields, experts(fields, num_shared=num_shared), groups))
    return stack([mixer] * len(sparse), moe)


def deepseek(fields: ConfigFields) -> ModelConfig:
    """DeepSeek-MoE 16B: Llama attention."""
    base = attention(fields, qkv_bias=fields.flag("attention_bias", default=False))
    return decoder(fields, _deepseek(fields, base, first_k=0, shared=0))


def deepseek_v2(fields: ConfigFields) -> ModelConfig:
    """DeepSeek-V2 and V2-Lite: latent attention."""
    return decoder(fields, _deepseek(fields, latent_attention(fields), first_k=0, shared=2))


def deepseek_v3(fields: ConfigFields) -> ModelConfig:
    """DeepSeek-V3, Kimi K2, Moonlight, GLM-5: latent attention, three dense layers where the file does not say."""
    return decoder(fields, _deepseek(fields, latent_attention(fields), first_k=3, shared=1))


def deepseek_v32(fields: ConfigFields) -> ModelConfig:
    """DeepSeek-V3.2, GLM-5: DeepSeek-V3 with an indexer; a layer may reuse the keys that an earlier one selected."""
    fields.count("index_topk")
    fields.understood("index_topk_freq", "index_skip_topk_offset", "layer_types")
    base = latent_attention(fields)
    layers = _deepseek(fields, base, first_k=3, shared=1)
    reusing = replace(base, index_num_heads=0, index_head_dim=0)
    mixers = [base if selects else reusing for selects in _indexer_layers(fields)]
    return decoder(fields, stack(mixers, [layer.mlp for layer in layers]))


def _indexer_layers(fields: ConfigFields) -> list[bool]:
    n = fields.num_layers
    kinds = fields.kinds("indexer_types", ("full", "shared"), length=n) or fields.letters(
        "index_topk_pattern", {"F": "full", "S": "shared"}
    )
    if kinds:
        return [kind == "full" for kind in kinds]
    every = fields.count("index_topk_freq", 1)
    offset = fields.count("index_skip_topk_offset", 2, minimum=0)
    return [max(i - offset + 1, 0) % every == 0 for i in range(n)]


def glm4_moe_lite(fields: ConfigFields) -> ModelConfig:
    """GLM-4.7-Flash: DeepSeek-V3 with one dense layer."""
    return decoder(fields, _deepseek(fields, latent_attention(fields), first_k=1, shared=1))


def glm4_moe(fields: ConfigFields) -> ModelConfig:
    """GLM-4.5: grouped queries with biases, experts as in DeepSeek-V3, one dense layer where the file does not say."""
    bias = fields.flag("attention_bias", default=fields.model_type == "glm4v_moe_text")
    base = attention(fields, qkv_bias=bias, output_bias=False, kv_required=True)
    norm: QKNorm = "head" if fields.flag("use_qk_norm", default=False) else "none"
    return decoder(fields, _deepseek(fields, replace(base, qk_norm=norm), first_k=1, shared=1))


def dots1(fields: ConfigFields) -> ModelConfig:
    """dots.llm1: norms on queries and keys, experts as in DeepSeek-V3."""
    base = replace(attention(fields, qkv_bias=fields.flag("attention_bias", default=False)), qk_norm="head")
    layers = _deepseek(fields, base, first_k=0, shared=0)
    first = fields.count("max_window_layers", fields.num_layers, minimum=0)
    mixers = windowed(fields, base, sliding(fields, lambda i: i >= first), default=4096)
    return decoder(fields, stack(mixers, [layer.mlp for layer in layers]))


def gpt_oss(fields: ConfigFields) -> ModelConfig:
    """GPT-OSS: biases everywhere, attention sinks, every other layer slides, the first one included."""
    bias = fields.flag("attention_bias", default=True)
    base = replace(attention(fields, qkv_bias=bias, head_dim=64, kv_required=True), sinks=True)
    mixers = windowed(fields, base, sliding(fields, lambda i: i % 2 == 0), default=128)
    return decoder(fields, stack(mixers, [experts(fields, width="intermediate_size", bias=True)] * len(mixers)))


def llama4(fields: ConfigFields) -> ModelConfig:
    """Llama 4: one shared expert always; three of four layers attend in chunks, the fourth to all without positions."""
    sparse = _llama4_sparse(fields)
    fields.understood("intermediate_size_mlp", "interleave_moe_layer_step", "no_rope_layer_interval")
    routed = experts(fields, width="intermediate_size", num_shared=1) if any(sparse) else None
    dense = None if all(sparse) else MLP(intermediate_size=fields.count("intermediate_size_mlp"), gated=True)
    return decoder(fields, stack(_llama4_mixers(fields), [routed if is_sparse else dense for is_sparse in sparse]))


def _llama4_sparse(fields: ConfigFields) -> list[bool]:
    n, every = fields.num_layers, fields.count("interleave_moe_layer_step", 1)
    listed = set(fields.counts("moe_layers", maximum=n - 1))
    return [i in listed if listed else (i + 1) % every == 0 for i in range(n)]


def _llama4_mixers(fields: ConfigFields) -> list[Attention]:
    n, every = fields.num_layers, fields.count("no_rope_layer_interval", 4)
    rotary = fields.counts("no_rope_layers", maximum=1, length=n) or [int((i + 1) % every != 0) for i in range(n)]
    bias = fields.flag("attention_bias", default=False)
    whole = replace(attention(fields, qkv_bias=bias, head_dim=128, kv_required=True), rotary=False)
    norm: QKNorm = "l2" if fields.flag("use_qk_norm", default=True) else "none"
    rotating = replace(whole, rotary=True, qk_norm=norm)
    kinds = fields.kinds("layer_types", ("chunked_attention", "full_attention"), length=n)
    chunked = [kind == "chunked_attention" for kind in kinds] if kinds else [bool(rotates) for rotates in rotary]
    bases = [rotating if rotates else whole for rotates in rotary]
    chunk = fields.optional_count("attention_chunk_size", 8192)
    return [replace(base, chunk=chunk) if cut else base for base, cut in zip(bases, chunked, strict=True)]


def minimax_m2(fields: ConfigFields) -> ModelConfig:
    """MiniMax-M2: norms on all projected queries and keys, narrow experts, several multi-token-prediction modules."""
    norm: QKNorm = "full" if fields.flag("use_qk_norm", default=True) else "none"
    if any(kind != 1 for kind in fields.counts("attn_type_list", maximum=1, length=fields.num_layers)):
        raise fields.error(
            "attn_type_list names layers of linear attention",
            rule="every layer of a minimax_m2 model attends to all keys (attn_type_list 1)",
            hint="correct attn_type_list; models with linear attention are of the family minimax_m1",
        )
    base = replace(attention(fields, head_dim=128, kv_required=True), qk_norm=norm)
    model = decoder(fields, repeated(fields, base, experts(fields, width="intermediate_size")))
    per_module = fields.count("mtp_transformer_layers", 1) * fields.flag("use_mtp", default=True)
    return replace(model, num_mtp_layers=model.num_mtp_layers * per_module)


def olmoe(fields: ConfigFields) -> ModelConfig:
    """OLMoE: norms on all projected queries and keys."""
    base = attention(fields, qkv_bias=fields.flag("attention_bias", default=False))
    return decoder(fields, repeated(fields, replace(base, qk_norm="full"), experts(fields, width="intermediate_size")))


def granite_moe(fields: ConfigFields) -> ModelConfig:
    """Granite 3 MoE, with a shared expert where the file gives its width."""
    base = attention(fields, qkv_bias=fields.flag("attention_bias", default=False))
    shared = fields.count("shared_intermediate_size", 0, minimum=0)
    return decoder(fields, repeated(fields, base, experts(fields, width="intermediate_size", shared_width=shared)))


def ernie_moe(fields: ConfigFields) -> ModelConfig:
    """ERNIE 4.5: experts from one layer to another, with shared ones."""
    fields.require("use_bias", expected=False)
    n = fields.num_layers
    first = fields.count("moe_layer_start_index", 1, minimum=0)
    last = fields.optional_count("moe_layer_end_index", n - 1, minimum=-1)
    every = fields.count("moe_layer_interval", 1)
    last = n - 1 if last is None or last < 0 else last
    sparse = [first <= i <= last and (i + 1) % every == 0 for i in range(n)]
    num_shared = fields.count("n_shared_experts", 0, minimum=0)
    moe = feed_forwards(fields, sparse, lambda: replace(experts(fields, num_shared=num_shared), router_bias=True))
    return decoder(fields, stack([attention(fields, kv_required=True)] * n, moe), tie=True)


def dbrx(fields: ConfigFields) -> ModelConfig:
    """DBRX: dimensions of attention and experts in objects of their own."""
    core, inner = fields.part("attn_config"), fields.part("ffn_config")
    inner.understood("hidden_size")
    base = attention(fields, num_kv_heads=core.count("kv_n_heads"))
    moe = MixtureOfExperts(
        num_experts=inner.count("moe_num_experts"),
        top_k=inner.count("moe_top_k"),
        intermediate_size=inner.count("ffn_hidden_size"),
        gated=True,
    )
    return decoder(fields, repeated(fields, base, moe))


def hunyuan_moe(fields: ConfigFields) -> ModelConfig:
    """Hunyuan-A13B: norms on queries and keys, experts next to an MLP of their width that all tokens visit."""
    hunyuan_fields(fields)
    fields.require("use_mixed_mlp_moe", expected=True)
    base = replace(attention(fields, qkv_bias=fields.flag("attention_bias", default=False)), qk_norm="head")
    width = fields.same_count("moe_intermediate_size", fields.count("intermediate_size"))
    shared = fields.same_count("n_shared_experts", 1, minimum=0) * fields.count("intermediate_size")
    moe = MixtureOfExperts(
        num_experts=fields.same_count("num_experts"),
        top_k=fields.same_count("num_experts_per_tok", 1),
        intermediate_size=width,
        gated=True,
        shared_intermediate_size=shared,
    )
    return decoder(fields, repeated(fields, base, moe))


def bailing_moe(fields: ConfigFields) -> ModelConfig:
    """Ling, Ring: grouped queries, experts with shared ones; Ling 2.0 normalises queries and keys."""
    for key in ("use_bias", "norm_softmax", "multi_gate", "use_sliding_window"):
        fields.require(key, expected=False)
    fields.understood("max_window_layers", "sliding_window")
    base = attention(fields, qkv_bias=fields.flag("use_qkv_bias", default=False), output_bias=False)
    norm: QKNorm = "head" if fields.flag("use_qk_norm", default=False) else "none"
    num_shared = fields.optional_count("n_shared_experts", 0, minimum=0) or 0
    width = fields.optional_count("moe_shared_expert_intermediate_size")
    shared = None if width is None else num_shared * width
    moe = feed_forwards(
        fields,
        first_k_dense(fields, 0),
        lambda: grouped(fields, experts(fields, num_shared=num_shared, shared_width=shared)),
    )
    return decoder(fields, stack([replace(base, qk_norm=norm)] * len(moe), moe))


def arctic(fields: ConfigFields) -> ModelConfig:
    """Arctic: experts next to a dense MLP as wide as the hidden size, which has a norm of its own."""
    n, every = fields.num_layers, fields.count("moe_layer_frequency", 2)
    fields.understood("intermediate_size", "moe_min_capacity", "moe_train_capacity_factor", "moe_eval_capacity_factor")
    residual = fields.flag("use_residual", default=False)
    fields.require("parallel_attn_mlp_res", expected=residual)
    base = attention(fields, qkv_bias=fields.flag("attention_bias", default=False), kv_required=True)
    width = fields.count("hidden_size") if residual else 0
    routed = experts(fields, width="intermediate_size", shared_width=width)
    with_experts = Layer(mixer=base, mlp=routed, num_norms=3 if residual else 2)
    dense = Layer(mixer=base, mlp=mlp(fields, gated=True), num_norms=2)
    return decoder(fields, tuple(with_experts if (i + 1) % every == 0 else dense for i in range(n)))


def grok(fields: ConfigFields) -> ModelConfig:
    """Grok-1: four norms per layer, gated experts in every layer, tied. Also read in the names of its own run.py."""
    hidden_size = fields.count("hidden_size")
    base = attention(fields, head_dim=128, kv_required=True)
    widened = int(fields.ratio("widening_factor", 8) * hidden_size) * 2 // 3
    routed = MixtureOfExperts(
        num_experts=fields.count("num_experts"),
        top_k=fields.count("num_experts_per_tok"),
        intermediate_size=fields.count("intermediate_size", -(-widened // 8) * 8),
        gated=True,
    )
    return decoder(fields, repeated(fields, base, routed, num_norms=4), tie=True)


FAMILIES: Final[Mapping[str, Callable[[ConfigFields], ModelConfig]]] = {
    "arctic": arctic,
    "bailing_moe": bailing_moe,
    "dbrx": dbrx,
    "deepseek": deepseek,
    "deepseek_v2": deepseek_v2,
    "deepseek_v3": deepseek_v3,
    "deepseek_v32": deepseek_v32,
    "dots1": dots1,
    "ernie4_5_moe": ernie_moe,
    "glm4_moe": glm4_moe,
    "glm4_moe_lite": glm4_moe_lite,
    "glm4v_moe_text": glm4_moe,
    "glm_moe_dsa": deepseek_v32,
    "gpt_oss": gpt_oss,
    "granitemoe": granite_moe,
    "granitemoeshared": granite_moe,
    "grok-1": grok,
    "hunyuan_v1_moe": hunyuan_moe,
    "kimi_k2": deepseek_v3,
    "llama4_text": llama4,
    "minimax_m2": minimax_m2,
    "mistral4": deepseek_v2,
    "mixtral": mixtral,
    "olmoe": olmoe,
    "phimoe": phimoe,
    "qwen2_moe": qwen2_moe,
    "qwen3_moe": qwen3_moe,
    "qwen3_vl_moe_text": qwen3_moe,
}
"""``model_type`` to the reader of its family."""
