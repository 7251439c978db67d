from __future__ import annotations

from typing import Any

import pytest
from tests.examples import LLAMA_70B, accelerator, cluster, ideal_profile, mixtral

from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.software import Software
from shardplan.physics.costs.block import price_block
from shardplan.physics.costs.collectives import groups_of
from shardplan.physics.costs.host import HostWork, host_work
from shardplan.physics.costs.network import Network
from shardplan.physics.costs.roofline import Machine
from shardplan.physics.workload.communication import Shard
from shardplan.physics.workload.layer import layer_block

CALL = 1.0
"""Of the host, in seconds: whatever the device does is nothing beside it."""


def work(model: ModelConfig = LLAMA_70B, job: dict[str, Any] | None = None, **plan: Any) -> HostWork:
    question = Job(sequence_length=4096, global_batch_size=8, **(job or {}))
    numbers = PlanNumbers.of(Plan(**plan), 8, question)
    machine = machine_of(question.software, question)
    groups = groups_of(numbers, Network.of(cluster(), 8, machine.profile))
    block = layer_block(model.layer_kinds[0], Shard.of(model.hidden_size, question, numbers))
    routed = model is not LLAMA_70B
    return host_work(block, machine, groups, numbers, routed=routed)


def machine_of(software: Software, job: Job) -> Machine:
    profile = ideal_profile(
        kernel_launch_time={"fused": CALL, "eager": 3 * CALL},
        graph_host_share={"none": 1.0, "partial": 0.5, "full": 0.0},
        dispatcher_host_share={"alltoall": 1.0, "deepep": 0.5, "hybridep": 0.25},
        moe_host_time=100.0, moe_wait_time=40.0, moe_host_backward_ratio=2.0, capacity_host_share=0.1,
        matmul_launch_time=0.01,
    )  # fmt: skip
    return Machine(accelerator=accelerator(), profile=profile, recipe=job.recipe, software=software)


def software(**fields: Any) -> dict[str, Any]:
    return {"software": Software(**({"cuda_graphs": "none"} | fields))}


def calls(found: HostWork) -> tuple[float, float]:
    return float(sum(time for _, time in found.forward)), float(found.backward)


@pytest.mark.parametrize(
    ("job", "plan", "expected"),
    [
        # two norms, four products, rotation, attention, activation; backward the products twice
        (software(), {}, (9, 13)),
        (software(kernels="eager"), {}, (27, 39)),
        # gather and scatter around two blocks; backward both, and the gathered input once more, if it was split
        (software(), {"tp": 8}, (9 + 4, 13 + 6)),
        (software(), {"tp": 8, "sequence_parallel": False}, (9 + 4, 13 + 4)),
        # a quantisation for every product
        (software() | {"precision": "fp8"}, {}, (9 + 4, 13 + 4)),
        # attention of two products, and a softmax of its own
        (software() | {"attention": "unfused"}, {}, (9 + 2, 13 + 4)),
        # a ring calls its kernel for every rank's keys, and sends three times each way
        (software(), {"cp": 4}, (9 + 3 + 3, 13 + 3 + 3)),
        # two and four products of four ranks' keys, with one softmax; three sends each way
        (software() | {"attention": "unfused"}, {"cp": 4}, (9 - 1 + 8 + 1 + 3, 13 - 1 + 16 + 1 + 3)),
    ],
)
def test_a_dense_layer_has_a_call_for_every_kernel_and_exchange(
    job: dict[str, Any], plan: dict[str, Any], expected: tuple[int, int]
) -> None:
    assert calls(work(job=job, **plan)) == expected


def test_graphs_replay_calls() -> None:
    """Those of a dense layer all, and of a mixture not those of its experts: permutation, two products, activation."""
    assert calls(work(job=software(cuda_graphs="partial"))) == (0, 0)
    assert calls(work(job=software(cuda_graphs="full"))) == (0, 0)
    of_experts = 4 + 2 * 8 * 0.01, 6 + 4 * 8 * 0.01
    found = calls(work(mixtral(), job=software(moe_dispatcher="alltoall", cuda_graphs="partial")))
    assert found == pytest.approx((50 + of_experts[0], 100 + of_experts[1]))


def test_graphs_of_the_router_replay_it_alone() -> None:
    """Product and choice of experts; of the dispatcher as much as graphs of other parts as well."""
    whole, some, router = (
        calls(work(mixtral(), job=software(moe_dispatcher="alltoall", cuda_graphs=graphs)))
        for graphs in ("none", "partial", "router")
    )
    assert router == pytest.approx((whole[0] - 2 - 50, whole[1] - 3 - 100))
    assert router > some
    assert calls(work(job=software(cuda_graphs="router"))) == calls(work(job=software()))


