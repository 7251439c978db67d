"""The cluster of an accelerator for which no node type is known: its own links in a default network."""

from __future__ import annotations

from shardplan.errors import InputError
from shardplan.files import Document
from shardplan.inputs.cluster import Accelerator, Cluster
from shardplan.inputs.readers.hardware_files import Domain, count_from, domain_from, networks, scale_up_from


def cluster_around(accelerator: Accelerator, document: Document, label: str) -> Cluster:
    """A cluster of the part that ``document`` describes; its ``assumptions`` say what was taken. Raises InputError."""
    defaults = networks()
    own_count = document.get("accelerators_per_node")
    per_node = count_from(own_count or defaults["accelerators_per_node"], label, "accelerators_per_node")
    inner = _links(accelerator, document, label, per_node.value)
    network = defaults["default_networks"]["pcie" if inner[-1].tier.link_type == "pcie" else "other"]
    parts = (*inner, domain_from(network, "networks.yaml", name="cluster"))
    taken = () if own_count else (f"accelerators per node: {per_node.value} ({per_node.mark}): {per_node.source}",)
    return Cluster(
        name=f"{accelerator.name}-default",
        full_name=f"{accelerator.full_name} in a default network",
        accelerator=accelerator,
        tiers=tuple(part.tier for part in parts),
        accelerators_per_node=per_node.value,
        sources={name: source for part in parts for name, source in part.sources.items()}
        | {"accelerators_per_node": per_node.source},
        marks={name: mark for part in parts for name, mark in part.marks.items()}
        | ({"accelerators_per_node": per_node.mark} if per_node.mark else {}),
        assumptions=(*taken, *(line for part in parts for line in part.assumptions)),
    )


def _links(accelerator: Accelerator, document: Document, label: str, per_node: int) -> list[Domain]:
    """The accelerator's own scale-up domain; where that is smaller than a node, also the node that the host joins."""
    own = scale_up_from(document, label)
    size = 0 if own is None or own.tier.size is None else own.tier.size
    name = "node" if size == per_node else "rack" if size > per_node else "bridge"
    fast = [scale_up_from(document, label, name=name)] if size > 1 else []
    return [domain for domain in fast if domain] + (
        [] if size >= per_node else [_pcie_node(accelerator, label, per_node)]
    )


def _pcie_node(accelerator: Accelerator, label: str, per_node: int) -> Domain:
    if accelerator.host_link_bandwidth is None:
        raise InputError(
            f"{label}: accelerator '{accelerator.name}' states no link that joins a node of {per_node}",
            rule="the network of an accelerator is known",
            hint="give scale_up, host_link_bandwidth or usual_cluster in its file, or name a cluster",
        )
    bandwidth = {
        "value": accelerator.host_link_bandwidth / 1e9,
        "unit": "GB/s",
        "source": accelerator.sources.get("host_link_bandwidth", label),
        "mark": accelerator.marks.get("host_link_bandwidth", ""),
    }
    size = {"value": per_node, "unit": "accelerators", "source": "accelerators per node"}
    return domain_from({"kind": "PCIe", "link_type": "pcie", "size": size, "bandwidth": bandwidth}, label, name="node")
