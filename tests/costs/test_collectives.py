from __future__ import annotations

import csv
import math
from collections import Counter
from dataclasses import replace
from typing import Any, cast, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import cluster, ideal_profile, tier
from tests.strategies import Case, cases

from shardplan.calibration.constants import Vector
from shardplan.costs.collectives import collective_bytes, collective_time
from shardplan.costs.groups import Group, groups_of, joined_groups, sharding_groups
from shardplan.costs.network import Network, domain_size
from shardplan.files import DATA
from shardplan.inputs.cluster import Cluster, NetworkTier
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import Digit, PlanNumbers
from shardplan.inputs.profile import load_profile
from shardplan.workload.ops import CollectiveKind, Copies

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
    launched = network(tier("node", 8, 1), tier("network", None, 1), collective_launch_time=1.0)
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


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_to_all"])
@pytest.mark.parametrize(("ranks", "least", "most"), [(2, 0.67, 0.78), (4, 0.90, 0.96)])
def test_few_ranks_reach_less_of_a_link_than_eight(kind: CollectiveKind, ranks: int, least: float, most: float) -> None:
    """Rates of 512 MiB against those of eight ranks, as NCCL has them on NVLink of A100, H100 and B200."""
    node = replace(tier("node", None, 450, latency=0), link_type="nvlink")
    shipped = Network.of(cluster(node), 8, replace(load_profile("hopper"), collective_launch_time=0.0))

    def rate(n: int) -> float:
        return float((n - 1) / n / collective_time(kind, 2.0**29, Group(n, (n,)), shipped))

    assert least <= rate(ranks) / rate(8) <= most


def test_an_all_reduce_copies_its_own_chunk_once() -> None:
    """Two ranks sum half, gather half, and copy half in 0.4 of its time: 1.2 of the size on the links."""
    node = replace(tier("node", None, 100, latency=0), link_type="nvlink")
    constants = {"own_chunk_time": {"nvlink": 0.4, "other": 0.0}}
    assert collective_time(
        "all_reduce", 1e9, Group(2, (2,)), network(node, num_accelerators=8, **constants)
    ) == pytest.approx(0.012)
    over_pcie = network(replace(node, link_type="pcie"), num_accelerators=8, **constants)
    assert collective_time("all_reduce", 1e9, Group(2, (2,)), over_pcie) == pytest.approx(0.01)


def test_omni_path_is_as_slow_as_nccl_makes_it() -> None:
    """All-reduces of 4 GB over four nodes of four V100 on 400 Gb/s: 28 to 85 Gb/s of a ring, 135 between two nodes."""
    node = replace(tier("node", 4, 150, latency=0), link_type="nvlink")
    outer = replace(tier("network", None, 12.5, latency=5e-6), link_type="omnipath")
    slow = Network.of(cluster(node, outer), 16, load_profile("volta"))
    ring = 2 * 15 / 16 * 4e9 / float(collective_time("all_reduce", 4e9, Group(16, (4, 16)), slow))
    assert 28e9 / 8 <= ring <= 135e9 / 8


def test_a_mesh_reaches_the_bandwidth_of_the_links_it_uses() -> None:
    """Eight accelerators joined pairwise: two of them share one link of seven."""
    mesh = network(tier("node", 8, 350, latency=0, topology="mesh"), tier("network", None, 1), num_accelerators=8)
    assert collective_time("p2p", SIZE, Group(2, (2,)), mesh) == pytest.approx(SIZE / 50e9)
    assert collective_time("all_gather", SIZE, Group(8, (8,)), mesh) == pytest.approx(SIZE * 7 / 8 / 350e9)


def test_a_torus_reaches_the_bandwidth_of_the_axes_it_spans() -> None:
    pod = NetworkTier(
        name="pod", size=64, bandwidth=300e9, latency=0, kind="ICI", topology="torus", torus_shape=(4, 4, 4)
    )
    torus = network(pod, tier("network", None, 1), num_accelerators=64)
    for n, axes in (4, 1), (16, 2), (64, 3):
        time = collective_time("all_gather", SIZE, Group(n, (n,)), torus)
        assert time == pytest.approx(SIZE * (n - 1) / n / (100e9 * axes))


