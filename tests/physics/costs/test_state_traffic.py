from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import cluster, ideal_profile, tier

from shardplan.base.arrays import Numbers
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.software import Software
from shardplan.physics.costs.collectives import Group, sharding_groups
from shardplan.physics.costs.network import Network
from shardplan.physics.costs.state_traffic import StateTraffic, state_traffic, with_tied_table
from shardplan.physics.workload.layer import Parameters

PSI = 1e9
"""Parameters of the rank, as the ZeRO paper calls them."""


def test_flat_parameters_are_reduced_with_what_is_trained() -> None:
    """As many bytes as if all were trained; weights are gathered alike."""
    job = Job(sequence_length=1024, global_batch_size=64, grad_dtype="bf16")
    network = Network.of(cluster(), 64, ideal_profile())

    def reduced(held: Parameters, sharding: Any) -> tuple[float, float]:
        numbers = PlanNumbers.of(Plan(sharding=sharding), 64, job)
        found = state_traffic(held, job, numbers, network, sharding_groups(numbers, network))
        return float(found.microbatch_time), float(found.reduce_time)

    whole, separate = Parameters(PSI), Parameters(PSI, 0.0, PSI - 1)
    flat = replace(separate, flat=PSI - 1)
    assert reduced(flat, "zero3") == pytest.approx(reduced(whole, "zero3"), rel=0.01)  # two gathers for one
    assert reduced(flat, "zero3")[0] > reduced(separate, "zero3")[0]
    assert reduced(flat, "zero2") == reduced(separate, "zero2")


def traffic(
    num_accelerators: int = 64,
    *,
    dense: Numbers = PSI,
    experts: float = 0.0,
    grad_dtype: Any = "bf16",
    precision: Any = "bf16",
    software: Software = Software(),  # noqa: B008  frozen
    **fields: Any,
) -> StateTraffic:
    job = Job(
        sequence_length=1024, global_batch_size=num_accelerators, grad_dtype=grad_dtype, precision=precision,
        software=software,
    )  # fmt: skip
    numbers = PlanNumbers.of(Plan(**fields), num_accelerators, job)
    network = Network.of(cluster(), num_accelerators, ideal_profile())
    return state_traffic(Parameters(dense, experts), job, numbers, network, sharding_groups(numbers, network))


def sent(of: StateTraffic, num_microbatches: int = 1) -> float:
    return sum(map(float, of.step_bytes)) + num_microbatches * sum(map(float, of.microbatch_bytes))


@pytest.mark.parametrize(("sharding", "volumes"), [("ddp", 2), ("zero1", 2), ("zero2", 2), ("zero3", 3)])
@pytest.mark.parametrize("n", [2, 8, 64])
def test_volume_of_a_step(sharding: str, volumes: int, n: int) -> None:
    """ZeRO (arXiv 1910.02054), section 7: 2 Psi for data parallelism and stages 1 and 2, 3 Psi for stage 3."""
    assert sent(traffic(n, sharding=sharding)) == pytest.approx(volumes * 2 * PSI * (n - 1) / n, rel=1e-12)


def test_gradients_in_fp32_weigh_twice() -> None:
    assert sent(traffic(grad_dtype="fp32", sharding="ddp")) == 2 * sent(traffic(sharding="ddp"))
    assert sent(traffic(grad_dtype="fp32")) == pytest.approx((4 + 2) * PSI * 63 / 64)


def test_a_whole_sum_costs_an_all_reduce_where_a_shard_is_updated() -> None:
    """DeepSpeed's bf16 optimizer with stage 1: 2 x 4 bytes all-reduced, 2 bytes of weights gathered."""
    whole = traffic(grad_dtype="fp32", software=Software(reduces_whole=True))
    assert sent(whole) == pytest.approx((2 * 4 + 2) * PSI * 63 / 64)
    scattered = traffic(grad_dtype="fp32")
    assert whole.gather_time == scattered.gather_time
    assert whole.reduce_time == pytest.approx(2 * scattered.reduce_time)
    for sharding in ("ddp", "zero2", "zero3"):
        assert sent(traffic(sharding=sharding, software=Software(reduces_whole=True))) == sent(
            traffic(sharding=sharding)
        )


