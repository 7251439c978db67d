"""``shardplan simulate``: the step as a trace, a page and a picture; its record; its former name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.commands import SMALL, answer, refused, run, unwrapped
from tests.cli.test_simulate import case

from shardplan.answers.timeline import ranges


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("plans") / "plan.json"
    assert run("estimate", *SMALL, "--tp", 1, "--pp", 4, "--vp", 1, "--json", file).exit_code == 0
    return file


def test_a_plan_as_a_trace(plan: Path, tmp_path: Path) -> None:
    out = tmp_path / "step.json"
    shown = run("simulate", plan, "--out", out)
    assert shown.exit_code == 0
    assert str(out.name) in unwrapped(shown.stdout).replace(" ", "")
    trace = json.loads(out.read_text())
    assert {each["pid"] for each in trace["traceEvents"]} == {1, 2, 3, 4}
    simulated = answer("simulate", plan)
    assert trace["otherData"]["step_time_s"] == simulated["step_time_s"]
    assert run("simulate", plan, "--out", out).exit_code == 0  # a trace of ours is replaced


def test_the_record_agrees_with_estimate_and_simulation(plan: Path) -> None:
    record = answer("simulate", plan)
    estimated = json.loads(plan.read_text())["plans"][0]
    assert sum(record["breakdown_s"].values()) == pytest.approx(record["step_time_s"], rel=1e-12)
    peaks = [rank["peak_memory_bytes"] for rank in record["ranks"]]
    assert max(peaks) == record["peak_memory"]["bytes"] == pytest.approx(estimated["peak_memory_bytes"], rel=1e-9)
    alive = record["peak_memory"]["alive"]
    assert sum(part["bytes"] for part in alive) == pytest.approx(max(peaks), rel=1e-9)
    assert {each["bound"] for each in record["layer"]} <= {"matmul rate", "memory", "network", "launch"}


def test_the_former_name_still_works_and_is_not_listed(plan: Path) -> None:
    assert run("timeline", plan).stdout == run("simulate", plan).stdout
    assert "timeline" not in run("--help").stdout


def test_one_screen_says_where_time_and_memory_go(plan: Path) -> None:
    text = unwrapped(run("simulate", plan).stdout)
    for expected in ("forward", "bubble", "optimizer", "critical path", "at the peak", "micro-batches 0 to 3"):
        assert expected in text


def test_jitter_and_another_schedule(plan: Path) -> None:
    calm = answer("simulate", plan)
    first, again = (answer("simulate", plan, "--jitter", "0.1", "--seed", 1) for _ in range(2))
    assert first == again != calm
    slow = answer("simulate", plan, "--slow-rank", "1=3")
    assert slow["slowest_rank"] == 1  # it works longest, and waits least
    assert slow["ranks"][1]["bubble_rate"] < calm["ranks"][1]["bubble_rate"]
    assert "ZB-H1" in answer("simulate", plan, "--schedule", "zb-h1")["title"]


def test_times_of_a_case(tmp_path: Path) -> None:
    """8 x 3 s of work, and 3 x 3 s to fill and drain; no plan, no memory."""
    out = tmp_path / "step.json"
    record = answer("simulate", "--times", case(tmp_path), "--out", out)
    assert record["step_time_s"] == 33
    assert record["peak_memory"] is None
    assert record["breakdown_s"] == {"forward": 8.0, "backward": 16.0, "bubble": 9.0}
    assert out.exists()


def test_a_page_and_a_picture(plan: Path, tmp_path: Path) -> None:
    files = {flag: tmp_path / f"step.{flag}" for flag in ("html", "svg")}
    arguments = [each for flag, file in files.items() for each in (f"--{flag}", file)]
    for _ in range(2):  # files of ours are replaced
        assert run("simulate", plan, *arguments).exit_code == 0
    assert files["html"].read_text().startswith("<!doctype html>")
    assert files["svg"].read_text().startswith("<svg ")
    files["svg"].write_text("<svg></svg>")
    assert run("simulate", plan, *arguments).exit_code == 2
    assert "file of its own" in refused("simulate", plan, "--html", tmp_path / "one", "--svg", tmp_path / "one")


def test_a_trace_on_standard_output(tmp_path: Path) -> None:
    shown = run("simulate", "--times", case(tmp_path), "--out", "-")
    assert json.loads(shown.stdout)["traceEvents"]


@pytest.mark.parametrize(("flag", "kind"), [("--html", "a page that shardplan wrote"), ("--svg", "a picture")])
def test_no_other_page_or_picture_is_lost(plan: Path, tmp_path: Path, flag: str, kind: str) -> None:
    other = tmp_path / "mine"
    other.write_text("<svg><title>mine</title></svg>")
    assert f"which exists and is not {kind}" in refused("simulate", plan, flag, other)
    assert "mine" in other.read_text()
    assert run("simulate", plan, flag, other, "--force").exit_code == 0
    assert "shardplan" in other.read_text()


def test_files_that_cannot_be_written(plan: Path, tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("mine")
    for out, why in (
        (tmp_path / "missing" / "step.json", "cannot write"),
        (tmp_path, "it is a directory"),
        (other, "which exists and is not a trace that shardplan wrote"),
        (plan, "which this command reads"),
        ("", "it is empty"),
    ):
        assert why in refused("simulate", plan, "--out", out)
    assert other.read_text() == "mine"
    assert run("simulate", plan, "--out", other, "--force").exit_code == 0
    both = run("simulate", plan, "--out", "-", "--json", "-")
    assert both.exit_code == 2


@pytest.mark.parametrize("content", ["", "[1, 2]", '{"schema": "shardplan/estimate/1"}', "no plan"])
def test_files_that_are_no_plan(tmp_path: Path, content: str) -> None:
    file = tmp_path / "plan.json"
    file.write_text(content)
    assert "hint" in refused("simulate", file, "--out", tmp_path / "step.json")
    assert not (tmp_path / "step.json").exists()
    assert run("simulate").exit_code == 2


def test_numbers_as_ranges() -> None:
    assert ranges([3]) == "3"
    assert ranges([0, 1, 2, 5, 7, 8]) == "0 to 2, 5 and 7 to 8"
