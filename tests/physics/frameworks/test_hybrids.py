"""Pipelines of hybrids in Megatron's letters, and models without blocks of multi-token prediction."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardplan import load_cluster, load_model, search
from shardplan.estimation.question import posed_question
from shardplan.inputs.job import Job
from shardplan.inputs.layers import MLP, Attention
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import Setting
from shardplan.physics.frameworks.options import options_of
from shardplan.physics.frameworks.stack import load_stack
from shardplan.physics.frameworks.stage_layers import hybrid_pattern, is_hybrid
from shardplan.physics.frameworks.usual_stack import without_prediction_blocks


@pytest.mark.parametrize(("pp", "vp"), [(2, 1), (4, 1), (4, 2)])
def test_a_hybrids_pattern_has_its_layers_and_a_bar_between_virtual_stages(pp: int, vp: int) -> None:
    model, stack = load_model("nemotron-h-56b"), load_stack("megatron-lm")
    job = Job(sequence_length=4096, global_batch_size=512, **stack.job_fields("bf16"))
    setting = Setting.of(model, load_cluster("dgx-h100"), 64, job)
    found = options_of(stack, setting, Plan(tp=8, pp=pp, vp=vp))
    assert found is not None
    (option,) = (each for each in found.options if "hybrid-layer-pattern" in each)
    pattern = option.split("'")[1]
    assert len(pattern.split("|")) == pp * vp
    letters = pattern.replace("|", "")
    assert len(letters) == model.num_hidden_layers
    for layer, letter in zip(model.layers, letters, strict=True):
        expected = "-" if isinstance(layer.mlp, MLP) else "*" if isinstance(layer.mixer, Attention) else "M"
        assert letter == expected
    assert not any("layout" in each or "virtual" in each for each in found.options)
    assert found.unsaid == ()


def test_prediction_blocks_of_a_hybrid_follow_its_layers() -> None:
    model = load_model("nemotron-h-56b")
    attention = next(layer for layer in model.layers if isinstance(layer.mixer, Attention))
    predicting = replace(model, num_mtp_layers=2, mtp_block=attention)
    counts = (60, model.num_hidden_layers - 60)
    assert hybrid_pattern(predicting, counts) == hybrid_pattern(model, counts) + "/*/*"


@pytest.mark.parametrize("name", ["llama-3.1-8b", "deepseek-v3", "qwen3-30b-a3b"])
def test_models_without_mamba_are_no_hybrids(name: str) -> None:
    assert not is_hybrid(load_model(name))


def test_a_framework_without_prediction_blocks_trains_the_model_without_them() -> None:
    model = load_model("deepseek-v3")
    bare, said = without_prediction_blocks(model, load_stack("nemo-automodel"))
    assert (bare.num_mtp_layers, bare.num_parameters) == (0, model.num_parameters)
    assert said == ("nemo-automodel has no multi-token-prediction: deepseek-v3 is trained without its block",)
    for other in (
        None,
        load_stack("megatron-lm"),
        load_stack("llm-foundry"),
    ):  # the last has no latent attention either
        assert without_prediction_blocks(model, other) == (model, ())
    assert without_prediction_blocks(bare, load_stack("nemo-automodel")) == (bare, ())


def test_a_question_is_put_for_the_model_that_the_framework_trains() -> None:
    posed = posed_question(
        load_model("deepseek-v3"), load_cluster("dgx-h100"), 512, {}, software={}, stack="nemo-automodel", profile=None
    )
    assert posed.question.model.num_mtp_layers == 0
    assert any("without its block" in each for each in posed.assumptions)


def test_a_search_answers_without_prediction_blocks() -> None:
    found = search(
        "deepseek-v3", "dgx-h100", 512, stack="nemo-automodel", global_batch_size=4096, sequence_length=4096,
        fix={"tp": 1, "pp": 8, "micro_batch_size": 1},
    )  # fmt: skip
    assert found.fastest is not None
