"""Decoders that mix attention with state-space or linear-attention layers, laid out as in ``transformers``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from shardplan.inputs.layers import MLP, Layer, Mixer, MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.readers.hf.fields import ConfigFields
from shardplan.inputs.readers.hf.moe import ROUTING, feed_forwards
from shardplan.inputs.readers.hf.parts import attention, decoder, experts, grouped, mlp, sparse_step, stack
from shardplan.inputs.readers.hf.recurrent import selective_scan
from shardplan.inputs.recurrent import LinearAttention, StateSpace

_LETTERS: Final = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_MAMBA: Final = (
    "mamba_num_heads",
    "mamba_head_dim",
    "ssm_state_size",
    "n_groups",
    "conv_kernel",
    "chunk_size",
    "expand",
)
"""Fields that say nothing of a model without Mamba layers."""
_BLOCKS: Final = {
    "mamba": "mamba",
    "linear_attention": "mamba",
    "attention": "attention",
    "full_attention": "attention",
    "mlp": "mlp",
    "moe": "moe",
}
"""Words of ``layers_block_type``, older and newer spelling."""


def nemotron_h(fields: ConfigFields) -> ModelConfig:
    """Nemotron-H, Nemotron 3: each layer is one of a Mamba-2 mixer, attention, an MLP or experts, behind one norm."""
    names = _nemotron_blocks(fields, "hybrid_override_pattern", "layers_block_type")
    understood = ("mtp_hybrid_override_pattern", "mtp_layers_block_type", "n_shared_experts", "use_bias", "mlp_bias")
    fields.understood(*understood, "attention_head_dim", "intermediate_size", *ROUTING, *_MAMBA)
    if not names:
        fields.count("hybrid_override_pattern")  # neither spelling is there: say so
    _check_num_layers(fields, len(names))
    blocks = {name: _nemotron_block(fields, name) for name in dict.fromkeys(names)}
    layers = tuple(blocks[name] for name in names)
    return replace(decoder(fields, layers), mtp_block=_nemotron_mtp(fields))


def _nemotron_blocks(fields: ConfigFields, letters: str, words: str) -> tuple[str, ...]:
    spelled = fields.letters(letters, _LETTERS)
    if spelled is not None:
        return spelled
    for key in (words, "layer_types") if words == "layers_block_type" else (words,):
        if found := fields.kinds(key, _BLOCKS):
            return tuple(_BLOCKS[word] for word in found)
    return ()


def _check_num_layers(fields: ConfigFields, named: int) -> None:
    stated = fields.count("num_hidden_layers", named)
    if stated != named:
        raise fields.error(
            f"num_hidden_layers is {stated}, but the layer pattern names {named} layers",
            rule="the layer pattern names every layer",
            hint=f"set num_hidden_layers to {named}, or correct the pattern",
        )


def _nemotron_block(fields: ConfigFields, name: str) -> Layer:
    if name == "mamba":
        bias = fields.flag("use_bias", default=False)
        return Layer(mixer=_mamba(fields, proj_bias=bias), mlp=None, num_norms=1)
    if name == "attention":
        return Layer(mixer=_nemotron_attention(fields), mlp=None, num_norms=1)
    return Layer(mixer=None, mlp=_nemotron_mlp(fields) if name == "mlp" else _nemotron_experts(fields), num_norms=1)


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


def _nemotron_attention(fields: ConfigFields) -> Mixer:
    default = fields.optional_count("attention_head_dim") or 128
    bias = fields.flag("attention_bias", default=False)
    return replace(attention(fields, qkv_bias=bias, head_dim=default, kv_required=True), rotary=False)


def _nemotron_mlp(fields: ConfigFields) -> MLP:
    return mlp(fields, gated=False, bias=fields.flag("mlp_bias", default=False))


def _nemotron_experts(fields: ConfigFields) -> MixtureOfExperts:
    fields.require("mlp_bias", expected=False)
    shared = fields.count("moe_shared_expert_intermediate_size", 0, minimum=0)
    return replace(
        grouped(fields, experts(fields, shared_width=shared)),
        gated=False,
        latent_size=fields.optional_count("moe_latent_size"),
    )


def _mamba(fields: ConfigFields, *, proj_bias: bool) -> StateSpace:
    fields.understood("expand", "time_step_rank", "mamba_d_ssm")  # heads and their size say it
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


def jamba(fields: ConfigFields) -> ModelConfig:
    """Jamba: Mamba-1 with norms inside, or attention without positions; experts in every other layer."""
    n = fields.num_layers
    fields.require("mamba_inner_layernorms", expected=True)
    inner = fields.count("expand", 2) * fields.count("hidden_size")
    bias = fields.flag("mamba_proj_bias", default=False)
    scan = selective_scan(fields, inner, proj_bias=bias, inner_norms=True)
    base = replace(attention(fields, kv_required=True), rotary=False)
    attends = _every(fields, "attn_layer", 8, 4)
    # a single expert is an MLP
    sparse = _every(fields, "expert_layer", 2, 1) if fields.count("num_experts", 16) > 1 else (False,) * n
    mlps = feed_forwards(fields, sparse, lambda: experts(fields, width="intermediate_size"))
    return decoder(fields, stack([base if full else scan for full in attends], mlps))


def _every(fields: ConfigFields, name: str, period: int, offset: int) -> tuple[bool, ...]:
    """Layers of which ``name``_period and ``name``_offset name one in so many."""
    period, offset = fields.count(f"{name}_period", period), fields.count(f"{name}_offset", offset, minimum=0)
    return tuple(i % period == offset for i in range(fields.num_layers))


def bamba(fields: ConfigFields) -> ModelConfig:
    """Bamba: Mamba-2, attention in the listed layers, a gated MLP in each."""
    n = fields.num_layers
    listed = set(fields.counts("attn_layer_indices", maximum=n - 1))
    kinds = fields.kinds("layer_types", ("linear_attention", "full_attention"), length=n)
    attends = [kind == "full_attention" for kind in kinds] if kinds else [i in listed for i in range(n)]
    base = attention(fields, qkv_bias=fields.flag("attention_bias", default=False), kv_required=True)
    scan = _sized_mamba(fields, proj_bias=fields.flag("mamba_proj_bias", default=False))
    feed_forward = mlp(fields, gated=True, bias=fields.flag("mlp_bias", default=False))
    return decoder(fields, stack([base if full else scan for full in attends], [feed_forward] * n))


def falcon_h1(fields: ConfigFields) -> ModelConfig:
    """Falcon-H1: Mamba-2 and attention in parallel in every layer, then a gated MLP."""
    proj_bias = fields.flag("mamba_proj_bias", default=False)
    fields.require("projectors_bias", expected=proj_bias)
    fields.understood("layer_types", "mlp_expansion_factor")
    fields.require("mamba_use_mlp", expected=True)
    inner = fields.optional_count("mamba_d_ssm", 1024)
    scan = replace(
        _sized_mamba(fields, proj_bias=proj_bias, inner=inner),
        gated_norm=fields.flag("mamba_rms_norm", default=False),
    )
    base = attention(fields, qkv_bias=fields.flag("attention_bias", default=False))
    feed_forward = mlp(fields, gated=True, bias=fields.flag("mlp_bias", default=False))
    layer = Layer(mixer=scan, parallel_mixer=base, mlp=feed_forward, num_norms=2)
    return decoder(fields, (layer,) * fields.num_layers)


def _sized_mamba(fields: ConfigFields, *, proj_bias: bool, inner: int | None = None) -> StateSpace:
    """Mamba-2 whose heads hold ``inner`` channels, or ``mamba_expand`` times the hidden size; "auto" divides them."""
    inner = inner or fields.count("expand", 2) * fields.count("hidden_size")
    fields.understood("expand", "mamba_d_ssm", "mamba_head_dim")
    heads = fields.count("mamba_num_heads", 128)
    stated = None if fields.word("mamba_d_head") in ("auto", None) else fields.count("mamba_head_dim")
    if inner % heads or stated not in (None, inner // heads):
        raise fields.error(
            f"{heads} Mamba heads of {stated or 'equal'} channels for {inner} channels in all",
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
        proj_bias=proj_bias,
    )


def granite_hybrid(fields: ConfigFields) -> ModelConfig:
    """Granite 4: Mamba-2 or attention, then a shared MLP, next to experts where there are any."""
    n = fields.num_layers
    kinds = fields.kinds("layer_types", ("mamba", "linear_attention", "attention", "full_attention"), length=n)
    if kinds is None:
        fields.count("layer_types")  # required
    bias = fields.flag("attention_bias", default=False)
    rotary = fields.word("position_embedding_type") == "rope"
    heads: dict[str, Mixer] = {"attention": replace(attention(fields, qkv_bias=bias), rotary=rotary)}
    if any(_BLOCKS[kind] == "mamba" for kind in kinds or ()):
        heads["mamba"] = _mamba(fields, proj_bias=fields.flag("mamba_proj_bias", default=False))
    layers = stack([heads[_BLOCKS[kind]] for kind in kinds or ()], [_granite_mlp(fields)] * n)
    return decoder(fields, layers)


def _granite_mlp(fields: ConfigFields) -> MLP | MixtureOfExperts:
    shared = fields.count("shared_intermediate_size")
    fields.understood("intermediate_size", "num_experts_per_tok")
    if fields.count("num_experts", minimum=0):
        return experts(fields, width="intermediate_size", shared_width=shared)
    return MLP(intermediate_size=shared, gated=True)


def qwen3_next(fields: ConfigFields) -> ModelConfig:
    """Qwen3-Next: gated delta networks, every fourth layer gated attention, experts with a gated shared one."""
    sparse = sparse_step(fields) if fields.count("num_experts", 0, minimum=0) else (False,) * fields.num_layers
    return _qwen_hybrid(fields, feed_forwards(fields, sparse, lambda: _qwen_experts(fields)))


def qwen3_5(fields: ConfigFields) -> ModelConfig:
    """Qwen3.5 without experts: the mixers of Qwen3-Next."""
    return _qwen_hybrid(fields, [mlp(fields, gated=True)] * fields.num_layers)


def qwen3_5_moe(fields: ConfigFields) -> ModelConfig:
    """Qwen3.5 with experts in every layer."""
    fields.understood("intermediate_size")
    return _qwen_hybrid(fields, [_qwen_experts(fields)] * fields.num_layers)


def _qwen_experts(fields: ConfigFields) -> MixtureOfExperts:
    shared = fields.count("shared_expert_intermediate_size", minimum=0)
    return experts(fields, shared_width=shared, shared_gate=shared > 0)


def _qwen_hybrid(fields: ConfigFields, mlps: list[MLP | MixtureOfExperts]) -> ModelConfig:
    n, every = fields.num_layers, fields.count("full_attention_interval", 4)
    kinds = fields.kinds("layer_types", ("linear_attention", "full_attention"), length=n)
    full = [k == "full_attention" for k in kinds] if kinds else [(i + 1) % every == 0 for i in range(n)]
    fields.understood("full_attention_interval")
    linear, base = None if all(full) else _delta_network(fields), _gated_attention(fields)
    layers = stack([base if is_full else linear for is_full in full], mlps)
    model = decoder(fields, layers)
    return replace(
        model, mtp_block=Layer(mixer=base, mlp=layers[-1].mlp, num_norms=2) if model.num_mtp_layers else None
    )


def _gated_attention(fields: ConfigFields) -> Mixer:
    bias = fields.flag("attention_bias", default=False)
    fields.require("attn_output_gate", expected=True)
    base = attention(fields, qkv_bias=bias, head_dim=256, kv_required=True)
    return replace(base, qk_norm="head", output_gate=True)


def _delta_network(fields: ConfigFields) -> LinearAttention:
    return LinearAttention(
        num_key_heads=fields.count("linear_num_key_heads"),
        num_value_heads=fields.count("linear_num_value_heads"),
        key_head_dim=fields.count("linear_key_head_dim"),
        value_head_dim=fields.count("linear_value_head_dim"),
        conv_kernel=fields.count("linear_conv_kernel_dim", 4),
    )


FAMILIES: Final[Mapping[str, Callable[[ConfigFields], ModelConfig]]] = {
    "bamba": bamba,
    "falcon_h1": falcon_h1,
    "granitemoehybrid": granite_hybrid,
    "jamba": jamba,
    "nemotron_h": nemotron_h,
    "qwen3_5_moe_text": qwen3_5_moe,
    "qwen3_5_text": qwen3_5,
    "qwen3_next": qwen3_next,
}
"""``model_type`` to the reader of its family."""
