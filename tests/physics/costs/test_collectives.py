from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import cluster, ideal_profile, tier
from tests.physics.costs.networks import (
    ALONE,
    LATENCY,
    RATE,
    SIZE,
    flat,
    kinds,
    network,
    nodes,
    of,
    placed_groups,
    sizes,
    with_bandwidth,
)

from shardplan.inputs.plan_numbers import Digit
from shardplan.physics.costs.collectives import Group, collective_bytes, collective_time
from shardplan.physics.costs.network import Network
from shardplan.physics.workload.ops import CollectiveKind, Copies


@pytest.mark.parametrize("n", [2, 3, 8, 64, 1000])
def test_ring_all_reduce(n: int) -> None:
    """2 (n - 1) (alpha + S / (n B)): Patarasuk and Yuan, JPDC 69(2), 2009."""
    expected = 2 * (n - 1) * (LATENCY + SIZE / (n * RATE))
    assert collective_time("all_reduce", SIZE, Group(n, (n,)), flat()) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize("n", [2, 3, 8, 64, 1000])
def test_ring_all_gather_and_reduce_scatter(kind: CollectiveKind, n: int) -> None:
    """Half of an all-reduce each (Thakur et al., IJHPCA 19(1), 2005, section 4)."""
    expected = (n - 1) * (LATENCY + SIZE / (n * RATE))
    assert collective_time(kind, SIZE, Group(n, (n,)), flat()) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("n", [2, 8, 64])
def test_all_to_all_sends_all_but_its_own_part(n: int) -> None:
    (moved,) = collective_bytes("all_to_all", SIZE, Group(n, (n,)))
    assert moved == pytest.approx(SIZE * (n - 1) / n)
    time = collective_time("all_to_all", SIZE, Group(n, (n,)), flat())
    assert time == pytest.approx(math.log2(n) * LATENCY + SIZE * (n - 1) / n / RATE, rel=1e-14)


@pytest.mark.parametrize("copies", [1, 2, 8])
def test_copies_of_a_token_for_one_node_cross_the_network_once(copies: int) -> None:
    """Of k copies that fall on D nodes at random, D (1 - (1 - 1/D)^k) nodes get one (arXiv 2412.19437, 3.2.2)."""
    once = collective_bytes("all_to_all", SIZE, of(64, inside=8))
    inner, outer = collective_bytes("all_to_all", SIZE, of(64, inside=8), copies=Copies(copies))
    assert inner == pytest.approx(float(once[0]) * reached_of(64, copies) / copies)
    assert outer == pytest.approx(float(once[1]) * reached_of(8, copies) / copies)


def reached_of(domains: int, copies: int) -> float:
    """Domains that get at least one copy, counted over all outcomes."""
    one, others = 1 / domains, 1 - 1 / domains
    return domains * sum(math.comb(copies, k) * one**k * others ** (copies - k) for k in range(1, copies + 1))


def test_point_to_point_is_latency_and_bandwidth() -> None:
    assert collective_time("p2p", SIZE, Group(2, (2,)), flat()) == pytest.approx(LATENCY + SIZE / RATE, rel=1e-14)


@given(kinds, sizes, st.integers(2, 10_000))
def test_infinite_bandwidth_leaves_latency_only(kind: CollectiveKind, size: float, n: int) -> None:
    hops = {
        "all_reduce": 2 * (n - 1), "all_gather": n - 1, "reduce_scatter": n - 1, "p2p": 1,
        "all_to_all": math.log2(n), "broadcast": math.log2(n),
    }  # fmt: skip
    fast = with_bandwidth(flat(), 1e30)
    assert collective_time(kind, size, Group(n, (n,)), fast) == pytest.approx(hops[kind] * LATENCY, rel=1e-9)


@given(kinds, sizes, st.integers(2, 10_000))
def test_zero_latency_leaves_bandwidth_only(kind: CollectiveKind, size: float, n: int) -> None:
    group = Group(n, (n,))
    (moved,) = collective_bytes(kind, size, group)
    assert collective_time(kind, size, group, flat(latency=0)) == pytest.approx(float(moved) / RATE, rel=1e-14)