def test_nothing_is_gathered_for_the_next_forward_pass_where_every_rank_updates_all() -> None:
    """ddp needs the whole sum before its update: it is zero1 with shards of one rank, whose sums are all-reduced."""
    summed, of_one = traffic(sharding="ddp"), traffic(sharding="zero1", sharding_degree=1)
    assert (summed.gather_time, of_one.gather_time) == (0.0, 0.0)
    assert summed.reduce_time == pytest.approx(of_one.reduce_time, rel=0.1)  # ring against tree
    assert sent(summed) == pytest.approx(sent(of_one))


def test_a_tied_table_is_summed_over_the_first_and_the_last_stage() -> None:
    """Two ranks all-reduce: each sends as many bytes as the table's gradients have."""
    numbers = PlanNumbers.of(Plan(pp=8), 64, job := Job(sequence_length=1024, global_batch_size=64, grad_dtype="fp32"))
    network = Network.of(cluster(), 64, ideal_profile())
    alone = state_traffic(Parameters(PSI, 0.0), job, numbers, network, sharding_groups(numbers, network))
    apart = with_tied_table(alone, 0.25 * PSI, job, Group(2, (1, 2)), network)
    assert sent(apart) - sent(alone) == pytest.approx(4 * 0.25 * PSI)
    slow = network.tiers[-1].bandwidth
    assert apart.reduce_time - alone.reduce_time == pytest.approx(4 * 0.25 * PSI / slow, rel=0.01)
    assert apart.gather_time == alone.gather_time


def test_sharded_gradients_are_reduced_in_every_micro_batch() -> None:
    one = 2 * PSI * 63 / 64
    assert sent(traffic(sharding="zero1"), 10) == pytest.approx(2 * one)
    assert sent(traffic(sharding="zero2"), 10) == pytest.approx(11 * one)
    assert sent(traffic(sharding="zero3"), 10) == pytest.approx(30 * one)


def test_weights_that_stay_through_a_step_are_gathered_once_whatever_copy_is_near() -> None:
    """As stage 2: gradients in every micro-batch, weights once (FSDP's SHARD_GRAD_OP)."""
    one = 2 * PSI * 63 / 64
    for fields in ({"sharding": "zero3"}, {"sharding": "hpz", "sharding_degree": 8}):
        assert sent(traffic(software=Software(keeps_weights="always"), **fields), 10) == pytest.approx(11 * one)


@pytest.mark.parametrize(
    ("sharding", "n", "gathers"), [("zero3", 64, 2), ("hsdp", 64, 2), ("zero2", 64, 0), ("zero3", 1, 0)]
)
def test_fsdp2_copies_weights_out_of_what_it_gathered(sharding: str, n: int, gathers: int) -> None:
    """As many bytes as are gathered (foreach_all_gather_copy_out); none where no rank shares them."""
    degree: dict[str, Any] = {"sharding_degree": 8} if sharding == "hsdp" else {}
    found = traffic(n, software=Software(sharded_accumulation="parameters"), sharding=sharding, **degree)
    assert float(found.copied_bytes) == gathers * 2 * PSI
    for other in (Software(), Software(sharded_accumulation="flat")):  # a flat parameter is gathered in place
        assert float(traffic(n, software=other, sharding=sharding, **degree).copied_bytes) == 0.0


def test_weights_of_8_bit_products_may_be_gathered_in_8_bits() -> None:
    """Half the bytes of 16 bits, gathered and copied; gradients are reduced as they were (torchao)."""
    low = Software(sharded_accumulation="parameters", quantised_gathers=True)
    high = replace(low, quantised_gathers=False)
    wide, narrow = (traffic(software=each, precision="fp8", sharding="zero3") for each in (high, low))
    assert sent(wide) - sent(narrow) == pytest.approx(2 * PSI * 63 / 64)
    assert float(wide.copied_bytes) == 2 * float(narrow.copied_bytes) == 4 * PSI
    assert sent(traffic(software=low, sharding="zero3")) == sent(traffic(sharding="zero3"))  # of bf16 none are


