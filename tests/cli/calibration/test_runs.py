"""``shardplan calibrate``: what it makes of measured runs, what it says, what it refuses; nothing half-written."""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from tests.calibrate.rows import CELLS, write
from tests.cli.commands import answer, both, refused, run, unwrapped

from shardplan.inputs.profile import read_profile
from shardplan.inputs.readers.catalog import load_accelerator

EXAMPLE = Path(__file__).parents[3] / "examples" / "my-runs.csv"
H100 = ("--accelerator", "h100-sxm-80gb")


class Fitted(NamedTuple):
    """What ``calibrate`` makes of the example."""

    text: str
    record: dict[str, Any]
    profile: Path


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    folder = tmp_path_factory.mktemp("fitted")
    out = folder / "mine.yaml"
    result = run("calibrate", EXAMPLE, *H100, "--out", out, "--json", folder / "record.json")
    assert {*folder.iterdir()} == {out, folder / "record.json"}
    return Fitted(result.stdout, json.loads((folder / "record.json").read_text(encoding="utf-8")), out)


def test_measured_steps_give_a_profile(fitted: Fitted) -> None:
    record, out = fitted.record, fitted.profile
    assert record["schema"] == "shardplan/calibration/1"
    assert (record["accelerator"], record["generation"]) == ("h100-sxm-80gb", "hopper")
    seen, unseen = record["fitted"], record["held_out"]
    assert (len(seen["runs"]), len(unseen["runs"])) == (8, 4)
    for part in (seen, unseen):
        assert part["step_time"]["after"]["median"] < part["step_time"]["before"]["median"]
    profile = read_profile(out)
    moved = {change["name"]: change["after"][0] for change in record["constants"]}
    assert profile.accelerator_rate["h100-sxm-80gb"] == moved["accelerator_rate[h100-sxm-80gb]"] != 1
    assert all(change["sd_after"] <= change["sd_before"] for change in record["constants"])
    used = answer("validate", EXAMPLE, "--profile", out)["summary"]["all"]["median"]
    assert used < answer("validate", EXAMPLE)["summary"]["all"]["median"]


def test_the_constants_say_where_they_come_from(fitted: Fitted) -> None:
    out, text = fitted.profile, unwrapped(fitted.text)
    for words in ("Fitted to 8 runs", "held out, before", "held out, after", "accelerator_rate", "--profile"):
        assert words in text
    rows = [row for row in answer("profiles", out)["constants"] if row["stated_in"] == "mine"]
    assert rows
    for row in rows:
        assert "fitted to 8 runs of my-runs.csv, 20" in row["source"]
        assert "was " in row["source"]
        assert row["sd"] <= row["prior_sd"]


def _example() -> dict[str, Any]:
    """The profile that the documentation shows."""
    page = (EXAMPLE.parents[1] / "docs" / "calibrate.md").read_text(encoding="utf-8")
    return dict(yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0]))


def _assert_alike(shown: object, made: object) -> None:
    """The same words, dates aside, and numbers within 5 %; what is shown may leave entries out."""
    if isinstance(shown, dict):
        assert isinstance(made, dict)
        for key in shown:
            _assert_alike(shown[key], made[key])
    elif isinstance(shown, float):
        assert made == pytest.approx(shown, rel=0.05)
    else:
        without_dates = [re.sub(r"\d{4}-\d\d-\d\d", "DATE", str(text)) for text in (shown, made)]
        assert without_dates[0] == without_dates[1]


def test_the_profile_in_the_documentation_is_what_the_example_gives(fitted: Fitted) -> None:
    made, shown = yaml.safe_load(fitted.profile.read_text(encoding="utf-8")), _example()
    (row,) = shown.pop("left_out_errors")
    assert row.pop("...", "missing") is None  # cells that are not shown
    found = next(each for each in made["left_out_errors"] if each["id"] == row["id"])
    assert float(row.pop("log_time_ratio")) == pytest.approx(float(found["log_time_ratio"]), abs=0.01)
    _assert_alike(row, found)
    _assert_alike(shown, made)


