from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan, Sharding
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.software import Software
from shardplan.physics.memory import (
    States,
    gathered_bytes,
    host_state_bytes,
    local_parameters,
    model_states,
    reduction_bytes,
    unsharded_gradient_bytes,
    update_bytes,
    weight_bytes,
)
from shardplan.physics.workload.layer import Parameters

PSI = 7.5e9
"""The example of the ZeRO paper."""
SHARDINGS: tuple[Sharding, ...] = ("ddp", "zero1", "zero2", "zero3")


def job(**fields: Any) -> Job:
    return Job(sequence_length=1024, global_batch_size=1024, **({"grad_dtype": "bf16"} | fields))


def states(
    sharding: Any, num_accelerators: int = 64, *, dense: float = PSI, experts: float = 0.0, of: Job | None = None,
    **fields: Any,
) -> States:  # fmt: skip
    one = of or job()
    numbers = PlanNumbers.of(Plan(sharding=sharding, **fields), num_accelerators, one)
    return model_states(Parameters(dense, experts), one, numbers)


def total(held: States) -> float:
    return float(held.weights + held.gradients + held.optimizer)


@pytest.mark.parametrize("n", [1, 4, 16, 64, 256, 1024])
def test_stages_of_zero(n: int) -> None:
    """arXiv 1910.02054, figure 1: (2+2+K) Psi, 4 Psi + K Psi / N, 2 Psi + (2+K) Psi / N and (2+2+K) Psi / N, K = 12."""
    assert total(states("ddp", n)) == 16 * PSI
    assert total(states("zero1", n)) == pytest.approx(4 * PSI + 12 * PSI / n)
    assert total(states("zero2", n)) == pytest.approx(2 * PSI + 14 * PSI / n)
    assert total(states("zero3", n)) == pytest.approx(16 * PSI / n)


@pytest.mark.parametrize(("sharding", "gigabytes"), [("ddp", 120), ("zero1", 31.4), ("zero2", 16.6), ("zero3", 1.9)])
def test_the_example_of_the_paper(sharding: str, gigabytes: float) -> None:
    """Figure 1 of ZeRO: 7.5 B parameters on 64 ranks."""
    assert total(states(sharding)) / 1e9 == pytest.approx(gigabytes, rel=0.02)


def test_gradients_in_fp32_make_eighteen_bytes() -> None:
    """Megatron-LM accumulates in fp32: 18 bytes per parameter, 6 + 12 / d with its distributed optimizer."""
    wide = job(grad_dtype="fp32")
    assert total(states("ddp", of=wide)) == 18 * PSI
    assert total(states("zero1", of=wide)) == pytest.approx((6 + 12 / 64) * PSI)


@pytest.mark.parametrize(("keeps", "whole"), [("always", True), ("never", False)])
def test_flat_parameters_give_frozen_weights_gradients(keeps: Any, *, whole: bool) -> None:
    """PyTorch's FSDP lays a block in one flat parameter, whose gradient is as long: whole till it is reduced."""
    of = job(software=Software(keeps_gradients=keeps))
    adapters, base = 1e6, 13e9
    held = Parameters(base + adapters, 0.0, base, flat=base)
    cases: tuple[tuple[int, Sharding], ...] = (4, "zero3"), (4, "zero2"), (1, "zero3")
    for n, sharding in cases:
        numbers = PlanNumbers.of(Plan(sharding=sharding), n, of)
        plain = model_states(replace(held, flat=0.0), of, numbers)
        added = 2 * base / (1 if whole else 4) if (n, sharding) == (4, "zero3") else 0.0
        flat = model_states(held, of, numbers)
        assert (flat.weights, flat.optimizer) == (plain.weights, plain.optimizer)
        assert float(flat.gradients - plain.gradients) == pytest.approx(added)


def test_hybrid_sharding_divides_by_its_degree() -> None:
    assert total(states("hsdp", sharding_degree=8)) == pytest.approx(16 * PSI / 8)


def test_context_ranks_share_the_states() -> None:
    assert total(states("zero3", 64, cp=8)) == pytest.approx(16 * PSI / 64)


