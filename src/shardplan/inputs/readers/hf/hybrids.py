"""Decoders with recurrent layers, alone or mixed with attention, with the layout of ``transformers``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from shardplan.inputs.layers import MLP, Attention, Layer, Mixer, MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.readers.hf.experts import qwen_experts, wide_experts
from shardplan.inputs.readers.hf.family import (
    ATTENTION_BIAS,
    MLP_BIAS,
    ROUTING,
    ModelFamily,
    attention,
    experts,
    first_k_dense,
    flag,
    grouped,
    latent_attention,
    mlp,
    sparse_step,
)
from shardplan.inputs.readers.hf.fields import ConfigFields
from shardplan.inputs.recurrent import (
    DeltaAttention,
    LightningAttention,
    LinearAttention,
    SelectiveScan,
    ShortConvolution,
    StateSpace,
)

_LETTERS: Final = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_BLOCKS: Final = {
    "mamba": "mamba",
    "linear_attention": "mamba",
    "attention": "attention",
    "full_attention": "attention",
    "mlp": "mlp",
    "moe": "moe",
}
"""Words of ``layers_block_type``, older and newer spelling."""
_MAMBA: Final = (
    "mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups", "conv_kernel", "chunk_size", "expand",
)  # fmt: skip
"""Fields that do not affect a model without Mamba layers."""


def _attends(fields: ConfigFields, by_default: Callable[[int], bool], *, other: str = "linear_attention") -> list[bool]:
    """Whether each layer attends to all keys: by ``layer_types``, else by the family's default."""
    n = fields.num_layers
    kinds = fields.kinds("layer_types", (other, "full_attention"), length=n)
    return [kind == "full_attention" for kind in kinds] if kinds else [by_default(i) for i in range(n)]


def _nemotron_layers(fields: ConfigFields) -> tuple[Layer, ...]:
    names = _nemotron_blocks(fields, "hybrid_override_pattern", "layers_block_type")
    if not names:
        fields.count("hybrid_override_pattern")  # raises if neither spelling is there
    given = fields.count("num_hidden_layers", len(names))
    if given != len(names):
        raise fields.error(
            f"num_hidden_layers is {given}, but the layer pattern names {len(names)} layers",
            rule="the layer pattern names every layer",
            hint=f"set num_hidden_layers to {len(names)}, or correct the pattern",
        )
    blocks = {name: _nemotron_block(fields, name) for name in dict.fromkeys(names)}
    return tuple(blocks[name] for name in names)


def _nemotron_blocks(fields: ConfigFields, letters: str, words: str) -> tuple[str, ...]:
    spelled = fields.letters(letters, _LETTERS)
    if spelled is not None:
        return spelled
    for key in (words, "layer_types") if words == "layers_block_type" else (words,):
        if found := fields.kinds(key, _BLOCKS):
            return tuple(_BLOCKS[word] for word in found)
    return ()


def _nemotron_block(fields: ConfigFields, name: str) -> Layer:
    if name == "mamba":
        return Layer(mixer=_mamba(fields, proj_bias=fields.flag("use_bias", default=False)), mlp=None, num_norms=1)
    if name == "attention":
        head_dim = fields.optional_count("attention_head_dim") or 128
        base = attention(fields, qkv_bias=ATTENTION_BIAS(fields), head_dim=head_dim, kv_required=True)
        return Layer(mixer=replace(base, rotary=False), mlp=None, num_norms=1)
    if name == "mlp":
        return Layer(mixer=None, mlp=mlp(fields, gated=False, bias=MLP_BIAS(fields)), num_norms=1)
    fields.require("mlp_bias", expected=False)
    shared = fields.count("moe_shared_expert_intermediate_size", 0, minimum=0)
    moe = grouped(fields, experts(fields, shared_width=shared))
    latent = fields.optional_count("moe_latent_size")
    return Layer(mixer=None, mlp=replace(moe, gated=False, latent_size=latent), num_norms=1)