def test_of_one_configuration_nothing_can_be_left_out(tmp_path: Path) -> None:
    out = tmp_path / "mine.yaml"
    path = write(tmp_path, *({**CELLS, "id": f"r{number}", "step_time_s": f"4.{number}"} for number in range(8)))
    text, record = both(tmp_path, "calibrate", path, *H100, "--out", out)
    assert "one configuration: nothing can be left out" in text
    assert "each left out" not in text
    assert "held out" not in text
    assert "left_out_errors: []" in out.read_text(encoding="utf-8")
    assert (record["num_configurations"], record["left_out"]["runs"], record["held_out"]["runs"]) == (1, [], [])
    asked = ("estimate", "llama-3.1-8b", "--cluster", "dgx-h100", "--gpus", 16, "--tp", 2, "--profile", out)
    assert "the band is wider" in answer(*asked)["plans"][0]["step_time_note"]


def test_the_same_again_is_the_same_and_the_accelerator_is_that_of_the_rows(fitted: Fitted, tmp_path: Path) -> None:
    out = tmp_path / "mine.yaml"
    again = answer("calibrate", EXAMPLE, "--out", out, "--seed", 0)
    assert {**again, "profile": ""} == {**fitted.record, "profile": ""}
    assert out.read_text() == fitted.profile.read_text()
    other = answer("calibrate", EXAMPLE, *H100, "--out", out, "--seed", 1)
    assert again["held_out"]["runs"] != other["held_out"]["runs"]


@pytest.mark.parametrize(("share", "number"), [("0", 0), ("50%", 6), ("0.9", 11)])
def test_how_many_are_held_out_in_tables_one_line_apart(share: str, number: int, tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    text = run("calibrate", EXAMPLE, *H100, "--out", tmp_path / "x.yaml", "--holdout", share, "--json", record).stdout
    assert len(json.loads(record.read_text())["held_out"]["runs"]) == number
    assert "\n\nConstants" in text
    assert "\n\n\n" not in text


def test_rows_of_several_accelerators_need_a_name(tmp_path: Path) -> None:
    other = {**CELLS, "id": "a", "accelerator": "a100-sxm-80gb", "step_time_s": "15"}
    path = write(tmp_path, CELLS, other, {**CELLS, "id": "b"})
    assert "h100-sxm-80gb (2 runs), a100-sxm-80gb (1 run)" in refused("calibrate", path, "--out", tmp_path / "x.yaml")
    assert not (tmp_path / "x.yaml").exists()


def test_one_run_is_enough_and_others_are_left_out(tmp_path: Path) -> None:
    other = {**CELLS, "id": "a", "accelerator": "a100-sxm-80gb", "step_time_s": "15"}
    path = write(tmp_path, CELLS, {**CELLS, "id": "odd", "tp": "3"}, other)
    record = answer("calibrate", path, *H100, "--out", tmp_path / "x.yaml")
    assert record["fitted"]["runs"] == ["run"]
    assert {each["id"] for each in record["skipped"]} == {"odd", "a"}
    text = run("calibrate", path, *H100, "--out", tmp_path / "x.yaml").stdout
    assert "is of a100-sxm-80gb, not h100-sxm-80gb" in unwrapped(text)


def test_one_run_is_told_in_the_singular(tmp_path: Path) -> None:
    out = tmp_path / "x.yaml"
    run("calibrate", write(tmp_path, {**CELLS, "step_time_s": "8"}), *H100, "--out", out, "--accept-poor-fit")
    assert "fitted to 1 run of runs.csv on" in out.read_text(encoding="utf-8").splitlines()[0]
    assert "fitted_on: 1 run of runs.csv, " in out.read_text(encoding="utf-8")


def test_rows_with_a_bad_cell_are_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, {**CELLS, "sharding": "none"}, {**CELLS, "id": "odd", "precision": "bf61"})
    record = answer("calibrate", path, *H100, "--out", tmp_path / "x.yaml")
    assert record["fitted"]["runs"] == ["run"]
    assert record["taken_as"] == {"sharding none is taken as ddp": 1}
    assert [each["id"] for each in record["skipped"]] == ["odd"]
    assert "precision is 'bf61'" in record["skipped"][0]["reason"]