@pytest.mark.parametrize(("shape", "size"), [((16, 16), 256), ((16, 20, 28), 8960)])
def test_a_whole_slice_of_a_torus_reaches_all_of_its_axes(shape: tuple[int, ...], size: int) -> None:
    """A job of 16 chips is 4 x 4 or 2 x 2 x 4, no line of 16: it gathers no slower than one of 64 or of 28."""
    pod = NetworkTier(
        name="pod", size=size, bandwidth=600e9, latency=0, kind="ICI", topology="torus", torus_shape=shape
    )
    for n in (16, 28, 32, 64, 256):
        slices = network(pod, tier("network", None, 1), num_accelerators=n)
        time = collective_time("all_gather", SIZE, Group(n, (n,)), slices)
        assert time == pytest.approx(SIZE * (n - 1) / n / 600e9)
    two = network(pod, tier("network", None, 1), num_accelerators=2)
    assert collective_time("all_gather", SIZE, Group(2, (2,)), two) == pytest.approx(SIZE / 2 / (600e9 / len(shape)))


@pytest.mark.parametrize(("job", "size", "axes"), [(16, 4, 1), (16, 8, 2), (32, 8, 1), (32, 16, 2), (64, 8, 1)])
def test_a_group_in_a_slice_of_a_torus_spans_the_axes_that_it_fills(job: int, size: int, axes: int) -> None:
    """Slices of 16, 32 and 64 chips are 4 x 4, 8 x 4 and 8 x 8: eight of them are two lines of four or one of eight."""
    pod = NetworkTier(
        name="pod", size=256, bandwidth=600e9, latency=0, kind="ICI", topology="torus", torus_shape=(16, 16)
    )
    slices = network(pod, tier("network", None, 1), num_accelerators=job)
    time = collective_time("all_gather", SIZE, Group(size, (size,)), slices)
    assert time == pytest.approx(SIZE * (size - 1) / size / (300e9 * axes))


def test_a_pipeline_is_as_slow_as_its_outermost_hop_on_three_tiers() -> None:
    """Four stages in two nodes of a pod: no hop leaves the pod. Eight in two pods: the spine sees all of it."""
    assert collective_bytes("p2p", SIZE, Group(4, (2, 4, 4))) == (0, SIZE, 0)
    assert collective_bytes("p2p", SIZE, Group(8, (2, 4, 8))) == (0, 0, SIZE)


# Placement: which tiers the groups of known layouts cross.

NVL72 = cluster(tier("rack", 72, 900), tier("network", None, 50))
PODS = cluster(tier("node", 8, 450), tier("pod", 3072, 50), tier("spine", None, 7))


def groups(on: Cluster, num_accelerators: int, **fields: Any) -> dict[str, Group]:
    numbers = PlanNumbers.of(
        Plan(**fields), num_accelerators, Job(sequence_length=8192, global_batch_size=num_accelerators)
    )
    return groups_of(numbers, Network.of(on, num_accelerators, ideal_profile()))


def members(on: Cluster, num_accelerators: int, name: str, **fields: Any) -> tuple[int, ...]:
    return tuple(int(m) for m in groups(on, num_accelerators, **fields)[name].members)


def test_tensor_ranks_of_a_node_send_nothing_on_the_network() -> None:
    group = groups(cluster(), 512, tp=8, pp=4)["tp"]
    assert collective_bytes("all_reduce", SIZE, group) == (2 * SIZE * 7 / 8, 0)


def test_dimensions_fill_the_node_from_the_inside_out() -> None:
    plan = {"tp": 2, "cp": 2, "pp": 4}
    assert members(cluster(), 64, "tp", **plan) == (2, 2)
    assert members(cluster(), 64, "cp", **plan) == (2, 2)
    assert members(cluster(), 64, "dp", **plan) == (2, 4)
    assert members(cluster(), 64, "dpcp", **plan) == (4, 8)
    assert members(cluster(), 64, "pp", **plan) == (1, 4)


