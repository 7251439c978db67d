"""The calculator's answer in the words of its page: table, recommendation, reasons, hints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shardplan.published.calculator.flaws import FLAWS
from shardplan.published.calculator.table import ADAM_BYTES, FILLED, GB, CalculatorCase, MemoryTable, table

EXPERT_PARALLEL: Final = 8
"""Degree for which the page gives its hint."""
RESULTS: Final = ("model_memory_gb", "rows", "recommended", "reasons", "expert_parallelism", "notes")
"""Fields of an answer."""


def record(case: CalculatorCase) -> dict[str, Any]:
    """The answer in the words of the reference file. Raises ``InputError``."""
    found = table(case)
    best = int(found.order[0])
    recommended = None
    if found.fits[best]:
        recommended = {name: int(getattr(found, name)[best]) for name in ("tp", "pp", "dp")}
    return {
        "model_memory_gb": _model_memory(case),
        "rows": [_row(found, index) for index in range(len(found.tp))],
        "recommended": recommended,
        "reasons": _reasons(case, recommended),
        "expert_parallelism": _expert_hint(case.model.num_experts) if case.model.is_moe else None,
        "notes": [flaw.text for flaw in FLAWS],
    }


def _model_memory(case: CalculatorCase) -> dict[str, float]:
    count, size = case.model.num_parameters, case.training.dtype_bytes
    return {
        "params": count * size / GB,
        "gradients": count * size / GB,
        "optimizer": count * ADAM_BYTES / GB,
        "total": count * (2 * size + ADAM_BYTES) / GB,
        "param_count": count,
    }


def _row(found: MemoryTable, index: int) -> dict[str, Any]:
    traffic = {f"{name}_per_step_gb": float(getattr(found, f"{name}_gb")[index]) for name in ("tp", "pp", "dp")}
    return {
        **{name: int(getattr(found, name)[index]) for name in ("tp", "pp", "dp")},
        "memory_per_gpu": float(found.memory_gb[index]),
        "fits": bool(found.fits[index]),
        "communication": {**traffic, "total_gb": float(found.total_gb[index])},
        "tp_intra_node": True,  # larger degrees are not tried
        "num_microbatches": int(found.num_microbatches[index]),
        "bubble_fraction": float(found.bubble_fraction[index]),
    }


def _reasons(case: CalculatorCase, recommended: Mapping[str, int] | None) -> list[str]:
    """Why that configuration, in a line for each degree."""
    if recommended is None:
        limit = FILLED * case.hardware.memory_per_gpu_gb
        return [f"nothing stays below {limit:g} GB per GPU: use more GPUs, larger ones or a smaller batch"]
    tp, pp, dp = (recommended[name] for name in ("tp", "pp", "dp"))
    return [
        f"tp {tp}: inside one node of {case.hardware.gpus_per_node}, on its fast links",
        f"pp {pp}: {'one stage' if pp == 1 else f'the model in {pp} stages'}",
        f"dp {dp}: {'one replica' if dp == 1 else f'{dp} replicas share the batch'}",
        "least traffic of all that fit",
    ]


def _expert_hint(num_experts: int) -> dict[str, Any]:
    """What the page says of expert parallelism."""
    return {
        "ep": EXPERT_PARALLEL,
        "experts_per_gpu": num_experts // EXPERT_PARALLEL,
        "all_to_all_per_layer": 2,
        "hints": [
            "whole experts make larger matrix products than experts cut by tensor parallelism",
            "expert parallelism pays where there are many more experts than tensor-parallel ranks",
            "use it for the experts, instead of tensor parallelism or with it",
        ],
    }
