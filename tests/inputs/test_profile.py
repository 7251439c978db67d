from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest

from shardplan.base.errors import InputError, UnknownNameError
from shardplan.inputs import profile as profile_module
from shardplan.inputs.cluster import Generation
from shardplan.inputs.profile import NOT_CONSTANTS, Profile, generations, load_profile, read_profile

GENERATIONS = get_args(Generation)
SHARES = (
    "tp_fill", "tp_window", "cp_window", "ep_window", "pp_window",
    "offload_window", "hidden_slowdown", "dp_window", "fsdp_window", "matmul_wave_weight", "fragmentation",
    "fragmentation_when_full", "backward_gradients",
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
    names = {field.name for field in fields(Profile)} - set(NOT_CONSTANTS)
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


def _own(folder: Path, name: str, value: str) -> Path:
    path = folder / "own.yaml"
    unit = load_profile("hopper").constants[name].unit
    path.write_text(f"generation: hopper\n{name}: {{value: {value}, unit: {unit}, source: a test}}\n")
    return path


@pytest.mark.parametrize(
    ("name", "value", "said", "most"),
    [
        ("matmul_efficiency", "{fp16: 0.7, bf16: 5}", "matmul_efficiency[bf16] is 5", "1.25 (fraction of dense peak)"),
        ("matmul_efficiency", "{bf16: -1}", "matmul_efficiency[bf16] is -1", "1.25 (fraction of dense peak)"),
        ("network_efficiency", "{nvlink: 1.3}", "network_efficiency[nvlink] is 1.3", "1.25 (fraction of nominal"),
        ("attention_efficiency", "1.26", "attention_efficiency is 1.26", "1.25 (fraction of dense peak)"),
        ("memory_efficiency", "0", "memory_efficiency is 0", "1.25 (fraction of memory bandwidth)"),
        ("host_link_efficiency", "2", "host_link_efficiency is 2", "1.25 (fraction)"),
        ("tp_window", "1.1", "tp_window is 1.1", "1"),
        ("step_time", "-1", "step_time is -1", "1e+15"),
    ],
)
def test_a_constant_beyond_its_limit_is_refused_by_name_and_key(
    tmp_path: Path, name: str, value: str, said: str, most: str
) -> None:
    with pytest.raises(InputError) as refused:
        read_profile(_own(tmp_path, name, value))
    assert refused.value.message.startswith(f"own.yaml: {said}; it must be above zero and at most {most}")


def test_slightly_more_than_nominal_is_taken(tmp_path: Path) -> None:
    assert read_profile(_own(tmp_path, "matmul_efficiency", "{bf16: 1.2}")).matmul_efficiency["bf16"] == 1.2
    assert read_profile(_own(tmp_path, "attention_efficiency", "1.25")).attention_efficiency == 1.25


@pytest.mark.parametrize("generation", ["default", *GENERATIONS])
def test_a_file_may_be_made_for_any_generation(tmp_path: Path, generation: str) -> None:
    """Calibration writes the generation of the part, which need not have constants of its own."""
    path = tmp_path / "mine.yaml"
    path.write_text(f"generation: {generation}\nstep_time: {{value: 0.5, unit: s, source: a test}}\n", encoding="utf-8")
    assert read_profile(path).step_time == 0.5
    path.write_text("generation: hoper\n", encoding="utf-8")
    with pytest.raises(InputError, match="did you mean hopper"):
        read_profile(path)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("[{id: X, moe: true}]", "left_out_errors, run 'X': family, accelerator"),
        ("[7]", "left_out_errors, row 1: it is 7"),
        ("{}", "left_out_errors is {}; it must be a list of runs"),
    ],
)
def test_errors_of_runs_are_refused_by_file_and_run(tmp_path: Path, rows: str, said: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"generation: hopper\nleft_out_errors: {rows}\n", encoding="utf-8")
    with pytest.raises(InputError) as refused:
        read_profile(path)
    assert refused.value.message.startswith(f"mine.yaml: {said}")


@pytest.mark.parametrize("generation", ["default", *generations()])
def test_shipped_constants_are_within_the_limits_of_a_file(tmp_path: Path, generation: str) -> None:
    text = (profile_module.PROFILES / f"{generation}.yaml").read_text(encoding="utf-8")
    path = tmp_path / "copy.yaml"
    path.write_text(f"generation: {generation}\n{text}", encoding="utf-8")
    assert read_profile(path).name == "copy"


@pytest.mark.parametrize("name", ["Hopper", "hoper", "", "../default", "default.yml ", "residuals", "hopper/../hopper"])
def test_an_unknown_name_is_no_profile(name: str) -> None:
    with pytest.raises(InputError):
        load_profile(name)


def test_near_names_of_a_profile_are_offered() -> None:
    with pytest.raises(UnknownNameError, match="did you mean hopper"):
        load_profile("Hopper")


@pytest.mark.parametrize("given", [None, 7, ["hopper"], b"hopper"])
def test_a_profile_has_a_name_or_a_path(given: Any) -> None:
    with pytest.raises(InputError, match="the profile is"):
        load_profile(given)


def test_a_file_is_read_by_path_and_checked(tmp_path: Path) -> None:
    path = _own(tmp_path, "step_time", "0.5")
    assert load_profile(path).step_time == load_profile(str(path)).step_time == 0.5
    path = _own(tmp_path, "step_time", "-1")
    with pytest.raises(InputError, match="step_time is -1"):
        load_profile(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (field, value)
        for field in ("prior", "prior_sd", "sd", "assumed_sd")
        for value in ("-1", ".nan", ".inf", "text", "true", "[1]", "{a: 1}")
    ]
    + [("unit", "ms"), ("unit", "7"), ("source", "7"), ("source", "''"), ("fitted_on", "[a]"), ("sd_basis", "{}")],
)
def test_what_is_said_of_a_constant_is_checked(field: str, value: str, tmp_path: Path) -> None:
    stated = {"value": "0.5", "unit": "s", "source": "a test", field: value}
    path = tmp_path / "own.yaml"
    fields = ", ".join(f"{name}: {each}" for name, each in stated.items())
    path.write_text(f"generation: hopper\nstep_time: {{{fields}}}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"own\.yaml: step_time"):
        read_profile(path)
