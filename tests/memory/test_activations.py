from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import cluster, gpt, ideal_profile

from shardplan.estimation.estimate import Estimate, estimate_plan
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.profile import load_profile
from shardplan.memory.activations import (
    applied_share,
    backward_set,
    kept_per_microbatch,
    offloaded_share,
    on_device,
    working_set,
)

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


def test_offloaded_activations_leave_two_layers_on_the_device() -> None:
    """One layer in use and one on its way, whatever is in flight."""
    model, b, t = GPT3
    sbh, scores, _ = sizes(model, b)
    kept = activations(model, b, tp=t, pp=8, stage=1, offload="activations")
    assert kept == pytest.approx(2 * sbh * (34 + scores) / t, rel=1e-12)


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
    """Of eight micro-batches of 32 layers half are away, but for the two layers on their way."""
    assert 32 * on_device(8, 32, offloading(16)) == 8 * 16 + 2
    assert 32 * on_device(8, 32, offloading(1)) == 8 * 31 + 1


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
    assert backward_set(others + between, load_profile("hopper")) == pytest.approx(between, rel=0.26)
    assert backward_set(2.0, ideal_profile(backward_gradients=0.25)) == 0.5


def test_a_stage_without_layers_sends_nothing_to_the_host() -> None:
    """A stage of ends alone: no share of its layers is undefined, and nothing is divided by none."""
    job = Job(sequence_length=S, global_batch_size=8)
    away = PlanNumbers.of(Plan(offload="activations", offload_num_layers=2), 1, job)
    assert float(np.asarray(offloaded_share(0, away))) == 1
    assert float(np.asarray(offloaded_share(8, away))) == 0.25
    assert float(np.asarray(on_device(3.0, 8, away))) == 3 * 0.75 + 0.25
    assert float(np.asarray(on_device(3.0, 1, away))) == 1
    assert float(np.asarray(on_device(3.0, 0, away))) == 1


def test_recomputation_brings_a_layer_back_where_there_is_some() -> None:
    assert (working_set(5.0, 1.0), working_set(5.0, 0.0)) == (5, 0)
    assert np.asarray(working_set(5.0, np.array([0.0, 0.5, 1.0]))).tolist() == [0, 5, 5]
