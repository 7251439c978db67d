"""What lives on a rank at the same time, and what never does."""

from __future__ import annotations

import numpy as np
import pytest
from tests.examples import cluster, gpt, ideal_profile

from shardplan.estimation.charge import CHARGES, StateCharge, least_peak_of
from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.question import Question
from shardplan.estimation.stage_memory import beyond
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
    assert beyond(7.0, 5.0) == 2.0
    assert beyond(5.0, 7.0) == beyond(0.0, 7.0) == 0.0
    assert np.asarray(beyond(np.array([0.0, 5.0, 7.0, 9.0]), 7.0)).tolist() == [0, 0, 0, 2]


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


def of_torch(num_microbatches: int, *, frees: bool, num_accelerators: int = 1, vocab_size: int = 8) -> PricedPlan:
    """PyTorch: weights in fp32 alone, and gradients that are freed after the update or not."""
    software = Software(frees_gradients=frees, fp32_weights=True, loss_kernel="single")
    job = Job(
        sequence_length=LENGTH, global_batch_size=num_microbatches * num_accelerators, grad_dtype="fp32",
        software=software,
    )  # fmt: skip
    model = gpt(HIDDEN, LAYERS, 16, vocab_size=vocab_size)
    question = Question(
        model=model, cluster=cluster(), num_accelerators=num_accelerators, job=job, given_profile=ideal_profile()
    )
    return PricedPlan.of(question, Plan(sharding="zero3" if num_accelerators > 1 else "ddp"))


def test_whole_weights_in_fp32_alone_are_the_master_copy() -> None:
    """16 bytes of a parameter without a 16-bit copy: fp32 weight, gradient and two moments, as autocast keeps them."""
    memory = of_torch(4, frees=False).memory_of(0)
    states = memory.weights + memory.gradients + memory.optimizer
    assert states == pytest.approx(16 * MODEL.num_parameters)


def test_gradients_that_come_as_activations_go_take_what_exceeds_these() -> None:
    """The peak is that of the activations with 12 bytes of a parameter, or the 16 bytes of the update."""
    freed, kept = (of_torch(1, frees=frees).memory_of(0) for frees in (True, False))
    parameters = MODEL.num_parameters
    assert kept.gradients == pytest.approx(4 * parameters)
    assert kept.activations < 4 * parameters  # so that the gradients of the last layer run backward decide
    assert 0 < freed.gradients < kept.gradients
    assert freed.total == pytest.approx(16 * parameters, rel=0.1)
    assert freed.total < kept.total == pytest.approx(16 * parameters + kept.activations + kept.buffers + kept.logits)


def test_a_large_vocabulary_peaks_before_there_are_gradients() -> None:
    """Logits of 16 bits and their gradient, 4 bytes of each, stand where gradients come later."""
    freed = of_torch(1, frees=True, vocab_size=512_000).memory_of(0)
    assert freed.logits + freed.buffers == pytest.approx(4 * LENGTH * 512_000)
    early = of_torch(1, frees=True, vocab_size=128_000).memory_of(0)
    assert early.gradients > 0 or early.logits > 0


def test_accumulated_gradients_stay() -> None:
    """From the second micro-batch on there are gradients all the time."""
    freed, kept = (of_torch(2, frees=frees) for frees in (True, False))
    assert freed.peak_memory_bytes == kept.peak_memory_bytes
    one = of_torch(1, frees=True, num_accelerators=8)
    assert one.memory_of(0).gradients < of_torch(2, frees=True, num_accelerators=8).memory_of(0).gradients


def of_pipeline(num_microbatches: int, *, vp: int, schedule: str | None = None) -> PricedPlan:
    """Two stages of PyTorch's FSDP, which keeps gradients whole to the last micro-batch of a chunk."""
    software = Software(
        frees_gradients=True, keeps_gradients="pipelines", keeps_weights="pipelines", loss_kernel="single"
    )
    job = Job(sequence_length=32 * LENGTH, global_batch_size=2 * num_microbatches, software=software)
    question = Question(model=MODEL, cluster=cluster(), num_accelerators=4, job=job, given_profile=ideal_profile())
    return PricedPlan.of(question, Plan(pp=2, vp=vp, sharding="zero2", schedule=schedule))


@pytest.mark.parametrize("schedule", [None, "breadth-first"])
def test_chunks_that_run_backward_in_turn_hold_gradients_of_one(schedule: str | None) -> None:
    """Two micro-batches of one group: three of four chunks have none while their activations are there."""
    whole = 4 * MODEL.num_parameters / 2
    assert of_pipeline(2, vp=4, schedule=schedule).memory_of(0).gradients == pytest.approx(whole / 4, rel=1e-3)
    assert of_pipeline(2, vp=1).memory_of(0).gradients == pytest.approx(whole, rel=1e-3)


def test_groups_that_alternate_hold_all_gradients() -> None:
    whole = 4 * MODEL.num_parameters / 2
    assert of_pipeline(8, vp=4).memory_of(0).gradients == pytest.approx(whole, rel=1e-3)


@pytest.mark.parametrize("num_microbatches", [1, 2])
def test_the_parts_sum_to_the_peak_that_the_search_compares(num_microbatches: int) -> None:
    for vocab_size in (8, 32_000, 512_000):
        found = of_torch(num_microbatches, frees=True, num_accelerators=8, vocab_size=vocab_size)
        assert found.memory_of(0).total == pytest.approx(found.peak_memory_bytes)


def test_an_update_with_few_activations_is_the_peak() -> None:
    """Weights, gradients and states take 2, 2 and 12 bytes of a parameter, its gradient in fp32 another 4."""
    job = Job(sequence_length=16, global_batch_size=1, grad_dtype="bf16")
    question = Question(model=MODEL, cluster=cluster(), num_accelerators=1, job=job, given_profile=ideal_profile())
    found = PricedPlan.of(question, Plan(sharding="ddp"))
    assert found.peak_memory_bytes == pytest.approx(20 * MODEL.num_parameters)
    nothing = dict.fromkeys(CHARGES, 0.0)
    charge = StateCharge(**nothing | {"resident_bytes": 14.0, "gradient_bytes": 2.0, "update_bytes": 4.0})
    assert least_peak_of(question, charge) == 20
