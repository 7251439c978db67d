"""The file format of accelerators and clusters: every value with its unit, its source and, if needed, a mark.

A value is ``{value: 450, unit: GB/s, source: ..., mark: ...}`` or, in a user's own file, a text with its unit
(``450 GB/s``). ``source`` is a text or a key of the file's ``sources``. A mark says that a value is uncertain: from
memory, low confidence, assumed. Built-in files are read without pydantic, which costs more than all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple, cast, get_args

from shardplan.base.errors import InputError, UnitError, shown
from shardplan.base.files import DATA, Document, shipped_document
from shardplan.base.units import Kind, format_rate, format_time, parse_count, parse_quantity, to_si
from shardplan.inputs.cluster import Accelerator, Cluster, LinkType, NetworkTier


class Domain(NamedTuple):
    """One network tier with the origin of its values."""

    tier: NetworkTier
    sources: Mapping[str, str]
    marks: Mapping[str, str]
    assumptions: tuple[str, ...]


_OF_AN_ACCELERATOR: Final = {
    "vector_flops": "flop rate",
    "host_link_bandwidth": "bandwidth",
    "power": "power",
    "price_per_hour": "price",
    "memory_efficiency": "fraction",
    "num_cores": "cores",
    "release_year": "year",
}
_OF_A_CLUSTER: Final = {
    "max_num_accelerators": "accelerators",
    "host_memory": "bytes",
    "host_memory_bandwidth": "bandwidth",
    "price_per_hour": "price",
}
"""Optional values of files: their kinds, or what they count."""


class _Reader:
    """Reads the values of one file and records the source of each."""

    def __init__(self, document: Document, label: str) -> None:
        self.label = label
        self.legend: Mapping[str, str] = document.get("sources") or {}
        self.sources: dict[str, str] = {}
        self.marks: dict[str, str] = {}

    def quantity(self, raw: Any, kind: Kind, field: str) -> float:
        """A value in SI units. Raises UnitError."""
        where = f"{self.label}: {field.removesuffix('_bytes')}"
        value, unit = self._origin(raw, field)
        if unit:
            return to_si(value, unit, kind, field=where)
        return parse_quantity(value, kind, field=where, is_unit_required=kind != "fraction")

    def count(self, raw: Any, unit: str, field: str) -> int:
        """A whole number of ``unit``. Raises UnitError."""
        where = f"{self.label}: {field}"
        value, given = self._origin(raw, field)
        if given and given != unit:
            raise UnitError(
                f"{where}: {shown(value)} has the unit '{given}' in place of {unit}",
                rule=f"{field} is a number of {unit}",
                hint=f"write unit: {unit}",
            )
        return parse_count(value, field=where)

    def optional(self, document: Document, known: Mapping[str, str]) -> dict[str, Any]:
        """The optional values of a file, by field; ``known``: their kinds, or what they count."""
        found: dict[str, Any] = {}
        for key, kind in known.items():
            if (raw := document.get(key)) is not None:
                field = f"{key}_bytes" if kind == "bytes" else key
                if kind in get_args(Kind):
                    found[field] = self.quantity(raw, cast("Kind", kind), field)
                else:
                    found[field] = self.count(raw, kind, field)
        return found

    def _origin(self, raw: Any, field: str) -> tuple[Any, str]:
        """Value and unit; records the source and the mark of ``field``."""
        if not isinstance(raw, Mapping):
            self.sources[field] = self.label
            return raw, ""
        source = raw.get("source") or self.label
        self.sources[field] = self.legend.get(source, source)
        if raw.get("mark"):
            self.marks[field] = raw["mark"]
        return raw.get("value"), raw.get("unit") or ""

    def assumed(self, field: str, text: str) -> tuple[str, ...]:
        """A line for the assumptions if the value of ``field`` is marked as assumed."""
        mark = self.marks.get(field, "")
        return (f"{text} ({mark}): {self.sources[field]}",) if mark.startswith("assumed") else ()


def accelerator_from(document: Document, label: str) -> Accelerator:
    """The accelerator that a file describes. Raises InputError."""
    read = _Reader(document, label)
    optional = read.optional(document, _OF_AN_ACCELERATOR)
    return Accelerator(
        name=document["name"],
        full_name=document.get("full_name") or document["name"],
        vendor=document.get("vendor") or "",
        generation=document.get("generation") or "other",
        memory_bytes=read.quantity(document["memory"], "bytes", "memory_bytes"),
        memory_bandwidth=read.quantity(document["memory_bandwidth"], "bandwidth", "memory_bandwidth"),
        peak_flops=_by_precision(read, document, "peak_flops", "flop rate"),
        gemm_efficiency=_by_precision(read, document, "gemm_efficiency", "fraction"),
        sources=read.sources,
        marks=read.marks,
        notes=document.get("notes") or "",
        **optional,
    )


def scale_up_from(document: Document, label: str, *, name: str = "node") -> Domain | None:
    """The scale-up domain of an accelerator as a tier called ``name``; None if its file has none."""
    raw = document.get("scale_up")
    return None if raw is None else domain_from(raw, label, name=name, legend=document.get("sources"))


def domain_from(raw: Document, label: str, *, name: str, legend: Mapping[str, str] | None = None) -> Domain:
    """A tier called ``name`` from its fields in the file ``label``; ``legend``: the file's ``sources``."""
    read = _Reader({"sources": legend}, label)
    tier, assumptions = _tier_from({**raw, "name": name}, read)
    return Domain(tier, read.sources, read.marks, assumptions)