def test_experts_are_sharded_over_their_own_replicas() -> None:
    """With ep 8 of 64 accelerators each expert has 8 replicas (expert data parallelism)."""
    moe = states("zero1", 64, dense=0.0, experts=PSI, ep=8)
    assert float(moe.optimizer) == pytest.approx(12 * PSI / 8)
    assert float(moe.weights) == 2 * PSI


def test_low_precision_copies_count_as_weights() -> None:
    assert float(states("ddp", of=job(precision="fp8")).weights) == 3 * PSI


def test_offloaded_states_take_no_device_memory() -> None:
    assert float(states("zero1", offload="optimizer").optimizer) == 0


@given(st.sampled_from(SHARDINGS), st.sampled_from((2, 8, 64)), st.floats(0, 1e12), st.floats(0, 1e12))
def test_sharding_more_never_holds_more(sharding: str, n: int, dense: float, experts: float) -> None:
    held = [total(states(each, n, dense=dense, experts=experts)) for each in SHARDINGS]
    assert held == sorted(held, reverse=True)
    more = total(states(sharding, 2 * n, dense=dense, experts=experts))
    assert more <= total(states(sharding, n, dense=dense, experts=experts))


@pytest.mark.parametrize("sharding", SHARDINGS)
def test_replicas_update_every_parameter_once(sharding: Any) -> None:
    one = job()
    numbers = PlanNumbers.of(Plan(sharding=sharding, ep=8), 64, one)
    updated = float(local_parameters(Parameters(PSI, 8 * PSI), numbers))
    assert updated == pytest.approx(9 * PSI if sharding == "ddp" else PSI / 64 + 8 * PSI / 8)


@pytest.mark.parametrize(
    ("grad_dtype", "moment_dtype", "size"), [("bf16", "fp32", 4), ("bf16", "bf16", 4), ("fp32", "bf16", 0)]
)
def test_an_update_brings_16_bit_gradients_to_fp32(grad_dtype: Any, moment_dtype: Any, size: int) -> None:
    one = job(grad_dtype=grad_dtype, moment_dtype=moment_dtype)
    numbers = PlanNumbers.of(Plan(), 64, one)
    assert float(update_bytes(Parameters(PSI), one, numbers)) == size * PSI / 64
    away = PlanNumbers.of(Plan(offload="optimizer"), 64, one)
    assert float(update_bytes(Parameters(PSI), one, away)) == 0


def test_fully_sharded_training_gathers_two_layers_and_one_gradient() -> None:
    """FSDP (arXiv 2304.11277, section 3.2): the unit in use, the one fetched ahead, and the gradient being reduced."""
    layer, head = Parameters(1e9), Parameters(1.5e9)
    one = job()
    numbered = [PlanNumbers.of(Plan(sharding=sharding), 64, one) for sharding in SHARDINGS]
    assert [float(gathered_bytes(layer, layer, one, numbers)) for numbers in numbered] == [0, 0, 0, 2 * 2e9]
    assert [float(unsharded_gradient_bytes(layer, layer, one, numbers)) for numbers in numbered] == [0, 0, 2e9, 2e9]
    assert float(gathered_bytes(head, layer, one, numbered[-1])) == 2 * 2.5e9


@pytest.mark.parametrize("ahead", [True, False])
def test_layers_gathered_in_8_bits_are_held_in_8_bits(*, ahead: bool) -> None:
    """Two layers, or two matrices of one; a head is gathered in 16 bits. Whole weights of a pipeline likewise."""
    layer, head = Parameters(1e9), Parameters(1.5e9)
    one = job(precision="fp8", software=Software(quantised_gathers=True, quantised_copies=False, gathers_ahead=ahead))
    numbers = PlanNumbers.of(Plan(sharding="zero3"), 64, one)
    assert float(gathered_bytes(layer, layer, one, numbers)) == (2e9 if ahead else 1e9 / 2)
    assert float(gathered_bytes(head, layer, one, numbers)) == 2 * 1.5e9 + (1e9 if ahead else 0)
    kept = job(precision="fp8", software=replace(one.software, keeps_weights="always"))
    whole = states("zero3", dense=640.0, of=kept).weights
    assert (
        whole
        == states(
            "zero3", dense=640.0, of=replace(kept, software=Software(keeps_weights="always", quantised_copies=False))
        ).weights
        - 640
    )


