"""``shardplan calibrate --microbench``: a profile from timed kernels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import SMALL, answer, run, unwrapped

from shardplan.calibrate import microbench
from shardplan.calibrate.microbench.records import Host, Measurements, MemoryPass, Sample, TimedDevice, Timing
from shardplan.inputs import profile as profiles
from shardplan.inputs.profile import read_profile


def _measured(**changes: Any) -> Measurements:
    device = TimedDevice(kind="cuda", name="NVIDIA H100 80GB HBM3", memory_bytes=80 * 10**9, num_cores=132)
    cases = [MemoryPass(operation="copy", bytes=size) for size in (2**16, 2**24, 2**28, 2**30)]
    samples = tuple(Sample(case, Timing(time=2e-6 + case.bytes / 2.5e12, spread=0.01, num_series=5)) for case in cases)
    made = Measurements(
        device=device, accelerator="h100-sxm-80gb", software="torch 0", date="2026-01-01", num_ranks=1, rank=0,
        is_complete=True, samples=samples, skipped=(),
    )  # fmt: skip
    return replace(made, **changes)


def _timed(monkeypatch: pytest.MonkeyPatch, measured: Measurements) -> None:
    monkeypatch.setattr(microbench, "run_microbenchmark", lambda **_: measured)


def test_timed_kernels_give_a_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _timed(monkeypatch, _measured())
    out = tmp_path / "gpu.yaml"
    record = answer("calibrate", "--microbench", "--out", out)
    assert record["accelerator"] == "h100-sxm-80gb"
    assert "memory_efficiency" in {constant["name"] for constant in record["constants"]}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gpu.measurements.json", "gpu.yaml"]
    assert read_profile(out).memory_efficiency != profiles.load_profile("hopper").memory_efficiency
    assert "memory_efficiency" in unwrapped(run("calibrate", "--microbench", "--out", out).stdout)


def test_what_is_kept_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bare layer is faster than the base profile's host: its value is listed as kept, and not written."""
    measured = _measured()
    layer = Sample(Host(operation="layer"), Timing(time=4e-4, spread=0.01, num_series=5))
    _timed(monkeypatch, replace(measured, samples=(*measured.samples, layer)))
    out = tmp_path / "gpu.yaml"
    record = answer("calibrate", "--microbench", "--out", out)
    assert "kernel_launch_time" not in {constant["name"] for constant in record["constants"]}
    (kept,) = [one for one in record["kept"] if one["name"] == "kernel_launch_time"]
    assert (kept["key"], kept["value"]) == ("eager", profiles.load_profile("hopper").kernel_launch_time["eager"])
    assert "lower bound" in kept["reason"]
    assert record["warnings"] == []
    assert "kernel_launch_time" not in out.read_text()
    measured_part, _, kept_part = run("calibrate", "--microbench", "--out", out).stdout.partition("Kept")
    assert "kernel_launch_time" not in measured_part
    assert "kernel_launch_time[eager]" in kept_part


def test_a_busy_machine_is_named_and_gives_no_constant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every case takes one turn of the scheduler."""
    turn = Timing(time=0.012, spread=0.6, num_series=5)
    measured = _measured()
    _timed(monkeypatch, replace(measured, samples=tuple(Sample(one.case, turn) for one in measured.samples)))
    result = run("calibrate", "--microbench", "--out", tmp_path / "gpu.yaml")
    text = unwrapped(result.stdout)
    assert result.exit_code == 2
    assert "The machine was busy: 4 of 4 cases vary by more than 30%" in text
    assert "times hardly grow with the work" in text
    assert "memory_efficiency 0.8 fraction of memory bandwidth" in text
    assert "Saved" not in text
    assert "determine no constant" in unwrapped(result.stderr)
    assert [path.name for path in tmp_path.iterdir()] == ["gpu.measurements.json"]


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_lines_of_timed_kernels_fit(columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _timed(monkeypatch, _measured(accelerator=None))
    lines = run("calibrate", "--microbench", "--out", "x.yaml", columns=columns).stdout.splitlines()
    assert max(len(line) for line in lines if "shardplan " not in line) <= max(columns, 60)


def test_a_measured_profile_gives_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On kernels a tenth slower than the shipped ones a step is a little slower, and no more."""
    _timed(monkeypatch, _measured())
    out = tmp_path / "gpu.yaml"
    run("calibrate", "--microbench", "--out", out)
    question = (*SMALL, "--micro-batch-size", 1)
    mine, shipped = (answer("estimate", *question, *more) for more in (("--profile", out), ()))
    ratio = _step_time(mine) / _step_time(shipped)
    assert 0.8 < ratio < 1.5


def _step_time(record: dict[str, Any]) -> float:
    return float(record["plans"][0]["step_time_s"])


def test_a_device_that_nobody_knows_has_the_default_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _timed(monkeypatch, _measured(accelerator=None))
    out = tmp_path / "gpu.yaml"
    assert run("calibrate", "--microbench", "--out", out).exit_code == 0
    assert answer("profiles", out)["generation"] == "default"


def test_an_interrupted_measurement_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _timed(monkeypatch, _measured(is_complete=False))
    assert run("calibrate", "--microbench", "--out", tmp_path / "gpu.yaml").exit_code == 130
    assert (tmp_path / "gpu.yaml").exists()


def test_the_first_process_speaks_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _timed(monkeypatch, _measured(rank=1, num_ranks=2))
    result = run("calibrate", "--microbench", "--out", tmp_path / "gpu.yaml")
    assert (result.exit_code, result.stdout) == (0, "")
    assert list(tmp_path.iterdir()) == []
