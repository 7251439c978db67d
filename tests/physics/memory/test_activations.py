"""Activations and the loss of a rank, on the device and offloaded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import GB, cluster, gpt, ideal_profile, llama

from shardplan import estimate
from shardplan.estimation.estimate import Estimate, estimate_plan
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.layers import Attention
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.profile import load_profile
from shardplan.inputs.software import LossKernel, Software
from shardplan.physics.memory import (
    applied_share,
    backward_set,
    held_logit_bytes,
    kept_per_microbatch,
    loss_bytes,
    mask_bytes,
    offloaded_share,
    on_device,
    working_set,
)
from shardplan.physics.workload.attention import attention
from shardplan.physics.workload.communication import Shard
from shardplan.planner.search import search_question

# Korthikanti et al., arXiv 2205.05198: models of table 3 (hidden size, layers, heads, micro-batch, tensor degree).
GPT_22B = (gpt(6144, 48, 64), 4, 8)
GPT3 = (gpt(12288, 96, 96), 1, 8)
MT_NLG = (gpt(20480, 105, 128), 1, 8)
GPT_1T = (gpt(25600, 128, 160), 1, 8)
MODELS = pytest.mark.parametrize(
    ("model", "b", "t"), [GPT_22B, GPT3, MT_NLG, GPT_1T], ids=["22B", "175B", "530B", "1T"]
)
S = 2048


def estimated(
    model: ModelConfig, b: int, *, num_microbatches: int = 1024, dropout: bool = True, **fields: Any
) -> Estimate:
    plan = Plan(micro_batch_size=b, **fields)
    job = Job(sequence_length=S, global_batch_size=num_microbatches * b, attention="unfused", dropout=dropout)
    question = Question(
        model=model, cluster=cluster(), num_accelerators=plan.model_parallel_degree, job=job,
        given_profile=ideal_profile(),
    )  # fmt: skip
    return estimate_plan(question, plan)


def activations(model: ModelConfig, b: int, *, stage: int = 0, **fields: Any) -> float:
    return estimated(model, b, **fields).memory[stage]["activations"]


def depth(model: ModelConfig) -> int:
    """A number of stages that divides the layers."""
    return next(p for p in (8, 5) if model.num_hidden_layers % p == 0)


def sizes(model: ModelConfig, b: int) -> tuple[float, float, int]:
    """s b h, 5 a s / h and L of the paper."""
    mixer: Any = model.layers[0].mixer
    h = model.hidden_size
    return float(S * b * h), 5 * mixer.num_heads * S / h, model.num_hidden_layers


@MODELS
def test_one_layer_under_every_policy(model: ModelConfig, b: int, t: int) -> None:
    """Table 2. The second of p stages keeps p - 1 micro-batches of L / p layers; a layer recomputed is whole once."""
    sbh, scores, layers = sizes(model, b)
    pp = depth(model)
    rows: list[tuple[dict[str, Any], float, float]] = [
        ({"sequence_parallel": False}, 10 + 24 / t + scores / t, 0.0),
        ({}, 34 / t + scores / t, 0.0),
        ({"sequence_parallel": False, "recompute": "selective"}, 10 + 24 / t, scores / t),
        ({"recompute": "selective"}, 34 / t, scores / t),
        ({"sequence_parallel": False, "recompute": "full"}, 2.0, 8 + 24 / t + scores / t),
    ]
    for fields, per_layer, working in rows:
        expected = sbh * ((pp - 1) * layers / pp * per_layer + working)
        assert activations(model, b, tp=t, pp=pp, stage=1, **fields) == pytest.approx(expected, rel=1e-12)


@MODELS
def test_the_first_stage_keeps_the_activations_of_all_layers(model: ModelConfig, b: int, t: int) -> None:
    """Equation 5: p micro-batches of L / p layers are L layers. Without dropout 2 s b h + 3 a s^2 b are less."""
    sbh, scores, layers = sizes(model, b)
    expected = sbh * layers * (32 + 2 / 5 * scores) / t
    assert activations(model, b, tp=t, pp=depth(model), dropout=False) == pytest.approx(expected, rel=1e-12)


@MODELS
def test_the_last_stage_keeps_inputs_of_the_final_norm_and_the_head(model: ModelConfig, b: int, t: int) -> None:
    """Section 4.3: 4 s b h / t besides its L / p layers (the logits stand apart)."""
    sbh, scores, layers = sizes(model, b)
    pp = depth(model)
    expected = sbh / t * (layers / pp * (32 + 2 / 5 * scores) + 4)
    assert activations(model, b, tp=t, pp=pp, dropout=False, stage=pp - 1) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("pp", "vp"), [(8, 3), (16, 2), (4, 6)])
def test_interleaving_keeps_more(pp: int, vp: int) -> None:
    """Equation 6: 1 + (p - 1) / (p v) times as much on the first stage."""
    model, b, t = GPT3
    plain = activations(model, b, tp=t, pp=pp)
    assert activations(model, b, tp=t, pp=pp, vp=vp) == pytest.approx(plain * (1 + (pp - 1) / (pp * vp)), rel=1e-12)


@pytest.mark.parametrize(("case", "saving"), [(GPT3, 0.70), (MT_NLG, 0.65)])
def test_selective_recomputation_saves_what_the_paper_says(case: Any, saving: float) -> None:
    """Section 5: 70 % of GPT-3's activations and 65 % of MT-NLG's."""
    model, b, t = case
    kept = activations(model, b, tp=t, pp=depth(model))
    selective = activations(model, b, tp=t, pp=depth(model), recompute="selective")
    assert 1 - selective / kept == pytest.approx(saving, abs=0.015)


def test_every_micro_batch_is_kept_by_gpipe() -> None:
    model, b, t = GPT3
    one = activations(model, b, tp=t, pp=8, stage=7)
    all_kept = activations(model, b, tp=t, pp=8, stage=7, schedule="gpipe", num_microbatches=32)
    assert all_kept == pytest.approx(32 * one)


def test_recomputing_some_layers() -> None:
    model, b, t = GPT3
    sbh, scores, _ = sizes(model, b)
    whole, full = (34 + scores) / t, 2 / t
    kept = activations(model, b, tp=t, pp=8, stage=1, recompute="full", recompute_num_layers=5)
    assert kept == pytest.approx(sbh * (7 * (7 * whole + 5 * full) + whole - full), rel=1e-12)
    assert activations(model, b, tp=t, pp=8, recompute="full", recompute_num_layers=0) == pytest.approx(
        activations(model, b, tp=t, pp=8)
    )


def test_offloaded_activations_leave_three_layers_on_the_device() -> None:
    """One layer in use, one on its way and the last one, whatever is in flight."""
    model, b, t = GPT3
    sbh, scores, _ = sizes(model, b)
    kept = activations(model, b, tp=t, pp=8, stage=1, offload="activations")
    assert kept == pytest.approx(3 * sbh * (34 + scores) / t, rel=1e-12)


def numbers(num_layers: int | None) -> PlanNumbers:
    return PlanNumbers.of(Plan(recompute_num_layers=num_layers), 1, Job(sequence_length=1, global_batch_size=1))


def test_applied_share() -> None:
    assert applied_share(12, numbers(None)) == 1
    assert applied_share(12, numbers(3)) == 0.25
    assert applied_share(12, numbers(20)) == 1
    assert applied_share(12, numbers(0)) == 0
    assert applied_share(0, numbers(0)) == 0


def offloading(num_layers: int) -> PlanNumbers:
    plan = Plan(offload="activations", offload_num_layers=num_layers)
    return PlanNumbers.of(plan, 1, Job(sequence_length=1, global_batch_size=1))


def test_offloaded_share() -> None:
    assert offloaded_share(12, offloading(3)) == 0.25
    assert offloaded_share(1, offloading(1)) == 1
    assert offloaded_share(12, offloading(20)) == 1
    assert offloaded_share(12, numbers(None)) == 0


def test_what_waits_on_the_host_waits_of_every_micro_batch() -> None:
    """Of 32 layers of eight micro-batches; of all of them two layers on their way and the last."""
    assert 32 * on_device(8, 32, offloading(16)) == 8 * 16
    assert 32 * on_device(8, 32, offloading(32)) == 3
    assert 32 * on_device(8, 32, offloading(1)) == 8 * 31


@given(st.floats(0, 1e12), st.floats(0, 1), st.floats(0, 1))
def test_recomputation_frees_its_share(kept: float, fraction: float, share: float) -> None:
    freed = kept * fraction
    left = kept_per_microbatch(kept, freed, share)
    assert kept - freed <= left * (1 + 1e-12)
    assert left <= kept
    assert kept_per_microbatch(kept, freed, 0.0) == kept


def test_working_set_exists_where_something_is_recomputed() -> None:
    assert np.array_equal(working_set(5.0, np.array([0.0, 0.1, 1.0])), [0, 5, 5])


@pytest.mark.parametrize(
    ("others", "between"), [(12, 3 * 11008 / 4096), (12, 3 * 28672 / 8192), (12, 3 * 53248 / 16384), (6, 2 * 4.0)]
)
def test_gradients_that_live_at_once_are_about_those_between_the_products(others: float, between: float) -> None:
    """Llama 2 7B, Llama 3 70B and 405B, GPT-3, in units of the hidden size: 3 f of 12 + 3 f, 2 f of 6 + 2 f."""
    assert backward_set(others + between, 0.0, load_profile("hopper")) == pytest.approx(between, rel=0.26)
    quarter = ideal_profile(backward_gradients=0.25)
    assert [float(backward_set(2.0, core, quarter)) for core in (0.0, 0.4, 0.6)] == [0.5, 0.5, 0.6]


def test_masks_of_the_batch_are_a_byte_for_each_pair_of_tokens() -> None:
    """Bool masks of Megatron-LM's data loader: (b, 1, s, s), a copy for each model chunk, rows split by cp."""
    job = Job(sequence_length=S, global_batch_size=8, software=Software(dense_masks=True))
    of = PlanNumbers.of(Plan(pp=2, vp=4, cp=2, micro_batch_size=2), 4, job)
    assert mask_bytes(job, of) == 2 * S * S / 2 * 4
    assert mask_bytes(replace(job, software=Software()), of) == 0