def test_hybrid_sharding_leaves_a_shard_for_the_network() -> None:
    """hsdp (arXiv 2304.11277, section 3.2.2): gather and scatter in the node, all-reduce of an eighth between nodes."""
    hybrid = traffic(sharding="hsdp", sharding_degree=8)
    inside, between = (
        float(one) + float(each) for one, each in zip(hybrid.step_bytes, hybrid.microbatch_bytes, strict=True)
    )
    assert inside == pytest.approx(3 * 2 * PSI * 7 / 8)
    assert between == pytest.approx(2 * 2 * (PSI / 8) * 7 / 8)


def test_one_replica_needs_no_traffic() -> None:
    for sharding in ("ddp", "zero1", "zero2", "zero3"):
        alone = traffic(8, tp=8, sharding=sharding)
        assert sent(alone) == 0
        assert (alone.reduce_time, alone.gather_time, alone.microbatch_time) == (0, 0, 0)


def test_context_ranks_hold_the_same_weights() -> None:
    """Gradients are reduced over dp x cp ranks (Megatron-LM's data-parallel group with context parallelism)."""
    assert sent(traffic(64, cp=64)) == pytest.approx(sent(traffic(64)))


def test_experts_travel_among_their_replicas_only() -> None:
    """With ep 8 of 64 accelerators every expert has 8 replicas (arXiv 2504.14960: expert data parallelism)."""
    moe = traffic(64, dense=0.0, experts=PSI, ep=8)
    assert sent(moe) == pytest.approx(2 * 2 * PSI * 7 / 8)
    assert sent(traffic(64, dense=0.0, experts=PSI, ep=64)) == 0


@given(st.sampled_from(("ddp", "zero1", "zero2", "zero3")), st.floats(1e3, 1e12), st.floats(1, 100))
def test_time_grows_with_parameters(sharding: str, parameters: float, factor: float) -> None:
    less, more = (traffic(dense=size, sharding=sharding) for size in (parameters, parameters * factor))
    assert less.reduce_time <= more.reduce_time
    assert less.gather_time <= more.gather_time
    assert less.microbatch_time <= more.microbatch_time


def test_times_on_ideal_links() -> None:
    """Without latency a reduce-scatter over eight in a node takes S 7/8 over the bandwidth."""
    ideal = cluster(tier("node", 8, 450, latency=0), tier("network", None, 50, latency=0))
    job = Job(sequence_length=1024, global_batch_size=8, grad_dtype="bf16")
    numbers = PlanNumbers.of(Plan(), 8, job)
    network = Network.of(ideal, 8, ideal_profile())
    of = state_traffic(Parameters(PSI), job, numbers, network, sharding_groups(numbers, network))
    assert of.reduce_time == pytest.approx(2 * PSI * 7 / 8 / 450e9)
    assert of.gather_time == pytest.approx(2 * PSI * 7 / 8 / 450e9)


def test_latency_of_a_step_does_not_grow_with_the_replicas() -> None:
    """Megatron's buckets hold a million parameters for each replica, so that there are fewer of them."""
    hops_take_a_second = cluster(tier("node", 8, 1e6, latency=0.0), tier("network", None, 1e6, latency=1.0))
    for n, hops in ((512, 63), (4096, 511)):
        job = Job(sequence_length=1024, global_batch_size=n, grad_dtype="bf16")
        numbers = PlanNumbers.of(Plan(), n, job)
        network = Network.of(hops_take_a_second, n, ideal_profile())
        found = state_traffic(Parameters(PSI, 0.0), job, numbers, network, sharding_groups(numbers, network))
        assert float(found.reduce_time) == pytest.approx(hops * PSI / (n * 1e6), rel=1e-2)


@pytest.mark.parametrize("sharding", ["ddp", "zero1", "zero2", "zero3", "hsdp"])
def test_no_parameters_cost_nothing_as_a_number_or_in_an_array(sharding: Any) -> None:
    """A head of weightless norms and a tied table holds none in one stage, and its table behind a pipeline."""
    shards = {"sharding": sharding, "sharding_degree": 8 if sharding == "hsdp" else None}
    alone, sizes = traffic(dense=0.0, **shards), np.array([0.0, PSI])
    both, whole = traffic(dense=sizes, **shards), traffic(dense=PSI, **shards)
    for name in ("reduce_time", "gather_time", "microbatch_time"):
        assert getattr(alone, name) == 0
        assert np.broadcast_to(getattr(both, name), 2).tolist() == [0, getattr(whole, name)], name


