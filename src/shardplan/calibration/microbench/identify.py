"""Which accelerator of the catalogue a device is, by its name, memory and cores, and which it cannot be."""

from __future__ import annotations

import re
from typing import Final

from shardplan.calibration.microbench.records import TimedDevice
from shardplan.errors import InputError
from shardplan.inputs.cluster import Accelerator
from shardplan.inputs.readers.catalog import list_accelerators, load_accelerator

FORMS: Final = {"pcie", "nvl"}
"""Words that a device states where its catalogue entry does."""
MEMORY_TOLERANCE: Final = 0.05
CORES_TOLERANCE: Final = 0.05
NAMED_TOLERANCE: Final = 0.1
"""Of the memory of a part that was named: drivers keep some of it back."""
MAKERS: Final = {"nvidia", "amd"}
PROCESSOR: Final = "other"
"""Generation of parts that no shipped profile speaks of, processors among them."""


def accelerator_of(device: TimedDevice) -> str | None:
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


def check_part(device: TimedDevice, accelerator: str) -> None:
    """Refuses a part that the device cannot be: its rates would be taken for that part's. Raises ``InputError``."""
    part = load_accelerator(accelerator)
    reason = _contradiction(device, part, is_shipped=accelerator.lower() in map(str.lower, list_accelerators()))
    if reason:
        raise InputError(
            f"the device is {device.name or 'unnamed'}, not {part.name}: {reason}",
            rule="the part that --accelerator names is the device that is timed",
            hint="name the part that it is, choose the device with --device, or leave --accelerator out; a file of "
            f"your own describes any other part (generation: {PROCESSOR} for a processor)",
        )


def _contradiction(device: TimedDevice, part: Accelerator, *, is_shipped: bool) -> str | None:
    """Why the device is not the part; None where nothing says so."""
    if device.kind == "cpu":
        return None if part.generation == PROCESSOR else "it is a processor, no accelerator"
    words = _words(device.name)
    if is_shipped and accelerator_of(device) not in (None, part.name):
        return f"it is {accelerator_of(device)}"
    if is_shipped and (other := _other_model(words, part)):
        return f"its name says {other}"
    if _memory_gap(part, device) > NAMED_TOLERANCE:
        return f"it has {device.memory_bytes / 1e9:.3g} GB, {part.name} has {part.memory_bytes / 1e9:.3g} GB"
    return None


def _other_model(words: list[str], part: Accelerator) -> str | None:
    """A model or a maker in a device's name that is not the part's."""
    makers = MAKERS & set(words) - {part.vendor.lower()}
    models = {name.split("-")[0] for name in list_accelerators()} & _models(words)
    if part.name.split("-")[0] in models:
        return None
    return min(models | makers, default=None)


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", name.lower())


def _models(words: list[str]) -> set[str]:
    """Words, and neighbours written as one: RTX PRO 6000 is ``rtxpro6000``."""
    return {"".join(words[start : start + length]) for start in range(len(words)) for length in (1, 2, 3)}


def _fits(accelerator: Accelerator, device: TimedDevice) -> bool:
    cores = accelerator.num_cores
    same_cores = cores is None or abs(device.num_cores / cores - 1) <= CORES_TOLERANCE
    return same_cores and _memory_gap(accelerator, device) <= MEMORY_TOLERANCE


def _memory_gap(accelerator: Accelerator, device: TimedDevice) -> float:
    return abs(device.memory_bytes / accelerator.memory_bytes - 1)
