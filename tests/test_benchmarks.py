"""The benchmarks run, and the documentation says what they measured. How fast they are is no test: machines differ."""

import csv
import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BENCHMARKS = ROOT / "benchmarks"
MEASURED = {
    "evaluation_rate": "questions",
    "commands": "commands",
    "audits": "frameworks",
    "scaling": "by_plans",
    "validate_rows": "kinds",
    "pruning": "questions",
    "rl_search": "questions",
    "many": "rows",
    "software_choices": "rows",
}


@pytest.mark.parametrize("name", MEASURED)
def test_a_benchmark_prints_and_writes_what_it_measured(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "record.json"
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--tiny", "--runs", "1", "--json", str(path)])
    rates = import_module("evaluation_rate")
    sample = rates._sample
    monkeypatch.setattr(rates, "LOOP", 20_000)  # of the loop that the machine is measured by
    monkeypatch.setattr(rates, "_sample", lambda found, **_: sample(found, num_plans=10))
    import_module(name).main()
    printed, record = capsys.readouterr().out, json.loads(path.read_text())
    assert record["benchmark"] == name
    assert set(record["machine"]) == {"processor", "system", "python", "numpy", "shardplan"}
    assert len(record[MEASURED[name]]) >= 1
    assert printed.startswith("| ")


@pytest.mark.parametrize("page", ["speed", "calibrate", "search", "simulation"])
def test_the_pages_show_the_records(page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text()
    assert import_module("publish").filled(text) == text
    assert "<!-- measured: " in text


def test_the_way_of_an_answer_is_short() -> None:
    """From the search's result to the printed plan, with no cache filled before; the documentation counts the same."""
    program = ROOT / "benchmarks" / "answer_path.py"
    printed = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True).stdout
    counted = re.findall(r"in (\d+) files, (\d+) visits, (\d+) calls up", printed)
    (files, visits, _), (all_files, all_visits, calls_up) = counted
    assert int(visits) <= 40
    assert int(calls_up) <= 10
    text = (ROOT / "docs" / "architecture.md").read_text()
    assert f"{visits} visits to {files} files" in text
    assert f"With helpers: {all_visits} visits to {all_files} files" in text


def test_random_questions_have_answers_that_run() -> None:
    """A fixed sample of small models and odd counts; ``benchmarks/random_questions.py`` asks two hundred of all."""
    program = import_module("random_questions")
    asked = [
        program.ask("qwen3-30b-a3b", "dgx-b200", 64, 66),
        program.ask("llama-3.1-8b", "tpu-v6e-pod", 64, 67),
        program.ask("qwen3-8b", "tpu-v5p-pod", 23, 24),
        program.ask("llama-3.1-8b", "gb200-nvl72", 204, 237),
        program.ask("llama-3.2-1b", "atlas-910b", 69, 77),
    ]
    record = program.record_of(asked, seed=0)
    assert record["answered"] == len(asked)
    assert record["refused_plans"] == 0
    assert record["too_good"] == []
    assert record["slower_with_more"] == []
    assert record["dominated_by_tested"] == []
    assert record["gives_up_room"] == []
    assert all(each["cause"] for each in record["above_measured"])
    assert program.report(record).startswith("| ")


def test_the_closed_form_is_near_the_simulation() -> None:
    """Two of the twenty questions; ``benchmarks/closed_form.py`` asks all of them."""
    program = import_module("closed_form")
    found = list(program.study(program.QUESTIONS[:1] + program.QUESTIONS[10:11], 8, seed=0))
    record = {"rows": program.rows_of(found)}
    rows = {row["plans"]: row for row in record["rows"]}
    assert rows["all of these"]["number"] == len(found) > 24
    assert rows["plans that the usual framework runs"]["mean"] < 0.02
    assert rows["gpipe"]["mean"] < 0.01
    assert program.report(record).startswith("| ")


def test_measured_zero_bubble_runs_are_predicted() -> None:
    """Throughputs of the zero-bubble paper (arXiv 2401.10241, tables 4, 7 and 10): within 15 %, 6 % on average."""
    program = import_module("measured_schedules")
    record = json.loads((BENCHMARKS / "records" / "measured_schedules.json").read_text())
    total = {row["schedule"]: row for row in record["rows"]}["all of them"]
    assert total["number"] == 77
    assert total["mean_simulation"] < 0.06
    assert abs(total["worst_simulation"]) < 0.15
    assert program.report(record).startswith("| ")


def test_the_figure_is_drawn_in_both_themes(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")  # of the extra bench
    import_module("draw_scaling").draw_all(json.loads((BENCHMARKS / "records" / "scaling.json").read_text()), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"speed-scaling-light.svg", "speed-scaling-dark.svg"}


def test_the_measured_steps_of_torchtitan_are_the_lines_that_were_recorded() -> None:
    recorded = import_module("torchtitan_rows").rows_of(BENCHMARKS / "records" / "torchtitan_h100.jsonl")
    with (ROOT / "src/shardplan/data/measured_runs/runs.csv").open(newline="") as file:
        shipped = {row["id"]: row for row in csv.DictReader(file) if row["family"] == "torchtitan-h100"}
    assert len(shipped) == 27
    for row in recorded:
        assert {name: str(value) for name, value in row.items()}.items() <= shipped[row["id"]].items()


def test_versions_are_compared_on_the_same_questions() -> None:
    """This version with itself: the same plans, and a row that is put into the page."""
    program = import_module("versions")
    (row,) = program.measured(ROOT, program.QUESTIONS[:1], runs=1)
    assert row["question"].startswith("llama-3.1-8b, 64 in dgx-h100")
    assert row["plans"] > 10_000
    assert min(row["before_s"], row["now_s"]) > 0
    assert "| llama-3.1-8b, 64 in dgx-h100" in program.report({"rows": [row]})
