"""A user's own file of measured runs, from the template to what ``validate`` and ``calibrate`` say of its mistakes."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

import pytest
from tests.calibrate import published
from tests.calibrate.rows import CELLS, write
from tests.cli.commands import answer, refused, run, unwrapped

from shardplan.calibrate import validate as calibration_validate
from shardplan.calibrate.predict import MOST_OVER
from shardplan.reports.accuracy.targets import reached, targets

README = Path(__file__).parents[2] / "README.md"
H100 = ("--accelerator", "h100-sxm-80gb")
IMPOSSIBLE = {**CELLS, "id": "whole", "model": "llama-3.1-70b", "tp": "1", "step_time_s": "60"}
"""Llama 3.1 70B with tp 1 and optimizer states sharded alone: 70.6e9 parameters of 6 bytes or more on 80 GB."""


def test_the_template_is_a_file_of_measured_runs(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(run("calibrate", "--template").stdout)
    record = answer("validate", path)
    assert record["counts"]["predicted"] == 2
    assert [row["result"] for row in record["rows"]] == ["ran", "oom"]
    assert all(not row["ignored"] for row in record["rows"])


def test_the_template_goes_with_nothing_else(tmp_path: Path) -> None:
    assert "RUNS.csv and --template are given" in refused("calibrate", write(tmp_path, CELLS), "--template")


def test_columns_under_other_names_are_said_once(tmp_path: Path) -> None:
    names = {"tp": "TP", "global_batch_size": "gbs", "sequence_length": "seq_len", "step_time_s": "Step Time (s)"}
    rows = [{names.get(name, name): cell for name, cell in {**CELLS, "id": each}.items()} for each in ("a", "b", "c")]
    path = write(tmp_path, *rows)
    record = answer("validate", path)
    assert record["counts"]["predicted"] == 3
    assert "column gbs is read as global_batch_size" in record["read_as"]
    text = unwrapped(run("validate", path).stdout)
    assert text.count("gbs as global_batch_size") == 1
    fitted = answer("calibrate", path, *H100, "--out", tmp_path / "x.yaml", "--accept-poor-fit")
    assert fitted["read_as"] == record["read_as"]


@pytest.mark.parametrize("command", [("validate",), ("calibrate", "--out", "x.yaml")])
def test_a_header_says_all_that_is_wrong_and_where_to_start(tmp_path: Path, command: tuple[str, ...]) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("id,modle,gpus\na,b,8\n")
    text = refused(*command, path)
    for said in ("there is no column 'model' (is 'modle' meant?)", "'accelerator'", "'sequence_length'", "--template"):
        assert said in text


def test_every_problem_is_listed_once_with_its_lines(tmp_path: Path) -> None:
    odd = [{**CELLS, "id": f"odd-{number}", "tp": "3"} for number in range(15)]
    path = write(tmp_path, CELLS, *odd, {**CELLS, "id": "bad", "precision": "bf61", "pp": "two"})
    text = unwrapped(run("validate", path).stdout)
    assert "lines 3, 4, 5 and 12 more: tp x cp x pp divides the accelerators" in text
    assert text.count("tp x cp x pp divides the accelerators") == 1
    assert "line 18: precision is 'bf61'" in text
    assert "line 18: pp is 'two'" in text
    problems = answer("validate", path)["problems"]
    assert [len(each["lines"]) for each in problems] == [15, 1, 1]
    fitted = unwrapped(run("calibrate", path, *H100, "--out", tmp_path / "x.yaml").stdout)
    assert "lines 3, 4, 5 and 12 more: tp x cp x pp divides the accelerators" in fitted


def test_calibrate_leaves_out_what_cannot_have_run_and_validate_says_so(tmp_path: Path) -> None:
    path = write(tmp_path, CELLS, IMPOSSIBLE)
    row = answer("validate", path)["rows"][1]
    assert row["needed_memory_bytes"] > 70.6e9 * 6 > MOST_OVER * row["usable_memory_bytes"]
    text = unwrapped(run("validate", path).stdout)
    assert "Cannot have run as written, and left out of the errors (over 3 times the memory): line 3." in text
    record = answer("calibrate", path, *H100, "--out", tmp_path / "x.yaml", "--accept-poor-fit")
    assert record["fitted"]["runs"] == ["run"]
    assert [each["id"] for each in record["skipped"]] == ["whole"]
    assert "cannot have run as written" in record["skipped"][0]["reason"]


def test_a_file_of_nothing_else_is_refused(tmp_path: Path) -> None:
    told = refused("calibrate", write(tmp_path, IMPOSSIBLE), *H100, "--out", tmp_path / "x.yaml")
    assert "line 2: cannot have run as written" in told
    assert not (tmp_path / "x.yaml").exists()


def test_a_run_that_is_predicted_to_fit_not_quite_is_used_and_said(tmp_path: Path) -> None:
    """Llama 3.1 8B on 16 accelerators with micro-batches of four and without recomputation."""
    tight = {**CELLS, "id": "tight", "tp": "1", "micro_batch_size": "4", "step_time_s": "5"}
    path = write(tmp_path, CELLS, tight)
    share = next(row for row in answer("validate", path)["rows"] if row["id"] == "tight")
    assert not share["fits"]
    record = answer("calibrate", path, *H100, "--out", tmp_path / "x.yaml", "--accept-poor-fit")
    assert [each["id"] for each in record["not_fitting"]] == ["tight"]
    text = unwrapped(run("calibrate", path, *H100, "--out", tmp_path / "x.yaml", "--accept-poor-fit").stdout)
    assert "Predicted not to fit in memory, although they ran: tight" in text


def test_no_published_run_is_one_that_cannot_have_run() -> None:
    assert published.validation().impossible == ()


def test_validate_prints_the_accuracy_of_the_readme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration_validate, "validate", published.validate_once)
    stated = re.search(r"<!-- accuracy -->(.*?)<!-- end -->", README.read_text(encoding="utf-8"), re.DOTALL)
    assert stated is not None
    assert unwrapped(stated[1]) in unwrapped(run("validate").stdout)
    left_out = answer("validate")["left_out"]
    checked = published.accuracy().sides["left_out"]
    found = {target.label: reached(target, "left_out", checked).errors for target in targets()}
    assert left_out["step_time"] == asdict(found["step time, all"])
    assert left_out["peak_memory"]["n"] == found["peak memory, all tiers"].n


def test_runs_of_ones_own_have_no_left_out_figures(tmp_path: Path) -> None:
    assert "left_out" not in answer("validate", write(tmp_path, CELLS))
