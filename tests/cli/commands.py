"""Runs commands as a user would, inside this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from typer.testing import CliRunner, Result

from shardplan.cli.main import app
from shardplan.estimation.question import Question
from shardplan.planner.result import SearchResult
from shardplan.planner.search import search_question

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


_KEPT: dict[str, SearchResult] = {}
HOW = ("progress", "simulated", "stop", "known")
"""What a search is given that changes nothing about its answer."""


@contextmanager
def kept_searches() -> Iterator[None]:
    """Asks each question once, however often commands show its answer: for tests of how it is shown."""

    def kept(question: Question, **given: Any) -> SearchResult:
        asked = {name: value for name, value in given.items() if name not in HOW}
        key = repr((question, sorted(asked.items())))
        if key not in _KEPT:
            _KEPT[key] = search_question(question, **asked)
        return _KEPT[key]

    with (
        patch("shardplan.planner.search.search_question", kept),
        patch("shardplan.planner.related.frameworks.search_question", kept),
    ):
        yield
