"""Runs commands as a user would, inside this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

from typer.testing import CliRunner, Result

from shardplan.cli import plan
from shardplan.cli.main import app
from shardplan.estimation.question import Question
from shardplan.planner.related import frameworks
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


def refused(*arguments: object, columns: int = 80) -> str:
    """What standard error says of a command that is refused, in one line."""
    result = run(*arguments, columns=columns)
    assert result.exit_code == 2, result.output
    return unwrapped(result.stderr)


def answer(*arguments: object, status: int = 0) -> dict[str, Any]:
    """The JSON that a command writes to standard output, and nothing else with it."""
    result = run(*arguments, "--json", "-")
    assert result.exit_code == status, result.output
    record: dict[str, Any] = json.loads(result.stdout)
    return record


def both(folder: Path, *arguments: object) -> tuple[str, dict[str, Any]]:
    """What a command prints, in one line, and the JSON that it writes besides."""
    result = run(*arguments, "--json", folder / "record.json")
    assert result.exit_code == 0, result.output
    return unwrapped(result.stdout), json.loads((folder / "record.json").read_text(encoding="utf-8"))


_KEPT: dict[object, Any] = {}
"""Answers by what was asked."""


def _once(key: object, ask: Callable[[], Any]) -> Any:
    if key not in _KEPT:
        _KEPT[key] = ask()
    return _KEPT[key]


@contextmanager
def kept_searches() -> Iterator[None]:
    """``plan`` searches once for each question, however often it shows the answer: for tests of how it is shown.

    They ask for frameworks by name alone.
    """

    def of_plan(asked: Any, flags: object) -> Any:
        key = (repr((asdict(asked.question), flags)), asked.stack and asked.stack.name)
        return _once(key, lambda: search(asked, flags))

    def of_framework(question: Question, *, stack: Any, fix: Any, limit: Any, exclude: Any, **_: object) -> Any:
        restrictions = {"fix": fix, "limit": limit, "exclude": exclude}
        key = (repr((asdict(question), restrictions)), stack.name)
        return _once(key, lambda: search_question(question, top=1, stack=stack, **restrictions))

    search: Callable[[Any, Any], Any] = plan._search
    with patch.object(plan, "_search", of_plan), patch.object(frameworks, "search_question", of_framework):
        yield
