"""Encoders: BERT and its kin over tokens, ViT over image patches, laid out as in ``transformers``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from shardplan.inputs.layers import Layer
from shardplan.inputs.model import ModelConfig, PatchEmbedding
from shardplan.inputs.readers.hf.fields import ConfigFields, shown
from shardplan.inputs.readers.hf.parts import attention, decoder, mlp, repeated


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
    "roberta": roberta,
    "vit": vit,
    "xlm-roberta": roberta,
}
"""``model_type`` to the reader of its family."""
