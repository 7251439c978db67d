"""Time and traffic of collectives on the network tiers that their ranks cross.

A group of n ranks has :math:`m_j` members inside one domain of tier j (:math:`m_0 = 1`). Ring and tree algorithms are
hierarchical: a gathered tensor of S bytes costs each rank :math:`S (1/m_{j-1} - 1/m_j)` bytes on tier j, since what
enters a domain enters it once and is spread inside. Where domains cut a group into unequal parts, the first m is that
of the smallest part, whose few links carry all that enters it, and the second that of the largest.

The ranks of every parallel dimension on the network: how many lie inside one domain of each tier.

A group of n ranks has :math:`m_j` members inside one domain of tier j (:math:`m_0 = 1`). Where domains cut a group into
unequal parts, the smallest and the largest part are known.

Domains of a network tier, such as nodes, cut the groups of a parallel dimension into parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import reduce
from typing import assert_never

import numpy as np

from shardplan.base.arrays import Flags, Numbers, any_holds, concatenated
from shardplan.base.fields import dataclass, replace
from shardplan.inputs.cluster import NetworkTier
from shardplan.inputs.plan_numbers import Digit, PlanNumbers, digits
from shardplan.physics.costs.network import Network, exchange_load, exchange_share, usable_share
from shardplan.physics.workload.communication import sent_once
from shardplan.physics.workload.ops import ONE_BY_ONE, CollectiveKind, Copies


@dataclass(frozen=True)
class PlacedParts:
    """Parts into which domains of one size cut the groups of a dimension, at their worst."""

    smallest: Numbers
    largest: Numbers
    domains: Numbers
    """Domains in which a group lies."""

    def times(self, other: PlacedParts) -> PlacedParts:
        """Parts of ranks that lie apart in both ways."""
        return PlacedParts(self.smallest * other.smallest, self.largest * other.largest, self.domains * other.domains)

    def where(self, condition: Flags, other: PlacedParts) -> PlacedParts:
        """Plan by plan these parts or others."""
        names = ("smallest", "largest", "domains")
        return PlacedParts(*(np.where(condition, getattr(self, name), getattr(other, name)) for name in names))


def parts_in_domains(parts: tuple[Digit, ...], domain: int, world: int) -> PlacedParts:
    """Parts of the worst-placed groups: of each run of ranks, those of all runs multiplied."""
    if world % domain:
        return reduce(PlacedParts.times, (_spread(digit, domain) for digit in parts), PlacedParts(1, 1, 1))
    if len(parts) < 2:
        return _packed(parts[0], domain) if parts else PlacedParts(1, 1, 1)
    first, second, *others = parts
    continued = np.equal(first.size * first.stride, second.stride)
    if not np.any(continued):
        return _packed(first, domain).times(parts_in_domains((second, *others), domain, world))
    joined = parts_in_domains((Digit(first.size * second.size, first.stride), *others), domain, world)
    if np.all(continued):
        return joined
    apart = _packed(first, domain).times(parts_in_domains((second, *others), domain, world))
    return joined.where(continued, apart)


def _packed(digit: Digit, domain: int) -> PlacedParts:
    """In a job that fills whole domains: accelerator i lies in domain i / D, so groups may straddle domains.

    Of a ranks t apart, with g the greatest common divisor of a t and D, the smallest part has g / t and the largest
    D / t. This is exact where t divides D or is not less than D, and otherwise at the worse side.
    """
    size, stride = np.asarray(digit.size, dtype=np.int64), np.asarray(digit.stride, dtype=np.int64)
    shared = np.gcd(size * stride, domain)
    smallest = np.minimum(np.maximum(shared // stride, 1), size)
    largest = np.minimum(np.maximum(-(-domain // stride), 1), size)
    straddled = np.minimum(np.ceil((size * stride - shared) / domain) + 1, size)
    return PlacedParts(smallest, largest, np.where(smallest == largest, size / smallest, straddled))


def _spread(digit: Digit, domain: int) -> PlacedParts:
    """In a job with a rest: the fewest domains hold the group, as evenly as whole blocks of ``stride`` ranks can be.

    Schedulers place jobs so on the nodes that they need (Slurm's block distribution): 1,022 accelerators on nodes of
    eight are 127 nodes of eight and one of six where pairs stay together, 126 of eight and two of seven where none do.
    """
    fits = np.clip(np.floor(domain / np.asarray(digit.stride)), 1, digit.size)
    domains = np.ceil(digit.size / fits)
    return PlacedParts(np.floor(digit.size / domains), np.ceil(digit.size / domains), domains)


@dataclass(frozen=True)
class CollectiveRates:
    """What a kind of collective costs a group on a network."""

    network: Network
    per_call: Numbers
    """[s]"""
    per_byte: Numbers
    """[s/byte]"""
    ring_steps: Numbers
    """What the steps of a ring across domains take with a large message, one after the other. [s]"""


@dataclass(frozen=True)
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
    known: dict[tuple[CollectiveKind, Copies], CollectiveRates] = field(
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
    def tier_parts(self) -> tuple[TierParts, ...]:
        """What every tier joins."""
        parts: list[TierParts] = []
        smallest: Numbers = 1
        largest: Numbers = 1
        pieces = self.size
        for index, members in enumerate(self.members):
            most = self.largest[index] if self.largest else members
            domains = self.domains[index] if self.domains else self.size / members
            fan_out = most if index == 0 else pieces / domains if self.domains else members / smallest
            parts.append(TierParts(smallest, largest, members, most, pieces, fan_out))
            smallest, largest, pieces = members, most, domains
        return tuple(parts)


@dataclass(frozen=True)
class TierParts:
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


def joined_groups(groups: Sequence[dict[str, Group]], lengths: Sequence[int]) -> dict[str, Group]:
    """Groups of several lists of plans as those of one list."""
    return {name: _joined([each[name] for each in groups], lengths) for name in groups[0]}


def _joined(groups: Sequence[Group], lengths: Sequence[int]) -> Group:
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
    for layer in group.tier_parts:
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


def _rates(kind: CollectiveKind, group: Group, network: Network, copies: Copies) -> CollectiveRates:
    """On the axes of the group alone: what is sent names others."""
    slowest: Numbers = 0.0
    latency: Numbers = 0.0
    shares = _tier_shares(kind, group, copies)
    efficiencies, bandwidth, latencies = network.efficiencies(kind), network.bandwidth, network.latency
    for j, (tier, used, layer, share) in enumerate(
        zip(network.tiers, network.sizes, group.tier_parts, shares, strict=False)
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
    return CollectiveRates(network, per_call, slowest, _ring_steps(kind, group, network))


def _ring_steps(kind: CollectiveKind, group: Group, network: Network) -> Numbers:
    """What the steps of a ring through all ranks take with a large message, where it leaves a domain. [s]

    Where every domain holds one rank, logarithmic algorithms take its place (:func:`_tree_hops`).
    """
    if kind not in ("all_gather", "reduce_scatter") or len(group.members) == 1:
        return 0.0
    layers = group.tier_parts
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
