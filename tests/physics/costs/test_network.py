"""Tiers of a network and the links of an accelerator that a collective can use."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import cluster, ideal_profile, tier
from tests.physics.costs.networks import KINDS, LATENCY, PODS, SIZE, network, nodes, of

from shardplan.base.files import DATA
from shardplan.calibrate.fit import Vector
from shardplan.inputs.cluster import NetworkTier
from shardplan.inputs.plan_numbers import Digit
from shardplan.inputs.profile import load_profile
from shardplan.physics.costs.collectives import Group, collective_time
from shardplan.physics.costs.network import Network, domain_size, exchange_share, slice_sides, usable_share
from shardplan.physics.workload.ops import CollectiveKind

MIB = 2.0**20
PERLMUTTER = DATA / "published" / "collectives-perlmutter.csv"


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


@pytest.mark.parametrize(
    ("size", "num_accelerators", "used"),
    [(8, 64, 8), (8, 4, 4), (8, 12, 6), (8, 1000, 8), (72, 512, 64), (72, 1000, 50), (8, 13, 8), (None, 99, 99)],
)
def test_equal_domains_hold_what_divides_the_job(size: int | None, num_accelerators: int, used: int) -> None:
    assert domain_size(tier("node", size, 1), num_accelerators) == used


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


@pytest.mark.parametrize(
    ("num_accelerators", "sizes"), [(5, (5,)), (8, (8,)), (9, (8, 9)), (96, (8, 24, 96)), (960, (8, 24, 96, 960))]
)
def test_a_job_sees_the_tiers_up_to_the_first_that_holds_it(num_accelerators: int, sizes: tuple[int, ...]) -> None:
    on = cluster(tier("node", 8, 450), tier("pod", 24, 50), tier("row", 96, 20), tier("spine", None, 5))
    assert Network.of(on, num_accelerators, ideal_profile()).sizes == sizes


GROUP_SIZE = 1e9
Place = tuple[int, ...]


def test_neighbours_in_a_mesh_share_one_link_at_least() -> None:
    """Three nodes in two meshes are 1.5 in each on average; where there is a hop there is a whole link of seven."""
    mesh = tier("node", 8, 350, topology="mesh")
    assert [float(usable_share(mesh, 8, each)) for each in (1.5, 2, 3, 8)] == pytest.approx([1 / 7, 1 / 7, 2 / 7, 1])


def test_a_mesh_without_an_end_is_a_switch() -> None:
    assert usable_share(tier("network", None, 350, topology="mesh"), 8, 3) == 1
    assert usable_share(tier("node", 8, 350), 8, 3) == 1


# Rings and all-to-alls on a torus


def torus(*shape: int) -> NetworkTier:
    size = math.prod(shape)
    return NetworkTier(
        name="pod", size=size, bandwidth=600e9, latency=0, kind="ICI", topology="torus", torus_shape=shape
    )


def on_torus(*shape: int, job: int | None = None) -> Network:
    """A pod of this shape, and a job that has all of it or ``job`` accelerators."""
    used = job or math.prod(shape)
    return Network.of(cluster(torus(*shape), tier("network", None, 1, latency=0)), used, ideal_profile())


def exchanged(on: Network, *parts: Digit) -> float:
    """Time of an all-to-all in units of what a rank holds over the bandwidth of one link."""
    pod = on.tiers[0]
    time = collective_time("all_to_all", GROUP_SIZE, Group.of(parts, on), on)
    return float(time) / (GROUP_SIZE / (pod.bandwidth / (2 * len(pod.torus_shape))))


def counted(shape: Place, groups: Sequence[Sequence[int]]) -> float:
    """The busiest link where all groups exchange at once, message by message along one axis after the other."""
    places = list(np.ndindex(*shape))  # neighbours differ in the last axis
    links: dict[tuple[int, int, Place], float] = defaultdict(float)
    for ranks in groups:
        for start in ranks:
            for end in ranks:
                _send(links, shape, places[start], places[end], 1 / len(ranks))
    return max(links.values(), default=0.0)


def _send(links: dict[tuple[int, int, Place], float], shape: Place, start: Place, end: Place, sent: float) -> None:
    here = list(start)
    for axis, side in enumerate(shape):
        forward = (end[axis] - here[axis]) % side
        both = [(1, forward), (-1, side - forward)]
        ways = both if 2 * forward == side else [min(both, key=lambda way: way[1])]
        for step, hops in ways if forward else []:
            for hop in range(hops):
                at = (*here[:axis], (here[axis] + step * hop) % side, *here[axis + 1 :])
                links[axis, step, at] += sent / len(ways)
        here[axis] = end[axis]


@pytest.mark.parametrize("shape", [(2,), (4,), (5,), (16,), (2, 2, 2), (4, 4), (4, 8), (3, 4, 4)])
def test_an_all_to_all_over_a_torus_takes_as_long_as_its_busiest_link(shape: Place) -> None:
    num_ranks = math.prod(shape)
    expected = counted(shape, [range(num_ranks)])
    assert exchanged(on_torus(*shape), Digit(num_ranks, 1)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("size", "stride"), [(4, 1), (4, 4), (4, 2), (8, 2), (2, 8), (16, 1), (16, 4), (1, 1)])
def test_groups_side_by_side_share_links(size: int, stride: int) -> None:
    """In a pod of 4 x 16: lines next to each other have links of their own, ranks in between share them."""
    starts = [base + offset for base in range(0, 64, size * stride) for offset in range(stride)]
    expected = counted((4, 16), [[start + stride * rank for rank in range(size)] for start in starts])
    assert exchanged(on_torus(4, 16), Digit(size, stride)) == pytest.approx(expected, rel=1e-9)


def test_rings_of_two_and_of_four_and_a_pod() -> None:
    assert exchanged(on_torus(2), Digit(2, 1)) == pytest.approx(1 / 4)  # half, over two links to the only neighbour
    assert exchanged(on_torus(4), Digit(4, 1)) == pytest.approx(1 / 2)  # one hop on average, over two links
    assert exchanged(on_torus(16, 16), Digit(256, 1)) == pytest.approx(16 / 8)
    assert exchanged(on_torus(16, 16, job=16), Digit(16, 1)) == pytest.approx(4 / 8)  # a slice of 4 x 4


@given(st.sampled_from([(4, 4), (16, 16), (4, 4, 4), (16, 20, 28)]), st.data())
def test_an_all_to_all_is_no_faster_than_over_a_switch(shape: Place, data: st.DataObject) -> None:
    """Every byte takes one link at least."""
    size = math.prod(shape)
    degree = data.draw(st.sampled_from([each for each in range(1, size + 1) if size % each == 0]))
    stride = data.draw(st.sampled_from([each for each in range(1, size // degree + 1) if size // degree % each == 0]))
    over_switch = (1 - 1 / degree) / (2 * len(shape))
    assert exchanged(on_torus(*shape), Digit(degree, stride)) >= over_switch * (1 - 1e-12)


def test_arrays_of_groups_take_as_long_as_one_by_one() -> None:
    sizes, strides = np.array([1, 2, 4, 8, 64, 256]), np.array([1, 4, 2, 16, 4, 1])
    on = on_torus(16, 16)
    together = np.asarray(collective_time("all_to_all", GROUP_SIZE, Group.of((Digit(sizes, strides),), on), on))
    unit = GROUP_SIZE / (600e9 / 4)
    singly = [exchanged(on, Digit(int(n), int(s))) for n, s in zip(sizes, strides, strict=True)]
    assert (together / unit).tolist() == pytest.approx(singly, rel=1e-12)


def test_a_rank_alone_has_all_links_and_many_on_a_line_a_share() -> None:
    """Half of what 8 ranks hold crosses the middle of a line: with 2 of 6 links 7/8 in 8/4 shares of a link."""
    pod = torus(4, 4, 8)
    assert float(exchange_share(pod, 0.0, 1)) == 1
    assert float(exchange_share(pod, 8 / 4, 8)) == pytest.approx((7 / 8) / (6 * 2))


@pytest.mark.parametrize(
    ("used", "sides"),
    [
        (1, (1, 1, 1)), (2, (2, 1, 1)), (3, (2, 2, 1)), (8, (2, 2, 2)), (16, (4, 2, 2)), (64, (4, 4, 4)),
        (65, (8, 4, 4)), (127, (8, 4, 4)), (128, (8, 4, 4)), (1000, (8, 4, 4)),
    ],
)  # fmt: skip
def test_a_job_gets_a_slice_of_powers_of_two_the_longest_side_first(used: int, sides: Place) -> None:
    assert slice_sides(torus(4, 8, 4), used) == sides


@pytest.mark.parametrize(("fan_out", "axes"), [(1, 1), (8, 1), (9, 2), (32, 2), (33, 3), (128, 3)])
def test_a_ring_uses_two_links_of_every_axis_that_it_fills(fan_out: int, axes: int) -> None:
    """Of sides of 8, 4 and 4: eight neighbours lie on one axis, 32 in a plane."""
    assert usable_share(torus(4, 8, 4), 128, fan_out) == axes / 3


def test_ranks_whose_places_are_not_given_are_neighbours() -> None:
    """Four in a row of a pod of 4 x 16 exchange as four that lie next to each other, over one link."""
    on = on_torus(4, 16)
    by_hand, placed = Group(4, (4,)), Group.of((Digit(4, 1),), on)
    assert by_hand.exchange_loads == ()
    times = [float(collective_time("all_to_all", GROUP_SIZE, group, on)) for group in (by_hand, placed)]
    assert times[0] == pytest.approx(times[1])
    assert times[0] / (GROUP_SIZE / (600e9 / 4)) == pytest.approx(4 / 4)
