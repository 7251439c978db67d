"""Which accelerator of the catalogue a device is, by its name, memory and cores."""

from __future__ import annotations

import re
from typing import Final

from shardplan.calibration.microbench.records import Device
from shardplan.inputs.catalog import list_accelerators, load_accelerator
from shardplan.inputs.cluster import Accelerator

__all__ = ["accelerator_of"]

FORMS: Final = {"pcie", "nvl"}
"""Words that a device states where its catalogue entry does."""
MEMORY_TOLERANCE: Final = 0.05
CORES_TOLERANCE: Final = 0.05


def accelerator_of(device: Device) -> str | None:
    """Name of the accelerator in the catalogue; None where none fits or two do equally well."""
    if device.kind == "cpu":
        return None
    words = _words(device.name)
    fitting = sorted(
        (_memory_gap(accelerator, device), name)
        for name in list_accelerators()
        if _models(words) & {name.split("-")[0]}
        and FORMS & set(name.split("-")) == FORMS & set(words)
        and _fits(accelerator := load_accelerator(name), device)
    )
    if not fitting or (len(fitting) > 1 and fitting[0][0] == fitting[1][0]):
        return None
    return fitting[0][1]


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", name.lower())


def _models(words: list[str]) -> set[str]:
    """Words, and neighbours written as one: RTX PRO 6000 is ``rtxpro6000``."""
    return {"".join(words[start : start + length]) for start in range(len(words)) for length in (1, 2, 3)}


def _fits(accelerator: Accelerator, device: Device) -> bool:
    cores = accelerator.num_cores
    same_cores = cores is None or abs(device.num_cores / cores - 1) <= CORES_TOLERANCE
    return same_cores and _memory_gap(accelerator, device) <= MEMORY_TOLERANCE


def _memory_gap(accelerator: Accelerator, device: Device) -> float:
    return abs(device.memory_bytes / accelerator.memory_bytes - 1)
