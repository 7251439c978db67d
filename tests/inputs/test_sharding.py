"""Four questions of sharding: what each word and each software answers, in bytes per parameter and in volumes."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
from tests.examples import cluster, ideal_profile

from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan, Sharding
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.sharding import SHARDINGS, sharding_fields
from shardplan.inputs.software import Software
from shardplan.physics.costs.collectives import sharding_groups
from shardplan.physics.costs.network import Network
from shardplan.physics.costs.state_traffic import StateTraffic, state_traffic
from shardplan.physics.memory import gathered_bytes, model_states, reduction_bytes, unsharded_gradient_bytes
from shardplan.physics.workload.layer import Parameters

PSI = 1e9
N = 64
TORCH = {"keeps_weights": "pipelines", "keeps_gradients": "pipelines", "fp32_weights": True}
"""torch.distributed.pipelining over FSDP2."""


def numbered(n: int = N, /, software: dict[str, Any] | None = None, **fields: Any) -> tuple[Job, PlanNumbers]:
    job = Job(sequence_length=1024, global_batch_size=4 * n, software=Software(**(software or {})))
    return job, PlanNumbers.of(Plan(**fields), n, job)


def bytes_each(software: dict[str, Any] | None = None, **fields: Any) -> tuple[float, float, float]:
    """Weights, gradients and optimizer states per parameter, Adam with fp32 gradients."""
    job, numbers = numbered(software=software, **fields)
    held = model_states(Parameters(PSI), job, numbers)
    return float(held.weights) / PSI, float(held.gradients) / PSI, float(held.optimizer) / PSI


def volumes(software: dict[str, Any] | None = None, **fields: Any) -> list[float]:
    """Bytes sent per parameter once per step and in every micro-batch, over many ranks."""
    job, numbers = numbered(software=software, **fields)
    sent, ranks = traffic(job, numbers), float(numbers.sharding_degree)
    each = (sent.step_bytes, sent.microbatch_bytes)
    return [round(sum(map(float, tiers)) / PSI * ranks / (ranks - 1), 9) for tiers in each]


def traffic(job: Job, numbers: PlanNumbers) -> StateTraffic:
    network = Network.of(cluster(), numbers.num_accelerators, ideal_profile())
    return state_traffic(Parameters(PSI), job, numbers, network, sharding_groups(numbers, network))


def test_every_word_has_answers() -> None:
    assert tuple(SHARDINGS) == get_args(Sharding)


@pytest.mark.parametrize("sharding", ["zero2", "zero3"])
def test_a_pipeline_of_pytorch_keeps_weights_and_gradients_whole(sharding: str) -> None:
    """16 ranks: whole 2 + 4 bytes; fp32 weights 4/16 and two moments 8/16 as shards, wherever they are counted."""
    weights, gradients, optimizer = bytes_each(TORCH, sharding=sharding, pp=4)
    assert gradients == 4
    assert weights + optimizer == pytest.approx(2 + 12 / 16)
    assert volumes(TORCH, sharding=sharding, pp=4) == [4 + 2, 0]  # reduced once, gathered once


@pytest.mark.parametrize("sharding", ["zero1", "zero2", "zero3", "hsdp"])
def test_what_is_kept_whole_through_a_step_costs_what_zero1_does(sharding: Any) -> None:
    degree = {"sharding_degree": 4} if sharding == "hsdp" else {}
    job, kept = numbered(software=TORCH, sharding=sharding, pp=4, **degree)
    _, first = numbered(software=TORCH, sharding="zero1", pp=4, **degree)
    layer = Parameters(PSI)
    for numbers in (kept, first):
        for held in (gathered_bytes, unsharded_gradient_bytes, reduction_bytes):
            assert held(layer, layer, job, numbers) == 0
    one, other = traffic(job, kept), traffic(job, first)
    assert (one.reduce_time, one.gather_time, one.microbatch_time) == (
        other.reduce_time, other.gather_time, other.microbatch_time,
    )  # fmt: skip


def test_weights_in_16_bits_have_their_shard_besides() -> None:
    """Without fp32 weights: whole 2 bytes and a shard of 2/16, the master copy with the optimizer."""
    kept = {"keeps_weights": "pipelines"}
    assert bytes_each(kept, sharding="zero3", pp=4) == (2 + 2 / 16, 4 / 16, 12 / 16)
    assert bytes_each(kept, sharding="zero3") == (2 / 64, 4 / 64, 12 / 64)


def test_without_a_word_of_the_software_a_pipeline_shards_as_it_does_without() -> None:
    """zero3 gathers 2 x 2 bytes and reduces 4 in every micro-batch; zero2 reduces 4 there and gathers 2 once."""
    assert bytes_each(sharding="zero3", pp=4) == (2 / 16, 4 / 16, 12 / 16)
    assert bytes_each(sharding="zero2", pp=4) == (2, 4 / 16, 12 / 16)
    assert volumes(sharding="zero3", pp=4) == [0, 2 * 2 + 4]
    assert volumes(sharding="zero2", pp=4) == [2, 4]


def test_weights_may_be_gathered_again_though_gradients_wait() -> None:
    """fsdp_reshard_after_forward always in a pipeline of torchtitan."""
    again = TORCH | {"keeps_weights": "never"}
    assert bytes_each(again, sharding="zero3", pp=4)[:2] == (4 / 16, 4)
    assert volumes(again, sharding="zero3", pp=4) == [4, 4]


def test_gradients_may_wait_without_a_pipeline() -> None:
    """``no_sync`` of PyTorch: whole gradients, reduced once."""
    assert bytes_each({"keeps_gradients": "always"}, sharding="zero3")[1] == 4
    assert volumes({"keeps_gradients": "always"}, sharding="zero3") == [4, 4]


def test_fsdp_that_does_not_reshard_gathers_once_in_every_micro_batch() -> None:
    assert volumes({"zero2_gathers": "microbatch"}, sharding="zero2") == [0, 2 + 4]
    assert volumes(sharding="zero2") == [2, 4]
    assert bytes_each({"zero2_gathers": "microbatch"}, sharding="zero2") == bytes_each(sharding="zero2")


@pytest.mark.parametrize("sharding", ["zero2", "zero3", "hpz"])
@pytest.mark.parametrize("software", [{}, {"zero2_gathers": "microbatch"}, TORCH])
def test_one_replica_shards_nothing(sharding: Any, software: dict[str, Any]) -> None:
    """Without replicas every kind is ddp: no gathered layers beside the weights, nothing sent."""
    layer = Parameters(PSI)
    for plan in ({"tp": 8}, {"tp": 4, "pp": 2}):
        job, alone = numbered(8, software=software, sharding=sharding, **plan)
        _, plain = numbered(8, software=software, sharding="ddp", **plan)
        assert model_states(layer, job, alone) == model_states(layer, job, plain)
        assert gathered_bytes(layer, layer, job, alone) == unsharded_gradient_bytes(layer, layer, job, alone) == 0
        assert sum(map(float, traffic(job, alone).microbatch_bytes)) == 0


def test_experts_with_replicas_are_sharded_though_the_dense_layers_have_none() -> None:
    """tp 8 leaves one replica of the dense layers, ep 4 two of every expert: 2 + 4 + 12 bytes, whole and halved."""
    job, numbers = numbered(8, sharding="zero3", tp=8, ep=4)
    held = model_states(Parameters(PSI, PSI), job, numbers)
    assert float(held.weights + held.gradients + held.optimizer) == pytest.approx(18 * PSI + 9 * PSI)
    layer = Parameters(PSI, PSI)
    assert float(gathered_bytes(layer, layer, job, numbers)) == 2 * 2 * PSI  # two layers of experts


def test_groups_of_hybrid_sharding_sum_as_often_as_the_software_does() -> None:
    """Groups of 8 of 64: shards of 4/8 bytes all-reduced among 8, 2 x 7/8 of them, once or in every micro-batch."""
    across = 2 * 7 / 8 * 4 / 8
    inside = 7 / 8 * (2 * 2 + 4)
    for often, expected in (("step", (across, inside)), ("microbatch", (0, across + inside))):
        job, numbers = numbered(software={"reduces_replicas": often}, sharding="hsdp", sharding_degree=8)
        sent = traffic(job, numbers)
        each = sum(map(float, sent.step_bytes)) / PSI, sum(map(float, sent.microbatch_bytes)) / PSI
        assert each == pytest.approx(expected)


def test_a_second_copy_within_a_node() -> None:
    """ZeRO++ (arXiv 2306.10209, section 3.2): the backward pass gathers within the node from 2/8 bytes more."""
    assert bytes_each(sharding="hpz", sharding_degree=8) == pytest.approx((2 / 64 + 2 / 8, 4 / 64, 12 / 64))
    job, hpz = numbered(sharding="hpz", sharding_degree=8)
    _, full = numbered(sharding="zero3")
    inside, between = traffic(job, hpz).microbatch_bytes
    of_full = traffic(job, full).microbatch_bytes
    assert float(between) == pytest.approx((2 + 4) * PSI * 7 / 64)  # one gather and the scatter leave the node
    assert float(of_full[1]) == pytest.approx((2 * 2 + 4) * PSI * 7 / 64)
    assert float(inside) == pytest.approx(float(of_full[0]))


def test_words_and_depths_in_arrays_are_those_one_by_one() -> None:
    """Also a plan with a second copy beside plans without."""
    software = Software(keeps_weights="pipelines", keeps_gradients="pipelines", zero2_gathers="microbatch")
    kinds, depths = np.asarray([*SHARDINGS])[:, None], np.asarray([1.0, 4.0])
    degrees = np.asarray([[8 * kind.in_groups] for kind in SHARDINGS.values()])
    together = sharding_fields(kinds, degrees, software, replicas=64 / depths, pp=depths)
    for (row, kind), (column, pp) in [(k, d) for k in enumerate(SHARDINGS) for d in enumerate((1, 4))]:
        alone = sharding_fields(kind, int(degrees[row, 0]), software, replicas=64 // pp, pp=pp)
        for name, value in alone.items():
            found = np.broadcast_to(np.asarray(together[name], dtype=float), (len(SHARDINGS), 2))[row, column]
            assert found == (alone["sharding_degree"] if value is None else value), (kind, pp, name)