def _nemotron_mtp(fields: ConfigFields) -> Layer | None:
    """The prediction block holds attention and experts, whatever the last layer of the model is."""
    if not fields.count("num_nextn_predict_layers", 0, minimum=0):
        return None
    names = _nemotron_blocks(fields, "mtp_hybrid_override_pattern", "mtp_layers_block_type") or ("attention", "moe")
    parts = [_nemotron_block(fields, name) for name in names]
    mixers, mlps = [p.mixer for p in parts if p.mixer], [p.mlp for p in parts if p.mlp]
    if len(mixers) > 1 or len(mlps) > 1:
        raise fields.error(
            f"a prediction block of {len(names)} layers: {', '.join(names)}",
            rule="a multi-token-prediction block has one mixer and one MLP at most",
            hint="set num_nextn_predict_layers to 0 to plan without prediction blocks",
        )
    return Layer(mixer=mixers[0] if mixers else None, mlp=mlps[0] if mlps else None, num_norms=len(parts))


def _mamba(fields: ConfigFields, *, proj_bias: bool) -> StateSpace:
    """Mamba-2 with the heads that the file states."""
    fields.understood("expand", "time_step_rank", "mamba_d_ssm")  # heads and their size determine these
    return StateSpace(
        num_heads=fields.count("mamba_num_heads"),
        head_dim=fields.count("mamba_head_dim"),
        state_size=fields.count("ssm_state_size"),
        num_groups=fields.count("n_groups"),
        conv_kernel=fields.count("conv_kernel", 4),
        chunk_size=fields.count("chunk_size"),
        conv_bias=fields.flag("use_conv_bias", default=True),
        proj_bias=proj_bias,
    )


