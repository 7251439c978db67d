"""Which layers a framework puts on each stage where it does not share them out evenly, and how it is written.

Also the kinds of layers that a model is made of, as capability records and the evidence name them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Final, get_args

import numpy as np

from shardplan.inputs.layers import MLP, Attention, LatentAttention, Layer, MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.recurrent import LinearAttention, Recurrent, StateSpace


def layers_by_cost(model: ModelConfig, pp: int) -> tuple[int, ...] | None:
    """Layers of every stage where a stage closes behind the part whose cost exceeds its share of the sum.

    Costs are the matrices of layers and head as nanotron counts them, keys and values as wide as queries
    (nanotron/models/base.py and llama.py). None where a stage would stay without layers.
    """
    kinds = [model.num_layer_parameters(_with_all_heads(kind)) for kind in model.layer_kinds]
    reached = np.cumsum([*(kinds[kind] for kind in model.layer_pattern), model.vocab_size * model.hidden_size])
    counts, stage = [0] * pp, 0
    for cost in reached[:-1]:
        counts[stage] += 1
        stage += int(stage + 1 < pp and cost > reached[-1] * (stage + 1) / pp)
    return tuple(counts) if all(counts) else None


def torchtitan_layers(num_layers: int, num_stages: int, first_less: int = 1, last_less: int = 1) -> tuple[int, ...]:
    """Layers of every stage as torchtitan shares them: embedding and head weigh as many layers as stated.

    What is left over goes to the first stages (torchtitan/distributed/pipeline_parallel.py at b5bcd76c,
    _generate_llm_fqn_per_model_part).
    """
    base, extra = divmod(num_layers + first_less + last_less, num_stages)
    counts = [base + (stage < extra) for stage in range(num_stages)]
    counts[0] -= first_less
    counts[-1] -= last_less
    return tuple(max(count, 0) for count in counts)


def torchtitan_can_share(num_layers: int, num_stages: int, first_less: int = 1, last_less: int = 1) -> bool:
    """Whether torchtitan starts: neither embedding nor head weighs more layers than a stage has (likewise)."""
    base = (num_layers + first_less + last_less) // num_stages
    return base >= max(1, first_less, last_less)


def megatron_layout(layers: Sequence[int], num_mtp_layers: int) -> str:
    """Layers of every virtual stage in the notation of Megatron Core, such as ``Et*7|(t*8|)*14t*7L``.

    ``E`` is the embedding, ``t`` a layer, ``m`` a block that predicts further tokens, ``L`` the loss, ``|`` ends a
    stage (megatron/core/transformer/pipeline_parallel_layer_layout.py).
    """
    *stages, last = ["" if count == 0 else "t" if count == 1 else f"t*{count}" for count in layers]
    parts = [f"{stages[0]}|"] if stages else []
    for stage, alike in groupby(stages[1:]):
        number = len(list(alike))
        parts.append(f"{stage}|" if number == 1 else f"({stage}|)*{number}")
    return f"E{''.join(parts)}{last}{'m' * num_mtp_layers}L"


def is_hybrid(model: ModelConfig) -> bool:
    """Whether Megatron Core builds the model from letters of its layers, some of which are Mamba-2.

    megatron/core/models/hybrid/hybrid_layer_allocation.py at d98e8a64.
    """
    kinds = model.layer_kinds
    return any(isinstance(kind.mixer, StateSpace) for kind in kinds) and all(map(_has_letters, kinds))


def hybrid_pattern(model: ModelConfig, layers: Sequence[int]) -> str:
    """Letters of a hybrid model's layers, with ``|`` between virtual stages and ``/`` in front of prediction blocks.

    Such as ``M-M-|M*M-``: a stage of four layers, then another (likewise; megatron/training/arguments.py).
    """
    letters = [_letters(layer) for layer in model.layers]
    ends = np.cumsum(layers)
    stages = ("".join(letters[end - count : end]) for count, end in zip(layers, ends, strict=True))
    blocks = f"/{_letters(model.mtp_layer)}" * model.num_mtp_layers
    return "|".join(stages) + blocks


def _letters(layer: Layer) -> str:
    return "".join(_LETTERS[type(part)](part) for part in (layer.mixer, layer.mlp) if part is not None)


def _has_letters(layer: Layer) -> bool:
    parts = [part for part in (layer.mixer, layer.mlp) if part is not None]
    return layer.parallel_mixer is None and all(type(part) in _LETTERS for part in parts)


_LETTERS: Final[Mapping[type[Any], Callable[[Any], str]]] = {
    StateSpace: lambda _: "M",
    LinearAttention: lambda _: "G",
    Attention: lambda _: "*",
    LatentAttention: lambda mixer: "+" if mixer.index_topk is None else "D",
    MLP: lambda _: "-",
    MixtureOfExperts: lambda _: "E",
}


def _with_all_heads(layer: Layer) -> Layer:
    if not isinstance(layer.mixer, Attention):
        return layer
    return replace(layer, mixer=replace(layer.mixer, num_kv_heads=layer.mixer.num_heads, qk_norm="none"))


_RECURRENT: Final = tuple(each.title.lower().replace(" ", "-") for each in get_args(Recurrent))
"""Mixers that do not read all of the sequence."""
MTP: Final = "multi-token-prediction"
"""Blocks behind the layers that predict further tokens: a model can be trained without them."""
LAYER_KINDS: Final = (
    "attention", "sliding-window", "attention-sinks", "latent-attention", "sparse-attention", "compressed-attention",
    *_RECURRENT, "parallel-mixers", "hyper-connections", "experts", MTP,
)  # fmt: skip
"""All kinds. ``latent-attention``: DeepSeek's MLA; ``sparse-attention``: MLA over selected keys;
``compressed-attention``: to a window and to compressed keys; ``parallel-mixers``: two mixers in one layer (Falcon-H1);
``hyper-connections``: several residual streams (both DeepSeek-V4)."""


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
    if layer.streams > 1:
        yield "hyper-connections"
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
