"""``shardplan calibrate --defaults``: the shipped constants fitted again."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.commands import answer, run, unwrapped

from shardplan.calibrate import defaults
from shardplan.calibrate.fit import free_constants
from shardplan.calibrate.runs.rows import shipped_runs
from shardplan.inputs import profile as profiles


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The shipped fit over few runs and constants, and a copy of the profiles to write to."""
    runs = tuple(one for one in shipped_runs() if one.family in ("korthikanti", "llama3-paper"))
    frees = tuple(one for one in free_constants() if one.name == "memory_pass_factor")
    monkeypatch.setattr(defaults, "shipped_runs", lambda: runs)
    monkeypatch.setattr(defaults, "free_constants", lambda: frees)
    folder = tmp_path / "data" / "profiles"
    folder.mkdir(parents=True)
    for path in profiles.PROFILES.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    for module in (profiles, defaults):
        monkeypatch.setattr(module, "PROFILES", folder)
    monkeypatch.setattr("shardplan.inputs.readers.residuals.RESIDUALS", folder / "residuals.csv")
    return folder


def test_the_shipped_fit_shows_what_would_change(few: Path) -> None:
    before = {path.name: path.read_bytes() for path in few.iterdir()}
    record = answer("calibrate", "--defaults")
    assert record["schema"] == "shardplan/refit/1"
    assert record["teams"] == ["Meta", "NVIDIA"]
    assert record["step_time"]["in_sample"]["n"] == record["step_time"]["left_out"]["n"] > 0
    assert {change["label"].partition("[")[0] for change in record["constants"]} == {"memory_pass_factor"}
    assert {path.name: path.read_bytes() for path in few.iterdir()} == before
    text = unwrapped(run("calibrate", "--defaults").stdout)
    for words in ("in-sample", "team left out", "that would change"):
        assert words in text


def test_the_shipped_fit_is_written_as_a_whole(few: Path) -> None:
    names = sorted(path.name for path in few.iterdir())
    record = answer("calibrate", "--defaults", "--write")
    assert record["is_written"] is True
    assert sorted(path.name for path in few.iterdir()) == names
    assert [path.name for path in few.parent.iterdir()] == ["profiles"]
    written = profiles.constants_of("default")["memory_pass_factor"].value
    assert isinstance(written, dict)
    changed = {each["label"].partition("[")[2].rstrip("]"): each["after"] for each in record["constants"]}
    assert changed
    assert {kernels: written[kernels] for kernels in changed} == changed
    assert len((few / "residuals.csv").read_text().splitlines()) == record["num_runs"] + 1
    assert answer("calibrate", "--defaults")["constants"] == []