@given(kinds, sizes)
def test_a_single_rank_is_free(kind: CollectiveKind, size: float) -> None:
    """It starts no kernel, and copies no chunk."""
    launched = network(
        tier("node", 8, 1), tier("network", None, 1), collective_launch_time=1.0, own_chunk_time={"other": 0.5}
    )
    assert collective_time(kind, size, ALONE, launched) == 0
    assert collective_bytes(kind, size, ALONE) == (0, 0)


@given(kinds, sizes, st.sampled_from((2, 4, 8)), st.sampled_from((2, 3, 16)))
def test_tiers_share_the_bytes_of_the_flat_collective(
    kind: CollectiveKind, size: float, inside: int, domains: int
) -> None:
    n = inside * domains
    (whole,) = collective_bytes(kind, size, Group(n, (n,)))
    parts = collective_bytes(kind, size, of(n, inside=inside))
    if kind != "broadcast":  # it enters a domain once and is spread inside at the same time
        assert sum(map(float, parts)) == pytest.approx(float(whole), rel=1e-12)
    assert all(part >= 0 for part in parts)


@given(kinds, sizes, st.sampled_from((2, 8)))
def test_ranks_in_one_domain_use_that_tier_only(kind: CollectiveKind, size: float, n: int) -> None:
    (inner, outer) = collective_bytes(kind, size, of(n, inside=n))
    assert outer == 0
    assert [inner] == list(collective_bytes(kind, size, Group(n, (n,))))


@given(kinds, sizes, st.sampled_from((2, 16)))
def test_ranks_in_different_domains_use_the_outer_tier_only(kind: CollectiveKind, size: float, n: int) -> None:
    (inner, outer) = collective_bytes(kind, size, of(n))
    assert inner == 0
    assert [outer] == list(collective_bytes(kind, size, Group(n, (n,))))


def test_hierarchical_gather_sends_what_enters_a_domain_once() -> None:
    """S (1 - 1/8) inside a node and S (1/8 - 1/64) between nodes (2-level ring, NCCL and arXiv 1810.11112)."""
    inner, outer = collective_bytes("all_gather", SIZE, of(64, inside=8))
    assert (inner, outer) == (SIZE * (1 - 1 / 8), SIZE * (1 / 8 - 1 / 64))


def test_hierarchy_is_as_slow_as_its_slowest_tier() -> None:
    slow = nodes(inner=400, outer=1, latency=0)
    assert collective_time("all_gather", SIZE, of(64, inside=8), slow) == pytest.approx(SIZE * (1 / 8 - 1 / 64) / 1e9)
    fast = nodes(inner=1, outer=400, latency=0)
    assert collective_time("all_gather", SIZE, of(64, inside=8), fast) == pytest.approx(SIZE * (1 - 1 / 8) / 1e9)


@given(kinds, sizes, st.sampled_from((2, 4, 8)), st.sampled_from((2, 3, 16)))
def test_equal_tiers_are_never_slower_than_one(kind: CollectiveKind, size: float, inside: int, domains: int) -> None:
    """Chunks are pipelined through both tiers, and hops inside and between domains add up to fewer."""
    n = inside * domains
    equal = nodes(inner=100, outer=100)
    two = collective_time(kind, size, of(n, inside=inside), equal)
    assert two <= collective_time(kind, size, Group(n, (n,)), flat()) * (1 + 1e-12) + LATENCY * (kind == "p2p")


@given(kinds, sizes, placed_groups, st.floats(1, 1000), st.floats(1, 100))
def test_faster_links_are_never_slower(
    kind: CollectiveKind, size: float, group: Group, bandwidth: float, factor: float
) -> None:
    base = nodes(outer=bandwidth)
    time = collective_time(kind, size, group, base)
    for faster in (with_bandwidth(base, factor), nodes(outer=bandwidth * factor), nodes(400 * factor, bandwidth)):
        assert collective_time(kind, size, group, faster) <= time * (1 + 1e-12)
    assert collective_time(kind, size, group, nodes(outer=bandwidth, latency=LATENCY / factor)) <= time


@given(kinds, placed_groups, sizes, st.floats(1, 10))
def test_more_bytes_never_take_less(kind: CollectiveKind, group: Group, size: float, factor: float) -> None:
    assert collective_time(kind, size, group, nodes()) <= collective_time(kind, size * factor, group, nodes())


