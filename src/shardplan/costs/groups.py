"""The ranks of every parallel dimension on the network: how many lie inside one domain of each tier.

A group of n ranks has :math:`m_j` members inside one domain of tier j (:math:`m_0 = 1`). Where domains cut a group into
unequal parts, the smallest and the largest part are known.

Domains of a network tier, such as nodes, cut the groups of a parallel dimension into parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import reduce

import numpy as np

from shardplan.arrays import Flags, Numbers, concatenated
from shardplan.costs.network import Network, exchange_load
from shardplan.fields import dataclass, replace
from shardplan.inputs.cluster import NetworkTier
from shardplan.inputs.plan_numbers import Digit, PlanNumbers, digits
from shardplan.workload.ops import CollectiveKind, Copies


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
