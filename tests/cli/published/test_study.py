"""``shardplan published study``: the whole study of arXiv 2410.00273, its tables and its files."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import answer, run, unwrapped

from shardplan.answers.methods import study
from shardplan.answers.methods.study import StudyReport, run_study
from shardplan.cli.published.study import ALL
from shardplan.methods.subramanian2024.inputs import Corrections

NAME = "subramanian2024"
STUDY = ("published", "study", NAME)


@cache
def _report(corrected: Corrections, figures: tuple[str, ...]) -> StudyReport:
    """The whole study, done once."""
    return run_study(figures, corrected=corrected)


@pytest.fixture
def _studied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands show the study that is kept: for tests of what they print."""

    def kept(figures: Sequence[str], *, corrected: Corrections, **_: object) -> StudyReport:
        report = _report(corrected, ALL if figures else ())
        return replace(report, figures=tuple(each for each in report.figures if each.name in figures))

    monkeypatch.setattr(study, "run_study", kept)


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return answer(*STUDY, "--figure", "all")


def test_every_candidate_is_searched_and_the_best_are_the_papers(record: dict[str, Any]) -> None:
    assert record["num_candidates"] == 9_183_444
    assert record["num_searches"] == 54
    assert record["corrected"] == []
    days = {
        (row["gpu"], row["nvs"]): row["training_days"]
        for row in record["best"]
        if (row["model"], row["strategy"], row["n_gpus"]) == ("gpt3_1T", "1d", 4096)
    }
    printed = {
        ("A100", 4): 97.956, ("A100", 8): 86.881, ("A100", 64): 85.474, ("H200", 4): 30.951, ("H200", 8): 30.146,
        ("H200", 64): 29.220, ("B200", 4): 12.883, ("B200", 8): 12.472, ("B200", 64): 12.208,
    }  # fmt: skip
    assert days == pytest.approx(printed, abs=6e-4)
    assert {name for name in record["best"][0] if name in ("throughput", "memory_GB", "t", "t_bubble")} == {
        "throughput", "memory_GB", "t", "t_bubble",
    }  # fmt: skip


def test_every_figure_has_its_rows(record: dict[str, Any]) -> None:
    figures = {figure["name"]: figure["rows"] for figure in record["figures"]}
    assert list(figures) == [f"F{number}" for number in range(1, 9)]
    assert all(figures.values())
    assert len(figures["F8"]) == 1329


def test_the_study_is_a_process_of_its_own_and_prints_how_much_was_searched_in_what_time() -> None:
    """How long it takes is a matter of benchmarks/published_study.py."""
    environment = {**os.environ, "COLUMNS": "120"}
    command = [sys.executable, "-m", "shardplan", *STUDY]
    text = unwrapped(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)
    assert "9,183,444 candidates of 54 searches enumerated, priced and ranked in" in text
    assert "a second, one worker" in text
    for words in ("Days to train gpt3_1T", "Days to train vit_era5", "97.956", "1D fits nowhere."):
        assert words in text


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.usefixtures("_studied")
def test_no_table_is_wider_than_the_terminal(columns: int) -> None:
    for flags in ((), ("--figure", "all")):
        lines = run(*STUDY, *flags, columns=columns).stdout.splitlines()
        assert [line for line in lines if len(line) > columns and not line.startswith("  shardplan ")] == []
        assert [line for line in lines if line != line.rstrip()] == []


@pytest.mark.usefixtures("_studied")
def test_tables_of_the_figures_show_published_values() -> None:
    text = unwrapped(run(*STUDY, "--figure", "f3, F5", "--figure", "F6", "--figure", "F7,F8", columns=120).stdout)
    for words in ("182.91", "65.67", "4.69", "33.61", "6.95 to 17.51 days; B200 7.35", "B200-next 5.35", "all-gather"):
        assert words in text
    assert "F1:" not in text
    ranged = run(*STUDY, "--figure", "F6..F7").stdout
    assert [name in ranged for name in ("F5:", "F6:", "F7:", "F8:")] == [False, True, True, False]
    a100 = unwrapped(run(*STUDY, "--figure", "F3", "--system", "a100", "--nvs", 4).stdout)
    assert "A100 in domains of 4" in a100
    assert "73.42" in a100


def test_workers_change_nothing(record: dict[str, Any]) -> None:
    two = answer(*STUDY, "--workers", 2)
    assert two["num_workers"] == 2
    assert two["best"] == record["best"]


@pytest.mark.usefixtures("_studied")
def test_corrections_are_those_that_are_named() -> None:
    corrected = answer(*STUDY, "--corrected")
    assert corrected["corrected"] == ["Q1", "Q2", "Q3", "Q5", "Q11"]
    assert any((row["model"], row["strategy"]) == ("vit_era5", "1d") for row in corrected["best"])
    assert "corrected: Q11" in unwrapped(run("published", "study", "--corrected", "q11", NAME).stdout)
    assert "corrected: Q1, Q2, Q3, Q5, Q11" in unwrapped(run("published", "study", "--corrected", NAME).stdout)


@pytest.mark.usefixtures("_studied")
def test_figures_become_pages_pictures_and_tables(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "figures"
    result = run(*STUDY, "--figure", "F4,F8", "--out", folder)
    assert result.exit_code == 0, result.output
    assert "F4:.html,.csv,.png" in "".join(result.stdout.split())  # a long path breaks anywhere
    assert sorted(path.name for path in folder.iterdir()) == [
        f"{name}.{suffix}" for name in ("F4", "F8") for suffix in ("csv", "html", "png")
    ]
    rows = list(csv.DictReader((folder / "F8.csv").read_text().splitlines()))
    assert len(rows) == 1329
    assert (folder / "F4.png").read_bytes().startswith(b"\x89PNG\r\n")
    assert "<title>F4:" in (folder / "F4.html").read_text()[:2000]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("published", "study"), "NAME"),
        (("published", "study", "subramanian"), "did you mean subramanian2024?"),
        ((*STUDY, "--figure", "F9"), "unknown figure 'F9'"),
        ((*STUDY, "--figure", ""), "unknown figure ''"),
        ((*STUDY, "--workers", "0"), "--workers is"),
        ((*STUDY, "--corrected", "Q4"), "unknown correction 'Q4'"),
        ((*STUDY, "--corrected=", "Q4"), "unexpected extra argument"),
        ((*STUDY, "--system", "H20"), "did you mean H200"),
        ((*STUDY, "--nvs", "16"), "--nvs is 16"),
        ((*STUDY, "--out", "/dev/null/x"), "cannot write into"),
    ],
)
def test_wrong_input_is_refused(arguments: tuple[object, ...], words: str) -> None:
    result = run(*arguments, "--json", "-")
    assert result.exit_code == 2, result.output
    error = json.loads(result.stdout)["error"]
    assert words in error["message"] + error["hint"]


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "plotly.subplots", None)
    result = run(*STUDY, "--out", tmp_path)
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        "shardplan: plotly is not installed, which draws figures",
        "hint: pip install 'shardplan[plots]'",
    ]
