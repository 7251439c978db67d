"""Hostile values of every flag and argument of every command."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.fuzz.mutations import TEXTS
from tests.fuzz.running import faults_of, fuzz
from tests.workplace import COMMANDS, furnish

from shardplan.cli.main import app

FEW = 12
OUTPUTS = (
    "--json", "--csv", "--html", "--png", "--svg", "--out", "--stages-out", "--output", "--write", "--microbench",
    "--defaults", "--corrected", "--help",
)  # fmt: skip
"""Flags that write files, measure for minutes, or end with help."""
VALUES = tuple(text for text in TEXTS if "\x00" not in text)
"""What a shell can pass on."""


def _parameters(command: tuple[str, ...]) -> list[Any]:
    """Flags and arguments of a command."""
    group: Any = typer.main.get_command(app)
    found = group.commands[command[0]]
    return list((found.commands[command[1]] if hasattr(found, "commands") else found).params)


@pytest.mark.parametrize("name", COMMANDS)
def test_no_value_breaks_a_command(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command, _ = COMMANDS[name]
    flags = [each for each in _parameters(command) if each.param_type_name == "option" and each.opts[0] not in OUTPUTS]

    def one(chance: random.Random) -> list[str]:
        with tempfile.TemporaryDirectory() as place:
            monkeypatch.chdir(place)
            furnish(Path(place))
            arguments = list(command)
            for _ in range(chance.choice((1, 1, 2, 3))):
                _change(arguments, flags, chance)
            json = chance.choice((["--json=-"], []))
            faults = faults_of([*arguments, *json], Path(place), makes_files=name == "calibrate")
            monkeypatch.undo()
            return faults

    fuzz(3 if name in ("plan", "calibrate") else FEW, one)


def _change(arguments: list[str], flags: list[Any], chance: random.Random) -> None:
    """Gives a flag, changes a word, or leaves one out."""
    way = chance.random()
    if way < 0.7 and flags:
        flag = chance.choice(flags)
        given = chance.choice((*flag.opts, *flag.secondary_opts))
        arguments += [given] if flag.is_flag else [f"{given}={chance.choice(VALUES)}"]
    elif len(arguments) == 1:
        arguments.append(chance.choice(VALUES))
    elif way < 0.9:
        arguments[chance.randrange(1, len(arguments))] = chance.choice(VALUES)
    else:
        del arguments[chance.randrange(1, len(arguments))]
