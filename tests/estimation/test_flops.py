from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import GPT3_175B, LLAMA_70B, LLAMA_405B, cluster, deepseek_v3, gpt, ideal_profile, mixtral
from tests.strategies import Case, cases, models

from shardplan.estimation.charge import FLOPS_CONVENTION, model_flops_per_token
from shardplan.estimation.estimate import Estimate, estimate_plan
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.readers.catalog import load_model

MEGATRON = [(6144, 48, 64), (12288, 96, 96), (20480, 105, 128), (25600, 128, 160)]
V = 51200


@pytest.mark.parametrize(("h", "l", "heads"), MEGATRON)
def test_forward_and_backward_flop_of_a_gpt(h: int, l: int, heads: int) -> None:  # noqa: E741  # letters of the paper
    """72 B s l h^2 (1 + s / 6 h + V / 12 l h), all keys counted (arXiv 2205.05198, appendix A)."""
    for s in 1024, 2048, 8192:
        expected = 72 * l * h**2 * (1 + s / (6 * h) + V / (12 * l * h))
        assert model_flops_per_token(gpt(h, l, heads, causal=False), s) == pytest.approx(expected, rel=1e-12)
        half = 72 * l * h**2 * (1 + s / (12 * h) + V / (12 * l * h))
        assert model_flops_per_token(gpt(h, l, heads), s) == pytest.approx(half, rel=1e-12)


@pytest.mark.parametrize("model", [GPT3_175B, LLAMA_70B, LLAMA_405B, mixtral()], ids=["gpt3", "70b", "405b", "mixtral"])
@pytest.mark.parametrize("s", [2048, 8192])
def test_six_flop_per_weight_and_twelve_per_key(model: ModelConfig, s: int) -> None:
    """6 N + 12 L H Q T (PaLM, arXiv 2204.02311, appendix B), the second term halved under a causal mask.

    N: active weights of matrix products, so without the input table, norms and biases.
    """
    h, layers = model.hidden_size, model.num_hidden_layers
    mixer: Any = model.layers[0].mixer
    norms_and_biases = model.norm_parameters * (2 * layers + 1)
    if mixer.qkv_bias:
        norms_and_biases += layers * (3 * h + h + 4 * h + h)
    weights = model.num_active_parameters_without_input_embedding - norms_and_biases
    expected = 6 * weights + 6 * layers * mixer.num_heads * mixer.head_dim * s
    assert model_flops_per_token(model, s) == pytest.approx(expected, rel=1e-12)


def test_compute_of_llama_405b() -> None:
    """3.8e25 FLOP on 15.6 T tokens (arXiv 2407.21783, section 1), which is 6 N D without attention."""
    assert model_flops_per_token(LLAMA_405B, 8192) * 15.6e12 == pytest.approx(3.8e25, rel=0.06)


@pytest.mark.parametrize(("model", "gigaflop"), [(deepseek_v3(), 250), (LLAMA_405B, 2448)], ids=["v3", "405b"])
def test_published_cost_per_token(model: ModelConfig, gigaflop: float) -> None:
    """Table 2 of arXiv 2505.09343: training cost per token at 4,096 tokens."""
    assert model_flops_per_token(model, 4096) / 1e9 == pytest.approx(gigaflop, rel=0.015)


def test_prediction_blocks_are_counted() -> None:
    """One more layer, its projection and the head once more (DeepSeek-V3, arXiv 2412.19437, section 2.2)."""
    without, one, two = (model_flops_per_token(deepseek_v3(num_mtp_layers=count), 4096) for count in (0, 1, 2))
    assert two - one == pytest.approx(one - without)
    per_layer = model_flops_per_token(deepseek_v3(62), 4096) - model_flops_per_token(deepseek_v3(61), 4096)
    assert one - without == pytest.approx(per_layer + 6 * 7168 * 129280 + 6 * 2 * 7168**2)


@given(models(), st.integers(1, 65536))
def test_longer_sequences_cost_more_per_token(model: ModelConfig, length: int) -> None:
    assert model_flops_per_token(model, length) <= model_flops_per_token(model, length + 1) * (1 + 1e-12)


def test_the_convention_is_named() -> None:
    for word in ("forward and backward", "2 FLOP", "causal", "no recomputation"):
        assert word in FLOPS_CONVENTION


