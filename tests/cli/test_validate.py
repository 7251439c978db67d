"""``shardplan validate``."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.calibrate.rows import CELLS, PUBLISHED, write
from tests.cli.commands import answer, refused, run, unwrapped

from shardplan.answers.validation import seen_of
from shardplan.calibrate.runs.rows import read_runs, shipped_runs
from shardplan.calibrate.validate import validate_runs
from shardplan.cli.validate import GROUPS
from shardplan.inputs.profile import read_profile

EXAMPLE = Path(__file__).parents[2] / "examples" / "my-runs.csv"


def test_one_published_run_in_full() -> None:
    """DeepSpeed's blog says 2T parameters in 14.4 minutes a step; tier B, so it leaves out what decides."""
    record = answer("validate", "--run", "ds-azure-gpt-2t")
    step, fits = record["compared"]
    assert (step["measured"], fits["measured"]) == ("14.4 min", "ran")
    assert any("leaves out what decides" in each for each in record["reasons"])
    assert "2.06T parameters" in record["facts"]["Model"]
    assert "did you mean ds-azure-gpt-2t" in refused("validate", "--run", "ds-azure-gpt-2")
    assert "--run is given with --rl" in refused("validate", "--run", "ds-azure-gpt-2t", "--rl")


def test_groups_are_those_of_the_statistics() -> None:
    from shardplan.calibrate.errors import GROUPINGS

    assert set(GROUPS) == set(GROUPINGS)


@pytest.mark.parametrize("by", GROUPS)
def test_errors_are_told_apart(by: str) -> None:
    text = run("validate", PUBLISHED, "--by", by).stdout
    table = text.split("Step time\n")[1].split("\n\n")[0].splitlines()
    assert table[0].split()[:3] == [by, "n", "median"]
    assert table[-1].split()[:2] == ["all", "6"]


def test_the_text_tells_errors_order_and_coverage() -> None:
    text = run("validate", EXAMPLE).stdout
    assert text.startswith("12 rows of ")
    for words in ("Step time", "Furthest off", "of all rows: grad_dtype bf16 (default of nemo)", "inside their band"):
        assert words in unwrapped(text)
    assert "Peak memory" not in text  # nothing was measured


def test_skipped_rows_are_listed_by_rule(tmp_path: Path) -> None:
    rows = [{**CELLS, "id": f"odd-{number}", "tp": "3"} for number in range(5)]
    path = write(tmp_path, {**CELLS, "peak_memory_gb": "60"}, *rows)
    result = run("validate", path)
    assert result.exit_code == 0
    text = unwrapped(result.stdout)
    assert "6 rows of" in text
    assert "1 predicted, 5 skipped" in text
    assert "lines 3, 4, 5 and 2 more: tp x cp x pp divides the accelerators" in text
    assert "Peak memory" in text
    record = answer("validate", path)
    assert record["schema"] == "shardplan/validation/1"
    assert record["counts"]["skipped_by_rule"] == {"tp x cp x pp divides the accelerators": 5}


def test_one_row_is_told_in_the_singular(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {**CELLS, "num_accelerators": "1", "tp": "1", "pp": "1", "model": "llama-3.1-70b", "step_time_s": "900"},
    )
    text = unwrapped(run("validate", path).stdout)
    assert text.startswith("1 row of ")
    assert "1 row is predicted not to fit in memory, although it ran." in text
    (row,) = answer("validate", path)["rows"]
    assert not row["fits"]
    assert 80e9 > row["usable_memory_bytes"] * 0.9 > 60e9
    needs = row["needed_memory_bytes"] / row["usable_memory_bytes"]
    assert needs > 10, "70.6e9 parameters of 16 or 18 bytes on 80 GB"
    assert f"{needs:.2f}x run: " in text


def test_of_many_rows_that_do_not_fit_those_are_named_that_lack_most(tmp_path: Path) -> None:
    big = {**CELLS, "num_accelerators": "1", "tp": "1", "pp": "1", "model": "llama-3.1-70b", "step_time_s": "9000"}
    path = write(tmp_path, *({**big, "id": f"long-{n}", "micro_batch_size": str(2**n)} for n in range(7)))
    text = unwrapped(run("validate", path).stdout)
    listed = text.split("Predicted not to fit")[1]
    assert listed.index("long-6:") < listed.index("long-5:") < listed.index("long-2:")
    assert "long-1:" not in listed
    assert "and 2 more (fits: false in --json)" in listed


