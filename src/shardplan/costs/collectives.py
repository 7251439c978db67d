"""Time and traffic of collectives on the network tiers that their ranks cross.

A group of n ranks has :math:`m_j` members inside one domain of tier j (:math:`m_0 = 1`). Ring and tree algorithms are
hierarchical: a gathered tensor of S bytes costs each rank :math:`S (1/m_{j-1} - 1/m_j)` bytes on tier j, since what
enters a domain enters it once and is spread inside. Where domains cut a group into unequal parts, the first m is that
of the smallest part, whose few links carry all that enters it, and the second that of the largest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field, replace
from typing import assert_never

import numpy as np

from shardplan.arrays import Numbers, any_holds, concatenated, first_axis
from shardplan.costs.domains import parts_in_domains
from shardplan.costs.links import exchange_load, exchange_share, usable_share
from shardplan.fields import dataclass
from shardplan.inputs.cluster import Cluster, NetworkTier
from shardplan.inputs.plan_numbers import Digit, PlanNumbers, digits
from shardplan.inputs.profile import Profile
from shardplan.workload.copies import sent_once
from shardplan.workload.ops import ONE_BY_ONE, CollectiveKind, Copies


@dataclass(frozen=True, slots=True)
class TierRates:
    """What the tiers of a network can do, inner to outer."""

    bandwidth: tuple[Numbers, ...]
    """[bytes/s]"""
    latency: tuple[Numbers, ...]
    """[s]"""


@dataclass(frozen=True, kw_only=True, slots=True)
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
            unit = sizes[-1] if sizes else 1
            whole = num_accelerators if tier.size is None else tier.size - tier.size % unit
            sizes.append(min(whole, num_accelerators))
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


def unfilled_domains(network: Network) -> tuple[str, ...]:
    """What is assumed of the tiers whose domains a job does not fill, in a sentence each."""
    n = network.num_accelerators
    return tuple(
        _unfilled(n, size, tier.name) for tier, size in zip(network.tiers, network.sizes, strict=True) if n % size
    )


def _unfilled(num_accelerators: int, size: int, name: str) -> str:
    domains = math.ceil(num_accelerators / size)
    if num_accelerators % domains == 0:
        used = f"{num_accelerators // domains} of the {size} accelerators of each {name} are used"
    else:
        full, rest = divmod(num_accelerators, size)
        used = f"{num_accelerators:,} accelerators fill {full:,} of the domains of {size} ({name}) and a rest of {rest}"
    return f"{used}: groups that fit into a {name} are kept whole, and longer ones are spread evenly over the fewest"


@dataclass(frozen=True, slots=True)
class _Rates:
    """What a kind of collective costs a group on a network."""

    network: Network
    per_call: Numbers
    """[s]"""
    per_byte: Numbers
    """[s/byte]"""
    ring_steps: Numbers
    """What the steps of a ring across domains take with a large message, one after the other. [s]"""


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks of one parallel dimension on the network.

    Where groups straddle domains, their parts inside are unequal: the smallest decides what its links carry out of the
    domain, the largest what is exchanged inside.
    """

    size: Numbers
    members: tuple[Numbers, ...]
    """Ranks of the group inside one domain of each tier, inner to outer, in the smallest part; the last is all."""
    largest: tuple[Numbers, ...] = ()
    """The same in the largest part; none where all parts are equal."""
    domains: tuple[Numbers, ...] = ()
    """Domains of each tier in which the group lies; none where all parts are equal."""
    exchange_loads: tuple[Numbers, ...] = ()
    """What an all-to-all puts on the busiest link of tiers that are a torus, 0 on others; none: that of neighbours."""
    known: dict[tuple[CollectiveKind, Copies], _Rates] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """What has been computed of its collectives, by kind and copies."""
    shares: dict[tuple[CollectiveKind, Copies], tuple[Numbers, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """The same of what they send on every tier."""

    @classmethod
    def of(cls, parts: tuple[Digit, ...], network: Network) -> Group:
        """Members per domain of ranks that lie at these strides."""
        size: Numbers = 1
        for digit in parts:
            size = size * digit.size
        placed = [parts_in_domains(parts, domain, network.num_accelerators) for domain in network.sizes[:-1]]
        members = (*(part.smallest for part in placed), size)
        loads = _exchange_loads(parts, network)
        if all(np.all(part.smallest == part.largest) for part in placed):
            return cls(size, members, exchange_loads=loads)
        return cls(
            size,
            members,
            exchange_loads=loads,
            largest=(*(part.largest for part in placed), size),
            domains=(*(part.domains for part in placed), 1),
        )

    def exchange_load(self, index: int, tier: NetworkTier, used: int) -> Numbers:
        """What an all-to-all puts on the busiest link of a torus, the tier of this index."""
        if self.exchange_loads:
            return self.exchange_loads[index]
        return exchange_load(tier, used, (Digit(self.members[index], 1),))

    @property
    def layers(self) -> tuple[_Layer, ...]:
        """What every tier joins."""
        layers: list[_Layer] = []
        smallest: Numbers = 1
        largest: Numbers = 1
        pieces = self.size
        for index, members in enumerate(self.members):
            most = self.largest[index] if self.largest else members
            domains = self.domains[index] if self.domains else self.size / members
            fan_out = most if index == 0 else pieces / domains if self.domains else members / smallest
            layers.append(_Layer(smallest, largest, members, most, pieces, fan_out))
            smallest, largest, pieces = members, most, domains
        return tuple(layers)


@dataclass(frozen=True, slots=True)
class _Layer:
    """What one tier joins of a group."""

    inner_smallest: Numbers
    """Ranks in the smallest part inside a domain of the tier below."""
    inner_largest: Numbers
    smallest: Numbers
    """Ranks in the smallest part inside a domain of this tier."""
    largest: Numbers
    pieces: Numbers
    """Domains of the tier below in which the whole group lies."""
    fan_out: Numbers
    """Those of them that one domain of this tier joins."""


def joined_groups(groups: Sequence[Group], lengths: Sequence[int]) -> Group:
    """Groups of several lists of plans as those of one list."""
    if all(not group.largest for group in groups):
        return concatenated(groups, lengths)
    return concatenated([_with_parts(group) for group in groups], lengths)


def _with_parts(group: Group) -> Group:
    """The same with the sizes of its parts, equal or not."""
    if group.largest:
        return group
    domains = (*(group.size / members for members in group.members[:-1]), 1)
    return replace(group, largest=group.members, domains=domains)


def _exchange_loads(parts: tuple[Digit, ...], network: Network) -> tuple[Numbers, ...]:
    """On every tier; none where no tier is a torus."""
    if not any(tier.topology == "torus" for tier in network.tiers):
        return ()
    tiers = zip(network.tiers, network.sizes, strict=True)
    return tuple(exchange_load(tier, used, parts) if tier.topology == "torus" else 0.0 for tier, used in tiers)


def groups_of(numbers: PlanNumbers, network: Network) -> dict[str, Group]:
    """The group of every parallel dimension; ``dpcp`` are the ranks that hold the same dense weights."""
    parts = digits(numbers)
    if numbers.tp_kind == "summa":
        parts |= _grid(parts["tp"], numbers)
    else:
        parts["tp_rows"] = ()
    parts["dpcp"] = parts["cp"] + parts["dp"]
    return {name: Group.of(part, network) for name, part in parts.items()}


def sharding_groups(numbers: PlanNumbers, network: Network) -> dict[str, Group]:
    """The innermost ranks over which states are sharded, and the ranks that hold the same shard, dense and expert.

    Where plans have a second copy of the weights, the ranks that share it too.
    """
    parts = digits(numbers)
    dense = _split(parts["cp"] + parts["dp"], numbers.sharding_degree)
    experts = _split(parts["edp"], numbers.expert_sharding_degree)
    names = ("shard", "replica", "expert_shard", "expert_replica")
    groups = dict(zip(names, (*dense, *experts), strict=True))
    if numbers.second_degree is not None:
        groups["second"], _ = _split(parts["cp"] + parts["dp"], numbers.second_degree)
        groups["expert_second"], _ = _split(parts["edp"], numbers.expert_second_degree)
    return {name: Group.of(part, network) for name, part in groups.items()}


def _grid(parts: tuple[Digit, ...], numbers: PlanNumbers) -> dict[str, tuple[Digit, ...]]:
    """Columns of the tensor grid innermost, rows around them."""
    columns, rows = _split(parts, numbers.tp_columns)
    return {"tp": columns, "tp_rows": rows}


def _split(parts: tuple[Digit, ...], degree: Numbers) -> tuple[tuple[Digit, ...], tuple[Digit, ...]]:
    """Digits of the innermost ``degree`` ranks of a group, and of the ranks around them."""
    inner: list[Digit] = []
    outer: list[Digit] = []
    left: Numbers = degree
    for digit in parts:
        near = np.gcd(np.asarray(digit.size, dtype=np.int64), np.asarray(left, dtype=np.int64))
        inner.append(Digit(near, digit.stride))
        outer.append(Digit(np.maximum(digit.size / near, 1), digit.stride * near))
        left = np.asarray(left) / near
    return tuple(inner), tuple(outer)


def collective_bytes(
    kind: CollectiveKind, size: Numbers, group: Group, *, copies: Copies = ONE_BY_ONE
) -> tuple[Numbers, ...]:
    """Bytes that each rank sends on every tier for one collective of ``size`` bytes.

    ``size``: of the gathered tensor; for all-to-all and p2p, of what one rank holds. ``copies``: of every token in an
    all-to-all; one copy serves all experts of the receiving rank (DeepEP, ``get_dispatch_layout``), and between domains
    all ranks of the receiving domain, which spread it among themselves (DeepSeek-V3, arXiv 2412.19437, section 3.2.2).
    """
    return tuple(size * share if any_holds(share) else 0.0 for share in _tier_shares(kind, group, copies))


def wire_times(sent_bytes: tuple[Numbers, ...], network: Network) -> tuple[Numbers, ...]:
    r"""Time for which every tier's wire is busy at least, :math:`b_j / B_j`, whatever hides it. [s]

    ``sent_bytes``: of each rank on every tier. Its links carry them at their nominal bandwidth at best, so no step is
    shorter than the longest sum of these over all that it sends.
    """
    return tuple(sent / bandwidth for sent, bandwidth in zip(sent_bytes, network.bandwidth, strict=True))


def add_tiers(first: tuple[Numbers, ...], second: tuple[Numbers, ...]) -> tuple[Numbers, ...]:
    """Sums tier by tier."""
    return tuple(one + other for one, other in zip(first, second, strict=True))


def _tier_shares(kind: CollectiveKind, group: Group, copies: Copies) -> tuple[Numbers, ...]:
    """Bytes that each rank sends on every tier for each byte of a collective."""
    if (kind, copies) not in group.shares:
        group.shares[kind, copies] = _computed_shares(kind, group, copies)
    return group.shares[kind, copies]


def _computed_shares(kind: CollectiveKind, group: Group, copies: Copies) -> tuple[Numbers, ...]:
    sent: list[Numbers] = []
    for layer in group.layers:
        moved = _tier_share(kind, layer.inner_smallest, layer.largest, group.size)
        sent.append(moved * sent_once(copies, layer.pieces) if copies.count > 1 else moved)
    if kind == "p2p":  # a ring or a pipeline runs at its slowest hop: all of it on the outermost tier it crosses
        for index in range(len(sent) - 1, 0, -1):
            crossed = np.asarray(sent[index]) > 0
            for below in range(index):
                sent[below] = np.where(crossed, 0, sent[below])
    return tuple(sent)


def _tier_share(kind: CollectiveKind, inner: Numbers, members: Numbers, num_ranks: Numbers) -> Numbers:
    match kind:
        case "all_gather" | "reduce_scatter":
            return 1 / inner - 1 / members
        case "all_reduce":
            return 2.0 * (1 / inner - 1 / members)
        case "all_to_all":
            return (members - inner) / num_ranks
        case "broadcast":
            return np.where(members > inner, 1 / inner, 0.0)
        case "p2p":
            return np.where(members > inner, 1.0, 0.0)
        case _:
            assert_never(kind)


def collective_time(
    kind: CollectiveKind,
    size: Numbers,
    group: Group,
    network: Network,
    *,
    copies: Copies = ONE_BY_ONE,
    calls: Numbers = 1,
) -> Numbers:
    r"""Time of one collective: its slowest tier's traffic (chunks are pipelined through the tiers), and its latencies.

    .. math:: t_0 + \sum_j \alpha_j h_j + \min\left(\sqrt{T^2 + (f L)^2},\; T / l\right),
        \quad T = \max_j \frac{b_j}{e_j B_j}, \quad L = \sum_j \alpha_j (d_{j-1} - d_j)

    On the innermost tier :math:`b_0` includes :math:`x S / n`: every rank copies its own of n chunks, which takes x of
    the time of a chunk on the links, so that two ranks reach less of a link than eight. The :math:`h_j` are hops:
    :math:`m_j / m_{j-1} - 1` of a ring, twice that of an all-reduce, the logarithm of an all-to-all; between domains
    logarithmic algorithms take the place of longer rings. L, of all-gathers and reduce-scatters across domains, is a
    ring's way through all ranks, of which :math:`d_j` domains of tier j remain to be joined. With large messages a step
    of it takes f times the latency of a hop (NCCL, src/graph/tuning.cc: protocols Simple and LL), which sending hides
    in part; protocols without that reach the share l of the bandwidth. Zero for a single rank. ``calls``: collectives
    in which ``size`` is sent, each with its latencies.
    """
    rates = group.known.get((kind, copies))
    if rates is None or rates.network is not network:
        rates = group.known[kind, copies] = _rates(kind, group, network, copies)
    sending = size * rates.per_byte
    if any_holds(rates.ring_steps):
        paced = np.hypot(sending, calls * rates.ring_steps)
        sending = np.minimum(paced, sending / network.low_latency_share)
    return calls * rates.per_call + sending


def _rates(kind: CollectiveKind, group: Group, network: Network, copies: Copies) -> _Rates:
    """On the axes of the group alone: what is sent names others."""
    slowest: Numbers = 0.0
    latency: Numbers = 0.0
    shares = _tier_shares(kind, group, copies)
    efficiencies, bandwidth, latencies = network.efficiencies(kind), network.bandwidth, network.latency
    for j, (tier, used, layer, share) in enumerate(
        zip(network.tiers, network.sizes, group.layers, shares, strict=False)
    ):
        if kind == "all_to_all" and tier.topology == "torus":
            reached = exchange_share(tier, group.exchange_load(j, tier, used), layer.largest)
        else:
            reached = usable_share(tier, used, layer.fan_out)
        usable = bandwidth[j] * efficiencies[j] * reached
        moved = share + _own_chunk(kind, group, network) if j == 0 else share
        slowest = np.maximum(slowest, moved / usable)
        hops = _hops(kind, layer.fan_out)
        if j > 0:
            hops = np.minimum(hops, _tree_hops(kind, layer.fan_out, layer.inner_largest))
        latency = latency + latencies[j] * hops
    per_call = np.where(group.size > 1, network.launch_time + latency, 0.0)
    return _Rates(network, per_call, slowest, _ring_steps(kind, group, network))


def _ring_steps(kind: CollectiveKind, group: Group, network: Network) -> Numbers:
    """What the steps of a ring through all ranks take with a large message, where it leaves a domain. [s]

    Where every domain holds one rank, logarithmic algorithms take its place (:func:`_tree_hops`).
    """
    if kind not in ("all_gather", "reduce_scatter") or len(group.members) == 1:
        return 0.0
    layers = group.layers
    left = [layer.pieces for layer in layers[1:]] + [1]
    latency: Numbers = 0.0
    for j, (layer, after) in enumerate(zip(layers, left, strict=True)):
        steps = layer.pieces - after
        if j > 0:
            steps = np.minimum(steps, _tree_hops(kind, layer.fan_out, layer.inner_largest))
        latency = latency + network.latency[j] * steps
    return np.where(np.asarray(left[0]) > 1, network.ring_step_factor * latency, 0.0)


def _own_chunk(kind: CollectiveKind, group: Group, network: Network) -> Numbers:
    """What a rank's copy of its own chunk adds to the bytes on its innermost links, for each byte of a collective."""
    if kind in ("broadcast", "p2p"):
        return 0.0
    return np.where(group.size > 1, network.own_chunk_time / group.size, 0.0)


def _hops(kind: CollectiveKind, fan_out: Numbers) -> Numbers:
    if kind == "all_reduce":
        return 2 * (fan_out - 1)
    if kind in ("all_to_all", "broadcast"):
        return np.log2(fan_out)
    if kind == "p2p":
        return np.where(fan_out > 1, 1.0, 0.0)
    return fan_out - 1


def _tree_hops(kind: CollectiveKind, fan_out: Numbers, inner: Numbers) -> Numbers:
    """Hops of logarithmic algorithms between domains.

    NCCL has double binary trees for all-reduces, and since 2.23 parallel aggregated trees (PAT) for all-gathers and
    reduce-scatters, where every domain holds one rank of the group.
    """
    if kind == "all_reduce":
        return 2 * np.log2(fan_out)
    if kind in ("all_gather", "reduce_scatter"):
        return np.where(np.asarray(inner) > 1, np.inf, np.log2(fan_out))
    return np.inf
