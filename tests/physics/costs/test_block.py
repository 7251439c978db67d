"""What a block exposes of its communication: bounded by the work that is there, at any bandwidth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import accelerator, cluster, ideal_profile, llama, mixtral, tier
from tests.strategies import Case, cases

from shardplan.estimation.question import Question
from shardplan.inputs.job import Job, recipe_of
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.profile import Profile
from shardplan.inputs.software import Software
from shardplan.physics.costs.block import BlockCost, Times, price_block
from shardplan.physics.costs.collectives import groups_of
from shardplan.physics.costs.network import Network
from shardplan.physics.costs.roofline import Machine
from shardplan.physics.workload.communication import Shard
from shardplan.physics.workload.layer import layer_block
from shardplan.physics.workload.ops import AttentionCore, Block, Collective, Matmul, Saved, StreamPass

WINDOWS = ("tp_window", "cp_window", "ep_window")
DIMENSIONS = ("tp", "cp", "ep")


def blocks(question: Question, plan: Plan, *, bandwidth: float = 1.0) -> list[BlockCost]:
    """Prices of every kind of layer, with all bandwidths multiplied."""
    numbers = PlanNumbers.of(plan, question.num_accelerators, question.job)
    network = question.network
    tiers = tuple(replace(each, bandwidth=each.bandwidth * bandwidth) for each in network.tiers)
    scaled = replace(network, tiers=tiers)
    shard = Shard.of(question.model.hidden_size, question.job, numbers)
    return [
        price_block(layer_block(kind, shard), question.machine, scaled, groups_of(numbers, scaled), numbers)
        for kind in question.model.layer_kinds
    ]


def passes(cost: BlockCost) -> tuple[Times, Times, Times]:
    return cost.forward, cost.backward, cost.recomputed


def under(question: Question, **constants: Any) -> Question:
    return replace(question, given_profile=replace(question.profile, **constants))


def pairs(case: Case, profile: dict[str, float], bandwidth: float) -> Iterator[tuple[Times, Times]]:
    """Every pass of every layer with nothing hidden, and with what windows hide where everything overlaps.

    What overlap costs the products is not what it hides.
    """
    job = case.question.job
    alike = replace(job.software, tp_overlaps="all")  # nor is what it saves of copies
    question = under(replace(case.question, job=replace(job, software=alike)), tp_panel_loss=0.0)
    none = under(question, **dict.fromkeys(WINDOWS, 0.0), summa_panels=1)
    plan = replace(case.plan, overlap_tp=True, overlap_ep=True)
    shut = replace(case.plan, overlap_tp=False, overlap_ep=False)
    whole = blocks(none, shut, bandwidth=bandwidth)
    shown = blocks(under(question, **profile), plan, bandwidth=bandwidth)
    for one, other in zip(whole, shown, strict=True):
        yield from zip(passes(one), passes(other), strict=True)


profiles = st.fixed_dictionaries(
    dict.fromkeys((*WINDOWS, "tp_fill"), st.floats(0, 1)) | {"hidden_slowdown": st.floats(0, 1)}
)


@given(cases(), profiles, st.floats(-4, 4))
def test_nothing_hides_behind_work_that_is_not_there(case: Case, profile: dict[str, float], decades: float) -> None:
    """For every dimension exposed >= total - compute and exposed <= total; hidden times add up to compute at most."""
    for whole, shown in pairs(case, profile, 10.0**decades):
        assert float(shown.compute) == float(whole.compute)
        hidden = 0.0
        for name in DIMENSIONS:
            total, exposed = float(getattr(whole, name)), float(getattr(shown, name))
            assert total - float(whole.compute) <= exposed + 1e-9 * total
            assert exposed <= total * (1 + 1e-12)
            hidden += total - exposed
        assert hidden <= float(whole.compute) * (1 + 1e-9) + 1e-9 * float(whole.total)
        left = float(whole.compute) - hidden  # and the time for which kernels wait for their launch
        slack = 1e-6 * float(whole.compute) + 1e-9 * float(whole.total) + 1e-29
        assert left - slack <= float(shown.free) <= left + float(shown.host) + slack


@given(cases(), st.floats(0, 1))
def test_a_network_without_end_shows_latencies_alone(case: Case, slowdown: float) -> None:
    constants = dict.fromkeys(WINDOWS, 1.0) | {"tp_fill": 0.0, "hidden_slowdown": slowdown}
    for whole, shown in pairs(case, constants, 1e30):
        if float(whole.compute) > 0:
            assert float(shown.tp + shown.cp + shown.ep) <= float(whole.tp + whole.cp + whole.ep)


def on(model: Any, profile: Profile, outer: float, *, inner: float = 450, **fields: Any) -> tuple[Times, Times, Times]:
    machine = cluster(tier("node", 8, inner, latency=0), tier("network", None, outer, latency=0))
    job = Job(sequence_length=4096, global_batch_size=64)
    question = Question(model=model, cluster=machine, num_accelerators=64, job=job, given_profile=profile)
    (cost,) = blocks(question, Plan(**fields))
    return passes(cost)


@pytest.mark.parametrize("outer", [0.01, 1.0, 50.0])
def test_experts_show_what_the_work_of_their_layer_cannot_hide(outer: float) -> None:
    """At 1 GB/s an exchange of many times the layer's work shows almost whole, whatever overlaps."""
    plan: dict[str, Any] = {"ep": 8, "tp": 8, "etp": 1, "placement": "tp-cp-ep-dp-pp"}
    profile = ideal_profile(ep_window=1.0)
    forward, backward, _ = on(mixtral(), profile, outer, **plan, overlap_ep=True)
    plain, back, _ = on(mixtral(), profile, outer, **plan)
    assert float(forward.ep) == pytest.approx(max(float(plain.ep - plain.compute), 0.0), rel=1e-9, abs=1e-12)
    assert float(backward.ep) == pytest.approx(max(float(back.ep) - float(back.free), 0.0), rel=1e-9, abs=1e-12)