@given(kinds, sizes)
def test_arrays_of_groups_equal_single_groups(kind: CollectiveKind, size: float) -> None:
    inside, total = np.array([1, 1, 2, 8, 8]), np.array([1, 4, 2, 8, 64])
    together = collective_time(kind, size, Group(total, (inside, total)), nodes())
    moved = collective_bytes(kind, size, Group(total, (inside, total)))
    for index, (m, n) in enumerate(zip(inside.tolist(), total.tolist(), strict=True)):
        assert np.asarray(together)[index] == collective_time(kind, size, of(n, inside=m), nodes())
        singly = collective_bytes(kind, size, of(n, inside=m))
        assert [np.broadcast_to(part, 5)[index] for part in moved] == list(singly)


def test_a_pipeline_is_as_slow_as_its_outermost_hop_on_three_tiers() -> None:
    """Four stages in two nodes of a pod: no hop leaves the pod. Eight in two pods: the spine sees all of it."""
    assert collective_bytes("p2p", SIZE, Group(4, (2, 4, 4))) == (0, SIZE, 0)
    assert collective_bytes("p2p", SIZE, Group(8, (2, 4, 8))) == (0, 0, SIZE)


def test_a_group_of_twelve_is_eight_and_four() -> None:
    """Eight exchange inside their node, four links carry what enters the other, one hop joins the two (by hand)."""
    twelve = Group.of((Digit(12, 1),), Network.of(cluster(), 24, ideal_profile()))
    assert (twelve.members, twelve.largest, twelve.domains) == ((4, 12), (8, 12), (2, 1))
    assert collective_bytes("all_gather", SIZE, twelve) == pytest.approx((SIZE * 7 / 8, SIZE * (1 / 4 - 1 / 12)))
    assert collective_bytes("all_to_all", SIZE, twelve) == pytest.approx((SIZE * 7 / 12, SIZE * 8 / 12))
    on = network(tier("node", 8, 450, latency=1e-3), tier("network", None, 50, latency=1.0), num_accelerators=24)
    assert collective_time("all_gather", 0.0, twelve, on) == pytest.approx(1.007)


def test_thirteen_are_seven_and_six() -> None:
    """A job of 13 on nodes of eight is spread over two of them; six hops join seven ranks, one the two nodes."""
    on = network(tier("node", 8, 450, latency=1e-3), tier("network", None, 50, latency=1.0), num_accelerators=13)
    thirteen = Group.of((Digit(13, 1),), on)
    assert (thirteen.members, thirteen.largest, thirteen.domains) == ((6, 13), (7, 13), (2, 1))
    assert collective_time("all_gather", 0.0, thirteen, on) == pytest.approx(1.006)


HOP, FIXED, OWN, STEP, LOW = (1e-3, 1e-2, 1e-1), 1.0, 0.5, 3.0, 0.25
"""Latencies of three tiers; launch, copy of the own chunk, step of a ring, share of protocols with low latency."""
PODS = network(
    tier("node", 8, 400, latency=HOP[0]), tier("pod", 64, 100, latency=HOP[1]), tier("spine", None, 10, latency=HOP[2]),
    num_accelerators=256, collective_launch_time=FIXED, own_chunk_time={"other": OWN}, ring_step_factor=STEP,
    low_latency_share=LOW, all_to_all_efficiency=0.5, p2p_efficiency=0.2,
)  # fmt: skip
BY_HAND: tuple[tuple[CollectiveKind, tuple[float, ...], tuple[float, ...], float, tuple[float, ...]], ...] = (
    ("all_gather", (3 / 4, 3 / 16, 3 / 64), (3, 3, 3), OWN / 64, (1, 1, 1)),
    ("reduce_scatter", (3 / 4, 3 / 16, 3 / 64), (3, 3, 3), OWN / 64, (1, 1, 1)),
    ("all_reduce", (6 / 4, 6 / 16, 6 / 64), (6, 4, 4), OWN / 64, (1, 1, 1)),
    ("all_to_all", (3 / 64, 12 / 64, 48 / 64), (2, 2, 2), OWN / 64, (1, 0.5, 0.5)),
    ("broadcast", (1, 1 / 4, 1 / 16), (2, 2, 2), 0, (1, 1, 1)),
    ("p2p", (0, 0, 1), (1, 1, 1), 0, (1, 0.2, 0.2)),
)
"""Of four ranks in each of four nodes of each of four pods: bytes and hops on each tier, own chunk, efficiencies."""


