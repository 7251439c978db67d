"""Copies around PyTorch's collectives, counted by hand on a layer of Llama 3.1 70B."""

from __future__ import annotations

from typing import Any

import pytest
from tests.examples import LLAMA_70B, mixtral

from shardplan.inputs.job import Job, Precision
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.software import Software
from shardplan.physics.workload.communication import Shard
from shardplan.physics.workload.copies import with_copies
from shardplan.physics.workload.layer import layer_block
from shardplan.physics.workload.ops import OUTSIDE, StreamPass

LENGTH, MICRO = 2048, 2
WHOLE = LENGTH * MICRO * 8192 * 2
"""What one exchange of tensor-parallel ranks gathers or scatters in 16 bits. [bytes]"""
MATRICES = 2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672
"""Weights of the products of a layer: query and output, key and value, gate, up and down."""
DTENSOR = {"tp_overlaps": "one_product", "gathered_inputs": True, "quantised_copies": False}
FSDP2 = {"sharded_accumulation": True}


def copies(
    model: ModelConfig, software: dict[str, Any], *, precision: Precision = "bf16", **fields: Any
) -> list[StreamPass]:
    plan = Plan(micro_batch_size=MICRO, **fields)
    used = Software(**software)
    job = Job(sequence_length=LENGTH, global_batch_size=64, routing="balanced", precision=precision, software=used)
    numbers = PlanNumbers.of(plan, 16, job)
    block = layer_block(model.layers[0], Shard.of(model.hidden_size, job, numbers))
    found = with_copies(block, job.recipe, used, numbers).operators[len(block.operators) :]
    return [each for each in found if isinstance(each, StreamPass)]


def moved(found: list[StreamPass]) -> tuple[float, float]:
    """Bytes forward and backward."""
    return sum(float(each.forward_bytes) for each in found), sum(float(each.backward_bytes) for each in found)


@pytest.mark.parametrize(("sharding", "passes"), [("zero3", (1, 1)), ("zero2", (0, 0)), ("ddp", (0, 0))])
def test_fsdp2_copies_weights_out_of_what_it_gathered(sharding: str, passes: tuple[int, int]) -> None:
    """Read and written in 16 bits after each gather (foreach_all_gather_copy_out), never by recomputation."""
    found = copies(LLAMA_70B, FSDP2, sharding=sharding)
    assert moved(found) == tuple(number * 2 * 2 * MATRICES for number in passes)
    assert all(each.counted and each.modules == OUTSIDE for each in found)


def test_weights_gathered_in_8_bits_are_copied_in_8_bits() -> None:
    low = {**FSDP2, "quantised_gathers": True}
    assert moved(copies(LLAMA_70B, low, precision="fp8", sharding="zero3")) == (2 * MATRICES, 2 * MATRICES)
    assert moved(copies(LLAMA_70B, low, sharding="zero3")) == (4 * MATRICES, 4 * MATRICES)


@pytest.mark.parametrize(("ep", "experts"), [(8, 1), (2, 4)])
def test_experts_of_a_rank_are_copied_with_the_rest(ep: int, experts: int) -> None:
    """A rank's share of Mixtral's eight experts, next to attention and router."""
    router, attention, expert = 4096 * 8, 2 * 4096 * 4096 + 2 * 4096 * 1024, 3 * 4096 * 14336
    whole = 4 * (router + attention + experts * expert)
    assert moved(copies(mixtral(), FSDP2, sharding="zero3", ep=ep)) == (whole, whole)


def test_no_other_software_copies() -> None:
    assert copies(LLAMA_70B, {}, sharding="zero3", tp=8, sequence_parallel=True) == []
    assert copies(LLAMA_70B, DTENSOR, tp=8, sequence_parallel=False) == []
    assert copies(LLAMA_70B, DTENSOR, tp=1) == []


@pytest.mark.parametrize(("precision", "gathered"), [("bf16", 1.0), ("fp8", 0.5)])
def test_dtensor_joins_tokens_along_the_sequence(precision: Precision, gathered: float) -> None:
    """Two gathers and two scatterings each way, of which each copies the whole (all_gather_tensor, gather_dim 1)."""
    found = copies(LLAMA_70B, DTENSOR, precision=precision, tp=8, sequence_parallel=True)
    both = 2 * (2 * gathered + 2) * WHOLE
    assert moved(found) == (both, both)


@pytest.mark.parametrize(("precision", "turned"), [("bf16", 2 * 4 * WHOLE), ("fp8", 0)])
def test_exchanges_in_panels_read_sums_and_turn_what_they_gathered(precision: Precision, turned: float) -> None:
    """Forward: sums of two scatterings, read once. Backward: two scatterings that no panel reaches, and four turned."""
    found = copies(LLAMA_70B, DTENSOR, precision=precision, tp=8, sequence_parallel=True, overlap_tp=True)
    assert moved(found) == (2 * WHOLE, 2 * 2 * WHOLE + turned)