def test_no_row_can_be_read(tmp_path: Path) -> None:
    told = refused("calibrate", write(tmp_path, {**CELLS, "tp": "two"}), *H100, "--out", tmp_path / "x.yaml")
    assert "none of the 1 runs can be used: line 2: tp is 'two'" in told


def test_what_cannot_be_or_is_far_off_is_said(tmp_path: Path) -> None:
    """A time in the wrong unit: too short to be true, or far from all others."""
    rows = [{**CELLS, "id": f"r{number}", "global_batch_size": str(64 * number)} for number in (1, 2, 3, 4)]
    for number, row in enumerate(rows, 1):
        row["step_time_s"] = str(3.9 * number)
    path = write(
        tmp_path,
        *rows,
        {**CELLS, "id": "short", "step_time_s": "0.0039"},
        {**rows[0], "id": "ms", "step_time_s": "3900"},
    )
    text, record = both(tmp_path, "calibrate", path, *H100, "--out", tmp_path / "x.yaml", "--holdout", "0")
    assert [each["id"] for each in record["skipped"]] == ["short"]
    assert "times the bf16 peak of h100-sxm-80gb" in record["skipped"][0]["reason"]
    assert [each["id"] for each in record["outliers"]] == ["ms"]
    assert "Predicted less than half or more than twice: ms" in text
    assert "No run was held out" in text


def _slow(tmp_path: Path, seconds: float) -> Path:
    """Three runs of one configuration that take so long whatever their batch."""
    rows = [{**CELLS, "id": f"r{number}", "global_batch_size": str(64 * number)} for number in (1, 2, 3)]
    return write(tmp_path, *({**row, "step_time_s": str(seconds)} for row in rows))


def test_runs_that_no_constants_explain_are_doubted(tmp_path: Path) -> None:
    path, out = write(tmp_path, {**CELLS, "step_time_s": "5.8"}), tmp_path / "x.yaml"
    found = run("calibrate", path, *H100, "--out", out, "--holdout", "0")
    assert "check units and fields of the runs" in unwrapped(found.stdout)
    assert out.exists()


def test_a_fit_that_does_not_describe_its_runs_is_not_written(tmp_path: Path) -> None:
    """Rule, value and knob, and nothing saved."""
    path, out, record = _slow(tmp_path, 1_200), tmp_path / "x.yaml", tmp_path / "x.json"
    command = ("calibrate", path, *H100, "--out", out, "--holdout", "0")
    result = run(*command, "--json", record)
    text, reason = (unwrapped(stream) for stream in (result.stdout, result.stderr))
    assert result.exit_code == 2
    assert "times as far as they were uncertain: accelerator_rate[h100-sxm-80gb]" in text  # what was found is shown
    assert "Saved" not in text
    for words in (
        "no profile is written",
        "median step time of the 3 runs",
        "above 50%",
        "--accept-poor-fit",
        "r1 (",
    ):
        assert words in reason
    assert not out.exists()
    assert not record.exists()
    assert "no profile is written" in answer(*command, status=2)["error"]["message"]


def test_a_poor_fit_is_written_on_demand(tmp_path: Path) -> None:
    out = tmp_path / "x.yaml"
    command = ("calibrate", _slow(tmp_path, 400), *H100, "--out", out, "--holdout", "0", "--accept-poor-fit")
    assert answer(*command)["fitted"]["step_time"]["after"]["median"] > 0.5
    assert read_profile(out).accelerator_rate["h100-sxm-80gb"] < 1