@pytest.mark.parametrize(("dropout", "per_score"), [(False, 2.0), (True, 4.0)])
def test_gradients_of_scores_live_at_once(*, dropout: bool, per_score: float) -> None:
    """Softmax turns the gradient of its output into that of its input; dropout makes another in front of it."""
    job = Job(sequence_length=S, global_batch_size=8, attention="unfused", dropout=dropout)
    config = Attention(num_heads=8, num_kv_heads=8, head_dim=16)
    kept = attention(config, Shard.of(128, job, PlanNumbers.of(Plan(), 1, job))).saved
    (scores,) = (tensor for tensor in kept if tensor.name == "scores")
    assert scores.gradients * scores.bytes == pytest.approx(per_score * 8 * S * S)


def test_a_stage_without_layers_sends_nothing_to_the_host() -> None:
    """A stage of ends alone: no share of its layers is undefined, and nothing is divided by none."""
    job = Job(sequence_length=S, global_batch_size=8)
    away = PlanNumbers.of(Plan(offload="activations", offload_num_layers=2), 1, job)
    assert float(np.asarray(offloaded_share(0, away))) == 1
    assert float(np.asarray(offloaded_share(8, away))) == 0.25
    assert float(np.asarray(on_device(3.0, 8, away))) == 3 * 0.75
    assert float(np.asarray(on_device(3.0, 1, away))) == 1
    assert float(np.asarray(on_device(3.0, 0, away))) == 1


