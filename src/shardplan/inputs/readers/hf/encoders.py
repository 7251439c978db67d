"""Encoders: BERT and its kin over tokens, ViT over image patches, laid out as in ``transformers``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from shardplan.inputs.layers import MLP, Attention
from shardplan.inputs.model import ModelConfig, PatchEmbedding
from shardplan.inputs.readers.hf.family import (
    ALL_HEADS,
    ATTENTION_BIAS,
    MLP_BIAS,
    ModelFamily,
    attention,
    count,
    flag,
    mlp,
    sliding,
    stack,
)
from shardplan.inputs.readers.hf.fields import ConfigFields, shown


def _used_positions(fields: ConfigFields) -> int:
    """RoBERTa's positions start after the padding token, so some rows are never used."""
    return max(1, fields.count("max_position_embeddings") - fields.count("pad_token_id", 1, minimum=0) - 1)


def _modernbert_mixers(fields: ConfigFields) -> Sequence[Attention]:
    """Windows in two of three layers."""
    base = attention(fields, qkv_bias=ATTENTION_BIAS(fields), num_kv_heads=ALL_HEADS(fields))
    base = replace(base, causal=False)
    every = fields.count("global_attn_every_n_layers", 3)
    local = replace(base, window=max(1, fields.count("local_attention", 128) // 2))  # half of it on each side
    return [local if slide else base for slide in sliding(fields, lambda i: i % every != 0)]


def _vit(fields: ConfigFields) -> ModelConfig:
    patch, mixer = _patches(fields), _encoder_attention(fields, qkv_bias=fields.flag("qkv_bias", default=True))
    return _vision(fields, patch, mixer, mlp(fields, gated=False, bias=True))


def _dinov2(fields: ConfigFields) -> ModelConfig:
    registers = fields.count("num_register_tokens", 4, minimum=0) if "registers" in fields.model_type else 0
    patch = replace(
        _patches(fields), num_registers=registers, has_mask_token=fields.flag("use_mask_token", default=True)
    )
    mixer = _encoder_attention(fields, qkv_bias=fields.flag("qkv_bias", default=True))
    model = _vision(fields, patch, mixer, _dinov2_mlp(fields))
    return replace(
        model,
        layers=(replace(model.layers[0], layer_scale=True),) * len(model.layers),
        num_position_embeddings=patch.num_patches + 1,
        num_label_inputs=2,
    )


def _vision(fields: ConfigFields, patch: PatchEmbedding, mixer: Attention, feed_forward: MLP) -> ModelConfig:
    """A vision transformer of equal layers with a linear classifier."""
    return ModelConfig(
        name=fields.name,
        model_type=fields.model_type,
        hidden_size=fields.count("hidden_size"),
        layers=stack(fields, mixer, feed_forward),
        vocab_size=0,
        tie_word_embeddings=False,
        norm_bias=True,
        max_position_embeddings=patch.sequence_length,
        num_position_embeddings=patch.sequence_length,
        patch=patch,
        num_labels=_num_labels(fields),
        causal=False,
    )


def _patches(fields: ConfigFields) -> PatchEmbedding:
    return PatchEmbedding(
        image_size=_side(fields, "image_size"),
        patch_size=_side(fields, "patch_size"),
        num_channels=fields.count("num_channels", 3),
    )


def _encoder_attention(fields: ConfigFields, *, qkv_bias: bool) -> Attention:
    base = attention(fields, qkv_bias=qkv_bias, output_bias=True, num_kv_heads=ALL_HEADS(fields))
    return replace(base, causal=False, rotary=False)


def _dinov2_mlp(fields: ConfigFields) -> MLP:
    """An MLP of two thirds of the width, rounded up to a multiple of eight, if a gate takes the other third."""
    width = int(fields.ratio("mlp_ratio", 4) * fields.count("hidden_size"))
    gated = fields.flag("use_swiglu_ffn", default=False)
    return MLP(intermediate_size=(int(width * 2 / 3) + 7) // 8 * 8 if gated else width, gated=gated, bias=True)


def _side(fields: ConfigFields, key: str) -> int:
    """Side of a square, given as a number or as two equal ones."""
    value = fields.word(key)
    if isinstance(value, list | tuple):
        sides = set(fields.counts(key, maximum=1_000_000))
        if len(sides) != 1 or 0 in sides:
            raise fields.error(
                f"{key} is {shown(value)}", rule=f"{key} is a square", hint=f"give {key} as one positive number"
            )
        return sides.pop()
    return fields.count(key)


def _num_labels(fields: ConfigFields) -> int:
    """Classes: ``num_labels`` or the entries of ``id2label``; 2 for a classifier that names none, 0 without one."""
    labels = fields.word("id2label")
    if isinstance(labels, Mapping) and not fields.has("num_labels"):
        return len(labels)
    classes = fields.values.get("architectures")
    names = [name for name in classes if isinstance(name, str)] if isinstance(classes, list | tuple) else []
    classifies = any("ForImageClassification" in name for name in names)
    return fields.count("num_labels", 2 if classifies else 0, minimum=0)


_TOKENS: Final[dict[str, Any]] = {
    "causal": False,
    "has_embedding_norm": True,
    "has_head_transform": True,
}
"""Common fields of models of masked tokens."""
_BERT: Final = ModelFamily(
    "BERT with its masked-language head: norms behind each part, a norm behind the embeddings."
)._replace(
    required={"position_embedding_type": "absolute"},
    mixers=lambda fields: _encoder_attention(fields, qkv_bias=True),
    gated=False,
    mlp_bias=True,
    tie=True,
    model=_TOKENS
    | {
        "norm_bias": True,
        "num_position_embeddings": count("max_position_embeddings"),
        "num_token_types": lambda fields: fields.count("type_vocab_size", 2, minimum=0),
        "has_final_norm": False,
        "head_bias": True,
    },
)
_ROBERTA: Final = _BERT.called(
    "RoBERTa: BERT whose positions start behind the padding token, so that some rows are never used."
)._replace(model={**_BERT.model, "max_position_embeddings": _used_positions})
_DINOV2: Final = ModelFamily(
    "DINOv2: a vision transformer whose layers scale their outputs, with a SwiGLU MLP in the largest."
)._replace(whole=_dinov2)

ENCODERS: Final[Mapping[str, ModelFamily]] = {
    "bert": _BERT,
    "camembert": _ROBERTA,
    "dinov2": _DINOV2,
    "dinov2_with_registers": _DINOV2,
    "modernbert": ModelFamily(
        "ModernBERT: rotary positions, gated MLPs, windows in two of three layers, no norm before the first."
    )._replace(
        understood=("sliding_window",),
        mixers=_modernbert_mixers,
        mlp_bias=MLP_BIAS,
        tie=True,
        model=_TOKENS
        | {
            "norm_bias": flag("norm_bias"),
            "head_bias": flag("decoder_bias", default=True),
            "head_transform_bias": flag("classifier_bias"),
        },
        adjusted=lambda _, model: replace(model, layers=(replace(model.layers[0], num_norms=1), *model.layers[1:])),
    ),
    "roberta": _ROBERTA,
    "vit": ModelFamily("Vision transformer with a linear classifier.")._replace(whole=_vit),
    "xlm-roberta": _ROBERTA,
}
"""``model_type`` to the row of its family."""
