"""``shardplan compare``: plan files side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.commands import FEW, SMALL, answer, refused, run, unwrapped


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plans")
    assert run("plan", *SMALL, *FEW, "--top", 3, "--json", folder / "plans.json").exit_code == 0
    assert run("estimate", *SMALL, "--tp", 2, "--json", folder / "A.json").exit_code == 0
    assert run("estimate", *SMALL, "--tp", 4, "--recompute", "full", "--json", folder / "B.json").exit_code == 0
    assert run("estimate", *SMALL, "--tp", 2, "--precision", "fp8", "--json", folder / "C.json").exit_code == 0
    assert run("estimate", *SMALL, "--tp", 2, "--recompute", "layernorm", "--json", folder / "D.json").exit_code == 0
    assert run("plan", *SMALL, "--fix", "tp=3", "--json", folder / "none.json").exit_code == 1
    return folder


@pytest.mark.parametrize("columns", [60, 80, 100, 140])
def test_two_files_term_by_term(folder: Path, columns: int) -> None:
    result = run("compare", folder / "A.json", folder / "B.json", columns=columns)
    assert result.exit_code == 0
    for text in ("is the fastest of these", "step time", "tp communication", "peak memory", "recompute"):
        assert text in unwrapped(result.stdout)
    assert max(map(len, result.stdout.splitlines())) <= columns


def test_plans_that_are_too_close_to_call_are_named(folder: Path) -> None:
    near = ("compare", folder / "A.json", folder / "D.json")
    assert "is within 9 % of it: too close to call." in run(*near).stdout
    assert answer(*near)["ties"] == [1]
    assert answer("compare", folder / "A.json", folder / "B.json")["ties"] == []
    assert answer("compare", folder / "A.json", folder / "C.json")["ties"] == []  # another question


def test_a_search_and_an_estimate_compare(folder: Path) -> None:
    record = answer("compare", folder / "plans.json", folder / "B.json", "--pick", "2,1")
    assert [plan["label"] for plan in record["plans"]] == ["plans:2", "B"]


def test_plans_of_one_file_compare(folder: Path) -> None:
    assert [plan["pick"] for plan in answer("compare", folder / "plans.json")["plans"]] == [1, 2]
    assert [plan["pick"] for plan in answer("compare", folder / "plans.json", "--pick", "1,3,2")["plans"]] == [1, 3, 2]


def test_the_recommended_plan_is_one_to_compare(folder: Path) -> None:
    record = answer("compare", folder / "plans.json", "--pick", "1,recommended")
    assert [plan["label"] for plan in record["plans"]] == ["plans:1", "plans:recommended"]
    told = refused("compare", folder / "A.json", folder / "plans.json", "--pick", "recommended")
    assert "the file recommends none" in told


def test_what_a_plan_leaves_to_its_software_is_what_that_does(folder: Path) -> None:
    rows = answer("compare", folder / "A.json", folder / "plans.json", "--pick", "1,1")["rows"]
    assert all(None not in row["values"] and "-" not in row["values"] for row in rows if row["name"] == "cuda_graphs")


def test_terms_are_those_of_the_files(folder: Path) -> None:
    record = answer("compare", folder / "A.json", folder / "B.json")
    step = next(row for row in record["rows"] if row["name"] == "step_time")
    single = answer("estimate", "--from", folder / "A.json")["plans"][0]["step_time_s"]
    assert step["unit"] == "s"
    assert step["values"][0] == single
    assert step["changes"][1] == step["values"][1] - step["values"][0]


def test_other_questions_are_warned_of(folder: Path) -> None:
    result = run("compare", folder / "A.json", folder / "C.json")
    assert "answer different questions" in unwrapped(result.stdout)
    assert "precision" in unwrapped(result.stdout)


def test_files_of_the_same_name_are_told_apart(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "A.json"
    other.write_text((folder / "B.json").read_text())
    labels = [plan["label"] for plan in answer("compare", folder / "A.json", other)["plans"]]
    assert len(set(labels)) == 2


@pytest.mark.parametrize(
    ("files", "flags", "words"),
    [
        (["none.json", "A.json"], [], "nothing fitted"),
        (["A.json"], [], "plan 2 is asked for"),
        (["plans.json"], ["--pick", "1"], "1 plan is given"),
        (["A.json", "B.json"], ["--pick", "1,1,1"], "3 numbers for 2 files"),
        (["A.json", "B.json"], ["--pick", "0"], "whole number"),
        (["A.json", "B.json"], ["--pick", "1;2"], "whole number, or recommended"),
        (["plans.json"], ["--pick", ",".join(["1"] * 99)], "at most 20"),
        (["A.json", "missing.json"], [], "does not exist"),
    ],
)
def test_wrong_picks_and_files_are_refused(folder: Path, files: list[str], flags: list[str], words: str) -> None:
    assert words in refused("compare", *(folder / file for file in files), *flags)


def test_different_models_are_compared_by_their_mfu(tmp_path: Path) -> None:
    large, small = tmp_path / "large.json", tmp_path / "small.json"
    run("estimate", "llama-3.1-70b", "--cluster", "dgx-h100", "--gpus", 64, "--tp", 8, "--pp", 8, "--json", large)
    run("estimate", "llama-3.2-1b", "--cluster", "dgx-h100", "--gpus", 8, "--json", small)
    record = answer("compare", large, small)
    mfu = next(row["values"] for row in record["rows"] if row["name"] == "mfu")
    assert record["fastest"] == mfu.index(max(mfu))
    text = unwrapped(run("compare", large, small).stdout)
    assert "is the most efficient: the highest MFU" in text
    assert "compare MFU, not step times" in text


def test_files_of_searches_are_compared_by_the_recommended_plan(tmp_path: Path) -> None:
    path = tmp_path / "plans.json"
    run("plan", "llama-3.1-70b", "--cluster", "dgx-h100", "--gpus", 512, "--top", 2, "--json", path)
    other = tmp_path / "other.json"
    other.write_bytes(path.read_bytes())
    best = json.loads(path.read_text(encoding="utf-8"))["recommended"]["plan"]["step_time_s"]
    times = next(row["values"] for row in answer("compare", path, other)["rows"] if row["name"] == "step_time")
    assert times == [best, best]
    assert answer("estimate", "--from", path)["plans"][0]["step_time_s"] == best
    alone = next(row["values"] for row in answer("compare", path)["rows"] if row["name"] == "step_time")
    assert alone[1] == best != alone[0]
    assert "It may not fit" in unwrapped(run("compare", path).stdout)
