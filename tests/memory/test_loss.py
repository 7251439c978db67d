"""Logits and loss on the last stage, by what the framework's loss writes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.examples import cluster, ideal_profile, llama

from shardplan import estimate
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.software import LossKernel, Software
from shardplan.memory.activations import held_logit_bytes, loss_bytes

PER_LOGIT = {
    "in_place": 7.0,
    "autograd": 12.0,
    "loss_parallel": 16.0,
    "compiled": 10.0,
    "gathered": 16.0,
    "single": 4.0,
    "fused": 0.5,
}


def loss(kernel: LossKernel, *, heads: int = 1, tp: int = 1, fused: bool = False) -> float:
    return float(loss_bytes(Software(loss_kernel=kernel, fused_loss=fused), PER_LOGIT, 1e9, heads, tp))


@pytest.mark.parametrize(
    ("kernel", "alone", "shared"),
    [
        ("in_place", 7, 7),
        ("autograd", 12, 12),
        ("loss_parallel", 12, 16),
        ("compiled", 4, 10),
        ("gathered", 16, 16),
        ("single", 4, 4),
    ],
)
def test_bytes_per_logit(kernel: LossKernel, alone: float, shared: float) -> None:
    assert loss(kernel) == alone * 1e9
    assert loss(kernel, tp=8) == loss(kernel, tp=2) == shared * 1e9
    assert loss(kernel, fused=True) == 0.5e9
    assert loss(kernel, heads=0) == 0


def test_eager_kernels_do_not_compile_the_loss() -> None:
    software = Software(loss_kernel="compiled", kernels="eager")
    for tp, each in ((1, 12), (8, 16)):
        assert float(loss_bytes(software, PER_LOGIT, 1e9, 1, tp)) == each * 1e9


@pytest.mark.parametrize(
    ("kernel", "kept"),
    [("in_place", 4), ("autograd", 4), ("loss_parallel", 4), ("compiled", 4), ("gathered", 4), ("single", 2)],
)
def test_every_further_head_keeps_its_softmax(kernel: LossKernel, kept: float) -> None:
    """In fp32, or 16-bit logits; a loss in pieces keeps nothing."""
    assert loss(kernel, heads=3, tp=8) - loss(kernel, tp=8) == 2 * kept * 1e9
    assert loss(kernel, heads=3, fused=True) == loss(kernel, fused=True)


def test_the_loss_and_the_backward_pass_of_a_layer_do_not_live_together() -> None:
    """Of the two the larger counts, so that a small vocabulary costs nothing."""

    def total(vocab_size: int, **software: Any) -> tuple[float, float]:
        model = llama(1024, 4, 8, 8, 4096, vocab_size=vocab_size)
        job = Job(sequence_length=4096, global_batch_size=1, software=Software(**software))
        part = estimate(model, cluster(), 1, Plan(), job=job, profile=ideal_profile()).memory[0]
        return part["logits"], part["buffers"]

    assert total(128)[0] == 0
    logits, passing = total(128_000, loss_kernel="single")
    assert logits + passing == pytest.approx(4 * 4096 * 128_000)


def test_ranks_that_gather_the_logits_hold_the_whole_vocabulary() -> None:
    """Llama 13B of Aleph Alpha's layouts, vocabulary 128,000, micro-batch 4, tp 2, every layer recomputed: 16.8 GB.

    Counted in cross_entropy.py and lm_head.py: fp32 logarithms of the softmax, the zeros that their gradient is written
    to and the gradient of the fp32 copy (12 bytes per logit), and 16-bit logits of this micro-batch and the one before
    (4 bytes) in the pipeline's buffers.
    """
    model = llama(5120, 2, 40, 40, 13824, vocab_size=128_000)

    def logits_and_buffers(tp: int, kernel: LossKernel) -> float:
        software = Software(loss_kernel=kernel)
        job = Job(sequence_length=2048, global_batch_size=4, software=software)
        plan = Plan(tp=tp, micro_batch_size=4, recompute="full", sequence_parallel=False)
        whole = estimate(model, cluster(), tp, plan, job=job, profile=ideal_profile())
        (part,) = whole.memory
        return part["logits"] + part["buffers"]

    number = 4 * 2048 * 128_000
    assert 16 * number == pytest.approx(16.8e9, rel=2e-3)
    shared = [logits_and_buffers(tp, "in_place") for tp in (1, 2)]
    assert shared[1] == pytest.approx(shared[0] / 2, rel=0.2)
    for tp in (1, 2):
        assert 12 * number < logits_and_buffers(tp, "gathered") <= 16 * number


@pytest.mark.parametrize(("kernel", "held"), [("gathered", 4.0), ("autograd", 0.0), ("in_place", 0.0)])
def test_buffered_logits_stay_when_layers_run_backward(kernel: LossKernel, held: float) -> None:
    assert held_logit_bytes(Software(loss_kernel=kernel), 1e9, 1) == held * 1e9
    assert held_logit_bytes(Software(loss_kernel=kernel), 1e9, 0) == 0
    assert held_logit_bytes(Software(loss_kernel=kernel, fused_loss=True), 1e9, 1) == 0
