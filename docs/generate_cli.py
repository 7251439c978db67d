"""Writes ``docs/cli.md``, the reference of every command, from the program itself.

python docs/generate_cli.py           write it
python docs/generate_cli.py --check   exit with 1 where it is not what the program would write now
"""

from __future__ import annotations

import importlib
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

PAGE = Path(__file__).parent / "cli.md"
HEADER = """# Commands

Generated from the program by `docs/generate_cli.py`. `shardplan COMMAND --help` shows the same in the terminal.
"""
SHARED = """## Shared options

These mean the same in every command that names them, or the title of their table, under *Shared options*.
"""
LEAST_SHARED = 4
"""An option that at least this many commands have, in the same words, is explained once."""
SPELLING = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
TERMINAL_STYLE = re.compile(r"\[/?(?:b|bold|dim|i|italic|cyan|green|yellow|red)\]|\[/\]|\x08\n?")
BRACKETS_AT_END = re.compile(r"\s*\[((?:default|required|env var|x[<>]|\d+<=)[^\[\]]*)\]$")


Panels = dict[str, dict[str, str]]
"""Rows of a table by the spelling of the parameter, by the title of the panel."""


def reference(app: typer.Typer, name: str) -> str:
    """Markdown of all commands of ``app``, called ``name`` on the command line."""
    commands = list(_commands(typer.main.get_command(app), name, parent=None))
    panels = [_panels(command, context) for command, context in commands]
    shared = _shared(panels)
    sections = [f"{SHARED}\n{_tables(shared)}"] if shared else []
    sections += [_section(*each, own, shared) for each, own in zip(commands, panels, strict=True)]
    return HEADER + "\n" + "\n\n".join(section.rstrip() for section in sections) + "\n"


def _commands(command: Any, name: str, *, parent: Any) -> Iterator[tuple[Any, Any]]:
    """A command and its context, then those of its own commands."""
    context = command.make_context(name, [], parent=parent, resilient_parsing=True)
    yield command, context
    for sub in getattr(command, "commands", {}).values():
        if not sub.hidden:
            yield from _commands(sub, sub.name, parent=context)


def _shared(panels: list[Panels]) -> Panels:
    """Parameters that at least ``LEAST_SHARED`` commands have with the same words."""
    counts = Counter((title, *row) for each in panels for title, rows in each.items() for row in rows.items())
    shared: Panels = {}
    for (title, spelling, row), count in counts.items():
        if count >= LEAST_SHARED:
            shared.setdefault(title, {})[spelling] = row
    return shared


def _section(command: Any, context: Any, panels: Panels, shared: Panels) -> str:
    """Heading, text, usage and parameters of a command."""
    usage = f"{context.command_path} {' '.join(command.collect_usage_pieces(context))}"
    parts = [f"## `{context.command_path}`", _plain(command.help), f"```text\n{usage}\n```"]
    parts += [_tables(_chosen(panels, shared, is_shared=False))]
    parts += [_named(_chosen(panels, shared, is_shared=True), shared), _plain(command.epilog)]
    return "\n\n".join(part for part in parts if part)


def _chosen(panels: Panels, shared: Panels, *, is_shared: bool) -> Panels:
    """The rows of a command that are explained once for all, or the others."""
    found = {title: shared.get(title, {}).items() for title in panels}
    return {
        title: {name: row for name, row in rows.items() if ((name, row) in found[title]) is is_shared}
        for title, rows in panels.items()
    }


def _named(own: Panels, shared: Panels) -> str:
    """A line that names shared options without their meaning: whole panels by their titles."""
    names = []
    for title, rows in own.items():
        if rows and rows == shared[title] and len(rows) >= LEAST_SHARED:
            names.append(f"*{title}*")
        else:
            names += [f"`{name}`" for spelling in rows for name in SPELLING.findall(spelling) or spelling.split()[:1]]
    return f"[Shared options](#shared-options): {', '.join(names)}." if names else ""


def _tables(panels: Panels) -> str:
    """A table for each panel that has rows."""
    tables = [(f"| {title} | meaning | |", "|---|---|---|", *rows.values()) for title, rows in panels.items() if rows]
    return "\n\n".join("\n".join(lines) for lines in tables)


def _panels(command: Any, context: Any) -> Panels:
    """Rows of the parameters under the titles by which ``--help`` groups them, arguments first."""
    panels: Panels = {}
    for parameter in sorted(command.get_params(context), key=lambda each: str(each.param_type_name)):
        record = parameter.get_help_record(context)
        if record is not None and parameter.name != "help":
            title = getattr(parameter, "rich_help_panel", None) or parameter.param_type_name
            panels.setdefault(title, {})[record[0]] = _row(*record)
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