def _sized_mamba(fields: ConfigFields, inner: int | None = None) -> StateSpace:
    """Mamba-2 whose heads hold ``inner`` channels, or ``mamba_expand`` times the hidden size; "auto" divides them."""
    inner = inner or fields.count("expand", 2) * fields.count("hidden_size")
    fields.understood("expand", "mamba_d_ssm", "mamba_head_dim")
    heads = fields.count("mamba_num_heads", 128)
    given = None if fields.word("mamba_d_head") in ("auto", None) else fields.count("mamba_head_dim")
    if inner % heads or given not in (None, inner // heads):
        raise fields.error(
            f"{heads} Mamba heads of {given or 'equal'} channels for {inner} channels in all",
            rule="the Mamba heads hold mamba_d_ssm channels, or mamba_expand times the hidden size",
            hint="correct mamba_n_heads or mamba_d_head",
        )
    return StateSpace(
        num_heads=heads,
        head_dim=inner // heads,
        state_size=fields.count("ssm_state_size", 256),
        num_groups=fields.count("n_groups", 1),
        conv_kernel=fields.count("conv_kernel", 4),
        chunk_size=fields.count("chunk_size", 256),
        conv_bias=fields.flag("use_conv_bias", default=True),
        proj_bias=fields.flag("mamba_proj_bias", default=False),
    )


def _mamba2(fields: ConfigFields) -> StateSpace:
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
    hidden_size, expand = fields.count("hidden_size"), fields.count("expand", 2)
    if expand * hidden_size != mixer.inner_size:
        raise fields.error(
            f"expand is {expand} at a hidden size of {hidden_size}, and the heads hold {mixer.inner_size} channels",
            rule="the heads hold expand times the hidden size",
            hint="correct expand, or the number and size of the heads",
        )
    return mixer


def _mamba1(fields: ConfigFields) -> SelectiveScan:
    inner = fields.count("expand", 2) * fields.count("hidden_size")
    inner = fields.count("intermediate_size") if fields.has("intermediate_size") else inner
    return _selective_scan(fields, inner, proj_bias=fields.flag("use_bias", default=False))


def _selective_scan(fields: ConfigFields, inner: int, *, proj_bias: bool, inner_norms: bool = False) -> SelectiveScan:
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


def _jamba_mixers(fields: ConfigFields) -> list[Mixer]:
    """Mamba-1 with norms inside, or attention without positions."""
    inner = fields.count("expand", 2) * fields.count("hidden_size")
    bias = fields.flag("mamba_proj_bias", default=False)
    scan = _selective_scan(fields, inner, proj_bias=bias, inner_norms=True)
    base = replace(attention(fields, kv_required=True), rotary=False)
    return [base if full else scan for full in _every(fields, "attn_layer", 8, 4)]


def _jamba_sparse(fields: ConfigFields) -> Sequence[bool]:
    """Experts in every other layer; a single expert is an MLP."""
    return _every(fields, "expert_layer", 2, 1) if fields.count("num_experts", 16) > 1 else (False,) * fields.num_layers


def _every(fields: ConfigFields, name: str, period: int, offset: int) -> tuple[bool, ...]:
    """Every ``name``_period-th layer, starting at ``name``_offset."""
    period, offset = fields.count(f"{name}_period", period), fields.count(f"{name}_offset", offset, minimum=0)
    return tuple(i % period == offset for i in range(fields.num_layers))


def _bamba_mixers(fields: ConfigFields) -> list[Mixer]:
    """Mamba-2, or attention in the listed layers."""
    listed = set(fields.counts("attn_layer_indices", maximum=fields.num_layers - 1))
    attends = _attends(fields, lambda i: i in listed)
    base = attention(fields, qkv_bias=ATTENTION_BIAS(fields), kv_required=True)
    scan = _sized_mamba(fields)
    return [base if full else scan for full in attends]


def _falcon_h1_layers(fields: ConfigFields) -> tuple[Layer, ...]:
    scan = replace(
        _sized_mamba(fields, inner=fields.optional_count("mamba_d_ssm", 1024)),
        gated_norm=fields.flag("mamba_rms_norm", default=False),
    )
    base = attention(fields, qkv_bias=ATTENTION_BIAS(fields))
    feed_forward = mlp(fields, gated=True, bias=MLP_BIAS(fields))
    layer = Layer(mixer=scan, parallel_mixer=base, mlp=feed_forward, num_norms=2)
    return (layer,) * fields.num_layers


def _granite_mixers(fields: ConfigFields) -> list[Mixer]:
    """Mamba-2 or attention, as ``layer_types`` says."""
    kinds = fields.kinds(
        "layer_types", ("mamba", "linear_attention", "attention", "full_attention"), length=fields.num_layers
    )
    if kinds is None:
        fields.count("layer_types")  # required
    rotary = fields.word("position_embedding_type") == "rope"
    base = replace(attention(fields, qkv_bias=ATTENTION_BIAS(fields)), rotary=rotary)
    mixers: dict[str, Mixer] = {"attention": base}
    if any(_BLOCKS[kind] == "mamba" for kind in kinds or ()):
        mixers["mamba"] = _mamba(fields, proj_bias=fields.flag("mamba_proj_bias", default=False))
    return [mixers[_BLOCKS[kind]] for kind in kinds or ()]


def _granite_mlp(fields: ConfigFields) -> MLP | MixtureOfExperts:
    """A shared MLP, next to experts if there are any."""
    shared = fields.count("shared_intermediate_size")
    if fields.count("num_experts", minimum=0):
        return experts(fields, width="intermediate_size", shared_width=shared)
    return MLP(intermediate_size=shared, gated=True)


def _qwen_sparse(fields: ConfigFields) -> Sequence[bool]:
    return sparse_step(fields) if fields.count("num_experts", 0, minimum=0) else (False,) * fields.num_layers


def _qwen_mixers(fields: ConfigFields) -> list[Mixer]:
    """Gated delta networks, every fourth layer gated attention."""
    every = fields.count("full_attention_interval", 4)
    full = _attends(fields, lambda i: (i + 1) % every == 0)
    base = _gated_attention(fields)
    if all(full):
        return [base] * len(full)
    delta = LinearAttention(
        num_key_heads=fields.count("linear_num_key_heads"),
        num_value_heads=fields.count("linear_num_value_heads"),
        key_head_dim=fields.count("linear_key_head_dim"),
        value_head_dim=fields.count("linear_value_head_dim"),
        conv_kernel=fields.count("linear_conv_kernel_dim", 4),
    )
    return [base if is_full else delta for is_full in full]


def _gated_attention(fields: ConfigFields) -> Attention:
    fields.require("attn_output_gate", expected=True)
    base = attention(fields, qkv_bias=ATTENTION_BIAS(fields), head_dim=256, kv_required=True)
    return replace(base, qk_norm="head", output_gate=True)


def _qwen_model(fields: ConfigFields, model: ModelConfig) -> ModelConfig:
    """With the prediction block, which holds attention whatever the last layer does."""
    if not model.num_mtp_layers:
        return model
    return replace(model, mtp_block=Layer(mixer=_gated_attention(fields), mlp=model.layers[-1].mlp, num_norms=2))


def _minimax_mixers(fields: ConfigFields) -> list[Mixer]:
    """Lightning attention except in some layers: ``attn_type_list`` of the files (1), ``layer_types`` of the class."""
    base = attention(fields, kv_required=True)
    linear = LightningAttention(num_heads=base.num_heads, head_dim=base.head_dim)
    listed = fields.counts("attn_type_list", maximum=1, length=fields.num_layers)
    softmax = [kind == 1 for kind in listed] if listed else _attends(fields, lambda i: i % 2 == 0)
    return [base if is_softmax else linear for is_softmax in softmax]


def delta_attention(fields: ConfigFields, num_heads: int = 64) -> DeltaAttention:
    """Kimi delta attention, in ``linear_attn_config`` or in fields of the file itself."""
    part = fields.part("linear_attn_config")
    return DeltaAttention(
        num_heads=part.count("num_heads", fields.count("linear_num_heads", num_heads)),
        head_dim=part.count("head_dim", fields.count("linear_head_dim", 128)),
        conv_kernel=part.count("short_conv_kernel_size", fields.count("linear_conv_kernel_dim", 4)),
    )


def _kimi_mixers(fields: ConfigFields) -> list[Mixer]:
    """Delta attention, latent attention without positions in some layers."""
    delta, part = delta_attention(fields, 32), fields.part("linear_attn_config")
    base = replace(latent_attention(fields), rotary=False)
    return [base if is_full else delta for is_full in _kimi_full(fields, part)]


def _kimi_full(fields: ConfigFields, part: ConfigFields) -> list[bool]:
    """Whether each layer attends to all keys; ``full_attn_layers`` of the files counts layers from 1."""
    n = fields.num_layers
    full, delta = (set(part.counts(key, maximum=n)) for key in ("full_attn_layers", "kda_layers"))
    if not full and not delta:
        return _attends(fields, lambda i: i > 0 and i % 4 == 0)
    if full & delta or full | delta != set(range(1, n + 1)):
        raise part.error(
            f"full_attn_layers and kda_layers name {len(full)} and {len(delta)} of {n} layers",
            rule="every layer, counted from 1, is in one of full_attn_layers and kda_layers",
            hint="correct the two lists",
        )
    return [i + 1 in full for i in range(n)]


def _kimi_experts(fields: ConfigFields) -> MixtureOfExperts:
    return grouped(fields, experts(fields, num_shared=fields.count("n_shared_experts", 1, minimum=0)))


def _lfm2_mixers(fields: ConfigFields) -> list[Mixer]:
    """Gated short convolutions, attention with norms on queries and keys in some layers."""
    n, base = fields.num_layers, replace(attention(fields, kv_required=True), qk_norm="head")
    for key in ("conv_dim", "conv_dim_out", "block_dim"):
        fields.require(key, expected=fields.count("hidden_size"))
    fields.require("block_use_swiglu", expected=True)
    conv = ShortConvolution(
        num_channels=fields.count("hidden_size"),
        conv_kernel=fields.count("conv_L_cache", 3),
        bias=fields.flag("conv_bias", default=False),
    )
    listed = set(fields.counts("full_attn_idxs", maximum=n - 1))
    return [base if full else conv for full in _attends(fields, lambda i: i in listed or not listed, other="conv")]


def _lfm2_mlp(fields: ConfigFields) -> MLP:
    """An MLP of two thirds of the stated width, scaled and rounded up, unless the file asks for the stated one."""
    width = fields.count("block_ff_dim" if fields.has("block_ff_dim") else "intermediate_size")
    scale, multiple = fields.ratio("block_ffn_dim_multiplier", 1), fields.count("block_multiple_of", 256)
    if fields.flag("block_auto_adjust_ff_dim", default=True):
        width = -(-int(scale * int(2 * width / 3)) // multiple) * multiple
    return MLP(intermediate_size=width, gated=True)


def _lfm2_sparse(fields: ConfigFields) -> Sequence[bool]:
    """Experts after the first, dense layers."""
    dense = fields.count("num_dense_layers", 2, minimum=0)
    return [i >= dense for i in range(fields.num_layers)]


_MAMBA1: Final = ModelFamily("Mamba: layers of one Mamba-1 mixer behind one norm, tied.")._replace(
    mixers=_mamba1, mlps=lambda _: None, num_norms=1, tie=True
)
_MINIMAX: Final = ModelFamily(
    "MiniMax-01, MiniMax-M1: lightning attention but for some layers, experts in every layer."
)._replace(
    required={"shared_intermediate_size": 0},
    understood=("block_size", "full_attention_interval"),
    mixers=_minimax_mixers,
    experts=wide_experts,
)
_LFM2: Final = ModelFamily(
    "LFM2: gated short convolutions, attention with norms on queries and keys in some layers, tied."
)._replace(mixers=_lfm2_mixers, tie=flag("tie_embedding", default=True))
_QWEN: Final = ModelFamily("Qwen3.5 without experts: the mixers of Qwen3-Next.")._replace(
    mixers=_qwen_mixers, adjusted=_qwen_model
)

HYBRIDS: Final[Mapping[str, ModelFamily]] = {
    "bamba": ModelFamily("Bamba: Mamba-2, attention in the listed layers, a gated MLP in each.")._replace(
        mixers=_bamba_mixers, mlp_bias=MLP_BIAS
    ),
    "falcon_h1": ModelFamily("Falcon-H1: Mamba-2 and attention in parallel in every layer, then a gated MLP.")._replace(
        required={"projectors_bias": flag("mamba_proj_bias"), "mamba_use_mlp": True},
        understood=("layer_types", "mlp_expansion_factor"),
        layers=_falcon_h1_layers,
    ),
    "granitemoehybrid": ModelFamily(
        "Granite 4: Mamba-2 or attention, then a shared MLP, next to experts if there are any."
    )._replace(understood=("intermediate_size", "num_experts_per_tok"), mixers=_granite_mixers, mlps=_granite_mlp),
    "jamba": ModelFamily(
        "Jamba: Mamba-1 with norms inside, or attention without positions; experts in every other layer."
    )._replace(
        required={"mamba_inner_layernorms": True}, mixers=_jamba_mixers, sparse=_jamba_sparse, experts=wide_experts
    ),
    "nemotron_h": ModelFamily(
        "Nemotron-H, Nemotron 3: each layer is one of a Mamba-2 mixer, attention, an MLP or experts, behind one norm."
    )._replace(
        understood=(
            *("mtp_hybrid_override_pattern", "mtp_layers_block_type", "use_bias", "mlp_bias", "attention_head_dim"),
            *("intermediate_size", *ROUTING, *_MAMBA),
        ),
        layers=_nemotron_layers,
        model={"mtp_block": _nemotron_mtp},
    ),
    "qwen3_5_moe_text": _QWEN.called("Qwen3.5 with experts in every layer.")._replace(
        understood=("intermediate_size",), experts=qwen_experts
    ),
    "qwen3_5_text": _QWEN,
    "qwen3_next": _QWEN.called(
        "Qwen3-Next: gated delta networks, every fourth layer gated attention, experts with a gated shared one."
    )._replace(sparse=_qwen_sparse, experts=qwen_experts),
    "falcon_mamba": _MAMBA1,
    "kimi_linear": ModelFamily(
        "Kimi Linear: delta attention, latent attention without positions in some layers, DeepSeek's experts."
    )._replace(mixers=_kimi_mixers, sparse=lambda fields: first_k_dense(fields, 1), experts=_kimi_experts),
    "lfm2": _LFM2._replace(understood=("intermediate_size",), mlps=_lfm2_mlp),
    "lfm2_moe": _LFM2.called("LFM2 with experts behind the first, dense layers.")._replace(
        sparse=_lfm2_sparse, experts=experts
    ),
    "mamba": _MAMBA1,
    "mamba2": ModelFamily("Mamba-2: layers of one Mamba-2 mixer behind one norm.")._replace(
        understood=("time_step_rank", "intermediate_size"), mixers=_mamba2, mlps=lambda _: None, num_norms=1
    ),
    "minimax": _MINIMAX,
    "minimax_m1": _MINIMAX,
    "minimax_text_01": _MINIMAX,
}
"""``model_type`` to the row of its family."""
