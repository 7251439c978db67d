"""Kinds of layers that a model is made of, as capability records and the evidence name them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, get_args

from shardplan.inputs.layers import Attention, LatentAttention, Layer, Mixer, MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.recurrent import Recurrent

_RECURRENT: Final = tuple(
    each.title.lower().replace(" ", "-") for each in get_args(Mixer) if issubclass(each, Recurrent)
)
"""Mixers that do not read all of the sequence."""
MTP: Final = "multi-token-prediction"
"""Blocks behind the layers that predict further tokens: a model can be trained without them."""
LAYER_KINDS: Final = (
    "attention", "sliding-window", "attention-sinks", "latent-attention", "sparse-attention", *_RECURRENT,
    "parallel-mixers", "experts", MTP,
)  # fmt: skip
"""All kinds. ``latent-attention``: DeepSeek's MLA; ``sparse-attention``: MLA over selected keys;
``parallel-mixers``: two mixers in one layer (Falcon-H1)."""


def layer_kinds(model: ModelConfig) -> tuple[str, ...]:
    """Those that a model has, in the order of :data:`LAYER_KINDS`."""
    found = {kind for layer in model.layer_kinds for kind in _kinds_of(layer)}
    found |= {MTP} if model.num_mtp_layers else set()
    return tuple(kind for kind in LAYER_KINDS if kind in found)


def recurrent_share(model: ModelConfig) -> float:
    """Share of the layers with a mixer that has one without attention, or one next to it."""
    kinds = [{*_mixers_of(layer)} & {*_RECURRENT} for layer in model.layer_kinds]
    with_mixer = [index for index in model.layer_pattern if model.layer_kinds[index].mixer is not None]
    return sum(bool(kinds[index]) for index in with_mixer) / max(len(with_mixer), 1)


def _kinds_of(layer: Layer) -> Iterator[str]:
    yield from _mixers_of(layer)
    if layer.parallel_mixer is not None:
        yield "parallel-mixers"
    if isinstance(layer.mlp, MixtureOfExperts):
        yield "experts"


def _mixers_of(layer: Layer) -> Iterator[str]:
    for mixer in (layer.mixer, layer.parallel_mixer):
        if isinstance(mixer, Attention):
            yield "attention"
            yield from ["sliding-window"] * (mixer.window is not None)
            yield from ["attention-sinks"] * mixer.sinks
        elif isinstance(mixer, LatentAttention):
            yield "latent-attention" if mixer.index_topk is None else "sparse-attention"
        elif mixer is not None:
            yield mixer.title.lower().replace(" ", "-")