def test_a_loss_in_pieces_makes_the_gradient_of_the_head_early() -> None:
    layer, head = Parameters(1e9), Parameters(1.5e9)
    for fused, size in ((False, 2e9), (True, 3e9)):
        one = job(software=Software(fused_loss=fused))
        numbers = PlanNumbers.of(Plan(sharding="zero3"), 64, one)
        assert float(unsharded_gradient_bytes(head, layer, one, numbers)) == size


def test_gradients_are_copied_where_they_are_reduced_in_fp32() -> None:
    """Unfused accumulation: two bytes that autograd writes and four that travel."""
    layer = Parameters(1e9)
    one = job(grad_dtype="fp32", software=Software(fused_accumulation=False))
    numbers = PlanNumbers.of(Plan(sharding="zero3"), 64, one)
    assert float(unsharded_gradient_bytes(layer, layer, one, numbers)) == 2e9
    assert float(reduction_bytes(layer, layer, one, numbers)) == 4e9
    same = job(software=Software(fused_accumulation=False))
    assert float(reduction_bytes(layer, layer, same, numbers)) == 0


def test_a_fixed_bucket_is_of_half_a_billion_elements() -> None:
    layer, one = Parameters(1e9), job(software=Software(fixed_bucket=True))
    sizes = [
        float(reduction_bytes(layer, layer, one, PlanNumbers.of(Plan(sharding=kind), 64, one))) for kind in SHARDINGS
    ]
    assert sizes == [0, 0, 1e9, 1e9]


def test_compilers_gather_weight_by_weight() -> None:
    """Two matrices of a layer at once; a head is one matrix."""
    layer, head = Parameters(1e9), Parameters(1.5e9)
    one = job(software=Software(gathers_ahead=False))
    numbers = PlanNumbers.of(Plan(sharding="zero3"), 64, one)
    assert float(gathered_bytes(layer, layer, one, numbers)) == float(
        unsharded_gradient_bytes(layer, layer, one, numbers)
    )
    assert [float(gathered_bytes(part, layer, one, numbers)) for part in (layer, head)] == [1e9, 3e9]


def test_the_host_keeps_states_and_gradients() -> None:
    one = job()
    for offload, size in (("none", 0), ("optimizer", (12 + 2) * 1e9 / 64)):
        numbers = PlanNumbers.of(Plan(offload=offload), 64, one)  # type: ignore[arg-type]  # both are kinds of offload
        assert float(host_state_bytes(Parameters(1e9), one, numbers)) == size


def test_states_of_arrays() -> None:
    one = job()
    plans = [PlanNumbers.of(Plan(sharding=sharding), 64, one) for sharding in SHARDINGS]
    flags: Any = {
        name: np.array([getattr(plan, name) for plan in plans])
        for name in ("shards_optimizer", "shards_gradients", "shards_weights", "weight_gathers", "sharding_degree")
    }
    together = model_states(Parameters(PSI), one, replace(plans[0], **flags))
    singly = [total(model_states(Parameters(PSI), one, plan)) for plan in plans]
    assert (together.weights + together.gradients + together.optimizer).tolist() == singly  # type: ignore[union-attr]  # an array


# Muon, and weights that stay on their node


@pytest.mark.parametrize("sharding", ["ddp", "zero1"])
@pytest.mark.parametrize("offload", ["none", "optimizer"])
def test_tables_and_norms_keep_a_second_moment_next_to_muon(sharding: Any, offload: Any) -> None:
    """Master weight and one moment of all, 8 bytes; another 4 of what Adam updates."""
    one = job(optimizer="muon")
    numbers = PlanNumbers.of(Plan(sharding=sharding, offload=offload), 64, one)
    plain, mixed = Parameters(PSI), Parameters(PSI, by_adam=PSI / 5)
    ranks = 64 if sharding == "zero1" else 1
    states = (8 * PSI + 4 * PSI / 5) / ranks
    is_away = offload == "optimizer"
    assert float(model_states(mixed, one, numbers).optimizer) == pytest.approx(0 if is_away else states)
    assert float(host_state_bytes(mixed, one, numbers)) == pytest.approx(states + 2 * PSI / ranks if is_away else 0)
    for name in ("weights", "gradients"):
        assert getattr(model_states(mixed, one, numbers), name) == getattr(model_states(plain, one, numbers), name)


