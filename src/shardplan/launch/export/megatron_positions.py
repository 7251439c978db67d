"""How Megatron's frameworks state the scaling of rotary positions: that of Llama 3.1, and YaRN.

Names: ``MLATransformerConfig`` of ``megatron/core/transformer/transformer_config.py`` and
``megatron/training/arguments.py`` at d98e8a64; ``src/megatron/bridge/models/gpt_provider.py`` and
``conversion/model_bridge.py`` at 067f987d.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardplan.inputs.layers import LatentAttention
from shardplan.launch.export.case import LaunchCase
from shardplan.launch.export.details import Yarn, llama3_factor, number_text, yarn_of


def scaling_of_bridge(case: LaunchCase) -> dict[str, Any] | None:
    """Fields of Megatron-Bridge's model; None where it cannot state the scaling."""
    factor, yarn, is_latent = llama3_factor(case), yarn_of(case), isinstance(case.decoder.attention, LatentAttention)
    if factor is not None and not is_latent:
        return {"rope_scaling": True, "rope_scaling_factor": number_text(factor)}
    if yarn is not None:
        return _of_latent(yarn) if is_latent else _of_usual(yarn)
    return None if case.model.details.scaling_kind else {}


def scaling_of_megatron_lm(case: LaunchCase) -> list[Sequence[str]] | None:
    """Options of Megatron-LM; None where they cannot state the scaling.

    The numbers of YaRN that are no options have the defaults of ``MLATransformerConfig``; for attention that is not
    latent the factor is no option.
    """
    factor, yarn, is_latent = llama3_factor(case), yarn_of(case), isinstance(case.decoder.attention, LatentAttention)
    if factor is not None and not is_latent:
        return [["--use-rope-scaling", "--rope-scaling-factor", number_text(factor)]]
    if yarn is None or not is_latent:
        return None if case.model.details.scaling_kind else []
    found = _of_latent(yarn)
    fixed = {"original_max_position_embeddings": "4096", "beta_fast": "32", "beta_slow": "1"}
    if found is None or any(found[name] != value for name, value in fixed.items()):
        return None
    return [[f"--{name.replace('_', '-')}", value] for name, value in found.items() if name not in fixed]


def _of_latent(yarn: Yarn) -> dict[str, str] | None:
    """Fields of latent attention, which ends the range of frequencies at whole numbers."""
    if not yarn.truncate:
        return None
    return {
        "rope_type": "yarn",
        "rotary_scaling_factor": number_text(yarn.factor),
        "original_max_position_embeddings": number_text(yarn.original_max_position_embeddings),
        "beta_fast": number_text(yarn.beta_fast),
        "beta_slow": number_text(yarn.beta_slow),
        "mscale": number_text(1 if yarn.mscale is None else yarn.mscale),
        "mscale_all_dim": number_text(0 if yarn.mscale_all_dim is None else yarn.mscale_all_dim),
    }


def _of_usual(yarn: Yarn) -> dict[str, Any]:
    """Fields of other attention."""
    values = {
        "rotary_scaling_factor": yarn.factor,
        "original_max_position_embeddings": yarn.original_max_position_embeddings,
        "beta_fast": yarn.beta_fast,
        "beta_slow": yarn.beta_slow,
        "mscale": yarn.mscale,
        "mscale_all_dim": yarn.mscale_all_dim,
    }
    numbers = {f"yarn_{name}": number_text(value) for name, value in values.items() if value is not None}
    return {"position_embedding_type": "yarn", **numbers, "yarn_correction_range_round_to_int": yarn.truncate}
