"""Decoders of mostly recurrent layers: Mamba, LFM2, MiniMax-01 and Kimi Linear, laid out as in ``transformers``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from shardplan.inputs.layers import MLP, Layer, Mixer, MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.readers.hf.fields import ConfigFields
from shardplan.inputs.readers.hf.moe import feed_forwards
from shardplan.inputs.readers.hf.parts import (
    attention,
    decoder,
    experts,
    first_k_dense,
    grouped,
    latent_attention,
    stack,
)
from shardplan.inputs.recurrent import (
    DeltaAttention,
    LightningAttention,
    SelectiveScan,
    ShortConvolution,
    StateSpace,
)

_MIXED: Final = ("linear_attention", "full_attention")


def mamba(fields: ConfigFields) -> ModelConfig:
    """Mamba: layers of one Mamba-1 mixer behind one norm, tied."""
    inner = fields.count("expand", 2) * fields.count("hidden_size")
    if fields.has("intermediate_size"):
        inner = fields.count("intermediate_size")
    return _mixers_alone(
        fields, selective_scan(fields, inner, proj_bias=fields.flag("use_bias", default=False)), tie=True
    )


def mamba2(fields: ConfigFields) -> ModelConfig:
    """Mamba-2: layers of one Mamba-2 mixer behind one norm."""
    fields.understood("time_step_rank", "intermediate_size")
    mixer = StateSpace(
        num_heads=fields.count("num_heads"),
        head_dim=fields.count("head_dim"),
        state_size=fields.count("state_size"),
        num_groups=fields.count("n_groups", 8),
        conv_kernel=fields.count("conv_kernel", 4),
        chunk_size=fields.count("chunk_size", 256),
        conv_bias=fields.flag("use_conv_bias", default=True),
        proj_bias=fields.flag("use_bias", default=False),
    )
    check_inner_size(fields, "expand", mixer.inner_size)
    return _mixers_alone(fields, mixer, tie=False)


def _mixers_alone(fields: ConfigFields, mixer: Mixer, *, tie: bool) -> ModelConfig:
    layer = Layer(mixer=mixer, mlp=None, num_norms=1)
    return decoder(fields, (layer,) * fields.num_layers, tie=tie)


def check_inner_size(fields: ConfigFields, key: str, inner: int) -> None:
    """Refuse a file whose expansion (``key``) of the hidden size is not what its heads hold."""
    hidden_size = fields.count("hidden_size")
    expand = fields.count(key, 2)
    if expand * hidden_size != inner:
        raise fields.error(
            f"{key} is {expand} at a hidden size of {hidden_size}, and the heads hold {inner} channels",
            rule=f"the heads hold {key} times the hidden size",
            hint=f"correct {key}, or the number and size of the heads",
        )


def selective_scan(fields: ConfigFields, inner: int, *, proj_bias: bool, inner_norms: bool = False) -> SelectiveScan:
    """Mamba-1 mixer; a rank of "auto" is a sixteenth of the hidden size, rounded up."""
    automatic = fields.word("mamba_dt_rank") == "auto" or fields.word("time_step_rank") == "auto"
    sixteenth = -(-fields.count("hidden_size") // 16)
    return SelectiveScan(
        inner_size=inner,
        state_size=fields.count("ssm_state_size", 16),
        dt_rank=sixteenth if automatic else fields.count("time_step_rank", sixteenth),
        conv_kernel=fields.count("conv_kernel", 4),
        conv_bias=fields.flag("use_conv_bias", default=True),
        proj_bias=proj_bias,
        inner_norms=inner_norms,
    )


def minimax(fields: ConfigFields) -> ModelConfig:
    """MiniMax-01, MiniMax-M1: lightning attention but for some layers, experts in every layer."""
    fields.require("shared_intermediate_size", expected=0)
    n, base = fields.num_layers, attention(fields, kv_required=True)
    linear = LightningAttention(num_heads=base.num_heads, head_dim=base.head_dim)
    softmax = _minimax_softmax(fields, n)
    moe = experts(fields, width="intermediate_size")
    return decoder(fields, stack([base if is_softmax else linear for is_softmax in softmax], [moe] * n))


def _minimax_softmax(fields: ConfigFields, n: int) -> list[bool]:
    """Whether each layer attends to all keys: ``attn_type_list`` of the files (1), ``layer_types`` of the class."""
    fields.understood("block_size", "full_attention_interval")
    listed = fields.counts("attn_type_list", maximum=1, length=n)
    if listed:
        return [kind == 1 for kind in listed]
    kinds = fields.kinds("layer_types", _MIXED, length=n)
    return [kind == "full_attention" for kind in kinds] if kinds else [i % 2 == 0 for i in range(n)]


def kimi_linear(fields: ConfigFields) -> ModelConfig:
    """Kimi Linear: delta attention, latent attention without positions in some layers, DeepSeek's experts."""
    n, part = fields.num_layers, fields.part("linear_attn_config")
    delta = DeltaAttention(
        num_heads=part.count("num_heads", fields.count("linear_num_heads", 32)),
        head_dim=part.count("head_dim", fields.count("linear_head_dim", 128)),
        conv_kernel=part.count("short_conv_kernel_size", fields.count("linear_conv_kernel_dim", 4)),
    )
    base = replace(latent_attention(fields), rotary=False)
    mixers = [base if is_full else delta for is_full in _kimi_full(fields, part, n)]
    num_shared = fields.count("n_shared_experts", 1, minimum=0)
    sparse = first_k_dense(fields, 1)
    moe = feed_forwards(fields, sparse, lambda: grouped(fields, experts(fields, num_shared=num_shared)))
    return decoder(fields, stack(mixers, moe))


