"""Networks and groups of ranks for the tests of costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

from hypothesis import strategies as st
from tests.examples import cluster, ideal_profile, tier

from shardplan.inputs.cluster import NetworkTier
from shardplan.physics.costs.collectives import Group
from shardplan.physics.costs.network import Network
from shardplan.physics.workload.ops import CollectiveKind

KINDS: tuple[CollectiveKind, ...] = get_args(CollectiveKind)
SIZE = 1e9
RATE = 100e9
LATENCY = 1e-5
ALONE = Group(1, (1, 1))

kinds = st.sampled_from(KINDS)
sizes = st.floats(1, 1e12)


def network(*tiers: NetworkTier, num_accelerators: int = 64, **constants: Any) -> Network:
    return Network.of(cluster(*tiers), num_accelerators, ideal_profile(**constants))


def flat(bandwidth: float = RATE, latency: float = LATENCY) -> Network:
    """One tier that holds all."""
    return network(tier("network", None, bandwidth / 1e9, latency=latency))


def nodes(inner: float = 400, outer: float = 50, *, latency: float = LATENCY, size: int = 8) -> Network:
    """Nodes of eight on a slower network; bandwidths in GB/s."""
    return network(tier("node", size, inner, latency=latency), tier("network", None, outer, latency=latency))


def with_bandwidth(given: Network, factor: float) -> Network:
    """The same network with every bandwidth multiplied."""
    return replace(given, tiers=tuple(replace(each, bandwidth=each.bandwidth * factor) for each in given.tiers))


def of(num_ranks: int, *, inside: int = 1) -> Group:
    return Group(num_ranks, (inside, num_ranks))


placed_groups = st.builds(
    lambda inside, domains: of(inside * domains, inside=inside), st.sampled_from((1, 2, 8)), st.sampled_from((1, 2, 16))
)
PODS = cluster(tier("node", 8, 450), tier("pod", 3072, 50), tier("spine", None, 7))
