"""A cluster: one kind of accelerator and an ordered list of network tiers, from the fastest domain outwards.

Eight-GPU nodes, NVL72 racks, TPU tori and oversubscribed spines are all instances of it. All values are nominal and
in SI units; achieved efficiencies belong to the calibration profile. Peaks are dense (no structured sparsity).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import field
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, Literal, get_args

from shardplan.base.errors import InputError, UnknownNameError, shown
from shardplan.base.fields import dataclass, in_files

Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "mxfp8", "fp4", "mxfp4", "nvfp4"]
Generation = Literal[
    "volta", "turing", "ampere", "ada", "hopper", "blackwell", "blackwell-ultra", "rubin", "cdna2", "cdna3", "cdna4",
    "cdna5", "gaudi", "tpu", "trainium", "ascend", "mthreads", "other",
]  # fmt: skip
Topology = Literal["switch", "mesh", "torus"]
LinkType = Literal[
    "nvlink", "pcie", "xgmi", "ici", "neuronlink", "hccs", "infiniband", "roce", "efa", "slingshot", "omnipath", "tcp",
    "dcn", "other",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """One device as the training framework sees it. Raises InputError on a value out of range."""

    name: str
    """Identifier in the catalogue, such as ``h100-sxm-80gb``."""
    full_name: str
    """Name in the maker's words."""
    vendor: str
    """Maker."""
    generation: Generation
    """Architecture family; calibration profiles are looked up by it."""
    memory_bytes: float
    """Device memory as the device reports it. [bytes]"""
    memory_bandwidth: float = field(metadata=in_files("memory_bandwidth_bytes_per_s"))
    """Peak device-memory bandwidth. [bytes/s]"""
    peak_flops: Mapping[str, float] = field(hash=False, metadata=in_files("peak_flops_per_s"))
    """Dense matrix peak by precision. [FLOP/s]"""
    vector_flops: float | None = field(default=None, metadata=in_files("vector_flops_per_s"))
    """Peak of the vector units in fp32. [FLOP/s]"""
    num_cores: int | None = None
    """Streaming multiprocessors, compute units or cores."""
    host_link_bandwidth: float | None = field(default=None, metadata=in_files("host_link_bandwidth_bytes_per_s"))
    """Link to the host (PCIe or chip to chip), one direction. [bytes/s]"""
    power: float | None = field(default=None, metadata=in_files("power_w"))
    """Power limit of the device. [W]"""
    price_per_hour: float | None = field(default=None, metadata=in_files("price_usd_per_hour"))
    """One public quote of the price of one accelerator. [USD/h]"""
    gemm_efficiency: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Measured sustained fraction of the dense peak in large matrix products, by precision."""
    memory_efficiency: float | None = None
    """Measured fraction of the memory bandwidth in large streaming kernels."""
    release_year: int | None = None
    """Year in which the part came out."""
    sources: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    """Where each value comes from, by field (``peak_flops.bf16`` for an entry)."""
    marks: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    """Values of low confidence, by field: from memory, low confidence ..."""
    notes: str = field(default="", repr=False)
    """What a user should know about the part."""

    def __post_init__(self) -> None:
        owner = f"accelerator '{self.name}'"
        _one_of(owner, "generation", self.generation, get_args(Generation))
        if not self.peak_flops:
            raise InputError(f"{owner}: peak_flops is empty", rule="a part has a peak", hint="give bf16 or fp16")
        for precision in (*self.peak_flops, *self.gemm_efficiency):
            _one_of(owner, "precision", precision, get_args(Precision))
        for name in ("memory_bytes", "memory_bandwidth"):
            _check_number(owner, name, getattr(self, name))
        _check_numbers(owner, self, "vector_flops", "host_link_bandwidth", "power")
        for precision, peak in self.peak_flops.items():
            _check_number(owner, f"peak_flops.{precision}", peak)
        for precision, fraction in self.gemm_efficiency.items():
            _check_number(owner, f"gemm_efficiency.{precision}", fraction, most=1.0)
        _check_numbers(owner, self, "memory_efficiency", most=1.0)
        _check_numbers(owner, self, "price_per_hour", is_least_allowed=True)
        if self.num_cores is not None:
            _check_count(owner, "num_cores", self.num_cores)
        _own_copies(self, "peak_flops", "gemm_efficiency", "sources", "marks")

    def __repr__(self) -> str:
        return f"<Accelerator {self.name}: {self.full_name}; {self.memory_bytes / 1e9:.1f} GB>"

    def peak(self, precision: str) -> float:
        """Dense peak of ``precision``. [FLOP/s] Raises InputError when the part has none."""
        if precision not in self.peak_flops:
            raise InputError(
                f"accelerator '{self.name}' has no {precision} peak; it has {', '.join(self.peak_flops)}",
                rule="the accelerator computes in the precision of the job",
                hint=f"choose one of {', '.join(self.peak_flops)}, or give its peak in an accelerator file",
            )
        return self.peak_flops[precision]


@dataclass(frozen=True, kw_only=True)
class NetworkTier:
    """One level of the network: domains of ``size`` accelerators joined by one kind of link. Raises InputError."""

    name: str
    """What people call the level: ``node``, ``rack``, ``pod``, ``cluster`` ..."""
    size: int | None
    """Accelerators in one domain of this tier; None on the outermost tier: no bound."""
    bandwidth: float = field(metadata=in_files("bandwidth_bytes_per_s"))
    """Nominal bandwidth per accelerator and direction. [bytes/s]"""
    latency: float = field(metadata=in_files("latency_s"))
    """One-way latency of one hop. [s]"""
    kind: str
    """Link in the maker's words, such as ``NVLink4`` or ``InfiniBand NDR``."""
    topology: Topology = "switch"
    """``switch``: any pair at full bandwidth; ``mesh``: the bandwidth is shared evenly by links to all peers;
    ``torus``: by the links of every axis."""
    torus_shape: tuple[int, ...] = ()
    """Accelerators along each axis of a torus; empty otherwise."""
    link_type: LinkType = "other"
    """Family of the link; default latencies and calibration are looked up by it."""

    def __post_init__(self) -> None:
        owner = f"network tier '{self.name}'"
        _one_of(owner, "topology", self.topology, get_args(Topology))
        _one_of(owner, "link_type", self.link_type, get_args(LinkType))
        if self.size is not None:
            _check_count(owner, "size", self.size, least=2 if self.topology == "mesh" else 1)
        _check_number(owner, "bandwidth", self.bandwidth)
        _check_number(owner, "latency", self.latency, is_least_allowed=True)
        object.__setattr__(self, "torus_shape", tuple(self.torus_shape))
        for side in self.torus_shape:
            _check_count(owner, "torus_shape", side, least=2)
        if (self.topology == "torus") != bool(self.torus_shape):
            raise InputError(
                f"{owner}: topology {self.topology} with torus_shape {self.torus_shape}",
                rule="a torus, and only a torus, has a shape",
                hint="give torus_shape, or another topology",
            )
        if self.torus_shape and math.prod(self.torus_shape) != self.size:
            raise InputError(
                f"{owner}: torus_shape {self.torus_shape} holds {math.prod(self.torus_shape)} accelerators, size says "
                f"{self.size}",
                rule="the axes of a torus multiply to its size",
                hint="correct size or torus_shape",
            )


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Accelerators of one kind and the network tiers that join them. Raises InputError on inconsistent tiers."""

    name: str
    """Identifier in the catalogue, such as ``dgx-h100``."""
    full_name: str
    """Name in the maker's or operator's words."""
    accelerator: Accelerator
    """The kind of accelerator."""
    tiers: tuple[NetworkTier, ...]
    """Network tiers, inner to outer, sizes strictly growing; the outermost is unbounded."""
    accelerators_per_node: int
    """Accelerators that share one host."""
    max_num_accelerators: int | None = None
    """Largest number known to be joined by this network; None: no bound known."""
    host_memory_bytes: float | None = None
    """Main memory of one node. [bytes]"""
    host_memory_bandwidth: float | None = field(default=None, metadata=in_files("host_memory_bandwidth_bytes_per_s"))
    """Bandwidth that updates of offloaded optimizer states reach in the main memory of one node. [bytes/s]"""
    price_per_hour: float | None = field(default=None, metadata=in_files("price_usd_per_hour"))
    """One public quote of the price of one node. [USD/h]"""
    sources: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    """Where each value comes from, by field (``tiers.node.bandwidth`` for a value of a tier)."""
    marks: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    """Values of low confidence, by field: from memory, low confidence ..."""
    notes: str = field(default="", repr=False)
    """What a user should know about the cluster."""
    assumptions: tuple[str, ...] = ()
    """Defaults taken where the description is silent, each with its source."""

    def __post_init__(self) -> None:
        owner = f"cluster '{self.name}'"
        object.__setattr__(self, "tiers", tuple(self.tiers))
        object.__setattr__(self, "assumptions", tuple(self.assumptions))
        _check_tiers(owner, self.tiers)
        _check_count(owner, "accelerators_per_node", self.accelerators_per_node)
        if self.max_num_accelerators is not None:
            _check_count(owner, "max_num_accelerators", self.max_num_accelerators)
        _check_numbers(owner, self, "host_memory_bytes", "host_memory_bandwidth")
        _check_numbers(owner, self, "price_per_hour", is_least_allowed=True)
        _own_copies(self, "sources", "marks")

    def __repr__(self) -> str:
        tiers = ", ".join(f"{tier.name} of {tier.size:,}" if tier.size else tier.name for tier in self.tiers)
        return f"<Cluster {self.name}: {self.accelerator.full_name}; {tiers}>"

    @property
    def innermost(self) -> NetworkTier:
        """The fastest domain (node, rack or torus)."""
        return self.tiers[0]

    @property
    def accelerator_price(self) -> float | None:
        """Price of one accelerator for an hour: its share of the node's quote, or else its own. [USD/h]"""
        if self.price_per_hour is not None:
            return self.price_per_hour / self.accelerators_per_node
        return self.accelerator.price_per_hour

    @property
    def price_source(self) -> str:
        """Where that price comes from."""
        priced = self if self.price_per_hour is not None else self.accelerator
        return priced.sources.get("price_per_hour", priced.name)

    def tier(self, name: str) -> NetworkTier:
        """The tier called ``name``. Raises UnknownNameError."""
        for tier in self.tiers:
            if tier.name == name:
                return tier
        raise UnknownNameError("network tier", name, [tier.name for tier in self.tiers])


