"""Copies of tokens around PyTorch's collectives, counted by hand on a layer of Llama 3.1 70B."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.examples import LLAMA_70B

from shardplan.inputs.job import Job, Precision
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.software import Software
from shardplan.physics.workload.communication import Shard
from shardplan.physics.workload.copies import LEAST_IN_PANELS, copied_bytes
from shardplan.physics.workload.layer import layer_block

LENGTH, MICRO = 2048, 2
WHOLE = LENGTH * MICRO * 8192 * 2
"""What one exchange of tensor-parallel ranks gathers or scatters in 16 bits. [bytes]"""
DTENSOR = {"tp_overlaps": "one_product", "gathered_inputs": True, "quantised_copies": False}


def moved(software: dict[str, Any], *, precision: Precision = "bf16", **fields: Any) -> tuple[float, float]:
    """Bytes that a layer copies forward and backward."""
    used = Software(**software)
    job = Job(sequence_length=LENGTH, global_batch_size=64, routing="balanced", precision=precision, software=used)
    numbers = PlanNumbers.of(Plan(micro_batch_size=MICRO, **fields), 16, job)
    block = layer_block(LLAMA_70B.layers[0], Shard.of(LLAMA_70B.hidden_size, job, numbers))
    there = back = 0.0
    for item in block.collectives:
        now, late = (float(np.asarray(each)) for each in copied_bytes(item, job.recipe, used, numbers))
        there, back = (there + now, back + late) if item.direction == "forward" else (there, back + now + late)
    return there, back


def test_no_other_software_copies() -> None:
    assert moved({}, tp=8, sequence_parallel=True) == (0, 0)
    assert moved(DTENSOR, tp=8, sequence_parallel=False) == (0, 0)
    assert moved(DTENSOR, tp=1, sequence_parallel=True) == (0, 0)


@pytest.mark.parametrize(("precision", "gathered"), [("bf16", 1.0), ("fp8", 0.5)])
def test_dtensor_joins_tokens_along_the_sequence(precision: Precision, gathered: float) -> None:
    """Two gathers and two scatterings each way, of which each copies the whole (all_gather_tensor, gather_dim 1)."""
    both = 2 * (2 * gathered + 2) * WHOLE
    assert moved(DTENSOR, precision=precision, tp=8, sequence_parallel=True) == (both, both)


@pytest.mark.parametrize(("precision", "turned"), [("bf16", 2 * 4 * WHOLE), ("fp8", 0)])
def test_exchanges_in_panels_read_sums_and_turn_what_they_gathered(precision: Precision, turned: float) -> None:
    """Forward: sums of two scatterings, read once. Backward: two scatterings that no panel reaches, and four turned."""
    found = moved(DTENSOR, precision=precision, tp=8, sequence_parallel=True, overlap_tp=True)
    assert found == (2 * WHOLE, 2 * 2 * WHOLE + turned)
    for panels, whole in zip(found, moved(DTENSOR, precision=precision, tp=8, sequence_parallel=True), strict=True):
        assert panels >= LEAST_IN_PANELS * whole