def test_states_send_what_zero_sends() -> None:
    """Fully sharded over 64: two gathers and a scatter, 7/8 of each in a node of eight, 7/64 between nodes."""
    full = traffic(sharding="zero3")
    inside, between = full.microbatch_bytes
    assert float(inside) == pytest.approx(3 * 2 * PSI * 7 / 8)
    assert float(between) == pytest.approx(3 * 2 * PSI * 7 / 64)
    assert [float(sent) for sent in full.step_bytes] == [0.0, 0.0]
    once = traffic(sharding="zero1")
    assert float(once.step_bytes[1]) == pytest.approx(2 * 2 * PSI * 7 / 64)
    assert float(once.reduce_time + once.gather_time) >= float(once.step_bytes[1]) / 50e9


def test_fully_sharded_states_travel_whole_in_every_micro_batch_alone() -> None:
    """A layer's weights in one gather for either pass, its gradients in one scatter: three rings of eight nodes."""
    hops_take_a_second = cluster(tier("node", 8, 1e9, latency=0.0), tier("network", None, 1e9, latency=1.0))
    job = Job(sequence_length=1024, global_batch_size=64, grad_dtype="bf16")
    numbers = PlanNumbers.of(Plan(sharding="zero3"), 64, job)
    network = Network.of(hops_take_a_second, 64, ideal_profile())
    full = state_traffic(Parameters(PSI), job, numbers, network, sharding_groups(numbers, network))
    assert float(full.microbatch_time) == pytest.approx(3 * 7)
    assert (full.gather_time, full.reduce_time) == (0, 0)


def test_groups_of_hybrid_sharding_sum_their_shards_once_per_step() -> None:
    """An all-reduce over eight nodes of an eighth of the gradients: 2 x 7/8 of it on the slow network."""
    ideal = cluster(tier("node", 8, 450, latency=0), tier("network", None, 50, latency=0))
    job = Job(sequence_length=1024, global_batch_size=64, grad_dtype="bf16")
    numbers = PlanNumbers.of(Plan(sharding="hsdp", sharding_degree=8), 64, job)
    network = Network.of(ideal, 64, ideal_profile())
    hybrid = state_traffic(Parameters(PSI), job, numbers, network, sharding_groups(numbers, network))
    assert float(hybrid.reduce_time) == pytest.approx(2 * 7 / 8 * 2 * PSI / 8 / 50e9)
    assert hybrid.gather_time == 0


@pytest.mark.parametrize(("grad_dtype", "times"), [("bf16", 2), ("fp32", 1)])
def test_gradients_cast_to_fp32_before_they_are_summed_take_four_bytes(grad_dtype: str, times: int) -> None:
    job = Job(sequence_length=1, global_batch_size=1, grad_dtype=grad_dtype)  # type: ignore[arg-type]  # words of a list
    cast = replace(job, software=Software(reduces_fp32=True))
    assert cast.reduced_gradient_bytes == 4 == times * job.reduced_gradient_bytes
    assert cast.grad_bytes == job.grad_bytes


INSIDE, OUTSIDE = 1.0, 100.0
"""Seconds of a hop in a node of eight and between nodes; bytes take none."""


def hops(num_accelerators: int, held: Parameters, software: Software | None = None, **fields: Any) -> StateTraffic:
    on = cluster(tier("node", 8, 1e15, latency=INSIDE), tier("network", None, 1e15, latency=OUTSIDE))
    job = Job(
        sequence_length=1024, global_batch_size=num_accelerators, grad_dtype="bf16", software=software or Software()
    )
    numbers = PlanNumbers.of(Plan(**fields), num_accelerators, job)
    network = Network.of(on, num_accelerators, ideal_profile())
    return state_traffic(held, job, numbers, network, sharding_groups(numbers, network))


def times(found: StateTraffic) -> list[float]:
    return [float(each) for each in (found.reduce_time, found.gather_time, found.microbatch_time)]


