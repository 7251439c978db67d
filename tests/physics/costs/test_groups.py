from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import cluster, ideal_profile, tier
from tests.physics.costs.networks import PODS, SIZE, kinds, network
from tests.strategies import Case, cases

from shardplan.inputs.cluster import Cluster
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import Digit, PlanNumbers
from shardplan.physics.costs.collectives import (
    Group,
    TierParts,
    collective_bytes,
    collective_time,
    groups_of,
    joined_groups,
    sharding_groups,
)
from shardplan.physics.costs.network import Network
from shardplan.physics.workload.ops import CollectiveKind

NVL72 = cluster(tier("rack", 72, 900), tier("network", None, 50))


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


def test_fully_sharded_ranks_span_data_and_context_parallelism_around_tensor_parallelism() -> None:
    """A 2-D mesh of FSDP2: shards lie over dp x cp ranks, tp accelerators apart (four of eight to a node at tp 2)."""
    numbers = PlanNumbers.of(Plan(tp=2, cp=2, sharding="zero3"), 64, Job(sequence_length=8192, global_batch_size=64))
    placed = sharding_groups(numbers, Network.of(cluster(), 64, ideal_profile()))
    assert placed["shard"].members == (4, 32)
    assert placed["replica"].members == (1, 1)


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


def test_replicas_of_pairs_lie_where_their_pairs_do() -> None:
    """511 pairs of context-parallel ranks: 127 nodes of four pairs and one of three."""
    pairs = Group.of((Digit(2, 1), Digit(511, 2)), Network.of(cluster(), 1022, ideal_profile()))
    assert (pairs.members, pairs.largest, pairs.domains) == ((6, 1022), (8, 1022), (128, 1))


@given(kinds)
def test_joined_lists_of_plans_are_answered_like_each_of_them(kind: CollectiveKind) -> None:
    """A list of groups that fill their nodes, and one of groups of twelve that lie in two."""
    on = network(tier("node", 8, 450), tier("network", None, 50), num_accelerators=48)
    lists = [{"tp": Group.of((Digit(np.array(sizes), 1),), on)} for sizes in ([8, 16], [12, 12, 12])]
    together = np.broadcast_to(collective_time(kind, SIZE, joined_groups(lists, (2, 3))["tp"], on), 5)
    singly = [collective_time(kind, SIZE, Group.of((Digit(size, 1),), on), on) for size in (8, 16, 12, 12, 12)]
    assert together.tolist() == pytest.approx([float(time) for time in singly], rel=1e-12)


def test_what_each_tier_joins_by_hand() -> None:
    """Four ranks in each of four nodes of each of four pods; twelve that lie in two nodes as eight and four."""
    assert Group(64, (4, 16, 64)).tier_parts == (
        TierParts(1, 1, 4, 4, 64, 4), TierParts(4, 4, 16, 16, 16, 4), TierParts(16, 16, 64, 64, 4, 4),
    )  # fmt: skip
    twelve = Group.of((Digit(12, 1),), Network.of(cluster(), 24, ideal_profile()))
    assert twelve.tier_parts == (TierParts(1, 1, 4, 8, 12, 8), TierParts(4, 8, 12, 12, 2, 2))


def test_a_second_copy_of_weights_is_shared_by_the_innermost_ranks() -> None:
    """hpz (ZeRO++, arXiv 2306.10209, section 3.2) on nodes of eight: of data and context ranks, and of experts'."""
    job = Job(sequence_length=8192, global_batch_size=64)
    numbers = PlanNumbers.of(Plan(sharding="hpz", sharding_degree=8, cp=2, ep=2), 64, job)
    found = sharding_groups(numbers, Network.of(cluster(), 64, ideal_profile()))
    assert found["second"].members == (8, 8)
    assert found["shard"].members == (8, 64)
    assert found["expert_second"].members[-1] == numbers.expert_second_degree
    zero3 = PlanNumbers.of(Plan(sharding="zero3"), 64, job)
    assert "second" not in sharding_groups(zero3, Network.of(cluster(), 64, ideal_profile()))