def test_memory_that_no_constants_explain_is_not_fitted_either(tmp_path: Path) -> None:
    path = write(tmp_path, {**CELLS, "peak_memory_gb": "1", "memory_kind": "reserved"})
    told = refused("calibrate", path, *H100, "--out", tmp_path / "x.yaml", "--holdout", "0")
    assert "peak memory of the run behind it" in told


def test_what_is_not_understood_is_said(tmp_path: Path) -> None:
    path = write(tmp_path, {**CELLS, "options": "NETWORK=efa", "weather": "rain"})
    text, record = both(tmp_path, "calibrate", path, *H100, "--out", tmp_path / "x.yaml")
    assert record["not_understood"] == {"column weather": 1, "option NETWORK=efa": 1}
    for each in (text, unwrapped(run("validate", path).stdout)):
        assert "option NETWORK=efa (1 row)" in each


@pytest.mark.parametrize("target", ["runs.csv", "mine.yaml"])
def test_runs_and_profile_are_not_written_over(target: str, tmp_path: Path) -> None:
    path, out = write(tmp_path, CELLS), tmp_path / "mine.yaml"
    before = path.read_text(encoding="utf-8")
    assert "reads or writes already" in refused("calibrate", path, *H100, "--out", out, "--json", tmp_path / target)
    assert path.read_text(encoding="utf-8") == before
    assert not out.exists()


def test_a_part_of_ones_own_goes_by_its_name(tmp_path: Path) -> None:
    file = EXAMPLE.parent / "my-accelerator.yaml"
    name = load_accelerator(file).name
    path = write(tmp_path, {**CELLS, "accelerator": name, "step_time_s": "5"})
    record = answer("calibrate", path, "--accelerator", file, "--out", tmp_path / "x.yaml", "--holdout", "0")
    assert record["accelerator"] == name
    assert record["fitted"]["runs"] == ["run"]


def test_memory_alone_is_enough(tmp_path: Path) -> None:
    path = write(tmp_path, {**CELLS, "step_time_s": "", "peak_memory_gb": "60", "memory_kind": "reserved"})
    record = answer("calibrate", path, *H100, "--out", tmp_path / "x.yaml")
    assert record["fitted"]["step_time"]["before"]["n"] == 0
    memory = record["fitted"]["peak_memory"]
    assert memory["after"]["median"] <= memory["before"]["median"]


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_lines_fit_the_terminal(columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, CELLS, {**CELLS, "id": "long-" * 40, "tp": "3"})
    lines = run("calibrate", path, *H100, "--out", "x.yaml", columns=columns).stdout.splitlines()
    assert max(len(line) for line in lines if "shardplan " not in line) <= max(columns, 60)


def test_an_interrupt_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, before = tmp_path / "mine.yaml", "# Constants of h100-sxm-80gb, fitted to 3 runs."
    out.write_text(before)

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("shardplan.calibrate.user.fit", interrupted)
    result = run("calibrate", EXAMPLE, *H100, "--out", out)
    assert result.exit_code == 130
    assert out.read_text() == before
    assert list(tmp_path.iterdir()) == [out]