def test_a_second_copy_of_sharded_weights_stays_on_the_node() -> None:
    """hpZ of ZeRO++ (arXiv 2306.10209, section 3.2): 2 bytes over the 8 ranks of a node, beside 2 over all of 64."""
    hpz = PlanNumbers.of(Plan(sharding="hpz", sharding_degree=8), 64, job())
    held = model_states(Parameters(PSI), job(), hpz)
    assert float(held.weights) == pytest.approx(2 * PSI / 64 + 2 * PSI / 8)
    assert float(held.gradients + held.optimizer) == pytest.approx(14 * PSI / 64)


@pytest.mark.parametrize(
    ("sharding", "weights", "optimizer"), [("ddp", 4, 8), ("zero1", 2, 12 / 64), ("zero3", 4 / 64, 8 / 64)]
)
def test_weights_in_fp32_alone_are_the_master_copy(sharding: Any, weights: float, optimizer: float) -> None:
    """Whole or fully sharded they are 4 bytes, beside two moments of 4; gathered after an update they are 16-bit."""
    held = states(sharding, of=job(software=Software(fp32_weights=True)))
    assert float(held.weights) == pytest.approx(weights * PSI)
    assert float(held.optimizer) == pytest.approx(optimizer * PSI)
    assert float(held.gradients) == float(states(sharding).gradients)


@pytest.mark.parametrize(("sharding", "weights"), [("ddp", 4 + 1), ("zero1", 2 + 1), ("zero3", (4 + 1) / 64)])
def test_copies_in_eight_bits_come_beside_weights_in_fp32(sharding: Any, weights: float) -> None:
    of = job(precision="fp8", software=Software(fp32_weights=True))
    assert float(states(sharding, of=of).weights) == pytest.approx(weights * PSI)


def test_a_rank_alone_gathers_and_reduces_nothing() -> None:
    layer = Parameters(1e9)
    for software in (Software(), Software(fixed_bucket=True), Software(gathers_ahead=False)):
        one = job(software=software)
        numbers = PlanNumbers.of(Plan(sharding="zero3"), 1, one)
        for found in (gathered_bytes, unsharded_gradient_bytes, reduction_bytes):
            assert float(found(layer, layer, one, numbers)) == 0, found
        two = PlanNumbers.of(Plan(sharding="zero3"), 2, one)
        assert float(gathered_bytes(layer, layer, one, two)) > 0


def test_parts_without_parameters_have_no_bucket() -> None:
    one = job(software=Software(fixed_bucket=True))
    numbers = PlanNumbers.of(Plan(sharding="zero3"), 64, one)
    assert float(reduction_bytes(Parameters(0.0), Parameters(0.0), one, numbers)) == 0
    assert float(reduction_bytes(Parameters(0.0, 1.0), Parameters(1.0), one, numbers)) == 1e9


def test_a_rank_alone_holds_the_same_whatever_is_sharded() -> None:
    for of in (job(), job(software=Software(fp32_weights=True)), job(precision="fp8")):
        assert {total(states(each, 1, of=of)) for each in SHARDINGS} == {total(states("ddp", 1, of=of))}


def test_fused_accumulation_writes_gradients_as_they_are_accumulated() -> None:
    layer = Parameters(1e9)
    for fused, size in ((True, 4e9), (False, 2e9)):
        one = job(grad_dtype="fp32", software=Software(fused_accumulation=fused))
        numbers = PlanNumbers.of(Plan(sharding="zero3"), 64, one)
        assert float(unsharded_gradient_bytes(layer, layer, one, numbers)) == size


@pytest.mark.parametrize(("keeps", "weights"), [("never", 2 / 64), ("always", 2 + 2 / 64)])
def test_kept_weights_come_beside_their_shard(keeps: Any, weights: float) -> None:
    """Experts that one rank alone holds have no shard of their own beside them."""
    of = job(software=Software(keeps_weights=keeps))
    dense = float(states("zero3", of=of).weights)
    assert dense == pytest.approx(weights * PSI)
    assert float(states("zero3", dense=0.0, experts=PSI, ep=64, of=of).weights) == 2 * PSI


