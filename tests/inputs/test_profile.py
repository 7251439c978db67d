from __future__ import annotations

import math
from dataclasses import fields
from typing import get_args

import pytest

from shardplan.inputs import profile as profile_module
from shardplan.inputs.cluster import Generation
from shardplan.inputs.profile import Profile, load_profile

GENERATIONS = get_args(Generation)
SHARES = (
    "hidden_tp", "hidden_tp_overlapped", "cp_window", "hidden_ep_overlapped", "hidden_pp",
    "hidden_offload", "hidden_slowdown", "dp_window", "fsdp_window", "matmul_wave_weight", "fragmentation",
    "fragmentation_when_full",
)  # fmt: skip
FRACTIONS = (
    "grouped_matmul_efficiency", "misaligned_matmul_efficiency", "attention_efficiency", "unfused_attention_efficiency",
    "memory_efficiency", "host_link_efficiency", "all_to_all_efficiency",
)  # fmt: skip


def numbers(profile: Profile) -> dict[str, float]:
    """Every constant of a profile that is one number."""
    values = {field.name: getattr(profile, field.name) for field in fields(profile)}
    return {name: value for name, value in values.items() if isinstance(value, (int, float))}


@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_generation_has_a_profile(generation: str) -> None:
    profile = load_profile(generation)
    assert profile.name == generation
    for name, value in numbers(profile).items():
        assert math.isfinite(value), name
        assert value >= 0, name


@pytest.mark.parametrize("generation", GENERATIONS)
def test_fractions_are_fractions(generation: str) -> None:
    profile = load_profile(generation)
    for name in SHARES:
        assert 0 <= getattr(profile, name) <= 1, name
    for name in FRACTIONS:
        assert 0 < getattr(profile, name) <= 1, name
    for table in (profile.matmul_efficiency, profile.network_efficiency):
        assert all(0 < value <= 1 for value in table.values())
    assert "other" in profile.network_efficiency


@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_constant_has_unit_and_source(generation: str) -> None:
    profile = load_profile(generation)
    names = {field.name for field in fields(Profile)} - {"name", "constants"}
    assert set(profile.constants) == names
    for name, constant in profile.constants.items():
        assert constant.unit, name
        assert constant.source, name


def test_files_are_named_after_generations() -> None:
    names = {path.stem for path in profile_module.PROFILES.glob("*.yaml")}
    assert names - {"default"} <= set(GENERATIONS)


def test_a_generation_replaces_single_entries_of_a_table() -> None:
    default, hopper = load_profile("other"), load_profile("hopper")
    assert hopper.matmul_efficiency["bf16"] != default.matmul_efficiency["bf16"]
    assert hopper.matmul_efficiency["nvfp4"] == default.matmul_efficiency["nvfp4"]
