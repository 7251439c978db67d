"""What the documentation says of the commands is what they do."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import generate_cli
import pytest
import typer
from tests.calibrate import published
from tests.cli.commands import FEW, SMALL, answer, run

from shardplan.base.files import DATA
from shardplan.cli.main import COMMANDS, app
from shardplan.reports.plan_file import read_plan_file

ROOT = Path(__file__).parents[2]
OUTPUT = (ROOT / "docs" / "output.md").read_text()


def test_the_reference_is_up_to_date() -> None:
    written = (ROOT / "docs" / "cli.md").read_text()
    assert written == generate_cli.reference(app, "shardplan"), "run python docs/generate_cli.py"


def test_summaries_are_those_of_the_commands() -> None:
    group: Any = typer.main.get_command(app)
    for name, entry in COMMANDS.items():
        assert " ".join(group.commands[name].help.split("\n\n")[0].split()) == entry.summary


def test_the_page_on_output_names_every_key() -> None:
    record = answer("plan", *SMALL, *FEW)
    keys = set(record) | set(record["plans"][0]) | set(record["explanation"])
    keys |= {key for each in record["explanation"]["alternatives"] for key in each}
    assert {key for key in keys if f"`{key}`" not in OUTPUT} == set()


IDLE = ("llama-3.2-1b", "--cluster", "gb200-nvl72", "--gpus", 72, "--global-batch-size", 64, "--fix", "pp=1,cp=1")
"""A question whose answer leaves some accelerators idle."""


def test_the_page_on_output_names_no_other_key(tmp_path: Path) -> None:
    idle = answer("plan", *IDLE)
    assert idle["num_idle"] > 0
    known = set(answer("plan", *SMALL, *FEW, "--simulate-top", "3")) | set(idle)
    known |= set(answer("estimate", "llama-3.2-1b", "--cluster", "dgx-h100", "--gpus", 8, "--stage", 0, "--layout"))
    (tmp_path / "config.json").write_bytes((DATA / "models" / "llama-3.2-1b.json").read_bytes())
    known |= set(answer("estimate", *SMALL, "--companion", f"reference={tmp_path}"))
    table = OUTPUT.split("## Plan file")[1].split("### One element")[0]
    assert {
        name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    } <= known
    element = OUTPUT.split("### One element")[1].split("### Terms")[0]
    plan = set(answer("plan", *SMALL, *FEW, "--stack", "torchtitan", "--simulate-top", "3")["plans"][0])
    assert {
        name for row in re.findall(r"^\| (`.*?) \|", element, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    } == plan


def test_every_exit_status_is_documented() -> None:
    assert re.findall(r"^\| (\d+) \|", OUTPUT, re.MULTILINE) == ["0", "1", "2", "70", "130", "141"]


EXAMPLES = [line for name, entry in COMMANDS.items() for line in entry.examples if name != "serve"]
"""``serve`` runs until it is interrupted: tests/web/test_serve.py starts it."""

LARGE = {
    "plan deepseek-v3": ("--limit", "pp=8,16", "--limit", "cp=1", "--limit", "micro_batch_size=1"),
    "scale llama-3.1-70b": ("--limit", "pp=1,4", "--limit", "cp=1"),
    "pareto llama-3.1-70b": ("--limit", "pp=1,4", "--limit", "cp=1"),
    "fit llama-3.1-8b": ("--limit", "pp=1,2", "--limit", "cp=1,2"),
    "budget llama-3.1-405b": ("--limit", "pp=8,16", "--limit", "cp=1"),
    "budget llama-3.1-8b": ("--limit", "pp=1,2", "--limit", "cp=1"),
    "sensitivity llama-3.2-1b": ("--limit", "pp=1,2", "--limit", "cp=1"),
}
"""What makes the longest searches short: that they are searched whole is no question of the example."""


@pytest.mark.parametrize("command", EXAMPLES, ids=lambda line: str(line)[10:80])
def test_examples_of_the_help_run_on_a_fresh_clone(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("shardplan.calibrate.validate.validate", published.validate_once)
    fewer = (words for start, words in LARGE.items() if command.startswith(f"shardplan {start} "))
    result = run(*shlex.split(command)[1:], *next(fewer, ()))
    assert result.exit_code in (0, 1), result.output
    assert result.stdout


def test_plan_files_of_the_examples_are_of_this_version() -> None:
    for name in ("tensor-parallel.json", "fully-sharded.json", "plans.json"):
        assert read_plan_file(ROOT / "examples" / name).estimates, "make it again: examples/README.md says how"
