"""The network tiers that a job uses, with what their links reach."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shardplan.arrays import Numbers, first_axis
from shardplan.fields import dataclass, replace
from shardplan.inputs.cluster import Cluster, NetworkTier
from shardplan.inputs.profile import Profile
from shardplan.workload.ops import CollectiveKind


@dataclass(frozen=True)
class TierRates:
    """What the tiers of a network can do, inner to outer."""

    bandwidth: tuple[Numbers, ...]
    """[bytes/s]"""
    latency: tuple[Numbers, ...]
    """[s]"""


@dataclass(frozen=True, kw_only=True)
class Network:
    """The tiers that a job uses, with achieved efficiencies."""

    num_accelerators: int
    """Accelerators of the job."""
    tiers: tuple[NetworkTier, ...]
    sizes: tuple[int, ...]
    """Accelerators of the job inside one domain of each tier, at most."""
    efficiency: tuple[Numbers, ...]
    """Achieved fraction of each tier's bandwidth."""
    all_to_all_efficiency: tuple[Numbers, ...]
    """The same for all-to-all."""
    p2p_efficiency: tuple[Numbers, ...]
    """The same for sends from one rank to another."""
    launch_time: Numbers
    ring_step_factor: Numbers
    """Time of a step of a ring that carries large messages, relative to the latency of its hop."""
    low_latency_share: Numbers
    """Share of the bandwidth that rings reach by protocols that wait for no such step."""
    own_chunk_time: Numbers
    """Time in which a rank copies its own part of what is exchanged, relative to that part's time on the links."""
    rates: TierRates | None = None
    """Rates of several networks side by side, in place of those of the tiers."""

    @property
    def bandwidth(self) -> tuple[Numbers, ...]:
        """Nominal bandwidth of each tier per accelerator and direction. [bytes/s]"""
        return tuple(tier.bandwidth for tier in self.tiers) if self.rates is None else self.rates.bandwidth

    @property
    def latency(self) -> tuple[Numbers, ...]:
        """One-way latency of one hop on each tier. [s]"""
        return tuple(tier.latency for tier in self.tiers) if self.rates is None else self.rates.latency

    @classmethod
    def of(cls, cluster: Cluster, num_accelerators: int, profile: Profile) -> Network:
        """Tiers up to the first whose domain holds the whole job."""
        kept: list[NetworkTier] = []
        sizes: list[int] = []
        for tier in cluster.tiers:
            kept.append(tier)
            sizes.append(num_accelerators if tier.size is None else min(tier.size, num_accelerators))
            if sizes[-1] >= num_accelerators:
                break
        other = profile.network_efficiency["other"]
        efficiency = tuple(profile.network_efficiency.get(tier.link_type, other) for tier in kept)
        return cls(
            num_accelerators=num_accelerators,
            tiers=tuple(kept),
            sizes=tuple(sizes),
            efficiency=efficiency,
            all_to_all_efficiency=(efficiency[0], *(profile.all_to_all_efficiency for _ in efficiency[1:])),
            p2p_efficiency=(efficiency[0], *(profile.p2p_efficiency for _ in efficiency[1:])),
            launch_time=profile.collective_launch_time,
            ring_step_factor=profile.ring_step_factor,
            low_latency_share=profile.low_latency_share,
            own_chunk_time=profile.own_chunk_time.get(kept[0].link_type, profile.own_chunk_time["other"]),
        )

    @classmethod
    def side_by_side(cls, networks: Sequence[Network], *, num_axes: int) -> Network:
        """Networks that differ in bandwidth and latency alone as one, with rates along a first axis.

        ``num_axes``: axes behind it, over plans. A rate that all have in common stays a number.
        """
        bandwidth = _columns([network.bandwidth for network in networks], num_axes)
        latency = _columns([network.latency for network in networks], num_axes)
        return replace(networks[0], rates=TierRates(bandwidth, latency))

    def efficiencies(self, kind: CollectiveKind) -> tuple[Numbers, ...]:
        """Achieved fraction of each tier's bandwidth by a kind of collective."""
        return {"all_to_all": self.all_to_all_efficiency, "p2p": self.p2p_efficiency}.get(kind, self.efficiency)


def _columns(rates: Sequence[tuple[Numbers, ...]], num_axes: int) -> tuple[Numbers, ...]:
    """Rates of every tier, one for each network along a first axis; one number where all are equal."""
    return tuple(first_axis(of_tier, num_axes) for of_tier in zip(*rates, strict=True))


def domain_size(tier: NetworkTier, num_accelerators: int) -> int:
    """The largest number, at least half of a domain, that divides the job: all of a domain where there is none.

    For what needs domains that hold equally many: groups of hybrid sharding, and methods that know no other clusters.
    """
    if tier.size is None or tier.size >= num_accelerators:
        return num_accelerators
    return next((size for size in range(tier.size, tier.size // 2, -1) if num_accelerators % size == 0), tier.size)


def used_of_domains(tier: NetworkTier, num_used: int, num_given: int) -> str:
    """Which domains of a tier a job uses of those given, in whole or in part; empty inside one domain."""
    if tier.size is None or num_given <= tier.size:
        return ""
    domains = math.ceil(num_given / tier.size)
    if num_used % tier.size == 0:
        return f"{num_used // tier.size:,} of {domains:,} {tier.name}s"
    if num_used % domains == 0:
        return f"{num_used // domains} of {tier.size} in each {tier.name}"
    power = power_of_two(tier.size)
    if num_used % power == 0:
        return f"{power} of {tier.size} in {num_used // power:,} of {domains:,} {tier.name}s"
    return ""


def power_of_two(size: int) -> int:
    """The largest power of two up to ``size``."""
    return 1 << (size.bit_length() - 1)


def unfilled_domains(network: Network, num_given: int) -> tuple[str, ...]:
    """What is assumed of the tiers whose domains a job does not fill, in a sentence each.

    ``num_given``: accelerators of these domains, those that the job leaves idle too.
    """
    n = network.num_accelerators
    pairs = zip(network.tiers, network.sizes, strict=True)
    return tuple(
        f"{_used(n, size, tier, num_given)}: groups that fit into a {tier.name} are kept whole, and longer ones are "
        "spread evenly over the fewest"
        for tier, size in pairs
        if n % size
    )


def _used(num_accelerators: int, size: int, tier: NetworkTier, num_given: int) -> str:
    of_given = used_of_domains(tier, num_accelerators, num_given) if num_given > num_accelerators else ""
    domains = math.ceil(num_accelerators / size)
    if of_given:
        return f"{num_accelerators:,} of {num_given:,} accelerators are used, {of_given}"
    if num_accelerators % domains == 0:
        return f"{num_accelerators // domains} of the {size} accelerators of each {tier.name} are used"
    full, rest = divmod(num_accelerators, size)
    filled = f"{full:,} of the domains of {size} ({tier.name})"
    return f"{num_accelerators:,} accelerators fill {filled} and a rest of {rest}"