def test_what_tensor_parallelism_hid_is_gone_for_experts() -> None:
    """Both dimensions far longer than the work: products hide the one, what is no product hides the other."""
    profile = ideal_profile(tp_window=1.0, ep_window=1.0)
    plan: dict[str, Any] = {"tp": 16, "ep": 4, "etp": 1, "sequence_parallel": True}
    forward, _, _ = on(mixtral(), profile, 0.001, inner=0.001, **plan, overlap_tp=True, overlap_ep=True)
    whole, _, _ = on(mixtral(), profile, 0.001, inner=0.001, **plan)
    assert float(whole.tp - forward.tp) == pytest.approx(float(whole.matmul), rel=1e-6)
    assert float(whole.ep - forward.ep) == pytest.approx(float(whole.attention + whole.memory), rel=1e-6)
    assert float(forward.free) == pytest.approx(0.0, abs=1e-9)


def test_blocks_without_communication_leave_all_their_work() -> None:
    forward, backward, _ = on(llama(1024, 1, 8, 8, 4096), ideal_profile(), 50)
    assert (forward.free, backward.free) == (forward.compute, backward.compute)


def test_tensor_parallel_ranks_send_what_megatron_sends() -> None:
    """Megatron's four exchanges of b s h elements (arXiv 2205.05198): 7/8 of each inside a node; forward ones again.

    Forward a gather and a scatter around attention and MLP each; backward their mirrors, and the inputs gathered again.
    """
    machine = cluster(tier("node", 8, 450), tier("network", None, 50))
    job = Job(sequence_length=4096, global_batch_size=64)
    question = Question(
        model=llama(8192, 1, 64, 8, 28672), cluster=machine, num_accelerators=64, job=job, given_profile=ideal_profile()
    )
    (cost,) = blocks(question, Plan(tp=8, sequence_parallel=True, recompute="full"))
    one = 4096 * 8192 * 2 * 7 / 8
    assert [float(sent) for sent in cost.sent_bytes["tp"]] == pytest.approx([10 * one, 0.0])
    assert [float(sent) for sent in cost.resent_bytes["tp"]] == pytest.approx([4 * one, 0.0])