RING = 7 * INSIDE + 7 * OUTSIDE
"""Through eight nodes of eight."""
SUM = 2 * 3 * OUTSIDE
"""An all-reduce over eight nodes by trees, of one rank of each."""
IN_64, IN_8 = PSI / 64e6, PSI / 40e6
"""Buckets of a step: a million parameters for each of 64 ranks, 40 million at least."""


@pytest.mark.parametrize(
    ("num_accelerators", "fields", "expected"),
    [
        (8, {"sharding": "ddp"}, [2 * 7 * IN_8, 0, 0]),
        (8, {"sharding": "zero1"}, [7 * IN_8, 7 * IN_8, 0]),
        (64, {"sharding": "zero1"}, [RING * IN_64, RING * IN_64, 0]),
        (64, {"sharding": "zero2"}, [0, RING * IN_64, RING]),
        (64, {"sharding": "zero3"}, [0, 0, 3 * RING]),
        (64, {"sharding": "zero1", "sharding_degree": 8}, [(7 + SUM) * IN_64, 7 * IN_64, 0]),
        (64, {"sharding": "hsdp", "sharding_degree": 8}, [SUM, 0, 3 * 7]),
        (64, {"sharding": "hpz", "sharding_degree": 8}, [0, 0, RING + 7 + RING]),
    ],
)
def test_hops_of_every_sharding_by_hand(num_accelerators: int, fields: dict[str, Any], expected: list[float]) -> None:
    """Rings of 7 hops inside and between nodes, trees of sums: in buckets once per step, else in one."""
    assert times(hops(num_accelerators, Parameters(PSI), **fields)) == pytest.approx(expected, rel=1e-6)


def test_replicas_may_be_summed_in_every_micro_batch() -> None:
    software = Software(reduces_replicas="microbatch")
    found = hops(64, Parameters(PSI), software, sharding="hsdp", sharding_degree=8)
    assert times(found) == pytest.approx([0, 0, 3 * 7 + SUM], rel=1e-6)
    once = hops(64, Parameters(PSI), software, sharding="zero1", sharding_degree=8)
    assert times(once) == pytest.approx([(7 + SUM) * IN_64, 7 * IN_64, 0], rel=1e-6)


def test_frozen_weights_are_gathered_where_they_are_shards() -> None:
    """Never reduced; in gathers of their own."""
    half = Parameters(PSI, 0.0, PSI / 2)
    assert times(hops(8, half, sharding="zero1")) == pytest.approx([7 * IN_8 / 2, 7 * IN_8 / 2, 0], rel=1e-6)
    assert times(hops(64, half, sharding="zero3")) == pytest.approx([0, 0, 5 * RING], rel=1e-6)
    assert times(hops(64, half.as_frozen(), sharding="zero3")) == pytest.approx([0, 0, 2 * RING], rel=1e-6)
    assert times(hops(64, half.as_frozen(), sharding="zero1")) == [0, 0, 0]
    all_of_both = Parameters(PSI, PSI).as_frozen()  # experts: rings of two in a node, and of eight nodes
    wanted = 2 * RING + 2 * (INSIDE + 7 * OUTSIDE)
    assert times(hops(64, all_of_both, sharding="zero3", ep=4)) == pytest.approx([0, 0, wanted], rel=1e-6)
    flat = replace(half, flat=PSI / 2)
    assert times(hops(64, flat, sharding="zero3")) == pytest.approx([0, 0, 5 * RING], rel=1e-6)


@pytest.mark.parametrize("sharding", ["ddp", "zero1", "zero2", "zero3"])
def test_dense_weights_and_experts_add_up(sharding: Any) -> None:
    both, dense, experts = (
        hops(64, Parameters(one, other), sharding=sharding, ep=4) for one, other in ((PSI, PSI), (PSI, 0), (0, PSI))
    )
    assert times(both) == pytest.approx([a + b for a, b in zip(times(dense), times(experts), strict=True)])
    for name in ("step_bytes", "microbatch_bytes"):
        parts = zip(getattr(dense, name), getattr(experts, name), strict=True)
        assert [float(each) for each in getattr(both, name)] == pytest.approx([float(a + b) for a, b in parts])
