"""A question put with a framework, and what is told of it."""

from __future__ import annotations

import pytest
from tests.examples import LLAMA_70B, cluster

from shardplan.estimation.question import put_question


@pytest.mark.parametrize(("stack", "dtype"), [("megatron-lm", "fp32"), ("maxtext", "bf16")])
def test_what_a_framework_states_of_a_job_is_not_told_as_a_default_too(stack: str, dtype: str) -> None:
    put = put_question(LLAMA_70B, cluster(), 64, {}, software={}, stack=stack, profile=None)
    (defaults,) = (line for line in put.assumptions if line.startswith("job fields at their defaults"))
    (of_stack,) = (line for line in put.assumptions if line.startswith(f"stack {stack}"))
    assert f"grad dtype {dtype}" in of_stack
    assert put.question.job.grad_dtype == dtype
    assert "grad_dtype" not in defaults
    assert "attention" not in defaults


def test_without_a_framework_all_that_is_not_given_is_told() -> None:
    put = put_question(LLAMA_70B, cluster(), 64, {"precision": "bf16"}, software={}, stack=None, profile=None)
    (defaults,) = (line for line in put.assumptions if line.startswith("job fields at their defaults"))
    assert "grad_dtype" in defaults
    assert "precision" not in defaults
