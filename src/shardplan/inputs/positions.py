"""How long a sequence a model can read: rows of learned positions are a limit, the length of rotary ones is advice."""

from __future__ import annotations

from dataclasses import replace

from shardplan.errors import InputError
from shardplan.inputs.layers import Attention, LatentAttention
from shardplan.inputs.model import ModelConfig


def check_positions(model: ModelConfig, sequence_length: int) -> None:
    """Refuse sequences for which a model has no learned positions. Raises InputError."""
    if not model.num_position_embeddings or sequence_length <= model.max_position_embeddings:
        return
    lower = f"set --sequence-length to at most {model.max_position_embeddings:,}"
    field = "image_size" if model.patch else "the number of positions (max_position_embeddings, n_positions)"
    raise InputError(
        f"sequences of {sequence_length:,} tokens, and {model.name} has learned positions for "
        f"{model.max_position_embeddings:,}",
        rule="a sequence is no longer than a model's learned positions",
        hint=f"{lower}, or raise {field} in the model's file",
    )


def beyond_positions(model: ModelConfig, sequence_length: int) -> str:
    """What to say of sequences longer than a model with rotary positions is made for; empty where they are not."""
    mixers = (mixer for kind in model.layer_kinds for mixer in kind.mixers)
    rotates = any(isinstance(mixer, Attention | LatentAttention) and mixer.rotary for mixer in mixers)
    if not rotates or sequence_length <= model.max_position_embeddings:
        return ""
    return (
        f"sequences of {sequence_length:,} tokens are longer than the {model.max_position_embeddings:,} that "
        f"{model.name} is made for (max_position_embeddings): time and memory are right, rotary positions need scaling"
    )


def with_positions(model: ModelConfig, sequence_length: int) -> ModelConfig:
    """``model`` as made for sequences that it was measured to read; its table of positions stays as the file has it."""
    if not model.num_position_embeddings or model.patch or sequence_length <= model.max_position_embeddings:
        return model
    return replace(model, max_position_embeddings=sequence_length)
