"""Encoders: BERT and its kin over tokens, ViT over image patches, laid out as in ``transformers``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from shardplan.inputs.layers import MLP, Layer
from shardplan.inputs.model import ModelConfig, PatchEmbedding
from shardplan.inputs.readers.hf.fields import ConfigFields, shown
from shardplan.inputs.readers.hf.parts import attention, decoder, mlp, repeated, sliding, stack


def bert(fields: ConfigFields) -> ModelConfig:
    """BERT with its masked-language head: norms behind each part, a norm behind the embeddings."""
    rows = fields.count("max_position_embeddings")
    return _bert(fields, rows, rows)


def roberta(fields: ConfigFields) -> ModelConfig:
    """RoBERTa: BERT whose positions start behind the padding token, so that some rows are never used."""
    rows = fields.count("max_position_embeddings")
    return _bert(fields, rows, max(1, rows - fields.count("pad_token_id", 1, minimum=0) - 1))


def _bert(fields: ConfigFields, rows: int, longest: int) -> ModelConfig:
    fields.require("position_embedding_type", expected="absolute")
    return replace(
        decoder(fields, _encoder_layers(fields, qkv_bias=True), tie=True),
        norm_bias=True,
        max_position_embeddings=longest,
        num_position_embeddings=rows,
        num_token_types=fields.count("type_vocab_size", 2, minimum=0),
        has_final_norm=False,
        causal=False,
        has_embedding_norm=True,
        head_bias=True,
        has_head_transform=True,
    )


def vit(fields: ConfigFields) -> ModelConfig:
    """Vision transformer with a linear classifier."""
    patch = PatchEmbedding(
        image_size=_side(fields, "image_size"),
        patch_size=_side(fields, "patch_size"),
        num_channels=fields.count("num_channels", 3),
    )
    return ModelConfig(
        name=fields.name,
        model_type=fields.model_type,
        hidden_size=fields.count("hidden_size"),
        layers=_encoder_layers(fields, qkv_bias=fields.flag("qkv_bias", default=True)),
        vocab_size=0,
        tie_word_embeddings=False,
        norm_bias=True,
        max_position_embeddings=patch.sequence_length,
        num_position_embeddings=patch.sequence_length,
        patch=patch,
        num_labels=_num_labels(fields),
        causal=False,
    )


def modernbert(fields: ConfigFields) -> ModelConfig:
    """ModernBERT: rotary positions, gated MLPs, windows in two of three layers, no norm before the first."""
    bias = fields.flag("attention_bias", default=False)
    heads = fields.count("num_attention_heads")
    base = replace(attention(fields, qkv_bias=bias, num_kv_heads=heads), causal=False)
    every = fields.count("global_attn_every_n_layers", 3)
    slides = sliding(fields, lambda i: i % every != 0)
    fields.understood("local_attention", "sliding_window")
    local = replace(base, window=max(1, fields.count("local_attention", 128) // 2))  # half of it on each side
    feed_forward = mlp(fields, gated=True, bias=fields.flag("mlp_bias", default=False))
    layers = stack([local if slide else base for slide in slides], [feed_forward] * len(slides))
    return replace(
        decoder(fields, (replace(layers[0], num_norms=1), *layers[1:]), tie=True),
        norm_bias=fields.flag("norm_bias", default=False),
        causal=False,
        has_embedding_norm=True,
        head_bias=fields.flag("decoder_bias", default=True),
        has_head_transform=True,
        head_transform_bias=fields.flag("classifier_bias", default=False),
    )


def dinov2(fields: ConfigFields) -> ModelConfig:
    """DINOv2: a vision transformer whose layers scale their outputs, with a SwiGLU MLP in the largest."""
    registers = fields.count("num_register_tokens", 4, minimum=0) if "registers" in fields.model_type else 0
    patch = PatchEmbedding(
        image_size=_side(fields, "image_size"),
        patch_size=_side(fields, "patch_size"),
        num_channels=fields.count("num_channels", 3),
        num_registers=registers,
        has_mask_token=fields.flag("use_mask_token", default=True),
    )
    qkv_bias, heads = fields.flag("qkv_bias", default=True), fields.count("num_attention_heads")
    base = attention(fields, qkv_bias=qkv_bias, output_bias=True, num_kv_heads=heads)
    layer = Layer(
        mixer=replace(base, causal=False, rotary=False), mlp=_dinov2_mlp(fields), num_norms=2, layer_scale=True
    )
    return ModelConfig(
        name=fields.name,
        model_type=fields.model_type,
        hidden_size=fields.count("hidden_size"),
        layers=(layer,) * fields.num_layers,
        vocab_size=0,
        tie_word_embeddings=False,
        norm_bias=True,
        max_position_embeddings=patch.sequence_length,
        num_position_embeddings=patch.num_patches + 1,
        patch=patch,
        num_labels=_num_labels(fields),
        num_label_inputs=2,
        causal=False,
    )


def _dinov2_mlp(fields: ConfigFields) -> MLP:
    """Two thirds of the width, rounded up to a multiple of eight, where a gate takes the other third."""
    width = int(fields.ratio("mlp_ratio", 4) * fields.count("hidden_size"))
    gated = fields.flag("use_swiglu_ffn", default=False)
    return MLP(intermediate_size=(int(width * 2 / 3) + 7) // 8 * 8 if gated else width, gated=gated, bias=True)


def _encoder_layers(fields: ConfigFields, *, qkv_bias: bool) -> tuple[Layer, ...]:
    base = attention(fields, qkv_bias=qkv_bias, output_bias=True, num_kv_heads=fields.count("num_attention_heads"))
    return repeated(fields, replace(base, causal=False, rotary=False), mlp(fields, gated=False, bias=True))


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


FAMILIES: Final[Mapping[str, Callable[[ConfigFields], ModelConfig]]] = {
    "bert": bert,
    "camembert": roberta,
    "dinov2": dinov2,
    "dinov2_with_registers": dinov2,
    "modernbert": modernbert,
    "roberta": roberta,
    "vit": vit,
    "xlm-roberta": roberta,
}
"""``model_type`` to the reader of its family."""