def test_pipeline_outermost_crosses_every_tier() -> None:
    assert members(PODS, 24576, "pp", tp=8, pp=16) == (1, 2, 16)
    assert members(PODS, 24576, "dp", tp=8, pp=16) == (1, 192, 192)


def test_pipeline_innermost_stays_in_the_node() -> None:
    assert members(cluster(), 64, "pp", pp=8, placement="pp-tp-cp-ep-dp") == (8, 8)


def test_a_rack_of_72_in_576() -> None:
    """576 accelerators fill eight racks: tensor groups of 8 and expert groups of 72 stay inside."""
    assert Network.of(NVL72, 576, ideal_profile()).sizes == (72, 576)
    assert members(NVL72, 576, "tp", tp=8, pp=8) == (8, 8)
    assert members(NVL72, 576, "dp", tp=8, pp=8) == (9, 9)
    assert members(NVL72, 576, "pp", tp=8, pp=8) == (1, 8)
    assert members(NVL72, 576, "ep", ep=72, pp=8) == (72, 72)
    assert members(NVL72, 576, "ep", ep=64) == (8, 64)  # groups of 64 straddle racks of 72


@pytest.mark.parametrize(("tp", "ep", "dp"), [(1, 1, 64), (8, 64, 8), (4, 16, 16), (2, 32, 32)])
def test_a_rack_of_72_in_512_uses_64_of_each(tp: int, ep: int, dp: int) -> None:
    """Eight racks are needed, and whole groups of 8 or 64 are spread evenly over them."""
    assert members(NVL72, 512, "dp", tp=tp) == (dp, 512 // tp)
    assert members(NVL72, 512, "ep", ep=ep) == (ep, ep)


@pytest.mark.parametrize(
    ("size", "num_accelerators", "used"),
    [(8, 64, 8), (8, 4, 4), (8, 12, 6), (8, 1000, 8), (72, 512, 64), (72, 1000, 50), (8, 13, 8), (None, 99, 99)],
)
def test_equal_domains_hold_what_divides_the_job(size: int | None, num_accelerators: int, used: int) -> None:
    assert domain_size(tier("node", size, 1), num_accelerators) == used


@given(cases())
def test_every_group_has_its_ranks(case: Case) -> None:
    question = case.question
    numbers = PlanNumbers.of(case.plan, question.num_accelerators, question.job)
    placed = groups_of(numbers, question.network)
    sizes = {name: getattr(numbers, name) for name in ("cp", "dp", "pp", "ep", "etp", "edp")}
    for name, size in (sizes | {"tp": numbers.tp_columns, "tp_rows": numbers.tp_rows}).items():
        assert placed[name].size == size
        assert placed[name].members[-1] == placed[name].size
        assert all(1 <= m <= placed[name].size for m in placed[name].members)


@given(st.sampled_from((1, 2, 8, 16, 64)), st.sampled_from((1, 2, 4)), st.sampled_from((1, 2, 8)))
def test_groups_inside_one_domain_count_only_the_ranks_there(tp: int, cp: int, pp: int) -> None:
    """By brute force: the members of the group of accelerator 0 that lie in its node."""
    n = 8192
    placed = groups(cluster(), n, tp=tp, cp=cp, pp=pp)
    dp = n // (tp * cp * pp)
    strides = {"tp": 1, "cp": tp, "dp": tp * cp, "pp": tp * cp * dp}
    for name, size in {"tp": tp, "cp": cp, "dp": dp, "pp": pp}.items():
        inside = sum(rank * strides[name] < 8 for rank in range(size))
        assert placed[name].members == (inside, size)


def test_shards_are_the_innermost_ranks() -> None:
    """hsdp shards inside the node and replicates across (arXiv 2304.11277, section 3.2.2)."""
    plan = Plan(sharding="hsdp", sharding_degree=8)
    numbers = PlanNumbers.of(plan, 64, Job(sequence_length=8192, global_batch_size=64))
    placed = sharding_groups(numbers, Network.of(cluster(), 64, ideal_profile()))
    assert placed["shard"].members == (8, 8)
    assert placed["replica"].members == (1, 8)


def test_network_is_cut_at_the_first_tier_that_holds_the_job() -> None:
    assert [one.name for one in Network.of(PODS, 8, ideal_profile()).tiers] == ["node"]
    assert [one.name for one in Network.of(PODS, 3072, ideal_profile()).tiers] == ["node", "pod"]
    assert [one.name for one in Network.of(PODS, 6144, ideal_profile()).tiers] == ["node", "pod", "spine"]


def test_efficiency_is_that_of_the_kind_of_link() -> None:
    nvlink = replace(tier("node", 8, 1), link_type="nvlink")
    table = {"nvlink": 0.8, "other": 0.5}
    found = network(
        nvlink, tier("network", None, 1), network_efficiency=table, all_to_all_efficiency=0.4, p2p_efficiency=0.9
    )
    assert found.efficiencies("all_gather") == (0.8, 0.5)
    assert found.efficiencies("all_to_all") == (0.8, 0.4)
    assert found.efficiencies("p2p") == (0.8, 0.9)


@pytest.mark.parametrize(
    ("num_accelerators", "tp", "inside"),
    [
        (1008, 1, 8),
        (1009, 1, 7),
        (1022, 1, 7),
        (1022, 2, 3),
        (1006, 2, 3),
        (1022, 7, 1),
        (12, 1, 6),
        (12, 4, 1),
        (9, 1, 4),
    ],
)
def test_a_rest_is_spread_over_the_fewest_nodes(num_accelerators: int, tp: int, inside: int) -> None:
    """1,009: 120 nodes of eight and 7 of seven. 1,022 in pairs: 127 of four pairs, one of three. 12 in fours: 2 + 1."""
    assert members(cluster(), num_accelerators, "dp", tp=tp) == (inside, num_accelerators // tp)
    assert members(cluster(), num_accelerators, "tp", tp=tp) == (tp, tp)


@given(st.integers(1, 4000), st.sampled_from((4, 8, 72)))
def test_a_group_of_all_lies_on_the_fewest_domains(num_accelerators: int, size: int) -> None:
    """By dealing accelerators to domains one after the other: the emptiest holds the smallest part."""
    domains = math.ceil(num_accelerators / size)
    dealt = [0] * domains
    for rank in range(num_accelerators):
        dealt[rank % domains] += 1
    on = cluster(tier("node", size, 450), tier("network", None, 50))
    assert members(on, num_accelerators, "dp")[0] == min(dealt)


@given(st.integers(64, 4000))
def test_one_more_accelerator_costs_a_group_one_place_in_a_node(num_accelerators: int) -> None:
    """From 64 on the emptiest of the nodes of eight holds seven: at most 8/7 of what full ones let through."""
    on = network(tier("node", 8, 450, latency=0), tier("network", None, 50, latency=0))
    time = collective_time("all_gather", SIZE, groups(cluster(), num_accelerators)["dp"], on)
    assert time <= SIZE / (8 * 50e9) * 8 / 7


@pytest.mark.parametrize("domains", [2, 16, 2048])
def test_latency_between_domains_grows_with_the_logarithm_where_trees_exist(domains: int) -> None:
    """An all-reduce of nothing: 7 hops there and back in the node, 2 log2 between nodes. A gather of one rank each."""
    placed = network(
        tier("node", 8, 400, latency=LATENCY), tier("network", None, 50, latency=LATENCY), num_accelerators=8 * domains
    )
    rings = 2 * 7 + min(2 * (domains - 1), 2 * math.log2(domains))
    assert collective_time("all_reduce", 0.0, of(8 * domains, inside=8), placed) == pytest.approx(rings * LATENCY)
    assert collective_time("all_gather", 0.0, of(domains), placed) == pytest.approx(math.log2(domains) * LATENCY)
    ring = 7 + domains - 1
    assert collective_time("all_gather", 0.0, of(8 * domains, inside=8), placed) == pytest.approx(ring * LATENCY)


def test_every_call_has_its_latencies() -> None:
    one, four = (collective_time("all_gather", SIZE, of(16, inside=8), nodes(), calls=calls) for calls in (1, 4))
    assert four - one == pytest.approx(3 * (7 + 1) * LATENCY)


def test_fully_sharded_ranks_span_data_and_context_parallelism_around_tensor_parallelism() -> None:
    """A 2-D mesh of FSDP2: shards lie over dp x cp ranks, tp accelerators apart (four of eight to a node at tp 2)."""
    numbers = PlanNumbers.of(Plan(tp=2, cp=2, sharding="zero3"), 64, Job(sequence_length=8192, global_batch_size=64))
    placed = sharding_groups(numbers, Network.of(cluster(), 64, ideal_profile()))
    assert placed["shard"].members == (4, 32)
    assert placed["replica"].members == (1, 1)


# Groups that straddle domains, against an enumeration of their ranks.


def counted(digits: tuple[Digit, ...], world: int, domain: int) -> tuple[int, int, int]:
    """Smallest part, largest part and domains of the groups that ranks at these strides form, rank by rank."""
    offsets = [0]
    for digit in digits:
        offsets = [offset + int(i * digit.stride) for offset in offsets for i in range(int(digit.size))]
    starts = [rank for rank in range(world) if all(rank // d.stride % d.size == 0 for d in digits)]
    parts = [Counter((start + offset) // domain for offset in offsets).values() for start in starts]
    return min(map(min, parts)), max(map(max, parts)), max(map(len, parts))


def placed(digits: tuple[Digit, ...], world: int, domain: int) -> tuple[int, int, int]:
    on = cluster(tier("node", domain, 450), tier("network", None, 50))
    group = Group.of(digits, Network.of(on, world, ideal_profile()))
    largest, domains = group.largest or group.members, group.domains or (group.size / group.members[0],)
    return int(group.members[0]), int(largest[0]), int(domains[0])


@given(st.sampled_from((4, 6, 8, 72)), st.integers(1, 40), st.integers(1, 80))
def test_parts_of_a_straddling_group_are_those_of_its_ranks(domain: int, size: int, stride: int) -> None:
    """Whole domains, so that groups start at every place that they can."""
    world = math.lcm(size * stride, domain) * (1 if size * stride % domain else 2)
    smallest, largest, domains = counted((Digit(size, stride),), world, domain)
    found = placed((Digit(size, stride),), world, domain)
    if domain % stride == 0 or stride >= domain:
        assert found == (smallest, largest, domains)
    else:  # not aligned with the domains: at the worse side
        assert (found[0] <= smallest, found[1] >= largest, found[2] >= domains) == (True, True, True)


@given(
    st.sampled_from((1, 2, 4, 8)),
    st.sampled_from((1, 2, 3, 4)),
    st.sampled_from((1, 2, 4, 6)),
    st.sampled_from((1, 2, 4)),
)
def test_groups_of_a_plan_lie_as_its_ranks_do(tp: int, cp: int, dp: int, pp: int) -> None:
    world = math.lcm(tp * cp * dp * pp, 8)
    dp = world // (tp * cp * pp)
    if world <= 8:
        return
    strides = {"tp": 1, "cp": tp, "dp": tp * cp, "pp": tp * cp * dp}
    digits = {name: (Digit(size, strides[name]),) for name, size in {"tp": tp, "cp": cp, "dp": dp, "pp": pp}.items()}
    groups_there = groups(cluster(), world, tp=tp, cp=cp, pp=pp)
    for name, run in (digits | {"dpcp": digits["cp"] + digits["dp"]}).items():
        smallest, largest, _ = counted(run, world, 8)
        group = groups_there[name]
        assert int(group.members[0]) <= smallest
        assert int((group.largest or group.members)[0]) >= largest
        if run[0].stride in (1, 2, 4) or run[0].stride >= 8:
            assert (int(group.members[0]), int((group.largest or group.members)[0])) == (smallest, largest)


def test_a_group_of_twelve_is_eight_and_four() -> None:
    """Eight exchange inside their node, four links carry what enters the other, one hop joins the two (by hand)."""
    twelve = Group.of((Digit(12, 1),), Network.of(cluster(), 24, ideal_profile()))
    assert (twelve.members, twelve.largest, twelve.domains) == ((4, 12), (8, 12), (2, 1))
    assert collective_bytes("all_gather", SIZE, twelve) == pytest.approx((SIZE * 7 / 8, SIZE * (1 / 4 - 1 / 12)))
    assert collective_bytes("all_to_all", SIZE, twelve) == pytest.approx((SIZE * 7 / 12, SIZE * 8 / 12))
    on = network(tier("node", 8, 450, latency=1e-3), tier("network", None, 50, latency=1.0), num_accelerators=24)
    assert collective_time("all_gather", 0.0, twelve, on) == pytest.approx(1.007)


@given(kinds, st.sampled_from((6, 9, 12, 20)), st.sampled_from((4, 8)))
def test_groups_in_arrays_straddle_as_they_do_alone(kind: CollectiveKind, size: int, domain: int) -> None:
    on = network(tier("node", domain, 450), tier("network", None, 50), num_accelerators=360)
    pair = Digit(np.array([1, 2, 3]), 1), Digit(size, np.array([1, 2, 6]))  # all but the last continue one another
    together = collective_time(kind, SIZE, Group.of(pair, on), on)
    for index in range(3):
        alone = tuple(
            Digit(int(np.broadcast_to(d.size, 3)[index]), int(np.broadcast_to(d.stride, 3)[index])) for d in pair
        )
        single = collective_time(kind, SIZE, Group.of(alone, on), on)
        assert np.asarray(together)[index] == pytest.approx(float(single), rel=1e-12)


def test_thirteen_are_seven_and_six() -> None:
    """A job of 13 on nodes of eight is spread over two of them; six hops join seven ranks, one the two nodes."""
    on = network(tier("node", 8, 450, latency=1e-3), tier("network", None, 50, latency=1.0), num_accelerators=13)
    thirteen = Group.of((Digit(13, 1),), on)
    assert (thirteen.members, thirteen.largest, thirteen.domains) == ((6, 13), (7, 13), (2, 1))
    assert collective_time("all_gather", 0.0, thirteen, on) == pytest.approx(1.006)


def test_replicas_of_pairs_lie_where_their_pairs_do() -> None:
    """511 pairs of context-parallel ranks: 127 nodes of four pairs and one of three."""
    pairs = Group.of((Digit(2, 1), Digit(511, 2)), Network.of(cluster(), 1022, ideal_profile()))
    assert (pairs.members, pairs.largest, pairs.domains) == ((6, 1022), (8, 1022), (128, 1))


@pytest.mark.parametrize(
    ("kind", "inside", "between"), [("all_gather", 0.8, 0.5), ("all_to_all", 0.8, 0.4), ("p2p", 0.8, 0.25)]
)
def test_links_carry_the_share_of_their_bandwidth_that_is_achieved(
    kind: CollectiveKind, inside: float, between: float
) -> None:
    fast = replace(tier("node", 8, 400, latency=0), link_type="nvlink")
    on = network(
        fast, tier("network", None, 50, latency=0), network_efficiency={"nvlink": 0.8, "other": 0.5},
        all_to_all_efficiency=0.4, p2p_efficiency=0.25,
    )  # fmt: skip
    share = 1.0 if kind == "p2p" else 7 / 8
    assert collective_time(kind, SIZE, of(8, inside=8), on) == pytest.approx(share * SIZE / (inside * 400e9))
    assert collective_time(kind, SIZE, of(8), on) == pytest.approx(share * SIZE / (between * 50e9))


@given(kinds)
def test_joined_lists_of_plans_are_answered_like_each_of_them(kind: CollectiveKind) -> None:
    """A list of groups that fill their nodes, and one of groups of twelve that lie in two."""
    on = network(tier("node", 8, 450), tier("network", None, 50), num_accelerators=48)
    lists = [Group.of((Digit(np.array(sizes), 1),), on) for sizes in ([8, 16], [12, 12, 12])]
    together = np.broadcast_to(collective_time(kind, SIZE, joined_groups(lists, (2, 3)), on), 5)
    singly = [collective_time(kind, SIZE, Group.of((Digit(size, 1),), on), on) for size in (8, 16, 12, 12, 12)]
    assert together.tolist() == pytest.approx([float(time) for time in singly], rel=1e-12)


# Rings through many ranks.

MIB = 2.0**20
PERLMUTTER = DATA / "published" / "collectives-perlmutter.csv"


def perlmutter(**constants: Any) -> Network:
    """Nodes of four A100 with four adapters of 25 GB/s, of which large collectives reach 0.70."""
    node = tier("node", 4, 300, latency=0.936e-6)
    outer = replace(tier("network", None, 25, latency=5.8e-6), link_type="slingshot")
    rates = {"nvlink": 0.73, "slingshot": 0.70, "other": 0.70}
    return network(node, outer, num_accelerators=512, network_efficiency=rates, **constants)


def measured_gathers() -> list[tuple[CollectiveKind, int, float, float]]:
    """Kind, nodes, bytes and seconds of gathers and scatters of 64 MiB and more on 8 to 128 nodes of four."""
    lines = [line for line in PERLMUTTER.read_text().splitlines() if not line.startswith("#")]
    rows = [
        (
            cast("CollectiveKind", row["collective"]),
            int(row["num_nodes"]),
            float(row["size_bytes"]),
            float(row["time_us"]) * 1e-6,
        )
        for row in csv.DictReader(lines)
        if row["gpus_per_node"] == "4" and row["collective"] != "all_reduce"
    ]
    return [(kind, nodes, size, time) for kind, nodes, size, time in rows if nodes >= 8 and size >= 64 * MIB]


def errors_of(on: Network) -> Vector:
    """exp|ln(predicted / measured)| - 1."""
    ratios = [
        collective_time(kind, size, Group(4 * nodes, (4, 4 * nodes)), on) / time
        for kind, nodes, size, time in measured_gathers()
    ]
    return np.exp(np.abs(np.log(np.asarray(ratios, dtype=float)))) - 1


def test_rings_through_hundreds_of_ranks_take_as_long_as_measured() -> None:
    """NCCL-tests on Perlmutter, 32 to 512 A100: the steps of the ring take up to ten times as long as sending."""
    waiting = errors_of(perlmutter(ring_step_factor=9.0, low_latency_share=0.12))
    assert np.median(waiting) < 0.07
    assert np.max(waiting) < 0.35
    assert np.max(errors_of(perlmutter(ring_step_factor=0.0))) > 3


@given(size=st.floats(1, 1e12), nodes=st.integers(1, 4096), factor=st.floats(0, 20))
def test_steps_of_a_ring_never_shorten_a_collective(size: float, nodes: int, factor: float) -> None:
    """Nor do they lengthen one within a node, or of an all-reduce, for which there are trees."""
    group = Group(4 * nodes, (4, 4 * nodes))
    for kind in KINDS:
        plain, slow = (collective_time(kind, size, group, perlmutter(ring_step_factor=f)) for f in (0.0, factor))
        if kind in ("all_gather", "reduce_scatter") and nodes > 1:
            assert slow >= plain
        else:
            assert slow == plain


def test_a_ring_passes_every_rank() -> None:
    """Of 8 nodes of 4: 24 steps inside nodes and 7 between them, where sending takes no time."""
    on = perlmutter(ring_step_factor=2.0, low_latency_share=1e-9)
    hops = 3 * 0.936e-6 + 7 * 5.8e-6
    expected = hops + 2 * (24 * 0.936e-6 + 7 * 5.8e-6)
    assert collective_time("all_gather", 1.0, Group(32, (4, 32)), on) == pytest.approx(expected, rel=1e-3)
