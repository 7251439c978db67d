"""``shardplan sweep`` and ``shardplan plot``: what they say, refuse and write."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.commands import refused, run
from tests.sweeps.small import SMALL

from shardplan.cli.sweep import duration
from shardplan.decide.sweeps.folder import MANIFEST, RESULTS, new_folder, open_folder
from shardplan.decide.sweeps.grid import grid_of

pytest.importorskip("polars", reason="comes with the extra 'sweep'")


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("grid") / "sweep.json"
    path.write_text(json.dumps({"grid": SMALL | {"gpus": [8, 16]}}))
    return path


@pytest.fixture(scope="module")
def swept(grid: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sweep") / "results"
    result = run("sweep", grid, "--out", out)
    assert result.exit_code == 0, result.output
    assert "8 questions." in result.stderr
    assert "8 rows in" in result.stdout
    return out


def test_a_sweep_says_how_far_it_is(swept: Path, tmp_path: Path) -> None:
    assert "8 of 8 questions answered (100 %); complete" in run("sweep", "--status", "--out", swept).stdout
    new_folder(tmp_path, grid_of(SMALL), 2)
    assert "0 of 12 questions answered (0 %); not running" in run("sweep", "--status", "--out", tmp_path).stdout
    assert "is not complete" in refused("plot", tmp_path, "--x", "gpus", "--y", "mfu", "--out", tmp_path / "a.png")


def test_a_finished_sweep_is_resumed_without_being_asked_again(swept: Path) -> None:
    before = (swept / RESULTS).read_bytes()
    assert run("sweep", "--out", swept, "--resume").exit_code == 0
    assert (swept / RESULTS).read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "the folder of the results"),
        (("--out", "new"), "missing: the grid"),
        (("--out", "new", "--resume"), "cannot read the manifest"),
        (("--out", "new", "--status"), "cannot read the manifest"),
        (("no-such.yaml", "--out", "new"), "no-such.yaml"),
        (("--out", "new", "--workers", "0"), "--workers"),
    ],
)
def test_what_is_missing_is_said(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in refused("sweep", *arguments)
    assert not [*tmp_path.iterdir()]


def test_a_second_sweep_leaves_the_first_alone(grid: Path, swept: Path) -> None:
    before = {path.name: path.read_bytes() for path in swept.iterdir()}
    assert "--resume" in refused("sweep", grid, "--out", swept)
    assert {path.name: path.read_bytes() for path in swept.iterdir()} == before


def test_a_sweep_with_questions_that_failed_exits_with_1_and_says_how_they_are_asked_again(
    grid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("shardplan.decide.sweeps.rows.best_together", lambda *_, **__: 1 / 0)
        result = run("sweep", grid, "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "8 failed" in result.stdout
    assert "To ask the failed ones again: shardplan sweep --out" in result.stderr
    assert run("sweep", "--out", tmp_path / "out", "--resume").exit_code == 0


@pytest.mark.skipif(sys.platform == "win32", reason="a system without signals")
def test_ctrl_c_ends_a_sweep_and_says_how_to_go_on(tmp_path: Path) -> None:
    grid, out = tmp_path / "sweep.json", tmp_path / "results"
    grid.write_text(json.dumps({"grid": SMALL | {"gpus": {"from": 8, "to": 2400, "step": 8}}}))
    new_folder(out, grid_of(json.loads(grid.read_text())), 2)
    command = (sys.executable, "-m", "shardplan", "sweep", grid, "--out", out, "--resume")
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and open_folder(out).num_done < 4:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130
    assert "questions are kept. To go on: shardplan sweep --out" in said
    assert "Traceback" not in said
    assert open_folder(out).num_done >= 4
    assert (out / MANIFEST).exists()


@pytest.mark.parametrize("kind", ["html", "png"])
def test_a_plot_is_a_page_or_a_picture(swept: Path, tmp_path: Path, kind: str) -> None:
    out = tmp_path / f"plot.{kind}"
    flags = ("--x", "gpus", "--y", "step_time", "--colour", "memory", "--facet", "global_batch_size")
    result = run("plot", swept, *flags, "--out", out)
    assert result.exit_code == 0, result.output
    assert out.stat().st_size > 1000
    assert run("plot", swept, *flags, "--out", out).exit_code == 0  # it replaces its own file


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--x", "gpus", "--y", "step_time", "--out", "a.html"), "vary too"),
        (("--x", "gpus", "--y", "step_tim", "--out", "a.html"), "did you mean step_time_s"),
        (("--x", "gpus", "--y", "mfu", "--out", "a.pdf"), "end --out in .html or .png"),
        (("--x", "gpus"), "missing: --y step_time, --out FILE"),
        (("--x", "gpus", "--y", "mfu", "--where", "memory=3", "--out", "a.html"), "no row has the values"),
        (("--x", "gpus", "--y", "mfu", "--where", "memory", "--out", "a.html"), "FIELD=VALUE"),
    ],
)
def test_a_plot_that_cannot_be_drawn_is_refused(
    swept: Path, flags: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in refused("plot", swept, *flags)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.3, "1 second"), (40, "40 seconds"), (360, "6 minutes"), (10_800, "3 hours"), (2e5, "2 days")],
)
def test_durations_are_said_in_one_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text
