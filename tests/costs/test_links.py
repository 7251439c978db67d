"""Shares of links: meshes, and all-to-alls on tori against messages that are counted link by link."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import cluster, ideal_profile, tier

from shardplan.costs.collectives import collective_time
from shardplan.costs.groups import Group
from shardplan.costs.links import exchange_share, slice_sides, usable_share
from shardplan.costs.network import Network
from shardplan.inputs.cluster import NetworkTier
from shardplan.inputs.plan_numbers import Digit

SIZE = 1e9
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
    time = collective_time("all_to_all", SIZE, Group.of(parts, on), on)
    return float(time) / (SIZE / (pod.bandwidth / (2 * len(pod.torus_shape))))


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
    together = np.asarray(collective_time("all_to_all", SIZE, Group.of((Digit(sizes, strides),), on), on))
    unit = SIZE / (600e9 / 4)
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
    times = [float(collective_time("all_to_all", SIZE, group, on)) for group in (by_hand, placed)]
    assert times[0] == pytest.approx(times[1])
    assert times[0] / (SIZE / (600e9 / 4)) == pytest.approx(4 / 4)