@given(cases(), st.floats(-4, 4))
def test_no_communication_is_faster_than_its_wires(case: Case, decades: float) -> None:
    """With efficiencies of one at most and nothing hidden, both passes take as long as their busiest wire.

    No window is open, since some exchanges run beside products whatever the plan says (``async_tp_backward``).
    """
    shut: dict[str, Any] = dict.fromkeys(WINDOWS, 0.0) | {"summa_panels": 1}
    question = replace(case.question, given_profile=ideal_profile(**shut))
    plan = replace(case.plan, overlap_tp=False, overlap_ep=False)
    for cost in blocks(question, plan, bandwidth=10.0**decades):
        for times, sent in ((cost.forward + cost.backward, cost.sent_bytes), (cost.recomputed, cost.resent_bytes)):
            by_tier = zip(*sent.values(), cost.network.bandwidth, strict=True) if sent else ()
            busiest = max((sum(map(float, bytes_)) / float(rate) for *bytes_, rate in by_tier), default=0.0)
            assert busiest <= float(times.tp + times.cp + times.ep) * (1 + 1e-9) + 1e-15


def linear(profile: Profile, *, asynchronous: bool, **fields: Any) -> Times:
    """The backward pass of a Llama layer on eight tensor-parallel ranks."""
    machine = cluster(tier("node", 8, 450, latency=0), tier("network", None, 50, latency=0))
    job = Job(sequence_length=4096, global_batch_size=8, software=Software(async_tp_backward=asynchronous))
    question = Question(
        model=llama(8192, 1, 64, 8, 28672), cluster=machine, num_accelerators=8, job=job, given_profile=profile
    )
    (cost,) = blocks(question, Plan(tp=8, sequence_parallel=True, **fields))
    return cost.backward


def test_asynchronous_linear_layers_hide_four_of_six_exchanges() -> None:
    """Of two blocks: inputs gathered again and their gradients scattered, beside products that last longer."""
    one = 4096 * 8192 * 2 * 7 / 8 / 450e9
    beside = linear(ideal_profile(tp_window=1.0), asynchronous=True)
    assert float(beside.tp) == pytest.approx(2 * one)
    assert float(beside.free) == pytest.approx(float(beside.compute) - 4 * one)
    for window, asynchronous in (0.0, True), (1.0, False):
        waiting = linear(ideal_profile(tp_window=window), asynchronous=asynchronous)
        assert float(waiting.tp) == pytest.approx(6 * one)
        assert float(waiting.free) == pytest.approx(float(waiting.compute))


def test_an_empty_block_costs_nothing() -> None:
    question = Question(
        model=llama(512, 1, 8, 8, 2048), cluster=cluster(), num_accelerators=8,
        job=Job(sequence_length=1024, global_batch_size=8), given_profile=ideal_profile(),
    )  # fmt: skip
    numbers = PlanNumbers.of(Plan(), 8, question.job)
    groups = groups_of(numbers, question.network)
    cost = price_block(Block(), question.machine, question.network, groups, numbers)
    for times in passes(cost):
        assert [float(getattr(times, each.name)) for each in fields(times)] == pytest.approx([0.0] * 9)
    assert (cost.kept_bytes, cost.freed_bytes, cost.weight_gradient, cost.flops) == (0, 0, 0, 0)


def test_one_rank_alone_spends_nothing_on_others() -> None:
    for each in on(mixtral(), ideal_profile(), 50):
        assert (each.tp, each.cp, each.ep, each.host) == (0, 0, 0, 0)
        assert each.total == each.compute == each.free


def test_attention_hides_a_ring_and_no_gathered_keys() -> None:
    """Keys that are gathered come before the attention; those of a ring come while it runs."""
    shown = {
        (way, window): on(llama(1024, 1, 8, 8, 4096), ideal_profile(cp_window=window), 50, cp=4, cp_comm=way)[0].cp
        for way in ("p2p", "all_gather")
        for window in (0.0, 1.0)
    }
    assert shown["p2p", 1.0] < shown["p2p", 0.0]
    assert shown["all_gather", 1.0] == shown["all_gather", 0.0] > 0


# Blocks made by hand, of two products, an attention core and a norm

