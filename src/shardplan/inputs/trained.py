"""Which parameters a job trains: all, some with others frozen, or adapters on frozen ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from shardplan.base.errors import InputError, UnknownNameError, shown
from shardplan.base.fields import dataclass
from shardplan.base.words import folded
from shardplan.inputs.layers import Gradients
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.words import LORA_MATRICES

LORA_TARGETS: Final[Mapping[str, tuple[str, ...]]] = {
    **{word: (word,) for word in ("q", "k", "v", "qkv", "o", "gate", "up", "gate_up", "down")},
    "all": ("q", "k", "v", "o", "gate", "up", "down"),
}
"""Words for matrices that get adapters, and the matrices: ``qkv`` and ``gate_up`` have one adapter for all of them."""

_LAYERS: Final = re.compile(r"layers:(\d{1,6})-(\d{1,6})")
WANTED: Final = "none, or a comma list of embedding, head and layers:FIRST-LAST, such as embedding,layers:0-15"


@dataclass(frozen=True, kw_only=True)
class Frozen:
    """Frozen parts of a model."""

    embedding: bool = False
    head: bool = False
    layers: tuple[int, ...] = ()
    """Indices of layers, from 0."""


def targets_meant(words: str) -> str:
    """A comma list of matrices under our names: ``q_proj,v_proj`` is ``q,v``; unknown ones stay."""
    return ",".join(dict.fromkeys(LORA_MATRICES.get(folded(word), word.strip()) for word in words.split(",")))


def lora_targets(words: str) -> tuple[str, ...]:
    """Matrices that get an adapter. Raises ``UnknownNameError`` and ``InputError``."""
    found: list[str] = []
    for word in (part.strip() for part in words.split(",")):
        if word not in LORA_TARGETS:
            raise UnknownNameError("LoRA target", word, LORA_TARGETS, hint=f"one of {', '.join(LORA_TARGETS)}")
        found += LORA_TARGETS[word]
    for fused, parts in (("qkv", {"q", "k", "v"}), ("gate_up", {"gate", "up"})):
        if fused in found and parts & {*found}:
            raise InputError(
                f"lora_targets is {words}: {fused} has {', '.join(sorted(parts))} in it",
                rule="a matrix has one adapter",
                hint=f"name {fused} or its parts, not both",
            )
    return tuple(dict.fromkeys(found))


def frozen_parts(words: str) -> Frozen:
    """The parts in the text of ``freeze``. Raises ``InputError``."""
    frozen = Frozen()
    for word in (part.strip() for part in words.split(",")):
        span = _LAYERS.fullmatch(word)
        if word == "embedding":
            frozen = replace(frozen, embedding=True)
        elif word == "head":
            frozen = replace(frozen, head=True)
        elif span is not None and int(span[1]) <= int(span[2]):
            frozen = replace(frozen, layers=(*frozen.layers, *range(int(span[1]), int(span[2]) + 1)))
        elif word != "none":
            raise InputError(
                f"freeze is {shown(words)}; it must be {WANTED}",
                rule="freeze names parts of the model",
                hint=f"set --freeze to {WANTED}",
            )
    return frozen


def trained_model(model: ModelConfig, *, lora: bool, freeze: str) -> ModelConfig:
    """``model`` with the gradients that every layer needs. Raises ``InputError`` if nothing is left to train."""
    frozen = frozen_parts(freeze)
    if frozen.layers and max(frozen.layers) >= model.num_hidden_layers:
        raise InputError(
            f"freeze is {freeze} for {model.name}, whose last layer is {model.num_hidden_layers - 1}",
            rule="frozen layers are layers of the model",
            hint=f"freeze layers from 0 to {model.num_hidden_layers - 1}",
        )
    each = [position in frozen.layers for position in range(model.num_hidden_layers)]
    everything = [
        embedding_is_frozen(model, lora=False, freeze=freeze), *each, head_is_frozen(model, lora=False, freeze=freeze)
    ]  # fmt: skip
    if all(everything):
        raise InputError(
            f"freeze is {freeze}: nothing of {model.name} is left to train",
            rule="a job trains something",
            hint="freeze less, or set --train lora",
        )
    first = 0 if lora else everything.index(False) - 1
    gradients: list[Gradients] = [_gradients(at, first, is_frozen=kept) for at, kept in enumerate(each)]
    if tuple(gradients) == tuple(layer.gradients for layer in model.layers):
        return model
    layers = zip(model.layers, gradients, strict=True)
    return replace(model, layers=tuple(replace(layer, gradients=needed) for layer, needed in layers))


def _gradients(position: int, first: int, *, is_frozen: bool) -> Gradients:
    """Gradients that a layer needs if the first trained part is at the position ``first``."""
    if not is_frozen:
        return "all"
    return "input" if position > first else "none"


def embedding_is_frozen(model: ModelConfig, *, lora: bool, freeze: str) -> bool:
    """Whether the input embedding is frozen: a tied head freezes with it."""
    frozen = frozen_parts(freeze)
    return lora or frozen.embedding or (model.tie_word_embeddings and frozen.head)


def head_is_frozen(model: ModelConfig, *, lora: bool, freeze: str) -> bool:
    """Whether the output head is frozen."""
    frozen = frozen_parts(freeze)
    return lora or frozen.head or (model.tie_word_embeddings and frozen.embedding)