@pytest.mark.parametrize(
    ("fields", "dispatch", "wait"),
    [
        ({"moe_dispatcher": "alltoall"}, 100, 40),
        ({"moe_dispatcher": "alltoall", "moe_capacity": True}, 10, 0),
        ({"moe_dispatcher": "alltoall", "cuda_graphs": "full"}, 0, 0),
    ],
)
def test_experts_are_dispatched_by_the_host(fields: dict[str, Any], dispatch: float, wait: float) -> None:
    """Beside its calls: norms, attention, router, permutation, two grouped products of eight experts, activation."""
    found = work(mixtral(), job=software(**fields))
    queued = 0.0 if fields.get("cuda_graphs") == "full" else 1.0
    assert float(sum(time for _, time in found.waiting)) == wait
    forward, backward = calls(found)
    assert forward == pytest.approx(dispatch + queued * (12 + 2 * 8 * 0.01))
    assert backward == pytest.approx(2 * dispatch + queued * (17 + 4 * 8 * 0.01))


def test_dispatchers_take_their_share_of_the_host_where_tokens_leave_their_rank() -> None:
    usual, deepep, hybridep = (
        work(mixtral(), software(moe_dispatcher=name), ep=8) for name in ("alltoall", "deepep", "hybridep")
    )
    for each, saved in ((deepep, 50), (hybridep, 75)):
        assert calls(each) == pytest.approx((calls(usual)[0] - saved, calls(usual)[1] - 2 * saved))


def test_recomputation_repeats_calls_dispatcher_and_wait() -> None:
    job = Job(sequence_length=4096, global_batch_size=8, **software(moe_dispatcher="alltoall"))
    machine = machine_of(job.software, job)

    def again(recompute: str) -> float:
        numbers = PlanNumbers.of(Plan(recompute=recompute), 8, job)
        network = Network.of(cluster(), 8, machine.profile)
        block = layer_block(mixtral().layer_kinds[0], Shard.of(mixtral().hidden_size, job, numbers))
        cost = price_block(block, machine, network, groups_of(numbers, network), numbers, routed=True)
        return float(cost.recomputed.host)

    assert again("none") == pytest.approx(0, abs=1e-12)
    assert again("full") == pytest.approx(12 + 2 * 8 * 0.01 + 100 + 40, rel=0.01)
    assert again("moe") == pytest.approx(6 + 2 * 8 * 0.01 + 100 + 40, rel=0.01)


def test_blocking_launches_let_host_and_device_take_turns() -> None:
    """The device's time is nothing beside these calls: in turns or side by side, a forward pass waits for nine."""

    def forward(call: float, *, blocking: bool) -> tuple[float, float]:
        job = Job(sequence_length=4096, global_batch_size=8, **software(blocking_launches=blocking))
        profile = ideal_profile(kernel_launch_time={"fused": call, "eager": call})
        machine = Machine(accelerator=accelerator(), profile=profile, recipe=job.recipe, software=job.software)
        numbers = PlanNumbers.of(Plan(), 8, job)
        network = Network.of(cluster(), 8, profile)
        block = layer_block(LLAMA_70B.layer_kinds[0], Shard.of(LLAMA_70B.hidden_size, job, numbers))
        times = price_block(block, machine, network, groups_of(numbers, network), numbers).forward
        return float(times.total), float(times.compute)

    total, device = forward(1e-6, blocking=True)
    assert total == pytest.approx(device + 9e-6)
    assert forward(1e-6, blocking=False)[0] == pytest.approx(device)
    assert forward(100.0, blocking=False)[0] == pytest.approx(900)


def test_only_the_forward_pass_waits_for_what_the_host_learns() -> None:
    """Numbers of tokens are known when gradients come: backward the calls and twice the dispatcher's time."""
    job = Job(sequence_length=4096, global_batch_size=8, **software(moe_dispatcher="alltoall"))
    machine = machine_of(job.software, job)
    numbers = PlanNumbers.of(Plan(), 8, job)
    network = Network.of(cluster(), 8, machine.profile)
    block = layer_block(mixtral().layer_kinds[0], Shard.of(mixtral().hidden_size, job, numbers))
    cost = price_block(block, machine, network, groups_of(numbers, network), numbers, routed=True)
    assert float(cost.forward.total) == pytest.approx(12 + 2 * 8 * 0.01 + 100 + 40)
    assert float(cost.backward.total) == pytest.approx(17 + 4 * 8 * 0.01 + 2 * 100)


def test_an_exchange_behind_another_micro_batch_waits_for_nobody() -> None:
    """The device runs the other one's kernels meanwhile; the dispatchers take the same time of the host."""
    alone, shared = (
        [
            work(mixtral(), software(moe_dispatcher=name), ep=8, overlap_ep=overlap)
            for name in ("alltoall", "deepep", "hybridep")
        ]
        for overlap in (False, True)
    )
    assert [float(each.waiting[0][1]) for each in alone] == [40, 20, 10]
    assert [float(each.waiting[0][1]) for each in shared] == [0, 0, 0]
    assert calls(shared[0]) == calls(shared[1]) == calls(shared[2]) == calls(alone[0])


def test_without_other_ranks_dispatcher_and_overlap_make_no_difference() -> None:
    """No token leaves its rank: there is nothing that DeepEP could send, or that could overlap."""
    usual = work(mixtral(), software(moe_dispatcher="alltoall"))
    for name in ("alltoall", "deepep", "hybridep"):
        for overlap in (False, True):
            alone = work(mixtral(), software(moe_dispatcher=name), overlap_ep=overlap)
            assert calls(alone) == calls(usual)
            assert [float(time) for _, time in alone.waiting] == [40]