RATES = ideal_profile()
UNIT = Machine(
    accelerator=accelerator(memory_bandwidth=1.0, peak_flops={"bf16": 1.0}), profile=RATES, recipe=recipe_of("bf16")
)
"""One FLOP and one byte per second."""
LONG = Matmul(name="long", modules=("mlp",), m=50.0, k=1000.0, n=1000.0)
ALONE = Matmul(name="alone", modules=(), m=70.0, k=1000.0, n=1000.0)
HEADS = AttentionCore(
    name="core", modules=("core_attn",), tokens=1e3, num_heads=10, qk_head_dim=100, v_head_dim=100, keys=100,
    scored_keys=100, rate_length=100,
)  # fmt: skip
STREAM = StreamPass(name="norm", modules=("layernorm",), forward_bytes=3e8, backward_bytes=5e8)
BYTES = tuple(
    Saved(name=name, modules=modules, bytes=size, layer_input=name == "input")
    for name, modules, size in (("input", (), 1.0), ("a", ("mlp",), 10.0), ("b", ("layernorm",), 100.0), ("c", (), 1e3))
)
BY_HAND = Block(operators=(LONG, HEADS, STREAM, ALONE), saved=BYTES)


def priced(block: Block, recompute: Any = "none", machine: Machine = UNIT, **fields: Any) -> BlockCost:
    job = Job(sequence_length=1024, global_batch_size=8)
    numbers = PlanNumbers.of(Plan(recompute=recompute, **fields), 8, job)
    network = Network.of(cluster(), 8, machine.profile)
    return price_block(block, machine, network, groups_of(numbers, network), numbers)


def seconds(times: Times) -> dict[str, float]:
    return {each.name: float(getattr(times, each.name)) for each in fields(times)}


NOTHING = dict.fromkeys(("matmul", "attention", "memory", "tp", "cp", "ep", "host", "companion", "free"), 0.0)


def test_sums_and_multiples_of_times_are_part_by_part() -> None:
    one = Times(matmul=1, attention=2, memory=3, tp=4, cp=5, ep=6, host=7, companion=9, free=8)
    assert (one.compute, one.total) == (6, 37)
    assert one + one * 10 == Times(
        matmul=11, attention=22, memory=33, tp=44, cp=55, ep=66, host=77, companion=99, free=88
    )
    assert seconds(Times()) == NOTHING


def test_a_block_takes_the_sum_of_its_operators_by_kind() -> None:
    """Products twice and attention two and a half times backward; of each product half for its weight."""
    cost = priced(BY_HAND)
    forward = {"matmul": 2.4e8, "attention": 4e8, "memory": 3e8}
    backward = {"matmul": 4.8e8, "attention": 1e9, "memory": 5e8}
    assert seconds(cost.forward) == pytest.approx(NOTHING | forward | {"free": 9.4e8})
    assert seconds(cost.backward) == pytest.approx(NOTHING | backward | {"free": 1.98e9})
    assert cost.weight_gradient == pytest.approx(2.4e8)
    assert seconds(cost.recomputed) == NOTHING
    assert cost.flops == pytest.approx(2.4e8 + 4e8)
    assert cost.training_flops == pytest.approx(3 * (2.4e8 + 4e8))
    assert (cost.kept_bytes, cost.freed_bytes, cost.recomputed_flops) == (1111, 0, 0)
    assert cost.block.saved == ()


@pytest.mark.parametrize(
    ("recompute", "again", "freed"),
    [
        ("full", {"matmul": 2.4e8, "attention": 4e8, "memory": 3e8}, 1110),
        ("mlp", {"matmul": 1e8}, 10),
        ("layernorm", {"memory": 3e8}, 100),
        ("core_attn", {"attention": 4e8}, 0),
        ("mlp,layernorm", {"matmul": 1e8, "memory": 3e8}, 110),
    ],
)
def test_what_is_run_again_and_freed_by_hand(recompute: str, again: dict[str, float], freed: float) -> None:
    """Full recomputation keeps the input of the layer; operators outside of layers never run again."""
    cost = priced(BY_HAND, recompute)
    free = sum(again.values())
    assert seconds(cost.recomputed) == pytest.approx(NOTHING | again | {"free": free})
    flops = again.get("matmul", 0.0) + again.get("attention", 0.0)
    assert (float(cost.freed_bytes), float(cost.recomputed_flops)) == pytest.approx((freed, flops))
    outside = priced(BY_HAND.outside_layers(), recompute)
    assert (seconds(outside.recomputed), outside.freed_bytes) == (NOTHING, 0)
    assert outside.forward == cost.forward


