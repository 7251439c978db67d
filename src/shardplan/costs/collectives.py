"""Time and traffic of collectives on the network tiers that their ranks cross.

A group of n ranks has :math:`m_j` members inside one domain of tier j (:math:`m_0 = 1`). Ring and tree algorithms are
hierarchical: a gathered tensor of S bytes costs each rank :math:`S (1/m_{j-1} - 1/m_j)` bytes on tier j, since what
enters a domain enters it once and is spread inside. Where domains cut a group into unequal parts, the first m is that
of the smallest part, whose few links carry all that enters it, and the second that of the largest.
"""

from __future__ import annotations

from typing import assert_never

import numpy as np

from shardplan.arrays import Numbers, any_holds
from shardplan.costs.groups import CollectiveRates, Group
from shardplan.costs.network import Network, exchange_share, usable_share
from shardplan.workload.communication import sent_once
from shardplan.workload.ops import ONE_BY_ONE, CollectiveKind, Copies


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