@pytest.mark.parametrize(("kind", "shares", "hops", "own", "efficiency"), BY_HAND)
@pytest.mark.parametrize("size", [0.0, 1e6, 1e9, 1e12])
def test_sixty_four_ranks_on_three_tiers_by_hand(
    *,
    kind: CollectiveKind,
    shares: tuple[float, ...],
    hops: tuple[float, ...],
    own: float,
    efficiency: tuple[float, ...],
    size: float,
) -> None:
    """All-reduces have trees between domains. A ring through 64 ranks has 48, 12 and 3 steps on the three tiers."""
    group = Group(64, (4, 16, 64))
    assert collective_bytes(kind, size, group) == pytest.approx([size * share for share in shares])
    rates = [400e9 * efficiency[0], 100e9 * efficiency[1], 10e9 * efficiency[2]]
    moved = (shares[0] + own, *shares[1:])
    sending = size * max(share / rate for share, rate in zip(moved, rates, strict=True))
    per_call = FIXED + sum(hop * times for hop, times in zip(HOP, hops, strict=True))
    for calls in (1, 3):
        paced = sending
        if kind in ("all_gather", "reduce_scatter"):
            ring = STEP * (48 * HOP[0] + 12 * HOP[1] + 3 * HOP[2])
            paced = min(math.hypot(sending, calls * ring), sending / LOW)
        found = collective_time(kind, size, group, PODS, calls=calls)
        assert found == pytest.approx(calls * per_call + paced, rel=1e-12)


def test_one_rank_in_each_node_joins_pods_by_trees() -> None:
    """Four nodes of a pod in log2(4) hops, as steps of the long ring too; four ranks of each of four pods by rings."""
    group, size = Group(16, (1, 4, 16)), 1e9
    sending = size * max(3 / 4 / 100e9, 3 / 16 / 10e9)
    paced = min(math.hypot(sending, STEP * (2 * HOP[1] + 3 * HOP[2])), sending / LOW)
    expected = FIXED + 2 * HOP[1] + 3 * HOP[2] + paced
    assert collective_time("all_gather", size, group, PODS) == pytest.approx(expected, rel=1e-12)
    small = collective_time("all_gather", 1e3, group, PODS) - FIXED - 2 * HOP[1] - 3 * HOP[2]
    assert small == pytest.approx(1e3 / size * sending / LOW)


def test_a_ring_inside_a_node_has_no_steps_across_domains() -> None:
    expected = FIXED + 3 * HOP[0] + 1e9 * (3 / 4 + OWN / 4) / 400e9
    assert collective_time("all_gather", 1e9, Group(4, (4, 4, 4)), PODS) == pytest.approx(expected, rel=1e-12)


def test_copies_for_one_domain_take_their_share_of_the_time() -> None:
    """Of two copies among n domains 2 - 1/n arrive in different ones; domains of tiers below count."""
    group, copies = Group(64, (4, 16, 64)), Copies(2)
    expected = [1e9 * share * (2 - 1 / n) / 2 for share, n in zip((3 / 64, 12 / 64, 48 / 64), (64, 16, 4), strict=True)]
    assert collective_bytes("all_to_all", 1e9, group, copies=copies) == pytest.approx(expected)
    found = collective_time("all_to_all", 1e9, group, PODS, copies=copies)
    assert found == pytest.approx(FIXED + 2 * sum(HOP) + expected[2] / (0.5 * 10e9))


def test_a_group_is_priced_anew_on_another_network() -> None:
    """It remembers what it costs on the last one."""
    group = Group(64, (4, 16, 64))
    slow = with_bandwidth(PODS, 0.5)
    whole = [float(collective_time("broadcast", 1e12, group, on)) for on in (PODS, slow, PODS)]
    fixed = FIXED + 2 * sum(HOP)
    assert whole[0] == whole[2]
    assert whole[1] - fixed == pytest.approx(2 * (whole[0] - fixed))
