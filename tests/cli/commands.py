"""Runs commands as a user would, inside this process."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner, Result

from shardplan.cli.main import app

SMALL = (
    "llama-3.2-1b",
    "--cluster",
    "dgx-h100",
    "--gpus",
    "8",
    "--global-batch-size",
    "64",
    "--sequence-length",
    "2048",
)
"""A question that is answered at once."""
FEW = ("--limit", "pp=1,2", "--limit", "cp=1", "--limit", "sharding=zero1,zero3")
"""A small space for it."""


def run(*arguments: object, columns: int = 80) -> Result:
    """The outcome of a command; what it prints is as wide as ``columns``."""
    return CliRunner(env={"COLUMNS": str(columns), "NO_COLOR": "1"}).invoke(app, [str(each) for each in arguments])


def unwrapped(text: str) -> str:
    """``text`` in one line: where it was broken depends on the width, and on how long the paths in it are."""
    return " ".join(text.split())


def answer(*arguments: object, status: int = 0) -> dict[str, Any]:
    """The JSON that a command writes to standard output, and nothing else with it."""
    result = run(*arguments, "--json", "-")
    assert result.exit_code == status, result.output
    record: dict[str, Any] = json.loads(result.stdout)
    return record