def _check_tiers(owner: str, tiers: tuple[NetworkTier, ...]) -> None:
    if not tiers:
        raise InputError(f"{owner} has no network tier", rule="a cluster has network tiers", hint="give at least one")
    names = [tier.name for tier in tiers]
    if len(set(names)) != len(names):
        raise InputError(f"{owner}: tiers {names}", rule="network tiers have different names", hint="rename one")
    sizes = [tier.size for tier in tiers]
    if sizes[-1] is not None or None in sizes[:-1]:
        raise InputError(
            f"{owner}: tier sizes {sizes}",
            rule="the outermost tier, and only that, is unbounded",
            hint="leave out the size of the outermost tier and bound the cluster by max_num_accelerators",
        )
    bounded = [size for size in sizes if size is not None]
    for inner, outer in pairwise(bounded):
        if outer <= inner or outer % inner:
            raise InputError(
                f"{owner}: a tier of {outer} accelerators around a tier of {inner}",
                rule="each tier holds two or more whole domains of the tier inside it",
                hint="order the tiers inner to outer and make each size a multiple of the one before",
            )


def _one_of(owner: str, name: str, value: str, known: Iterable[str]) -> None:
    if value not in known:
        raise UnknownNameError(f"{name} of {owner}", f"{value!s:.60}", known, hint=f"known: {', '.join(known)}")


def _check_numbers(owner: str, record: object, *names: str, **bounds: Any) -> None:
    """Checks fields that may be left out."""
    for name in names:
        if (value := getattr(record, name)) is not None:
            _check_number(owner, name, value, **bounds)


def _check_number(
    owner: str, name: str, value: object, *, is_least_allowed: bool = False, most: float = math.inf
) -> None:
    number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    if not ((number >= 0 if is_least_allowed else number > 0) and number <= most):  # NaN is neither
        bounds = "0 or more" if is_least_allowed else "above 0"
        raise InputError(
            f"{owner}: {name} is {shown(value)}",
            rule=f"{name} is a number {bounds}" + (f" and at most {most:g}" if most < math.inf else ""),
            hint=f"correct {name}",
        )


def _check_count(owner: str, name: str, value: object, *, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InputError(
            f"{owner}: {name} is {shown(value)}",
            rule=f"{name} is a whole number, {least} or more",
            hint=f"correct {name}",
        )


def _own_copies(owner: object, *names: str) -> None:
    """Own copies of the mappings, so that nobody else changes a frozen object."""
    for name in names:
        object.__setattr__(owner, name, dict(getattr(owner, name)))
