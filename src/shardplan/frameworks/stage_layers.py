"""Which layers a framework puts on each stage where it does not share them out evenly, and how it is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from shardplan.inputs.layers import Attention, Layer
from shardplan.inputs.model import ModelConfig


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


def _with_all_heads(layer: Layer) -> Layer:
    if not isinstance(layer.mixer, Attention):
        return layer
    return replace(layer, mixer=replace(layer.mixer, num_kv_heads=layer.mixer.num_heads))
