"""Commands are loaded when they are used, and flags take their text as it is."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import typer
from tests.cli.commands import refused, run

from shardplan.cli.main import COMMANDS, OTHERWISE, TITLES, app


def test_every_command_is_in_the_order_of_the_help() -> None:
    group: Any = typer.main.get_command(app)
    assert list(group.commands) == list(COMMANDS)
    assert len(group.commands) == len(COMMANDS)
    assert all(group.commands[name].name == name for name in COMMANDS)


def test_help_lists_every_command_once() -> None:
    assert sorted(name for names in TITLES.values() for name in names) == sorted(COMMANDS)


def test_help_of_the_program_imports_no_command() -> None:
    program = (
        "import sys\n"
        "from shardplan.cli.main import app\n"
        "try:\n"
        "    app(['--help'], prog_name='shardplan')\n"
        "finally:\n"
        "    sys.stderr.write(str('shardplan.cli.plan' in sys.modules or 'pydantic' in sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "False")


@pytest.mark.parametrize(("typed", "meant"), [("search", "plan"), ("Predict", "estimate"), ("cost", "budget")])
def test_words_for_commands_are_suggested(typed: str, meant: str) -> None:
    assert f"did you mean `shardplan {meant}`?" in refused(typed, "llama-3.1-8b")


def test_words_for_commands_lead_to_commands() -> None:
    assert {name.split()[0] for name in OTHERWISE.values()} <= {*COMMANDS}
    assert all(OTHERWISE[name] == name for name in {*OTHERWISE} & {*COMMANDS})  # what-if is whatif


def test_help_of_plan_fits_a_screen() -> None:
    assert len(run("plan", "--help", columns=80).stdout.splitlines()) <= 60


def test_ten_commands_come_first() -> None:
    assert len(next(iter(TITLES.values()))) == 10
    assert [*TITLES][-1] == "Research"


@pytest.mark.parametrize(("typed", "meant"), [("methods", "published methods"), ("study", "published study")])
def test_commands_that_were_merged_are_suggested(typed: str, meant: str) -> None:
    assert f"did you mean `shardplan {meant}`?" in refused(typed)


@pytest.mark.parametrize("name", TITLES["What everyone needs"][6:9])
def test_decisions_take_the_flags_of_a_question(name: str) -> None:
    text = run(name, "--help-all").stdout
    assert [
        flag for flag in ("--sequence-length", "--precision", "--memory", "--fix", "--profile") if flag not in text
    ] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str) -> None:
    assert f"Usage: shardplan {name} " in run(name, "--help").stdout


def test_what_is_needed_is_missed() -> None:
    assert "Missing argument" in refused("compare")
