"""What lives on a rank at the same time, and what never does."""

from __future__ import annotations

import numpy as np
import pytest
from tests.examples import cluster, gpt, ideal_profile

from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.question import Question
from shardplan.estimation.stage_memory import in_update
from shardplan.inputs.job import GradDtype, Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.software import Software

LAYERS, HIDDEN, LENGTH = 8, 2048, 2048
MODEL = gpt(HIDDEN, LAYERS, 16, vocab_size=8)


def priced(grad_dtype: GradDtype, micro_batch_size: int) -> PricedPlan:
    """One accelerator with activations of dropout and plain attention."""
    job = Job(
        sequence_length=LENGTH, global_batch_size=micro_batch_size, grad_dtype=grad_dtype, attention="unfused",
        dropout=True,
    )  # fmt: skip
    question = Question(model=MODEL, cluster=cluster(), num_accelerators=1, job=job, given_profile=ideal_profile())
    return PricedPlan.of(question, Plan(micro_batch_size=micro_batch_size, sharding="ddp"))


def test_the_update_needs_what_exceeds_the_activations_that_are_gone() -> None:
    assert in_update(7.0, 5.0) == 2.0
    assert in_update(5.0, 7.0) == in_update(0.0, 7.0) == 0.0
    assert np.asarray(in_update(np.array([0.0, 5.0, 7.0, 9.0]), 7.0)).tolist() == [0, 0, 0, 2]


@pytest.mark.parametrize("micro_batch_size", [1, 4])
def test_a_peak_in_the_backward_pass_holds_states_and_activations(micro_batch_size: int) -> None:
    """16-bit gradients take 2 bytes less than fp32 ones: 16 against 18 of a parameter, if activations exceed 4 of it.

    Activations are s b h (34 + 5 a s / h) bytes of a layer (arXiv 2205.05198, equation 2).
    """
    wide, narrow = (priced(dtype, micro_batch_size).peak_memory_bytes for dtype in ("fp32", "bf16"))
    parameters = MODEL.num_parameters
    activations = LAYERS * LENGTH * micro_batch_size * HIDDEN * (34 + 5 * 16 * LENGTH / HIDDEN)
    assert activations > 4 * parameters
    assert wide - narrow == 2 * parameters
    assert wide - 18 * parameters == pytest.approx(activations, rel=0.15)  # and gradients of a layer's tensors


def test_outputs_of_chunks_wait_with_their_micro_batches() -> None:
    """2 s b h bytes of each chunk in flight but the last, whose output is the loss: 1F1B keeps p - r of them."""
    found = []
    for outputs in (True, False):
        job = Job(sequence_length=LENGTH, global_batch_size=8, software=Software(stage_outputs=outputs))
        question = Question(model=MODEL, cluster=cluster(), num_accelerators=4, job=job, given_profile=ideal_profile())
        of_plan = PricedPlan.of(question, Plan(pp=4))
        found.append([float(of_plan.memory_of(rank).activations) for rank in range(4)])
    more = [(kept - freed) / (2 * LENGTH * HIDDEN) for kept, freed in zip(*found, strict=True)]
    assert more == pytest.approx([4, 3, 2, 0])
