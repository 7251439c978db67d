"""Broken files of every kind, read by every command that reads them."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
from tests.fuzz.mutations import mutated
from tests.fuzz.running import faults_of, fuzz
from tests.workplace import COMMANDS, furnish

READS = [(name, file) for name, (_, files) in COMMANDS.items() for file in files]
FEW = {"plan": 3, "calibrate": 3, "validate": 8}
"""Inputs of slow commands in every run of the tests."""


@pytest.mark.parametrize(("name", "file"), READS)
def test_no_file_breaks_a_command(name: str, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def one(chance: random.Random) -> list[str]:
        with tempfile.TemporaryDirectory() as place:
            monkeypatch.chdir(place)
            furnish(Path(place))
            path = Path(place) / file
            path.write_bytes(mutated(path.read_bytes(), file, chance))
            json = chance.choice((["--json=-"], []))
            faults = faults_of([*COMMANDS[name][0], *json], Path(place), makes_files=name == "calibrate")
            monkeypatch.undo()
            return [f"{fault} {path.read_bytes()[:600]!r}" for fault in faults]

    fuzz(FEW.get(name, 12), one)