def test_experts_that_one_rank_holds_are_neither_gathered_nor_reduced() -> None:
    one, experts = job(), Parameters(0.0, 1e9)
    for ep, gathered in ((64, 0.0), (32, 2 * 2e9), (8, 2 * 2e9)):
        numbers = PlanNumbers.of(Plan(sharding="zero3", ep=ep), 64, one)
        assert float(gathered_bytes(experts, experts, one, numbers)) == gathered


@pytest.mark.parametrize(
    ("plan", "software", "weights", "gradients", "optimizer"),
    [
        ({"sharding": "ddp"}, {}, 2 * 640, 2 * 640, 12 * 640),
        ({"sharding": "zero1"}, {}, 2 * 640, 2 * 640, 12 * 10),
        ({"sharding": "zero2"}, {}, 2 * 640, 2 * 10, 12 * 10),
        ({"sharding": "zero3"}, {}, 2 * 10, 2 * 10, 12 * 10),
        ({"sharding": "hsdp", "sharding_degree": 8}, {}, 2 * 80, 2 * 80, 12 * 80),
        ({"sharding": "hpz", "sharding_degree": 8}, {}, 2 * 10 + 2 * 80, 2 * 10, 12 * 10),
        ({"sharding": "hpz", "sharding_degree": 64}, {}, 2 * 10, 2 * 10, 12 * 10),
        ({"sharding": "hpz", "sharding_degree": 8}, {"keeps_weights": "always"}, 2 * 640 + 2 * 10, 2 * 10, 12 * 10),
        ({"sharding": "zero3"}, {"keeps_weights": "always"}, 2 * 640 + 2 * 10, 2 * 10, 12 * 10),
        ({"sharding": "zero3"}, {"keeps_gradients": "always"}, 2 * 10, 2 * 640, 12 * 10),
        ({"sharding": "ddp"}, {"fp32_weights": True}, 4 * 640, 2 * 640, 8 * 640),
        ({"sharding": "zero1"}, {"fp32_weights": True}, 2 * 640, 2 * 640, 12 * 10),
        ({"sharding": "zero3"}, {"fp32_weights": True}, 4 * 10, 2 * 10, 8 * 10),
        (
            {"sharding": "zero3"}, {"fp32_weights": True, "keeps_weights": "always"},
            2 * 640 + 4 * 10, 2 * 10, 8 * 10,
        ),
        ({"sharding": "zero1", "offload": "optimizer"}, {}, 2 * 640, 2 * 640, 0),
    ],
)  # fmt: skip
def test_bytes_of_640_parameters_on_64_ranks(
    plan: dict[str, Any], software: dict[str, Any], weights: int, gradients: int, optimizer: int
) -> None:
    """To the byte, alone and beside as many frozen ones, whose weights are kept as the others are."""
    of = job(software=Software(**software))
    held = states(dense=640.0, of=of, **plan)
    assert (held.weights, held.gradients, held.optimizer) == (weights, gradients, optimizer)
    half = model_states(Parameters(1280.0, 0.0, 640.0), of, PlanNumbers.of(Plan(**plan), 64, of))
    assert (half.weights, half.gradients, half.optimizer) == (2 * weights, gradients, optimizer)


@pytest.mark.parametrize("fp32_weights", [False, True])
def test_frozen_weights_in_few_bits_are_no_fp32_ones(*, fp32_weights: bool) -> None:
    """640 in half a byte, next to 640 in 16 bits that a quantising library leaves as they are."""
    of = replace(job(software=Software(fp32_weights=fp32_weights)), train="lora", base_weights="nf4")
    frozen = Parameters(1280.0, 0.0, 1280.0, packed_dense=640.0)
    held = model_states(frozen, of, PlanNumbers.of(Plan(sharding="zero3"), 64, of))
    assert of.packed_weights is not None
    assert held.weights == pytest.approx((2 * 640 + of.packed_weights.bytes * 640) / 64)