def cluster_from(document: Document, label: str, accelerator: Accelerator) -> Cluster:
    """The cluster of ``accelerator`` that a file describes. Raises InputError."""
    read = _Reader(document, label)
    optional = read.optional(document, _OF_A_CLUSTER)
    tiers = [_tier_from(raw, read) for raw in document["tiers"]]
    return Cluster(
        name=document["name"],
        full_name=document.get("full_name") or document["name"],
        accelerator=accelerator,
        tiers=tuple(tier for tier, _ in tiers),
        accelerators_per_node=read.count(document["accelerators_per_node"], "accelerators", "accelerators_per_node"),
        sources=read.sources,
        marks=read.marks,
        notes=document.get("notes") or "",
        assumptions=tuple(line for _, lines in tiers for line in lines),
        **optional,
    )


@cache
def networks() -> Document:
    """Default latencies and networks (``data/networks.yaml``)."""
    path = DATA / "networks.yaml"
    return shipped_document(path)


def hop_latency(link_type: LinkType) -> float:
    """One-way latency of one hop over a family of link, used if no description gives another. [s]"""
    defaults = networks()["latency"]
    raw = defaults.get(link_type, defaults["other"])
    return _Reader({}, "networks.yaml").quantity(raw, "time", f"latency.{link_type}")


def _tier_from(raw: Document, read: _Reader) -> tuple[NetworkTier, tuple[str, ...]]:
    """A tier and the defaults used for it."""
    name, link_type = raw["name"], raw.get("link_type") or "other"
    field = f"tiers.{name}"
    bandwidth = read.quantity(raw["bandwidth"], "bandwidth", f"{field}.bandwidth")
    latency_raw = raw.get("latency")
    is_default = latency_raw is None
    if is_default:
        defaults = networks()["latency"]
        latency_raw = defaults.get(link_type, defaults["other"])
    latency = read.quantity(latency_raw, "time", f"{field}.latency")
    tier = NetworkTier(
        name=name,
        size=read.count(raw["size"], "accelerators", f"{field}.size") if raw.get("size") is not None else None,
        bandwidth=bandwidth,
        latency=latency,
        kind=raw.get("kind") or link_type,
        topology=raw.get("topology") or "switch",
        torus_shape=tuple(raw.get("torus_shape") or ()),
        link_type=cast(LinkType, link_type),  # checked by NetworkTier
    )
    lines = read.assumed(f"{field}.bandwidth", f"bandwidth of tier '{name}': {format_rate(bandwidth)}")
    if is_default:
        mark = read.marks.get(f"{field}.latency")
        lines += (
            f"latency of tier '{name}': {format_time(latency)} per hop, the default of {link_type}"
            + (f" ({mark})" if mark else "")
            + f": {read.sources[f'{field}.latency']}",
        )
    return tier, lines


def _by_precision(read: _Reader, document: Document, name: str, kind: Kind) -> dict[str, float]:
    values = document.get(name) or {}
    return {precision: read.quantity(raw, kind, f"{name}.{precision}") for precision, raw in values.items()}


def cluster_around(accelerator: Accelerator, document: Document, label: str) -> Cluster:
    """A cluster of the accelerator that ``document`` describes; its ``assumptions`` say how. Raises InputError."""
    defaults = networks()
    own_count, read = document.get("accelerators_per_node"), _Reader({}, label)
    per_node = read.count(own_count or defaults["accelerators_per_node"], "accelerators", "accelerators_per_node")
    source, mark = read.sources["accelerators_per_node"], read.marks.get("accelerators_per_node", "")
    inner = _links(accelerator, document, label, per_node)
    network = defaults["default_networks"]["pcie" if inner[-1].tier.link_type == "pcie" else "other"]
    parts = (*inner, domain_from(network, "networks.yaml", name="cluster"))
    taken = () if own_count else (f"accelerators per node: {per_node} ({mark}): {source}",)
    return Cluster(
        name=f"{accelerator.name}-default",
        full_name=f"{accelerator.full_name} in a default network",
        accelerator=accelerator,
        tiers=tuple(part.tier for part in parts),
        accelerators_per_node=per_node,
        sources={name: each for part in parts for name, each in part.sources.items()}
        | {"accelerators_per_node": source},
        marks={name: each for part in parts for name, each in part.marks.items()}
        | ({"accelerators_per_node": mark} if mark else {}),
        assumptions=(*taken, *(line for part in parts for line in part.assumptions)),
    )


def _links(accelerator: Accelerator, document: Document, label: str, per_node: int) -> list[Domain]:
    """The accelerator's own scale-up domain; if that is smaller than a node, also the node that the host joins."""
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
