"""Devices by name: those of the notebook, and every accelerator of the catalogue in the notebook's terms."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from shardplan.errors import UnknownNameError
from shardplan.files import DATA, shipped_document
from shardplan.inputs.cluster import Accelerator
from shardplan.inputs.readers.catalog import cluster_of_accelerator, list_accelerators
from shardplan.published.data_movement.layer import Device

DEFAULT_DEVICE: Final = "H100 SXM5"
TABLE: Final = DATA / "published" / "data-movement-devices.yaml"
FIELDS: Final = {
    "flop_per_sec_8bit": "flops_8bit",
    "global_Bps": "memory_bandwidth",
    "net_Bps": "network_bandwidth",
    "base_util": "base_utilisation",
}
"""The notebook's names and ours."""


def list_devices() -> list[str]:
    """Names of the devices, the notebook's own first."""
    return [*notebook_devices(), *list_accelerators()]


@cache
def notebook_devices() -> dict[str, dict[str, dict[str, Any]]]:
    """The notebook's table: for every device each value with its unit and source."""
    return shipped_document(TABLE)


def device_called(name: str) -> Device:
    """A device by the notebook's name, or an accelerator by its name in the catalogue. Raises ``UnknownNameError``."""
    for known, values in notebook_devices().items():
        if name.strip().lower() == known.lower():
            return Device(name=known, **{ours: float(values[theirs]["value"]) for theirs, ours in FIELDS.items()})
    if name.lower() not in (known.lower() for known in list_accelerators()):
        raise UnknownNameError("device", f"{name:.60}", list_devices(), hint="see `shardplan accelerators`")
    cluster = cluster_of_accelerator(name)
    return device_of(cluster.accelerator, cluster.innermost.bandwidth)


def device_of(accelerator: Accelerator, link_bandwidth: float) -> Device:
    """An accelerator in the notebook's terms; ``link_bandwidth``: of one direction, of which the notebook adds both.

    The 8-bit peak is twice that of 16-bit numbers where the part has no fp8.
    """
    peaks = accelerator.peak_flops
    wide = max((peaks[name] for name in ("bf16", "fp16") if name in peaks), default=2 * peaks.get("fp32", 0.0))
    return Device(
        name=accelerator.name,
        flops_8bit=peaks.get("fp8", 2 * wide),
        memory_bandwidth=accelerator.memory_bandwidth,
        network_bandwidth=2 * link_bandwidth,
    )
