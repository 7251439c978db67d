"""Errors of predicted runs, and what makes runs alike: the rows from which bands are made.

A row of ``data/profiles/residuals.csv``, or of ``left_out_errors`` in a user's profile, is one run predicted by
constants that have not seen it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from shardplan.errors import InputError, shown

__all__ = ["CONTRADICTORY_MEMORY", "EVEN", "Features", "Residual", "Shares", "residual_from_row", "residual_row"]

CONTRADICTORY_MEMORY = ("internevo",)
"""Families whose peak memories contradict their own descriptions: no evidence of how memory errs."""
LARGEST_ERROR = 20.0
"""Largest believable error (logarithm) of a row: half a billion times too large or too small."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shares:
    """Shares of a predicted step whose prediction is least certain."""

    host: float = 0.0
    """The device waits for the host."""
    communication: float = 0.0
    """Exposed communication."""
    attention: float = 0.0
    """Attention, whose kernels differ most from release to release."""


EVEN = Shares()
"""A step that only computes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Features:
    """What makes runs alike."""

    accelerator: str
    generation: str
    bits: int
    """Of the matrix products' number format."""
    moe: bool
    parameters: float
    accelerators: float
    sequence_length: float = 4096.0
    cp: float = 1.0
    """Degree of context parallelism."""
    shares: Shares = EVEN
    """Of the predicted step: what is less certain than computing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Residual:
    """Error of a run predicted by constants that have not seen it: ln(predicted / measured)."""

    id: str
    family: str
    features: Features
    time: float | None
    memory: float | None
    setting: str = ""
    """What the configurations of one comparison share (model, accelerators, sequence); empty: not fully described."""

    def has(self, quantity: str) -> bool:
        """Whether it is evidence of ``time`` or ``memory``."""
        is_doubted = quantity == "memory" and self.family in CONTRADICTORY_MEMORY
        return getattr(self, quantity) is not None and not is_doubted


def residual_row(run: Residual) -> dict[str, str]:
    """The cells of a run, as they stand in files."""
    features = run.features
    ratios = {"log_time_ratio": run.time, "log_memory_ratio": run.memory}
    return {
        "id": run.id,
        "family": run.family,
        "accelerator": features.accelerator,
        "generation": features.generation,
        "bits": str(features.bits),
        "moe": "yes" if features.moe else "no",
        "parameters": f"{features.parameters:.4g}",
        "accelerators": f"{features.accelerators:g}",
        **{name: "" if ratio is None else f"{ratio:.4f}" for name, ratio in ratios.items()},
        "setting": run.setting,
        "host_share": f"{features.shares.host:.3f}",
        "communication_share": f"{features.shares.communication:.3f}",
        "attention_share": f"{features.shares.attention:.3f}",
        "sequence_length": f"{features.sequence_length:.0f}",
        "cp": f"{features.cp:.0f}",
    }


def residual_from_row(row: Mapping[str, Any]) -> Residual:
    """The run of :func:`residual_row`. Raises ``InputError`` on cells that are none."""
    try:
        shares = Shares(**{field.name: _number(row, f"{field.name}_share", most=1.0) for field in fields(Shares)})
        features = Features(
            accelerator=str(row["accelerator"]),
            generation=str(row["generation"]),
            bits=int(_number(row, "bits", least=1, most=64)),
            moe={"yes": True, "no": False}[row["moe"]],
            parameters=_number(row, "parameters", least=1),
            accelerators=_number(row, "accelerators", least=1),
            sequence_length=_number(row, "sequence_length", least=1),
            cp=_number(row, "cp", least=1),
            shares=shares,
        )
        time, memory = (_ratio(row, name) for name in ("log_time_ratio", "log_memory_ratio"))
        family, setting = str(row["family"]), str(row.get("setting") or "")
        return Residual(id=str(row["id"]), family=family, features=features, time=time, memory=memory, setting=setting)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise InputError(
            f"the error of a run is {shown(dict(row) if isinstance(row, Mapping) else row)}: {error}",
            rule="errors of runs have the cells that `shardplan calibrate` writes",
            hint="make the profile again, or leave the row out",
        ) from None


def _number(row: Mapping[str, Any], name: str, *, least: float = 0.0, most: float = 1e18) -> float:
    value = float(row[name])
    if not least <= value <= most:
        raise ValueError(f"{name} is {value:g}, not from {least:g} to {most:g}")
    return value


def _ratio(row: Mapping[str, Any], name: str) -> float | None:
    text = row[name]
    if text in ("", None):
        return None
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{name} is {value:g}")
    return min(max(value, -LARGEST_ERROR), LARGEST_ERROR)
