"""A profile of one's own: which constants may move, what is held out, what a fit finds in runs made from formulas."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from tests.calibrate.rows import CELLS, write

from shardplan.base.errors import InputError
from shardplan.calibrate.predict import predict
from shardplan.calibrate.runs.questions import question_of
from shardplan.calibrate.runs.rows import MeasuredRun, read_runs, read_table
from shardplan.calibrate.user import UserFit, calibrate_runs, profile_text, user_constants
from shardplan.inputs.profile import Profile, load_profile, read_profile
from shardplan.inputs.readers.catalog import list_accelerators, load_accelerator

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


def _repeated(folder: Path, *names: str, slower: float = 1.5) -> list[MeasuredRun]:
    """Eight repeats, within 1 %, of each of some configurations, ``slower`` than the formulas say."""
    made = {run.id: run for run in runs_of(folder, HOPPER)}
    return [
        replace(made[name], id=f"{name} {place}", step_time=slower * (made[name].step_time or 0) * (1 + place / 800))
        for name in names
        for place in range(8)
    ]


@pytest.mark.parametrize("seed", range(4))
def test_repeats_of_a_configuration_that_is_fitted_are_not_unseen(seed: int, tmp_path: Path) -> None:
    """Of two configurations one is held out whole, and its runs alone have errors: without the other nothing is left.

    Its error is that of a fit to the other configuration, made here by itself.
    """
    runs = _repeated(tmp_path, "llama-3.1-8b-4-1-none", "llama-3.1-8b-2-1-full")
    found = calibrate_runs(runs, "h100-sxm-80gb", file="r", date="d", seed=seed)
    assert (len(found.held_out), len({name.rpartition(" ")[0] for name in found.held_out})) == (8, 1)
    assert found.num_configurations == 2
    assert [run.id for run in found.left_out] == list(found.held_out)
    others = [run for run in runs if run.id in found.fitted]
    alone = calibrate_runs(others, "h100-sxm-80gb", file="r", date="d", holdout=0)
    assert {name: one.value for name, one in alone.constants.items()} == {
        name: one.value for name, one in found.constants.items()
    }


def test_without_runs_held_out_each_of_two_configurations_is_foretold_by_the_other(tmp_path: Path) -> None:
    runs = _repeated(tmp_path, "llama-3.1-8b-4-1-none", "llama-3.1-8b-2-1-full")
    found = calibrate_runs(runs, "h100-sxm-80gb", file="r", date="d", holdout=0)
    assert [run.id for run in found.left_out] == [run.id for run in runs]
    errors = [run.time or 0 for run in found.left_out]
    for part in (errors[:8], errors[8:]):
        assert max(part) - min(part) == pytest.approx(math.log(1 + 7 / 800), abs=1e-6)  # as the repeats differ


@pytest.fixture
def alone(tmp_path: Path) -> UserFit:
    runs = _repeated(tmp_path, "llama-3.1-8b-4-1-none")
    return calibrate_runs(runs, "h100-sxm-80gb", file="r.csv", date="d", holdout=0.3)


def test_of_one_configuration_nothing_is_left_out(alone: UserFit) -> None:
    assert (len(alone.fitted), alone.held_out, alone.num_configurations, alone.left_out) == (8, (), 1, ())
    assert {constant.fitted_on for constant in alone.constants.values()} == {"8 runs of one configuration of r.csv, d"}


def test_the_band_of_one_configuration_does_not_count_its_correction_twice(alone: UserFit, tmp_path: Path) -> None:
    """The fit moves the estimate to the runs; the band around it is that of the shipped constants, wider."""
    path = tmp_path / "mine.yaml"
    path.write_text(profile_text(alone, file="r.csv", date="d"), encoding="utf-8")
    assert read_profile(path).left_out_errors == ()
    asked = [question_of(runs_of(tmp_path, HOPPER)[3])]
    ((shipped,), (own,)) = (predict(asked, {"hopper": each}) for each in (HOPPER, read_profile(path)))
    assert own.step_time > 1.3 * shipped.step_time
    for mine, usual in ((own.step_time_p10, shipped.step_time_p10), (own.step_time_p90, shipped.step_time_p90)):
        ends = math.log(mine / own.step_time), math.log(usual / shipped.step_time)
        assert 1 < ends[0] / ends[1] < 1.3  # 1.25, less for a smaller share of communication


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


def test_runs_out_of_memory_are_left_out_of_a_fit(tmp_path: Path) -> None:
    """They have neither a time nor a memory to be fitted to."""
    rows = [{**CELLS, "id": f"run {n}", "micro_batch_size": str(n)} for n in (1, 2)]
    table = read_table(write(tmp_path, *rows, {**CELLS, "id": "out", "step_time_s": "", "result": "oom"}))
    found = calibrate_runs(table.runs, "h100-sxm-80gb", file="runs.csv", date="2026-11-22", holdout=0)
    assert {*found.fitted} == {"run 1", "run 2"}
    assert [(one.run.id, one.reason) for one in found.skipped] == [
        ("out", "ran out of memory, so there is nothing to fit to")
    ]
