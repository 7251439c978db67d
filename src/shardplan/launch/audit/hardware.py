"""The cluster of an audit next to the accelerators that the file names."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from shardplan.base.files import DATA
from shardplan.inputs.cluster import Cluster, NetworkTier
from shardplan.launch.dialects.reading import Break, Reading

_MODEL: Final = re.compile(r"v\d[ep]?|(?:gb|gh|mi|rtx|gaudi|trn|[abhlv])\d+|910[bc]")
"""What tells one accelerator from another in the names of sites and of the catalogue; memory sizes follow apart."""
_MEMORY: Final = re.compile(r"(\d+)\s*gi?b?\b")
TWO_DEVICES: Final = {"tpu7x": "tpu-v7"}
"""Names of accelerators whose chips are two devices for a framework, and of the chip in the catalogue."""


def hardware_of(reading: Reading, cluster: Cluster) -> tuple[Cluster, tuple[Break, ...]]:
    """The cluster as the file's framework sees it, and where its accelerator is not the one that the file names."""
    named = str(reading.value("accelerator") or "")
    chip = TWO_DEVICES.get(named)
    if chip is not None and cluster.accelerator.name.startswith(chip):
        return of_devices(cluster), ()
    return cluster, _differences(reading, named.lower(), cluster)


def _differences(reading: Reading, named: str, cluster: Cluster) -> tuple[Break, ...]:
    own = cluster.accelerator.name
    asked, has = _known(named), _known(own)
    sizes = [_MEMORY.search(name.replace("_", " ").replace("-", " ")) for name in (named, own)]
    differs = asked != has or (sizes[0] is not None and sizes[1] is not None and sizes[0][1] != sizes[1][1])
    if asked is None or has is None or not differs:
        return ()
    fact = reading.facts["accelerator"]
    return (
        Break(
            rule="the cluster has the accelerators of the file",
            values=f"the file asks for {fact.value} ({fact.why}); {cluster.name} has {cluster.accelerator.full_name}",
            knob="give --cluster with the accelerators of the file",
            severity="notice",
        ),
    )


def _known(name: str) -> str | None:
    """The accelerator that a name means; None for one that the catalogue does not have."""
    found = _MODEL.search({"v5litepod": "v5e", "tpu7x": "v7"}.get(name, name))
    models = {model[0] for path in (DATA / "accelerators").glob("*.yaml") if (model := _MODEL.search(path.stem))}
    return found[0] if found and found[0] in models else None


def of_devices(cluster: Cluster, number: int = 2) -> Cluster:
    """A cluster of chips as one of the devices that a chip is: each has an equal share of all."""
    chip = cluster.accelerator
    device = replace(
        chip,
        full_name=f"{chip.full_name}, one of its {number} devices",
        memory_bytes=chip.memory_bytes / number,
        memory_bandwidth=chip.memory_bandwidth / number,
        peak_flops={name: flops / number for name, flops in chip.peak_flops.items()},
        vector_flops=_share(chip.vector_flops, number),
        host_link_bandwidth=_share(chip.host_link_bandwidth, number),
        power=_share(chip.power, number),
        price_per_hour=_share(chip.price_per_hour, number),
    )
    return replace(
        cluster,
        accelerator=device,
        tiers=tuple(_tier_of_devices(tier, number) for tier in cluster.tiers),
        accelerators_per_node=cluster.accelerators_per_node * number,
        max_num_accelerators=None if cluster.max_num_accelerators is None else cluster.max_num_accelerators * number,
    )


def _share(value: float | None, number: int) -> float | None:
    return None if value is None else value / number


def _tier_of_devices(tier: NetworkTier, number: int) -> NetworkTier:
    """Devices of a chip share its links; they are neighbours on the first axis of a torus."""
    shape = tier.torus_shape
    return replace(
        tier,
        size=None if tier.size is None else tier.size * number,
        bandwidth=tier.bandwidth / number,
        torus_shape=(shape[0] * number, *shape[1:]) if shape else (),
    )