@pytest.mark.parametrize("name", ["zero1", "zero3"])
def test_frozen_experts_have_weights_alone(name: Any) -> None:
    """2 bytes of 640 that are frozen and of 640 that are trained, 8 replicas each; the others have 14 more."""
    numbers = PlanNumbers.of(Plan(sharding=name, ep=8), 64, job())
    held = model_states(Parameters(0.0, 1280.0, 0.0, 640.0), job(), numbers)
    shard = 8 if name == "zero3" else 1
    assert (held.weights, held.gradients, held.optimizer) == (2 * 1280 / shard, 2 * 640 / shard, 12 * 640 / 8)


def test_a_second_copy_of_experts_is_shared_by_their_replicas_of_a_node() -> None:
    """Of 8 replicas of an expert with ep 8, one is on each node of 8: the second copy is whole."""
    numbers = PlanNumbers.of(Plan(sharding="hpz", sharding_degree=16, ep=8), 64, job())
    held = model_states(Parameters(0.0, 640.0), job(), numbers)
    assert held.weights == 2 * 640 / 8 + 2 * 640 / float(numbers.expert_second_degree)
    assert 1 < float(numbers.expert_second_degree) < 8


@pytest.mark.parametrize(
    ("precision", "software", "each"),
    [
        ("bf16", {}, 2), ("fp32", {}, 4), ("fp8", {}, 3), ("fp8", {"quantised_copies": False}, 2),
        ("fp8", {"quantised_weights": True}, 1), ("bf16", {"quantised_weights": True}, 2),
        ("fp8", {"quantised_weights": True, "quantised_copies": False}, 1),
    ],
)  # fmt: skip
def test_bytes_of_a_weight(precision: Any, software: dict[str, Any], each: int) -> None:
    """16-bit weights, one fp8 copy beside them (Transformer Engine), or the copy alone."""
    assert weight_bytes(job(precision=precision, software=Software(**software))) == each


@pytest.mark.parametrize(("grad_dtype", "copy", "each"), [("fp32", True, 6), ("fp32", False, 4), ("bf16", True, 2)])
def test_sixteen_bit_gradients_beside_their_accumulation_buffer(grad_dtype: Any, *, copy: bool, each: int) -> None:
    """DeepSpeed's bf16 optimizer keeps both, where they differ."""
    of = job(grad_dtype=grad_dtype, software=Software(gradient_copy=copy))
    assert states("ddp", dense=640.0, of=of).gradients == each * 640


def test_gathered_and_reduced_bytes_of_few_parameters() -> None:
    """Two layers that are gathered, the larger gradient, fp32 copies as they travel; experts have 8 replicas."""
    part, layer = Parameters(30.0, 5.0), Parameters(20.0, 4.0)
    wide = job(grad_dtype="fp32", software=Software(fused_accumulation=False))
    for sharding, gathered, gradient, reduced in (
        ("ddp", 0, 0, 0), ("zero1", 0, 0, 0), ("zero2", 0, 2 * 24, 4 * 35), ("zero3", 2 * (35 + 24), 2 * 24, 4 * 35),
    ):  # fmt: skip
        numbers = PlanNumbers.of(Plan(sharding=sharding, ep=8), 64, wide)  # type: ignore[arg-type]  # all are kinds
        assert gathered_bytes(part, layer, wide, numbers) == gathered
        assert unsharded_gradient_bytes(part, layer, wide, numbers) == gradient
        assert reduction_bytes(part, layer, wide, numbers) == reduced
    one_by_one = job(grad_dtype="fp32", software=Software(fused_accumulation=False, gathers_ahead=False))
    numbers = PlanNumbers.of(Plan(sharding="zero3", ep=8), 64, one_by_one)
    assert reduction_bytes(part, layer, one_by_one, numbers) == 4 * 35
    assert reduction_bytes(layer, layer, one_by_one, numbers) == 4 * 12
    alone = PlanNumbers.of(Plan(sharding="zero3", ep=64), 64, wide)
    assert gathered_bytes(part, layer, wide, alone) == 2 * (30 + 20)
    assert local_parameters(part, alone) == 30 / 64 + 5
    assert update_bytes(part, job(), alone) == 4 * (30 / 64 + 5)
    assert host_state_bytes(part, job(), alone) == 0