def test_recomputation_brings_a_layer_back_where_there_is_some() -> None:
    assert (working_set(5.0, 1.0), working_set(5.0, 0.0)) == (5, 0)
    assert np.asarray(working_set(5.0, np.array([0.0, 0.5, 1.0]))).tolist() == [0, 5, 5]


PER_LOGIT = {
    "in_place": 7.0,
    "autograd": 12.0,
    "loss_parallel": 16.0,
    "compiled": 10.0,
    "gathered": 22.5,
    "gathered_alone": 20.0,
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
        ("gathered", 20, 22.5),
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
    (4 bytes) in the pipeline's buffers. Blocks that the allocator cannot use again come on top.
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
    for tp, blocks in ((1, 4), (2, 6.5)):
        assert 12 * number < logits_and_buffers(tp, "gathered") - blocks * number <= 16 * number


@pytest.mark.parametrize(("kernel", "held"), [("gathered", 4.0), ("autograd", 0.0), ("in_place", 0.0)])
def test_buffered_logits_stay_when_layers_run_backward(kernel: LossKernel, held: float) -> None:
    assert held_logit_bytes(Software(loss_kernel=kernel), 1e9, 1) == held * 1e9
    assert held_logit_bytes(Software(loss_kernel=kernel), 1e9, 0) == 0
    assert held_logit_bytes(Software(loss_kernel=kernel, fused_loss=True), 1e9, 1) == 0


MODEL = llama(4096, 32, 32, 8, 14336)
JOB = Job(sequence_length=4096, global_batch_size=64)


def estimated_with_offload(host_memory: float | None = None, hidden: float = 0.0, **plan: Any) -> Estimate:
    site = replace(cluster(), host_memory_bytes=host_memory)
    profile = ideal_profile(offload_window=hidden)
    return estimate(MODEL, site, 8, Plan(**plan), job=JOB, profile=profile)


def kept(**plan: Any) -> float:
    return estimated_with_offload(**plan).memory[0]["activations"]


def test_every_offloaded_layer_frees_a_layer_but_for_the_last_and_two_on_their_way() -> None:
    """Half of 32 layers leave 16: (L - N) T, as Transformer Engine's ``get_cpu_offload_context`` says."""
    whole = kept()
    assert kept(offload="activations", offload_num_layers=16) == pytest.approx(whole * 16 / 32)
    assert kept(offload="activations", offload_num_layers=31) == pytest.approx(whole * 3 / 32)
    assert kept(offload="activations") == pytest.approx(whole * 3 / 32)
    assert kept(offload="activations", offload_num_layers=32) == kept(offload="activations")
    assert kept(offload="activations", offload_num_layers=0) == whole


@given(st.integers(0, 40))
def test_offloading_more_layers_needs_less_memory_and_more_time(count: int) -> None:
    fewer, more = (estimated_with_offload(offload="activations", offload_num_layers=count + one) for one in (0, 1))
    assert more.peak_memory_bytes <= fewer.peak_memory_bytes * (1 + 1e-12)
    assert more.step_time >= fewer.step_time * (1 - 1e-12)


def test_transfers_of_some_layers_take_their_share_of_the_time() -> None:
    whole, half = (estimated_with_offload(offload="activations", offload_num_layers=count) for count in (32, 16))
    assert half.breakdown["offload"] == pytest.approx(whole.breakdown["offload"] / 2)


@pytest.mark.parametrize(
    ("plan", "what"),
    [
        ({"offload": "activations"}, "activations"),
        ({"offload": "optimizer", "sharding": "ddp"}, "optimizer states"),
    ],
)
def test_a_node_must_hold_what_its_accelerators_offload(plan: dict[str, Any], what: str) -> None:
    free, ample, little = (estimated_with_offload(size, recompute="full", **plan) for size in (None, 5000 * GB, 5 * GB))
    assert free.feasible == ample.feasible is True
    assert not little.feasible
    assert little.reason is not None
    assert f"of {what} for each accelerator in host memory" in little.reason
    assert "in a node of 8 with 5.00 GB" in little.reason


def test_host_memory_is_shared_by_the_accelerators_of_a_node() -> None:
    """Optimizer states and 16-bit or 32-bit gradients of all parameters on every one of eight (ddp)."""
    need = 8 * (12 + 4) * MODEL.num_parameters
    plan: dict[str, Any] = {"offload": "optimizer", "sharding": "ddp", "recompute": "full"}
    assert estimated_with_offload(need * 1.001, **plan).feasible
    assert not estimated_with_offload(need * 0.999, **plan).feasible


def test_a_stated_bandwidth_of_the_host_sets_the_time_of_updates() -> None:
    """Twice the states' and gradients' bytes, on one of eight accelerators that share a node."""
    part = cluster().accelerator
    times = []
    for bandwidth in (320 * GB, 640 * GB):
        site = replace(cluster(part=part), host_memory_bandwidth=bandwidth)
        plan = Plan(offload="optimizer", sharding="ddp")
        answer = estimate(MODEL, site, 8, plan, job=JOB, profile=ideal_profile())
        times.append(answer.breakdown["optimizer"])
    assert times[0] - times[1] == pytest.approx(2 * (12 + 4) * MODEL.num_parameters / (80 * GB))


def test_search_leaves_out_what_the_host_cannot_hold() -> None:
    question = Question(
        model=MODEL, cluster=replace(cluster(), host_memory_bytes=10 * GB), num_accelerators=8, job=JOB,
        given_profile=ideal_profile(),
    )  # fmt: skip
    fix = {"offload": ["optimizer"], "sharding": ["ddp"]}
    assert not search_question(question, fix=fix).num_plans_feasible