OUT = ("--out", "x.yaml")
WRONG: dict[str, tuple[tuple[object, ...], str]] = {
    "nothing": ((), "nothing to calibrate with"),
    "two ways": ((EXAMPLE, "--microbench"), "RUNS.csv and --microbench are given"),
    "an unknown accelerator": ((EXAMPLE, "--accelerator", "h100-sxm-80", *OUT), "did you mean h100-sxm-80gb"),
    "another accelerator": ((EXAMPLE, "--accelerator", "b200-sxm-180gb", *OUT), "none of the 12 runs can be used"),
    "no file for the profile": ((EXAMPLE, *H100), "no file for the profile"),
    "standard output for the profile": ((EXAMPLE, *H100, "--out", "-"), "no file for the profile"),
    "an empty name": ((EXAMPLE, *H100, "--out", ""), "it is empty"),
    "another kind of file": ((EXAMPLE, *H100, "--out", "x.json"), "a profile is YAML"),
    "flags of another fit": (("--defaults", "--holdout", "0.2"), "flags of another fit"),
    "a folder": ((EXAMPLE, *H100, "--out", "."), "it is a directory"),
    "no folder": ((EXAMPLE, *H100, "--out", "none/x.yaml"), "No such file"),
    "no runs": (("none.csv", *H100, *OUT), "does not exist"),
    "all held out": ((EXAMPLE, *H100, *OUT, "--holdout", "1"), "--holdout is '1'"),
    "a share in words": ((EXAMPLE, *H100, *OUT, "--holdout", "half"), "--holdout is 'half'"),
    "no share": ((EXAMPLE, *H100, *OUT, "--holdout", "nan"), "--holdout is 'nan'"),
    "less than none": ((EXAMPLE, *H100, *OUT, "--holdout", "-0.1"), "--holdout is '-0.1'"),
    "no seed": ((EXAMPLE, *H100, *OUT, "--seed", "x"), "--seed is 'x'"),
    "written without a fit": ((EXAMPLE, *H100, *OUT, "--write"), "--write is given without --defaults"),
    "a cluster of runs": ((EXAMPLE, *H100, *OUT, "--cluster", "dgx-h100"), "--cluster is given without --microbench"),
    "a cluster that nobody knows": (("--microbench", *OUT, "--cluster", "dgx-h10"), "unknown cluster"),
    "no size": (("--microbench", *OUT, "--sizes", "huge"), "--sizes is 'huge'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, words = WRONG[name]
    result = run("calibrate", *arguments, "--json", "-")
    assert result.exit_code == 2, result.output
    assert words in json.loads(result.stdout)["error"]["message"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("noise", "word"), [(0.0, "narrower"), (2.0, "wider")])
def test_bands_follow_the_errors_of_a_profile(noise: float, word: str, tmp_path: Path) -> None:
    """Runs that constants explain, and runs half of them off by e^4."""
    with EXAMPLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for place, row in enumerate(rows):
        row["step_time_s"] = str(float(row["step_time_s"]) * math.exp(noise * (1 + (-1) ** place)))
    path, out = write(tmp_path, *rows), tmp_path / "mine.yaml"
    record = answer("calibrate", path, *H100, "--out", out, "--accept-poor-fit")
    assert record["left_out"]["step_time"]["n"] == len(rows)
    job = ("--gpus", 8, "--precision", "fp8", "--recompute", "full")
    asked = ("estimate", "llama-2-7b", "--cluster", "dgx-h100", *job)
    shipped, own = (answer(*asked, *more)["plans"][0] for more in ((), ("--profile", out)))
    widths = [plan["step_time_p90_s"] / plan["step_time_p10_s"] for plan in (shipped, own)]
    assert (widths[1] < widths[0]) == (word == "narrower")
    assert f"the band is {word} than without them" in own["step_time_note"]
    assert f"the band is {word} than without them" in unwrapped(run(*asked, "--profile", out).stdout)


def test_milliseconds_under_the_name_of_seconds_are_refused(tmp_path: Path) -> None:
    """However well one free constant could absorb the unit."""
    header, *rows = (Path(__file__).parents[3] / "examples" / "my-runs.csv").read_text(encoding="utf-8").splitlines()
    place = header.split(",").index("step_time_s")
    cells = [row.split(",") for row in rows]
    for row in cells:
        row[place] = str(1000 * float(row[place]))
    path = tmp_path / "runs.csv"
    path.write_text("\n".join([header, *(",".join(row) for row in cells)]) + "\n", encoding="utf-8")
    assert "name the column step_time_ms" in refused("calibrate", path, "--out", tmp_path / "mine.yaml")
    assert not (tmp_path / "mine.yaml").exists()
    assert "name the column step_time_ms" in unwrapped(run("validate", path).stdout)
