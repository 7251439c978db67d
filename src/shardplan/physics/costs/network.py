"""The network tiers that a job uses, with what their links reach.

Of an accelerator's links a collective can use all of a switch, some of a mesh or a torus. The links of a torus of d
axes with bandwidth B per accelerator and direction carry b = B / (2 d) each: two links on every axis. Accelerators are
numbered along its axes, the longest first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from shardplan.base.arrays import Numbers, first_axis
from shardplan.base.fields import dataclass, replace
from shardplan.inputs.cluster import Cluster, NetworkTier
from shardplan.inputs.plan_numbers import Digit
from shardplan.inputs.profile import Profile
from shardplan.physics.workload.ops import CollectiveKind


def usable_share(tier: NetworkTier, used: int, fan_out: Numbers) -> Numbers:
    """Share of an accelerator's links that a ring of this many neighbours can use, in a job that has ``used``."""
    if tier.topology == "mesh" and tier.size:
        return np.clip((np.asarray(fan_out) - 1) / (tier.size - 1), 1 / (tier.size - 1), 1)
    if tier.topology == "torus":
        sides = slice_sides(tier, used)
        filled = [math.prod(sides[: count + 1]) for count in range(len(sides) - 1)]
        return (1.0 + sum(np.asarray(fan_out) > number for number in filled)) / len(tier.torus_shape)
    return 1.0


def exchange_share(tier: NetworkTier, load: Numbers, num_ranks: Numbers) -> Numbers:
    r"""The same of an all-to-all among ``num_ranks`` of a torus, whose bytes pass through other accelerators.

    .. math:: \frac{1 - 1/m}{2 d L}

    of m ranks, with the ``load`` L of :func:`exchange_load`: a rank sends :math:`1 - 1/m` of its bytes S to others,
    and the busiest link is done after :math:`S L / b`. One for a single rank.
    """
    sent = 1 - 1 / np.asarray(num_ranks)
    carried = np.maximum(2 * len(tier.torus_shape) * load, sent)
    return np.where(sent > 0, sent, 1.0) / np.where(sent > 0, carried, 1.0)


def exchange_load(tier: NetworkTier, used: int, parts: Sequence[Digit]) -> Numbers:
    r"""Bytes on the busiest link of a torus in an all-to-all, for each byte that a rank holds for all ranks.

    .. math:: L = \max_i \frac{s_i k_i}{8} \;\text{on axes that the ranks go round,}\; \frac{s_i k_i}{4} \;\text{else}

    with :math:`k_i` ranks on axis i, :math:`s_i` accelerators apart: half of a ring of k sends half of its bytes to the
    other half, k / 4 ranks' bytes over two links; a line has one, and the s groups that lie between each other share
    them. A k that is odd counts as k - 1/k. It is the bisection bound, which routing along one axis after the other
    reaches (Dally and Towles, Principles and Practices of Interconnection Networks, 2004, chapter 5).

    Assumptions: every rank sends equally much to every other; a slice of a torus goes round as the torus does.
    """
    busiest: Numbers = 0.0
    inner = 1
    for side in slice_sides(tier, used):
        load = sum((_axis_load(digit, inner, inner * side) for digit in parts), start=np.float64(0.0))
        busiest = np.maximum(busiest, load)
        inner *= side
    return busiest


def _axis_load(digit: Digit, inner: int, outer: int) -> Numbers:
    """Of one run of ranks on the axis whose neighbours are ``inner`` apart and that ends at ``outer``."""
    stride = np.asarray(digit.stride)
    first, last = np.clip(stride, inner, outer), np.clip(stride * digit.size, inner, outer)
    ranks, apart = last / first, first / inner
    crossing = apart * (ranks - (ranks % 2 == 1) / ranks)
    return crossing / np.where(last == outer, 8, 4)


def slice_sides(tier: NetworkTier, used: int) -> tuple[int, ...]:
    """Sides of the part of a torus that a job gets, longest first.

    Powers of two, as equal as can be, of the least that hold it.
    """
    if used >= math.prod(tier.torus_shape):
        return tuple(sorted(tier.torus_shape, reverse=True))
    doublings, axes = math.ceil(math.log2(used)) if used > 1 else 0, len(tier.torus_shape)
    return tuple(2 ** (doublings // axes + (axis < doublings % axes)) for axis in range(axes))


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


def ranks_per_domain(size: int, num_used: int, num_given: int) -> int:
    """Accelerators that a job uses of every domain of ``size`` in which it lies; of the last there may be fewer.

    Whole domains where it fills them, otherwise equally much of all given ones or of the fewest, where that is whole.
    """
    if num_given <= size:
        return num_used
    given, fewest, power = math.ceil(num_given / size), math.ceil(num_used / size), power_of_two(size)
    whole = (size, num_used // given, power, num_used // fewest)
    fits = (num_used % size, num_used % given, num_used % power, num_used % fewest)
    return next((each for each, rest in zip(whole, fits, strict=True) if not rest), size)


def used_of_domains(tier: NetworkTier, num_used: int, num_given: int) -> str:
    """Which domains of a tier a job uses of those given, in whole or in part; empty inside one domain."""
    if tier.size is None or num_given <= tier.size:
        return ""
    domains, each = math.ceil(num_given / tier.size), ranks_per_domain(tier.size, num_used, num_given)
    if num_used % each:
        return ""
    if each == tier.size:
        return f"{num_used // each:,} of {domains:,} {tier.name}s"
    if num_used == each * domains:
        return f"{each} of {tier.size} in each {tier.name}"
    return f"{each} of {tier.size} in {num_used // each:,} of {domains:,} {tier.name}s"


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