def estimated(model: ModelConfig, plan: Plan, num_accelerators: int, **job_fields: Any) -> Estimate:
    job = Job(sequence_length=2048, global_batch_size=64, **job_fields)
    question = Question(
        model=model, cluster=cluster(), num_accelerators=num_accelerators, job=job, given_profile=ideal_profile()
    )
    return estimate_plan(question, plan)


@pytest.mark.parametrize(("h", "l", "heads"), MEGATRON)
def test_full_recomputation_repeats_the_layers_and_not_the_head(h: int, l: int, heads: int) -> None:  # noqa: E741  # letters of the paper
    """96 B s l h^2 (1 + s / 6 h + V / 16 l h) (arXiv 2104.04473, appendix)."""
    s, pp = 2048, 5 if l == 105 else 8
    answer = estimated(gpt(h, l, heads, causal=False), Plan(tp=8, pp=pp, recompute="full"), 8 * pp)
    executed = 96 * l * h**2 * (1 + s / (6 * h) + V / (16 * l * h))
    assert answer.hfu * answer.step_time * 8 * pp * answer.peak_flops == pytest.approx(64 * s * executed, rel=1e-12)


@pytest.mark.parametrize(("h", "l", "heads"), MEGATRON)
def test_selective_recomputation_repeats_the_core(h: int, l: int, heads: int) -> None:  # noqa: E741  # letters of the paper
    """Its forward pass is a third of the term s / 6 h of the model FLOP (arXiv 2205.05198, appendix A)."""
    s, pp = 2048, 5 if l == 105 else 8
    answer = estimated(gpt(h, l, heads, causal=False), Plan(tp=8, pp=pp, recompute="selective"), 8 * pp)
    executed = 72 * l * h**2 * (1 + s / (6 * h) * 4 / 3 + V / (12 * l * h))
    assert answer.hfu * answer.step_time * 8 * pp * answer.peak_flops == pytest.approx(64 * s * executed, rel=1e-12)


@pytest.mark.parametrize(
    ("model", "plan"),
    [
        (LLAMA_70B, Plan(tp=8, pp=4, vp=5, cp=2)),
        (mixtral(), Plan(tp=2, pp=4, ep=8)),
        (deepseek_v3(num_mtp_layers=1), Plan(tp=4, pp=4, ep=16)),
    ],
    ids=["dense", "mixture", "latent"],
)
def test_hardware_does_the_model_flop_once_where_nothing_is_repeated(model: ModelConfig, plan: Plan) -> None:
    answer = estimated(model, plan, 64)
    assert answer.hfu == pytest.approx(answer.mfu, rel=1e-12)


@given(cases())
def test_hardware_never_does_less_than_the_model_asks(case: Case) -> None:
    answer = estimate_plan(case.question, case.plan)
    assert answer.hfu >= answer.mfu * (1 - 1e-12)
    more = estimate_plan(case.question, replace(case.plan, recompute="full", recompute_num_layers=None))
    assert more.hfu * more.step_time >= answer.hfu * answer.step_time * (1 - 1e-12)


@pytest.mark.parametrize("layers", [0, 1, 3, 10])
def test_recomputation_of_some_layers_repeats_their_share(layers: int) -> None:
    """Of ten layers on each of four stages the forward pass of some runs again: a third of their model FLOP."""
    s, h, pp = 2048, 6144, 4
    model = gpt(h, 40, 64, causal=False)
    none, some = (
        estimated(model, Plan(tp=8, pp=pp, recompute=policy, recompute_num_layers=layers), 8 * pp)
        for policy in ("none", "full")
    )
    of_layers = 72 * 40 * h**2 * (1 + s / (6 * h))
    repeated = (some.hfu * some.step_time - none.hfu * none.step_time) * 8 * pp * some.peak_flops
    assert repeated == pytest.approx(64 * s * of_layers / 3 * layers / 10, rel=1e-9, abs=1)
    assert none.hfu == pytest.approx(none.mfu, rel=1e-12)


def test_an_image_takes_the_flop_of_its_patches_layers_and_class() -> None:
    """Three times 2 FLOP for a weight and token, and the scores of all tokens (arXiv 2010.11929, table 1: ViT-B/16)."""
    model = load_model("vit-b-16")
    s, h, layers = 197, 768, 12
    forward = layers * (24 * s * h**2 + 4 * s**2 * h) + 2 * s * 3 * 16**2 * h + 2 * h * model.num_labels
    assert model_flops_per_token(model, s) * s == pytest.approx(3 * forward, rel=1e-12)
