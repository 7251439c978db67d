"""The calculator against its page's results and against sums by hand."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import GB, GPT3_175B, LLAMA_70B, accelerator, cluster, deepseek_v3, mixtral, tier
from tests.strategies import models

from shardplan.base.errors import InputError
from shardplan.inputs.job import Job
from shardplan.inputs.layers import MLP, Attention, LatentAttention, Layer
from shardplan.inputs.model import ModelConfig
from shardplan.methods.base import MethodError
from shardplan.methods.calculator.method import FLAWS, Calculator
from shardplan.methods.check import check_file

REFERENCE = Path(__file__).parent / "data" / "calculator.json"
METHOD = Calculator()
CASE: dict[str, Any] = {
    "model": {"params_billions": 70},
    "hardware": {"num_gpus": 64, "memory_per_gpu_gb": 80},
    "training": {"batch_size": 512, "sequence_length": 4096},
}
JOB = Job(sequence_length=4096, global_batch_size=512)


def case(**changes: Any) -> dict[str, Any]:
    """The page's defaults with ``training__batch_size=...`` replaced."""
    changed = copy.deepcopy(CASE)
    for name, value in changes.items():
        part, field = name.split("__")
        changed[part][field] = value
    return changed


def row(answer: Any, tp: int, pp: int) -> dict[str, Any]:
    found: dict[str, Any] = next(r for r in answer["rows"] if (r["tp"], r["pp"]) == (tp, pp))
    return found


def test_the_results_of_the_page_are_met_to_rounding() -> None:
    checked = check_file(REFERENCE, [METHOD])
    assert checked.passed
    assert (checked.method, len(checked.cases), checked.worst_at_zero) == ("calculator", 3, 0.0)
    assert checked.num_values > 400
    assert checked.worst_relative < 1e-15


def test_the_recommendation_is_a_deep_pipeline_as_on_the_page() -> None:
    answer = METHOD.answer(CASE)
    assert answer["recommended"] == {"tp": 2, "pp": 16, "dp": 2}
    assert [reason.split(":")[0] for reason in answer["reasons"][:3]] == ["tp 2", "pp 16", "dp 2"]
    assert METHOD.answer(case(hardware__num_gpus=1))["recommended"] is None
    assert "nothing" in METHOD.answer(case(hardware__num_gpus=1))["reasons"][0]


def test_memory_is_weights_gradients_states_and_activations() -> None:
    h, layers, parameters = 1024, 24, 24 * 12 * 1024**2 + 5000 * 1024
    answer = METHOD.answer(
        case(
            model__hidden_size=h,
            model__num_layers=layers,
            model__vocab_size=5000,
            training__batch_size=64,
            training__sequence_length=512,
        )
    )
    assert answer["model_memory_gb"]["param_count"] == parameters
    tp, pp, dp = 4, 2, 8
    sequences = 64 // (64 // pp)
    activations = 10 * sequences * 512 * h // tp * (layers // pp) * 2
    expected = parameters / (tp * pp) * (2 + 2 + 8 / dp) + activations
    assert row(answer, tp, pp)["memory_per_gpu"] == pytest.approx(expected / 1e9, rel=1e-12)
    traffic = row(answer, tp, pp)["communication"]
    batch = 64 * 512 * h * 2 / 1e9
    assert traffic["tp_per_step_gb"] == pytest.approx(4 * batch * 3 / 4 * layers / pp, rel=1e-12)
    assert traffic["pp_per_step_gb"] == pytest.approx(2 * batch, rel=1e-12)
    assert traffic["dp_per_step_gb"] == pytest.approx(2 * 70 / pp * 2 * 7 / 8, rel=1e-12)
    assert traffic["total_gb"] == pytest.approx(sum(traffic[f"{name}_per_step_gb"] for name in ("tp", "pp", "dp")))


def test_bubble_and_microbatches_are_those_of_gpipe() -> None:
    found = row(METHOD.answer(CASE), 2, 16)
    assert found["num_microbatches"] == 512 // 2
    assert found["bubble_fraction"] == pytest.approx(15 / (256 + 15))
    assert row(METHOD.answer(CASE), 8, 1)["bubble_fraction"] == 0.0
    given_count = row(METHOD.answer(case(training__num_microbatches=4)), 1, 4)
    assert (given_count["num_microbatches"], given_count["bubble_fraction"]) == (4, pytest.approx(3 / 7))


def test_experts_multiply_the_mlp_and_bring_the_hint() -> None:
    dense, sparse = METHOD.answer(CASE), METHOD.answer(case(model__is_moe=True, model__num_experts=64))
    mlp = 80 * 8 * 8192**2
    assert sparse["model_memory_gb"]["param_count"] - dense["model_memory_gb"]["param_count"] == 63 * mlp
    assert dense["expert_parallelism"] is None
    assert (sparse["expert_parallelism"]["ep"], sparse["expert_parallelism"]["experts_per_gpu"]) == (8, 8)


