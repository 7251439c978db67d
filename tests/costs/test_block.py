"""What a block exposes of its communication: bounded by the work that is there, at any bandwidth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import cluster, ideal_profile, llama, mixtral, tier
from tests.strategies import Case, cases

from shardplan.costs.block import BlockCost, Times, price_block
from shardplan.costs.groups import groups_of
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.profile import Profile
from shardplan.inputs.software import Software
from shardplan.workload.layer import layer_block
from shardplan.workload.ops import Block
from shardplan.workload.shard import Shard

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
    """Every pass of every layer with nothing hidden, and with what windows hide where everything overlaps."""
    question = under(case.question, tp_panel_loss=0.0)  # what overlap costs the products is not what it hides
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
        assert [float(getattr(times, each.name)) for each in fields(times)] == pytest.approx([0.0] * 8)
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