def test_rows_with_a_bad_cell_are_skipped_and_the_others_predicted(tmp_path: Path) -> None:
    path = write(tmp_path, CELLS, {**CELLS, "id": "odd", "precision": "bf61"}, {**CELLS, "id": "", "tp": "two"})
    text = unwrapped(run("validate", path).stdout)
    assert "3 rows of" in text
    assert "1 predicted, 2 skipped" in text
    assert "line 3: precision is 'bf61'; it must be one of bf16, fp16" in text
    record = answer("validate", path)
    assert [row["id"] for row in record["rows"]] == ["run", "odd", "line 4"]
    assert record["rows"][1]["skipped"].endswith("(did you mean bf16?); correct precision, or leave the cell empty "
                                                 "where it is not stated")  # fmt: skip
    assert record["counts"]["skipped"] == 2


def test_no_row_can_be_read(tmp_path: Path) -> None:
    """As where none can be predicted."""
    path = write(tmp_path, {**CELLS, "precision": "bf61"})
    assert answer("validate", path, status=1)["counts"]["skipped"] == 1


def test_rules_that_are_not_listed_are_counted(tmp_path: Path) -> None:
    columns = ("tp", "pp", "cp", "ep", "etp", "vp", "step_time_s", "num_accelerators", "precision", "sharding")
    path = write(tmp_path, *({**CELLS, "id": column, column: "?"} for column in columns))
    text = unwrapped(run("validate", path).stdout)
    assert "and 2 more that break 2 other rules; --json has all of them" in text


def test_what_is_taken_as_another_name_is_said(tmp_path: Path) -> None:
    path = write(tmp_path, {**CELLS, "framework": "megatron", "sharding": "none"})
    text = unwrapped(run("validate", path).stdout)
    assert "framework megatron is taken as megatron-lm (1 row)" in text
    assert "sharding none is taken as ddp (1 row)" in text
    assert answer("validate", path)["rows"][0]["assumed"][:2] == [
        "sharding none is taken as ddp", "framework megatron is taken as megatron-lm",
    ]  # fmt: skip


def test_values_that_are_not_understood_are_listed(tmp_path: Path) -> None:
    path = write(tmp_path, {**CELLS, "options": "schedule=hanayo"})
    text = unwrapped(run("validate", path).stdout)
    assert "option schedule=hanayo is not one of 1f1b, interleaved, gpipe" in text


@pytest.mark.parametrize(("seconds", "said"), [("1000", r"0\.00\d{2}x run"), ("5", r"0\.\d{2}x run")])
def test_ratios_keep_two_digits(tmp_path: Path, seconds: str, said: str) -> None:
    assert re.search(said, unwrapped(run("validate", write(tmp_path, {**CELLS, "step_time_s": seconds})).stdout))


@pytest.mark.parametrize(("profile", "count"), [("hopper", 12), ("ampere", 0)])
def test_a_profile_says_to_how_many_runs_it_applies(profile: str, count: int) -> None:
    text = unwrapped(run("validate", EXAMPLE, "--profile", profile).stdout)
    assert f"They are constants of {profile}, which apply to {count} of the 12 runs." in text


def _told(*arguments: object) -> str:
    return unwrapped(run("validate", *arguments, columns=200).stdout)


NOT_NEW = "errors and bands are not those of new runs"


def test_what_the_constants_have_seen_of_the_runs_is_said(tmp_path: Path) -> None:
    """The example's runs are published ones; the six of another paper's table in the test folder go by other names."""
    mine = tmp_path / "mine.yaml"
    run("calibrate", EXAMPLE, "--accelerator", "h100-sxm-80gb", "--out", mine)
    shipped = "The constants were fitted to these runs; docs/accuracy.md counts with each team left out."
    for arguments in ((EXAMPLE,), (EXAMPLE, "--profile", "hopper")):
        assert shipped in _told(*arguments)
    assert "fitted to" not in _told(PUBLISHED)
    own = _told(EXAMPLE, "--profile", mine)
    assert re.search(r"The profile was fitted to 8 runs of my-runs.csv, [-\d]{10}, and made from these runs", own)
    assert NOT_NEW in own
    assert "none of these runs is among what it was made from" in _told(PUBLISHED, "--profile", mine)


