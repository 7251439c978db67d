"""Everything that users see, written into a folder: to be compared before and after a change that keeps behaviour.

    python -m tests.snapshots.freeze FOLDER                     some minutes; then diff -r BEFORE AFTER
    python -m tests.snapshots.freeze FOLDER docs/decisions.md   the commands of some pages alone

Every command of every page, in the order of the page, in a folder of its own: what it prints at 60, 80 and 120 columns,
and the JSON of commands that have some. Snapshots and recorded exports are in the repository already; next to them
the schema of the API and what the validation of the shipped runs says.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator
from importlib import import_module
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

from typer.testing import Result

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))

from tests.cli.commands import kept_searches, run  # noqa: E402  # the pages' program is found through docs
from tests.snapshots.commands import SEARCH_TIME, WIDTHS  # noqa: E402

PAGES = import_module("run_pages")
LEFT_OUT = frozenset({"serve", "--microbench", "--defaults", "--version"})
"""Words of commands that do not end, that time the machine, or that fit for minutes."""
TIMED = re.compile(
    r'(?<="search_time_s": )[0-9.e-]+|(?<="candidates_per_s": )[0-9.e-]+|[0-9.]+ m?s\s\([0-9.]+M a second'
)
"""How long it took; all else is the same each time."""
NO_JSON = "No such option"


def commands_of(page: Path) -> list[str]:
    """Arguments of the commands of a page, in order."""
    found = (block for block in PAGES.BLOCK.finditer(page.read_text(encoding="utf-8")) if block["language"] == "bash")
    lines = (line for block in found for line in block["code"].replace("\\\n", " ").splitlines())
    return [line for line in lines if line.startswith("shardplan ") and LEFT_OUT.isdisjoint(line.split())]


def answers_of(page: Path) -> Iterator[tuple[str, str]]:
    """Names and texts of what the commands of a page answer."""
    lines = commands_of(page)
    for columns in WIDTHS:
        with PAGES._place():
            for number, line in enumerate(lines):
                words = shlex.split(line, comments=True)[1:]
                yield f"{number:02}-{columns}.txt", f"{line}\n{_text(run(*words, columns=columns))}"
                if columns == WIDTHS[0] and "--json" not in words:
                    yield from _record(number, run(*words, "--json", "-"))


def _record(number: int, result: Result) -> Iterator[tuple[str, str]]:
    if NO_JSON not in result.output:
        yield f"{number:02}.json", TIMED.sub("0", result.stdout)


def _text(result: Result) -> str:
    """What a command printed, and how it ended. What a fault raised is raised."""
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return f"exit {result.exit_code}\n{TIMED.sub('0', result.output)}"


def pages() -> list[Path]:
    """All that have commands."""
    every = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in every if commands_of(page)]


def freeze(folder: Path, which: list[Path]) -> None:
    """Writes the answers of some pages."""
    clock = SimpleNamespace(perf_counter=count(step=SEARCH_TIME).__next__)
    with patch("shardplan.planner.search.time", clock), kept_searches():
        for page in which:
            place = folder / page.relative_to(ROOT).with_suffix("")
            place.mkdir(parents=True, exist_ok=True)
            for name, text in answers_of(page):
                (place / name).write_text(text, encoding="utf-8")


def freeze_all(folder: Path) -> None:
    """Writes all of it."""
    freeze(folder, pages())
    document = import_module("shardplan.web.json.document")
    (folder / "openapi.json").write_text(json.dumps(document.document_of(), indent=1, sort_keys=True), encoding="utf-8")
    (folder / "validate.json").write_text(run("validate", "--json", "-").stdout, encoding="utf-8")


def main(folder: str, *which: str) -> None:
    """Writes all of it, or what some pages show."""
    place = Path(folder).resolve()
    if which:
        freeze(place, [ROOT / page for page in which])
    else:
        freeze_all(place)


if __name__ == "__main__":
    main(*sys.argv[1:])
