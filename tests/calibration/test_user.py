"""A profile of one's own: which constants may move, what is held out, what a fit finds in runs made from formulas."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.calibration.rows import CELLS, write

from shardplan.calibration.predict import predict
from shardplan.calibration.questions import question_of
from shardplan.calibration.runs import MeasuredRun, read_runs
from shardplan.calibration.user import calibrate_runs, held_out, profile_text, user_constants
from shardplan.errors import InputError
from shardplan.inputs.catalog import list_accelerators, load_accelerator
from shardplan.inputs.profile import Profile, load_profile, read_profile

HOPPER = load_profile("hopper")
SIZES = [
    ("1", "1", "none"),
    ("2", "2", "none"),
    ("2", "1", "full"),
    ("4", "1", "none"),
    ("4", "2", "full"),
    ("8", "1", "none"),
]


def runs_of(folder: Path, profile: Profile) -> tuple[MeasuredRun, ...]:
    """Runs whose times are what the formulas say under ``profile``."""
    rows = [
        {**CELLS, "id": f"{model}-{tp}-{size}-{recompute}", "model": model, "tp": tp, "micro_batch_size": size,
         "recompute": recompute, "peak_memory_gb": "60"}
        for model in ("llama-3.1-8b", "llama-3.2-1b")
        for tp, size, recompute in SIZES
    ]  # fmt: skip
    read = read_runs(write(folder, *rows))
    said = predict([question_of(run) for run in read], {"hopper": profile})
    return tuple(
        replace(run, step_time=one.step_time, peak_memory_bytes=one.peak_memory_bytes)
        for run, one in zip(read, said, strict=True)
    )


def test_runs_of_the_shipped_constants_move_nothing(tmp_path: Path) -> None:
    found = calibrate_runs(runs_of(tmp_path, HOPPER), "h100-sxm-80gb", file="runs.csv", date="today")
    assert found.changes == ()
    assert found.constants == {}
    assert found.on_held_out.step_time[0].median == pytest.approx(0, abs=1e-6)


def test_a_slower_part_is_found(tmp_path: Path) -> None:
    slower = replace(HOPPER, accelerator_rate={**HOPPER.accelerator_rate, "h100-sxm-80gb": 0.8})
    found = calibrate_runs(runs_of(tmp_path, slower), "h100-sxm-80gb", file="runs.csv", date="today")
    assert found.changes[0].label == "accelerator_rate[h100-sxm-80gb]"
    before, after = found.on_held_out.step_time
    assert before.median is not None
    assert after.median is not None
    assert before.median > 0.08
    assert after.median < 0.25 * before.median


def test_larger_memory_is_found(tmp_path: Path) -> None:
    table = {**HOPPER.activation_factor, "fused": 1.2 * HOPPER.activation_factor["fused"]}
    found = calibrate_runs(
        runs_of(tmp_path, replace(HOPPER, activation_factor=table)), "h100-sxm-80gb", file="r", date="d"
    )
    before, after = found.on_fitted.peak_memory
    assert before.median is not None
    assert after.median is not None
    assert after.median < 0.6 * before.median


def test_the_file_gives_the_same_profile(tmp_path: Path) -> None:
    slower = replace(HOPPER, accelerator_rate={**HOPPER.accelerator_rate, "h100-sxm-80gb": 0.8})
    found = calibrate_runs(runs_of(tmp_path, slower), "h100-sxm-80gb", file="a: 'b' #\n c", date="2026-01-01")
    path = tmp_path / "mine.yaml"
    path.write_text(profile_text(found, file="a: 'b' #\n c", date="2026-01-01"), encoding="utf-8")
    profile = read_profile(path)
    for name, constant in found.constants.items():
        read = profile.constants[name].value
        if isinstance(constant.value, dict):
            assert isinstance(read, dict)
            assert {key: read[key] for key in constant.value} == constant.value
        else:
            assert read == constant.value
    assert [run.id for run in profile.left_out_errors] == [run.id for run in found.left_out]
    assert [run.time for run in profile.left_out_errors] == [
        pytest.approx(run.time, abs=1e-4) for run in found.left_out
    ]


def test_every_run_has_the_error_of_a_fit_that_has_not_seen_it(tmp_path: Path) -> None:
    """One run is three times as slow as all others say: its own error stays, whether or not it is held out."""
    odd, *rest = runs_of(tmp_path, HOPPER)
    assert odd.step_time is not None
    runs = [replace(odd, step_time=3 * odd.step_time), *rest]
    for holdout in (0.0, 0.3):
        found = calibrate_runs(runs, "h100-sxm-80gb", file="r", date="d", holdout=holdout)
        errors = {run.id: run.time for run in found.left_out}
        assert set(errors) == {run.id for run in runs}
        assert errors[odd.id] == pytest.approx(-math.log(3), abs=0.02)


def test_runs_of_one_configuration_are_left_out_together(tmp_path: Path) -> None:
    """Repeats would tell the fit what it is to foretell."""
    odd, *rest = runs_of(tmp_path, HOPPER)
    assert odd.step_time is not None
    twice = [replace(odd, id=f"odd {place}", step_time=3 * odd.step_time) for place in range(3)]
    found = calibrate_runs([*twice, *rest], "h100-sxm-80gb", file="r", date="d", holdout=0)
    errors = {run.id: run.time for run in found.left_out}
    assert [errors[run.id] for run in twice] == [pytest.approx(-math.log(3), abs=0.02)] * 3


@given(st.lists(st.text(max_size=8), unique=True, min_size=1, max_size=40), st.floats(0, 0.9), st.integers(0, 10**6))
def test_what_is_held_out(names: list[str], share: float, seed: int) -> None:
    chosen = held_out(names, share, seed)
    assert chosen == held_out(names[::-1], share, seed)
    assert chosen <= set(names)
    assert len(chosen) == min(round(share * len(names)), len(names) - 1)


def test_a_larger_share_holds_out_the_same_runs_and_more() -> None:
    names = [f"run-{number}" for number in range(20)]
    chosen = [held_out(names, share / 10, 0) for share in range(10)]
    assert all(one <= other for one, other in pairwise(chosen))


@pytest.mark.parametrize("name", list_accelerators())
def test_every_part_has_constants_to_move(name: str) -> None:
    part = load_accelerator(name)
    frees = user_constants(part)
    assert (frees[0].name, frees[0].keys) == ("accelerator_rate", (name,))
    assert {free.generation for free in frees} <= {"default", part.generation}
    labels = [(free.name, key) for free in frees for key in free.keys or (None,)]
    assert len(labels) == len(set(labels)), "a constant that moves twice"
    profile = load_profile(part.generation)
    for free in frees[1:]:
        value = getattr(profile, free.name)
        assert free.priors == (tuple(value[key] for key in free.keys) if free.keys else (value,))
        assert free.sd > 0


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_not_all_can_be_held_out(share: float, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="held out"):
        calibrate_runs(runs_of(tmp_path, HOPPER), "h100-sxm-80gb", file="f", date="d", holdout=share)