def test_of_the_published_runs_few_are_those_of_a_profile(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    run("calibrate", EXAMPLE, "--accelerator", "h100-sxm-80gb", "--out", mine)
    found = validate_runs(shipped_runs()[:1])
    several = replace(found, predictions=(*validate_runs(read_runs(EXAMPLE)).predictions, *found.predictions))
    seen = seen_of(several, read_profile(mine))
    assert (seen.num_runs, seen.num_own, seen.num_published) == (13, 12, 13)


def test_a_profile_that_names_no_runs_says_so(tmp_path: Path) -> None:
    """Of one configuration; written by hand."""
    path, mine = write(tmp_path, CELLS), tmp_path / "mine.yaml"
    run("calibrate", path, "--accelerator", "h100-sxm-80gb", "--out", mine)
    text = _told(path, "--profile", mine)
    assert "The profile was fitted to 1 run of runs.csv" in text
    assert "it does not say which" in text
    assert NOT_NEW in text
    mine.write_text("generation: hopper\nstep_time: {value: 0.1, unit: s, source: a test}\n")
    assert "The profile was fitted to no runs." in _told(path, "--profile", mine)


def test_nothing_can_be_predicted(tmp_path: Path) -> None:
    path = write(tmp_path, {**CELLS, "tp": "3"})
    result = run("validate", path, "--html", tmp_path / "report.html")
    assert result.exit_code == 1, result.output
    assert "0 predicted, 1 skipped" in unwrapped(result.stdout)
    assert answer("validate", path, status=1)["summary"]["all"]["n"] == 0


def test_a_profile_applies_to_runs_of_its_generation(tmp_path: Path) -> None:
    profile = tmp_path / "mine.yaml"
    profile.write_text("generation: hopper\nstep_time: {value: 100, unit: s, source: a test}\n")
    path = write(tmp_path, CELLS, {**CELLS, "id": "other", "accelerator": "a100-sxm-80gb"})
    usual, own = answer("validate", path), answer("validate", path, "--profile", profile)
    before, after = ([row["predicted_step_time_s"] for row in record["rows"]] for record in (usual, own))
    assert after[0] - before[0] == pytest.approx(100, rel=0.01)
    assert after[1] == before[1]
    assert "with the constants of" in unwrapped(run("validate", path, "--profile", profile, columns=200).stdout)


def test_the_report_is_one_page(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    result = run("validate", EXAMPLE, "--html", page)
    assert result.exit_code == 0, result.output
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_lines_fit_the_terminal(columns: int, tmp_path: Path) -> None:
    path = write(tmp_path, CELLS, {**CELLS, "id": "long-" * 40}, {**CELLS, "id": "odd", "tp": "3"})
    lines = run("validate", path, columns=columns).stdout.splitlines()
    assert max(map(len, lines)) <= columns


WRONG = {
    "no file": (("none.csv",), "does not exist"),
    "a folder": ((".",), "is a directory"),
    "a null character": (("a\0b.csv",), "no null characters"),
    "no runs": ((Path(__file__),), "column"),
    "a group that is none": (("--by", "famly"), "did you mean family?"),
    "a profile that is none": (("--profile", "hoper"), "did you mean hopper?"),
    "a page on standard output": (("--html", "-"), "--html is '-'"),
    "a page in no folder": (("--html", "none/report.html"), "cannot write"),
    "a page that is a folder": (("--html", "."), "it is a directory"),
    "two files": (("a.csv", "b.csv"), "unexpected extra argument"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input(name: str) -> None:
    arguments, words = WRONG[name]
    result = run("validate", *arguments, "--json", "-")
    assert result.exit_code == 2, result.output
    assert words in json.loads(result.stdout)["error"]["message"] + result.stderr
