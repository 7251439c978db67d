"""Writes ``docs/cli.md``, the reference of every command, from the program itself.

python docs/generate_cli.py           write it
python docs/generate_cli.py --check   exit with 1 where it is not what the program would write now
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

PAGE = Path(__file__).parent / "cli.md"
HEADER = """# Commands

Generated from the program by `docs/generate_cli.py`. `shardplan COMMAND --help` shows the same in the terminal.
"""
TERMINAL_STYLE = re.compile(r"\[/?(?:b|bold|dim|i|italic|cyan|green|yellow|red)\]|\[/\]|\x08\n?")
BRACKETS_AT_END = re.compile(r"\s*\[((?:default|required|env var|x[<>]|\d+<=)[^\[\]]*)\]$")


def reference(app: typer.Typer, name: str) -> str:
    """Markdown of all commands of ``app``, called ``name`` on the command line."""
    return HEADER + "\n" + "\n".join(_command(typer.main.get_command(app), name, parent=None)).rstrip() + "\n"


def _command(command: Any, name: str, *, parent: Any) -> Iterator[str]:
    """Heading, text, usage and parameters of a command, then its own commands."""
    context = command.make_context(name, [], parent=parent, resilient_parsing=True)
    yield f"## `{context.command_path}`\n"
    yield f"{_plain(command.help)}\n"
    yield f"```text\n{context.command_path} {' '.join(command.collect_usage_pieces(context))}\n```\n"
    for title, parameters in _panels(command, context).items():
        yield "\n".join([f"| {title} | meaning | |", "|---|---|---|", *parameters]) + "\n"
    if command.epilog:
        yield f"{_plain(command.epilog)}\n"
    for sub in getattr(command, "commands", {}).values():
        if not sub.hidden:
            yield from _command(sub, sub.name, parent=context)


def _panels(command: Any, context: Any) -> dict[str, list[str]]:
    """Rows of the parameters under the titles by which ``--help`` groups them, arguments first."""
    panels: dict[str, list[str]] = {}
    for parameter in sorted(command.get_params(context), key=lambda each: str(each.param_type_name)):
        record = parameter.get_help_record(context)
        if record is not None and parameter.name != "help":
            title = getattr(parameter, "rich_help_panel", None) or parameter.param_type_name
            panels.setdefault(title, []).append(_row(*record))
    return panels


def _row(spelling: str, text: str) -> str:
    """A parameter with its meaning; default and bounds, which the help puts in brackets at the end, in a column."""
    meaning = _cell(_plain(text))
    bounds = BRACKETS_AT_END.search(meaning)
    return f"| `{_cell(spelling)}` | {BRACKETS_AT_END.sub('', meaning)} | {bounds[1] if bounds else ''} |"


def _plain(text: str | None) -> str:
    return TERMINAL_STYLE.sub("", text or "").strip()


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main(arguments: list[str]) -> int:
    """Writes or checks the page; returns the exit status."""
    page = reference(importlib.import_module("shardplan.cli.main").app, "shardplan")
    if "--check" in arguments:
        return int(not PAGE.exists() or PAGE.read_text() != page)
    PAGE.write_text(page)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