def _kimi_full(fields: ConfigFields, part: ConfigFields, n: int) -> list[bool]:
    """Whether each layer attends to all keys; ``full_attn_layers`` of the files counts layers from 1."""
    full, delta = (set(part.counts(key, maximum=n)) for key in ("full_attn_layers", "kda_layers"))
    if full or delta:
        if full & delta or full | delta != set(range(1, n + 1)):
            raise part.error(
                f"full_attn_layers and kda_layers name {len(full)} and {len(delta)} of {n} layers",
                rule="every layer, counted from 1, is in one of full_attn_layers and kda_layers",
                hint="correct the two lists",
            )
        return [i + 1 in full for i in range(n)]
    kinds = fields.kinds("layer_types", _MIXED, length=n)
    return [kind == "full_attention" for kind in kinds] if kinds else [i > 0 and i % 4 == 0 for i in range(n)]


def lfm2(fields: ConfigFields) -> ModelConfig:
    """LFM2: gated short convolutions, attention with norms on queries and keys in some layers, tied."""
    return _lfm2(fields, [MLP(intermediate_size=_lfm2_width(fields), gated=True)] * fields.num_layers)


def lfm2_moe(fields: ConfigFields) -> ModelConfig:
    """LFM2 with experts behind the first, dense layers."""
    dense = fields.count("num_dense_layers", 2, minimum=0)
    sparse = [i >= dense for i in range(fields.num_layers)]
    return _lfm2(fields, feed_forwards(fields, sparse, lambda: experts(fields)))


def _lfm2(fields: ConfigFields, mlps: list[MLP] | list[MLP | MixtureOfExperts]) -> ModelConfig:
    n, base = fields.num_layers, replace(attention(fields, kv_required=True), qk_norm="head")
    for key in ("conv_dim", "conv_dim_out", "block_dim"):
        fields.require(key, expected=fields.count("hidden_size"))
    fields.require("block_use_swiglu", expected=True)
    conv = ShortConvolution(
        num_channels=fields.count("hidden_size"),
        conv_kernel=fields.count("conv_L_cache", 3),
        bias=fields.flag("conv_bias", default=False),
    )
    mixers = [base if attends else conv for attends in _lfm2_attention(fields, n)]
    tie = fields.flag("tie_embedding", default=True)
    return decoder(fields, stack(mixers, mlps), tie=tie)


def _lfm2_attention(fields: ConfigFields, n: int) -> list[bool]:
    kinds = fields.kinds("layer_types", ("conv", "full_attention"), length=n)
    listed = set(fields.counts("full_attn_idxs", maximum=n - 1))
    if kinds:
        return [kind == "full_attention" for kind in kinds]
    return [i in listed or not listed for i in range(n)]


def _lfm2_width(fields: ConfigFields) -> int:
    """Two thirds of the stated width, scaled and rounded up to a multiple, unless the file asks for it as it is."""
    key = "block_ff_dim" if fields.has("block_ff_dim") else "intermediate_size"
    width = fields.count(key)
    scale, multiple = fields.ratio("block_ffn_dim_multiplier", 1), fields.count("block_multiple_of", 256)
    fields.understood("intermediate_size")
    if not fields.flag("block_auto_adjust_ff_dim", default=True):
        return width
    return -(-int(scale * int(2 * width / 3)) // multiple) * multiple


FAMILIES: Final[Mapping[str, Callable[[ConfigFields], ModelConfig]]] = {
    "falcon_mamba": mamba,
    "kimi_linear": kimi_linear,
    "lfm2": lfm2,
    "lfm2_moe": lfm2_moe,
    "mamba": mamba,
    "mamba2": mamba2,
    "minimax": minimax,
    "minimax_m1": minimax,
    "minimax_text_01": minimax,
}
"""``model_type`` to the reader of its family."""