def test_recomputation_by_operator_takes_each_one_s_share() -> None:
    half = replace(LONG, op_sac=0.5)
    block = Block(operators=(half, replace(HEADS, op_sac=0.0), STREAM), saved=(BYTES[0], replace(BYTES[1], op_sac=0.3)))
    cost = priced(block, "op_sac")
    assert seconds(cost.recomputed) == pytest.approx(NOTHING | {"matmul": 5e7, "memory": 3e8, "free": 3.5e8})
    assert float(cost.freed_bytes) == pytest.approx(3.0)
    assert float(cost.recomputed_flops) == pytest.approx(5e7)


def test_a_block_that_only_runs_forward_has_neither_backward_pass_nor_recomputation() -> None:
    """Nothing is trained in it or before, whatever the plan recomputes."""
    for recompute in ("none", "full", "op_sac"):
        cost = priced(Block(operators=BY_HAND.operators, forward_alone=True), recompute)
        assert cost.forward == priced(BY_HAND).forward
        assert (seconds(cost.backward), seconds(cost.recomputed)) == (NOTHING, NOTHING)
        assert (cost.weight_gradient, cost.kept_bytes, cost.freed_bytes) == (0, 0, 0)
        assert cost.training_flops == cost.flops


def test_collectives_of_a_block_by_hand() -> None:
    """Two gathers of 8 bytes over 8 ranks forward, one back; half of the forward ones run again."""
    there = Collective(name="x", modules=("mlp",), kind="all_gather", dimension="tp", bytes=8.0, count=2)
    back = Collective(name="y", modules=("mlp",), kind="all_gather", dimension="tp", bytes=8.0, direction="backward")
    ends = Collective(name="z", modules=(), kind="all_gather", dimension="cp", bytes=8.0)
    block = Block(collectives=(there, back, ends))
    none, full = (priced(block, recompute, tp=8) for recompute in ("none", "mlp"))
    for cost in none, full:
        assert {name: [float(each) for each in tiers] for name, tiers in cost.sent_bytes.items()} == {"tp": [21.0]}
    assert [float(each) for each in full.resent_bytes["tp"]] == pytest.approx([2 * 7])
    assert [float(each) for each in none.resent_bytes["tp"]] == [0]
    hop = 2e-6
    one = 7 * (hop + 1 / 450e9)
    assert (float(full.forward.tp), float(full.backward.tp), float(full.recomputed.tp)) == pytest.approx(
        (2 * one, one, 2 * one)
    )
    assert float(none.recomputed.tp) == 0


@pytest.mark.parametrize("overlap", [True, False])
def test_products_in_panels_are_those_of_linear_layers(*, overlap: bool) -> None:
    """As many panels as tensor-parallel ranks, of products in the recipe's format that are none of experts."""
    products = (LONG, replace(LONG, name="router", low_precision=False), replace(LONG, name="experts", grouped=True))
    cost = priced(Block(operators=(*products, STREAM)), tp=8, overlap_tp=overlap)
    panels = [float(each.panels) for each in cost.block.operators if isinstance(each, Matmul)]
    assert panels == [8 if overlap else 1, 1, 1]


def hosted(call: float, **fields: Any) -> Times:
    """Forward pass of four operators of 9.4e8 s together on a machine that takes ``call`` to issue each."""
    profile = ideal_profile(kernel_launch_time={"fused": call, "eager": call})
    return priced(
        BY_HAND, machine=replace(UNIT, profile=profile, software=Software(cuda_graphs="none", **fields))
    ).forward


def test_a_host_as_fast_as_its_device_delays_it_a_little() -> None:
    """(a^6 + b^6)^(1/6) of device and host; what was sent before goes on meanwhile. In turns: the sum."""
    device = 9.4e8
    for share in (0.5, 1.0, 2.0):
        times = hosted(share * device / 4)
        behind = device * ((1 + share**6) ** (1 / 6) - 1)
        assert (float(times.host), float(times.free)) == pytest.approx((behind, device + behind))
        blocked = hosted(share * device / 4, blocking_launches=True)
        assert (float(blocked.host), float(blocked.free)) == pytest.approx((share * device, device))
