"""Parts of a layer read from the fields of a Hugging Face configuration, as several families share them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from shardplan.inputs.layers import MLP, Attention, LatentAttention, Layer, Mixer, MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.readers.hf.fields import ConfigFields

_ATTENTION_KINDS: Final = ("full_attention", "sliding_attention")


def attention(
    fields: ConfigFields,
    *,
    qkv_bias: bool = False,
    output_bias: bool | None = None,
    head_dim: int | None = None,
    num_kv_heads: int | None = None,
    kv_required: bool = False,
) -> Attention:
    """Attention of ``fields``; the output projection has a bias where the others have, unless ``output_bias`` says.

    ``head_dim``: default of the family where the file gives none, otherwise ``hidden_size / num_attention_heads``.
    ``num_kv_heads``: fixed by the family. ``kv_required``: absent ``num_key_value_heads`` are an error.
    """
    num_heads = fields.count("num_attention_heads")
    if num_kv_heads is not None:
        _check_kv_heads(fields, num_kv_heads)
    else:
        absent = not kv_required or "num_key_value_heads" in fields.values
        num_kv_heads = fields.count("num_key_value_heads", num_heads if absent else None)
    return Attention(
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=fields.count("head_dim", head_dim or _even_head(fields)),
        qkv_bias=qkv_bias,
        output_bias=qkv_bias if output_bias is None else output_bias,
    )


def _check_kv_heads(fields: ConfigFields, fixed: int) -> None:
    """Refuse a file that states another number of key-value heads than its family has."""
    stated, heads = fields.count("num_key_value_heads", fixed), fields.count("num_attention_heads")
    if stated != fixed:
        raise fields.error(
            f"num_key_value_heads is {stated}",
            rule=f"a {fields.model_type} model of {heads} heads has {fixed} key-value heads",
            hint="correct num_key_value_heads, or leave it out",
        )


def _even_head(fields: ConfigFields) -> int | None:
    if fields.has("head_dim"):
        return None
    hidden_size, num_heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    if hidden_size % num_heads:
        raise fields.error(
            f"a hidden size of {hidden_size} does not divide into {num_heads} attention heads",
            rule="without head_dim, num_attention_heads divides hidden_size",
            hint="correct one of them, or give head_dim",
        )
    return hidden_size // num_heads


def latent_attention(fields: ConfigFields) -> LatentAttention:
    """Latent attention of the DeepSeek families, with its indexer where the file has one."""
    if "q_lora_rank" not in fields.values:
        fields.count("q_lora_rank")  # absent is an error; null is an answer (DeepSeek-V2-Lite)
    topk = fields.optional_count("index_topk")
    fields.understood("num_key_value_heads", "head_dim", "qk_head_dim")  # all heads are decompressed from one latent
    return LatentAttention(
        num_heads=fields.count("num_attention_heads"),
        q_lora_rank=fields.optional_count("q_lora_rank"),
        kv_lora_rank=fields.count("kv_lora_rank"),
        qk_nope_head_dim=fields.count("qk_nope_head_dim"),
        qk_rope_head_dim=fields.count("qk_rope_head_dim"),
        v_head_dim=fields.count("v_head_dim"),
        qkv_bias=fields.flag("attention_bias", default=False),
        index_topk=topk,
        index_num_heads=0 if topk is None else fields.count("index_n_heads"),
        index_head_dim=0 if topk is None else fields.count("index_head_dim"),
    )


def mlp(fields: ConfigFields, *, gated: bool, bias: bool = False, width: int | None = None) -> MLP:
    """MLP of ``intermediate_size``, or of ``width`` where the file leaves that out."""
    return MLP(intermediate_size=fields.count("intermediate_size", width), gated=gated, bias=bias)


def experts(
    fields: ConfigFields,
    *,
    width: str = "moe_intermediate_size",
    num_shared: int = 0,
    shared_width: int | None = None,
    shared_gate: bool = False,
    bias: bool = False,
) -> MixtureOfExperts:
    """Gated experts, each as wide as the field ``width``, and ``num_shared`` of the same width that all tokens visit.

    ``shared_width``: total width of the shared experts where it has a field of its own.
    """
    size = fields.count(width)
    return MixtureOfExperts(
        num_experts=fields.count("num_experts"),
        top_k=fields.count("num_experts_per_tok"),
        intermediate_size=size,
        gated=True,
        bias=bias,
        router_bias=bias,
        shared_intermediate_size=num_shared * size if shared_width is None else shared_width,
        shared_gate=shared_gate,
    )


def grouped(fields: ConfigFields, moe: MixtureOfExperts, default: tuple[int, int] = (1, 1)) -> MixtureOfExperts:
    """``moe`` with the groups of its router; ``default``: of the family. Greedy routing (DeepSeek-V2) knows none."""
    if fields.word("topk_method") == "greedy":
        return moe
    n_group = fields.optional_count("n_group", default[0]) or 1
    return replace(moe, n_group=n_group, topk_group=fields.optional_count("topk_group", min(default[1], n_group)) or 1)


def first_k_dense(fields: ConfigFields, first_k: int) -> tuple[bool, ...]:
    """Whether each layer has experts: all from ``first_k_dense_replace`` on, or what ``mlp_layer_types`` says."""
    n = fields.num_layers
    kinds = fields.kinds("mlp_layer_types", ("dense", "sparse"), length=n)
    if kinds:
        fields.understood("first_k_dense_replace", "moe_layer_freq")
        return tuple(kind == "sparse" for kind in kinds)
    first_k = fields.count("first_k_dense_replace", first_k, minimum=0)
    every = fields.count("moe_layer_freq", 1)
    return tuple(i >= first_k and i % every == 0 for i in range(n))


def sparse_step(fields: ConfigFields) -> tuple[bool, ...]:
    """Whether each layer has experts: every ``decoder_sparse_step``-th but those of ``mlp_only_layers`` (Qwen)."""
    n = fields.num_layers
    step = fields.count("decoder_sparse_step", 1)
    dense = set(fields.counts("mlp_only_layers", maximum=n - 1))
    return tuple((i + 1) % step == 0 and i not in dense for i in range(n))


def sliding(fields: ConfigFields, by_default: Callable[[int], bool]) -> tuple[bool, ...]:
    """Whether each layer attends within a sliding window: what ``layer_types`` says, else what the family does."""
    n = fields.num_layers
    kinds = fields.kinds("layer_types", _ATTENTION_KINDS, length=n)
    fields.understood("sliding_window_pattern")
    if kinds:
        return tuple(kind == "sliding_attention" for kind in kinds)
    return tuple(by_default(i) for i in range(n))


def windowed(
    fields: ConfigFields, base: Attention, slides: Iterable[bool], *, default: int | None = None
) -> tuple[Attention, ...]:
    """``base`` once per layer, with ``sliding_window`` where the layer slides; a window of null is none."""
    slides = tuple(slides)
    fields.understood("sliding_window")
    if not any(slides):
        return (base,) * len(slides)
    local = replace(base, window=fields.optional_count("sliding_window", default))
    return tuple(local if slide else base for slide in slides)


def stack(
    mixers: Sequence[Mixer | None],
    mlps: Sequence[MLP | MixtureOfExperts | None],
    *,
    num_norms: int = 2,
    parallel_residual: bool = False,
) -> tuple[Layer, ...]:
    """Layers from their mixers and MLPs, equal ones as one object."""
    pairs = list(zip(mixers, mlps, strict=True))
    kinds = {
        pair: Layer(mixer=pair[0], mlp=pair[1], num_norms=num_norms, parallel_residual=parallel_residual)
        for pair in dict.fromkeys(pairs)
    }
    return tuple(kinds[pair] for pair in pairs)


def repeated(
    fields: ConfigFields,
    mixer: Mixer,
    mlp: MLP | MixtureOfExperts,
    *,
    num_norms: int = 2,
    parallel_residual: bool = False,
) -> tuple[Layer, ...]:
    """The same layer throughout."""
    n = fields.num_layers
    return stack([mixer] * n, [mlp] * n, num_norms=num_norms, parallel_residual=parallel_residual)


def decoder(fields: ConfigFields, layers: tuple[Layer, ...], *, tie: bool = False) -> ModelConfig:
    """Causal language model of ``layers``; ``tie``: whether the family ties its head where the file does not say."""
    return ModelConfig(
        name=fields.name,
        model_type=fields.model_type,
        hidden_size=fields.count("hidden_size"),
        layers=layers,
        vocab_size=fields.count("vocab_size"),
        tie_word_embeddings=fields.flag("tie_word_embeddings", tie),
        norm_bias=False,
        max_position_embeddings=fields.count("max_position_embeddings"),
        num_mtp_layers=fields.count("num_nextn_predict_layers", 0, minimum=0),
    )
