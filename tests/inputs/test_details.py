"""Details of a model: what its file states, under any spelling, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shardplan import load_model
from shardplan.inputs.model import ModelDetails
from shardplan.inputs.readers.hf.config import details_of


def test_a_built_in_model_has_those_of_its_file() -> None:
    found = load_model("deepseek-v3").details
    assert (found.rope_theta, found.norm_eps, found.hidden_act) == (10000, 1e-6, "silu")
    assert (found.scoring_func, found.routed_scaling_factor, found.scaling_kind) == ("sigmoid", 2.5, "yarn")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"rope_theta": 5e5, "rms_norm_eps": 1e-5}, {"rope_theta": 5e5, "norm_eps": 1e-5}),
        ({"rotary_emb_base": 10000, "rotary_pct": 0.25}, {"rope_theta": 1e4, "partial_rotary_factor": 0.25}),
        ({"layer_norm_epsilon": 1e-5, "activation_function": "gelu_new"}, {"norm_eps": 1e-5, "hidden_act": "gelu_new"}),
        ({"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}, {"rope_theta": 1e6}),
        ({"rope_theta": "large", "rms_norm_eps": -1, "hidden_act": 3, "initializer_range": True}, {}),
        ({"rope_scaling": None, "rms_norm_eps": float("nan"), "rope_theta": 10**400}, {}),
        ({}, {}),
    ],
)
def test_names_and_values(values: dict[str, Any], expected: dict[str, Any]) -> None:
    assert details_of(values) == ModelDetails(**expected)


def test_no_answer_depends_on_them() -> None:
    model = load_model("llama-3.1-8b")
    other = replace(model, details=ModelDetails(rope_theta=1.0))
    assert other == model
    assert hash(other) == hash(model)
