from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardplan.base.errors import InputError, UnknownNameError
from shardplan.inputs.job import PRECISIONS, Job, recipe_of

VALID: dict[str, Any] = {"sequence_length": 4096, "global_batch_size": 1024}

hostile_counts = st.one_of(
    st.integers(max_value=0), st.integers(min_value=2**31 + 1), st.floats(), st.booleans(), st.text(max_size=5),
    st.none(), st.lists(st.integers(), max_size=2), st.just(10**400), st.complex_numbers(), st.binary(max_size=3),
)  # fmt: skip


def job(**changes: Any) -> Job:
    return Job(**(VALID | changes))


@given(st.sampled_from(("sequence_length", "global_batch_size")), hostile_counts)
def test_refuses_what_is_not_a_count(field: str, value: object) -> None:
    with pytest.raises(InputError) as refusal:
        job(**{field: value})
    assert field in refusal.value.message
    assert f"--{field.replace('_', '-')}" in refusal.value.hint


@pytest.mark.parametrize("field", ["precision", "optimizer", "attention", "grad_dtype", "moment_dtype"])
@pytest.mark.parametrize("value", ["", "BF16!", None, 3, 3.5, math.nan, True, ["bf16"], {"adam": 1}, b"adam"])
def test_refuses_unknown_choices_and_names_the_known_ones(field: str, value: object) -> None:
    with pytest.raises(InputError) as refusal:
        job(**{field: value})
    assert field in refusal.value.message
    assert refusal.value.hint


WRONG: dict[str, tuple[Any, ...]] = {
    "tokens": (0, -1.0, math.nan, math.inf, -math.inf, 2e18, True, "many", [1], 10**17 * 100),
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in WRONG.items() for value in values])
def test_refuses_numbers_beyond_their_bounds(field: str, value: Any) -> None:
    with pytest.raises(InputError, match=field):
        job(**{field: value})


def test_misspelt_precision_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean bf16"):
        job(precision="bf61")


@pytest.mark.parametrize("name", [None, 3, [], "fp7"])
def test_recipe_of_unknown_name(name: Any) -> None:
    with pytest.raises(UnknownNameError):
        recipe_of(name)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_adam_in_mixed_precision_keeps_twelve_bytes(precision: Any) -> None:
    """ZeRO (arXiv 1910.02054), section 3.1: K = 12 of fp32 master, momentum and variance."""
    assert job(precision=precision).optimizer_bytes == 12


def test_bytes_per_parameter_of_published_recipes() -> None:
    """ZeRO section 3.1: 16 with 16-bit gradients; Megatron-LM keeps gradients in fp32: 18 (arXiv 2205.05198's code)."""
    assert job(grad_dtype="bf16").recipe.weight_bytes + job(grad_dtype="bf16").grad_bytes + job().optimizer_bytes == 16
    assert job().recipe.weight_bytes + job().grad_bytes + job().optimizer_bytes == 18


def test_full_precision_needs_no_master_copy() -> None:
    plain = job(precision="fp32")
    assert plain.recipe.weight_bytes + plain.grad_bytes + plain.optimizer_bytes == 16
    assert plain.recipe.master_bytes == 0


def test_moments_by_optimizer_and_dtype() -> None:
    assert job(optimizer="sgd").optimizer_bytes == 8
    assert job(optimizer="muon").optimizer_bytes == 8
    assert job(moment_dtype="bf16").optimizer_bytes == 8  # DeepSeek-V3, arXiv 2412.19437, section 3.3.3


def test_every_recipe_is_consistent() -> None:
    for name, recipe in PRECISIONS.items():
        assert recipe.weight_bytes > 0, name
        assert recipe.linear_input_bytes <= recipe.activation_bytes, name
        assert recipe.weight_bytes + recipe.master_bytes >= 4, f"{name}: fp32 values are kept somewhere"


def test_tokens_per_step() -> None:
    assert job().tokens_per_step == 4096 * 1024