@given(st.integers(1, 5000), st.integers(1, 64))
def test_every_configuration_that_the_page_tries_is_there_once(num_gpus: int, gpus_per_node: int) -> None:
    answer = METHOD.answer(case(hardware__num_gpus=num_gpus, hardware__gpus_per_node=gpus_per_node))
    expected = [
        (tp, pp, num_gpus // (tp * pp))
        for tp in (1, 2, 4, 8)
        for pp in (1, 2, 4, 8, 16)
        if tp <= gpus_per_node and tp * pp <= num_gpus
    ]
    assert [(r["tp"], r["pp"], r["dp"]) for r in answer["rows"]] == expected


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"training__batch_size": 0}, "training.batch_size"),
        ({"training__batch_size": 8}, "training.batch_size"),  # pipelines of 16: the page's code divides by zero
        ({"training__batch_size": 10**30}, "training.batch_size"),
        ({"training__batch_size": True}, "training.batch_size"),
        ({"training__sequence_length": 4096.5}, "training.sequence_length"),
        ({"model__params_billions": float("nan")}, "model.params_billions"),
        ({"model__params_billions": "70"}, "model.params_billions"),
        ({"model__hidden_sise": 8192}, "hidden_size"),
        ({"hardware__memory_per_gpu_gb": -1}, "hardware.memory_per_gpu_gb"),
        ({"hardware__num_gpus": None}, "hardware.num_gpus"),
    ],
)
def test_wrong_fields_are_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError) as caught:
        METHOD.answer(case(**changes))
    assert named in caught.value.message + caught.value.hint
    assert caught.value.rule


def test_a_whole_number_may_be_written_as_a_float() -> None:
    assert METHOD.answer(case(hardware__num_gpus=64.0, training__batch_size=5.12e2)) == METHOD.answer(CASE)


@pytest.mark.parametrize("wrong", [None, [], "case", {"hardware": {}}, {"model": 3}])
def test_what_is_no_case_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError):
        METHOD.answer(wrong)


def test_other_files_are_not_its_own() -> None:
    for text in ("", "strategy,model\n1d,gpt", "[1]", "{}", '{"cases": [{"cluster": {}}]}', "{" * 100_000):
        assert METHOD.cases(text) is None
    broken = METHOD.cases(json.dumps({"cases": [CASE, 3]}))
    assert broken is not None
    with pytest.raises(InputError):
        list(broken)


def test_a_question_keeps_its_weights_and_lists_what_is_lost() -> None:
    answer = METHOD.plan(GPT3_175B, cluster(), 1024, JOB, top=3)
    assert len(answer.rows) == 3
    assert answer.rows[0].fits
    assert answer.rows[0].step_time is None  # it predicts none
    assert answer.rows[0].parts["num_microbatches"] == 512 // answer.rows[0].degrees["dp"]
    assert "174.6 billion parameters stated, 174.6 counted" in answer.mapped
    assert any("links" in line for line in answer.ignored)
    flaws = {flaw.text for flaw in FLAWS if flaw.ours}
    assert flaws <= set(answer.notes)


def test_experts_of_a_question_have_as_many_weights_as_the_model() -> None:
    model = mixtral()
    line = METHOD.plan(model, cluster(), 256, JOB).mapped[0]
    mlp = 32 * 8 * 3 * 4096 * 14336
    counted = mlp + 32 * 4 * 4096**2 + 32000 * 4096
    assert line.endswith(f"{counted / 1e9:.4g} counted")


def test_accelerators_left_over_and_nothing_that_fits_are_said() -> None:
    notes = METHOD.plan(LLAMA_70B, cluster(part=accelerator(memory_bytes=20 * GB)), 24, JOB).notes
    assert any("nothing fits" in note for note in notes)
    assert any("uses 16 of 24 accelerators" in note for note in notes)


def test_a_question_it_cannot_speak_of_is_refused_with_the_reason() -> None:
    without_attention = Layer(mixer=None, mlp=MLP(intermediate_size=1024, gated=True), num_norms=1)
    hybrid = replace(LLAMA_70B, layers=(*LLAMA_70B.layers[:-1], without_attention))
    with pytest.raises(MethodError, match="without attention"):
        METHOD.plan(hybrid, cluster(), 64, JOB)
    with pytest.raises(MethodError, match="batch_size is 2"):
        METHOD.plan(LLAMA_70B, cluster(), 64, Job(sequence_length=4096, global_batch_size=2))


@given(models(), st.sampled_from((1, 6, 24, 128)))
def test_every_model_of_attention_is_answered(model: ModelConfig, num_accelerators: int) -> None:
    two_tiers = cluster(tier("rack", 72, 900), tier("network", None, 50))
    if not all(isinstance(kind.mixer, Attention | LatentAttention) for kind in model.layer_kinds):
        with pytest.raises(MethodError, match="without attention"):
            METHOD.plan(model, two_tiers, num_accelerators, JOB)
        return
    rows = METHOD.plan(model, two_tiers, num_accelerators, JOB).rows
    assert all(found.memory_bytes is not None and found.memory_bytes > 0 for found in rows)


def test_latent_attention_and_shared_experts_are_mapped() -> None:
    answer = METHOD.plan(deepseek_v3(), cluster(), 2048, JOB)
    assert "671 billion parameters stated" in answer.mapped[0]
