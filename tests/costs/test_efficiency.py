from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import ideal_profile

from shardplan.costs.roofline import attention_efficiency, depth_efficiency, tile_padding
from shardplan.inputs.profile import ProfileGeneration, load_profile

dims = st.integers(1, 100_000)


@given(dims, dims, st.integers(1, 64), st.sampled_from((None, 1, 80, 132, 148)))
def test_padding_is_never_below_the_work(m: int, n: int, count: int, num_cores: int | None) -> None:
    assert tile_padding(m, n, count, num_cores) >= 1 - 1e-12


@given(st.integers(1, 100))
def test_whole_waves_have_no_padding(waves: int) -> None:
    assert tile_padding(128 * 132, 128 * waves, 1, 132) == 1


def test_one_row_too_many_starts_a_wave_of_its_own() -> None:
    """arXiv 2401.14489, section 3: the last wave runs with a few tiles."""
    assert tile_padding(128 * 132 + 1, 128, 1, 132) == pytest.approx(2, rel=1e-3)


def test_a_single_core_sees_tiles_only() -> None:
    assert tile_padding(129, 128, 1, 1) == pytest.approx(256 / 129)


def test_waves_by_hand() -> None:
    """Three products of 2 x 3 tiles on 5 cores are 18 tiles in four waves; unknown parts have 132 cores."""
    assert tile_padding(129, 260, 3, 5) == pytest.approx(4 * 5 * 128**2 / (129 * 260 * 3))
    assert tile_padding(128 * 132, 128, 1, None) == 1
    assert tile_padding(128 * 131, 128, 1, None) == pytest.approx(132 / 131)


def test_large_products_approach_no_padding() -> None:
    assert tile_padding(100_001, 100_001, 1, 132) < 1.01


@given(dims, dims)
def test_padding_of_arrays(m: int, n: int) -> None:
    together = np.asarray(tile_padding(np.array([m, n]), np.array([n, m]), 1, 132))
    assert together.tolist() == [tile_padding(m, n, 1, 132), tile_padding(n, m, 1, 132)]


def test_half_depth_gives_half_the_rate() -> None:
    profile = ideal_profile(matmul_half_depth=80)
    assert depth_efficiency(80, profile) == 0.5
    assert depth_efficiency(160, profile, faster=2) == 0.5
    assert depth_efficiency(1e12, profile) == pytest.approx(1)


@given(dims, dims)
def test_deeper_products_are_never_less_efficient(k: int, more: int) -> None:
    profile = ideal_profile(matmul_half_depth=80)
    assert depth_efficiency(k, profile) <= depth_efficiency(k + more, profile)


def test_attention_efficiency_at_its_reference_points() -> None:
    profile = ideal_profile(attention_efficiency=0.6, attention_half_sequence=500, attention_head_dim_exponent=0.25)
    assert attention_efficiency(128, 500, profile) == pytest.approx(0.3)
    assert attention_efficiency(128, 1e12, profile) == pytest.approx(0.6)
    assert attention_efficiency(8, 1e12, profile) == pytest.approx(0.3)
    assert attention_efficiency(np.array([64, 256]), 1e12, profile) == pytest.approx([0.6 * 0.5**0.25, 0.6])


@pytest.mark.parametrize(
    ("generation", "narrow", "wide"),
    [("ampere", 171, 189), ("hopper", 473, 616), ("hopper", 388, 539), ("blackwell", 759, 1200)],
)
def test_heads_of_64_lose_what_kernels_lose(generation: ProfileGeneration, narrow: float, wide: float) -> None:
    """TFLOP/s at head dimensions 64 and 128, causal, 16K: FlashAttention-2, FlashAttention-3, cuDNN, TensorRT-LLM."""
    profile = load_profile(generation)
    lost = attention_efficiency(64, 16384, profile) / attention_efficiency(128, 16384, profile)
    assert lost == pytest.approx(narrow / wide, rel=0.04)
