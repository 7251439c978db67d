"""Writes ``docs/accuracy.md`` and its figures: predictions of the published runs against their measurements.

python docs/generate_accuracy.py           write them
python docs/generate_accuracy.py --check   exit with 1 where they are not what the program would write now

Predictions are made afresh; left-out errors come from ``data/profiles/residuals.csv``, which ``shardplan calibrate
--defaults`` writes, and which ``tests/calibrate/test_defaults.py`` holds against a fit made anew. The check bears one
unit of the last decimal of a number, or of a percentage, which rounding can differ by between machines; not of a count.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path

from shardplan.answers.accuracy.page import accuracy_parts
from shardplan.answers.document import Line, Part, RowTable, VectorFigure, plain_text
from shardplan.calibrate.errors import read_needs
from shardplan.calibrate.validate import validate
from shardplan.inputs.readers.residuals import read_residuals
from shardplan.reports.accuracy.record import Accuracy

DOCS = Path(__file__).parent
PAGE = "accuracy.md"
HEADING = """# Accuracy

Generated from the published runs by `docs/generate_accuracy.py`. `shardplan validate` shows the same in the terminal,
and for a [file of your own](inputs/measured-runs.md).
"""
LONGEST_NUMBER = 60
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?: %)?")


def files() -> dict[str, str]:
    """Text of the page and of its figures by path."""
    parts = accuracy_parts(Accuracy.of(validate(), read_residuals(), needs=read_needs()))
    drawings = [block for part in parts for block in part.blocks if isinstance(block, VectorFigure)]
    figures = {
        f"assets/accuracy-{figure.name}-{theme}.svg": figure.svg(theme)
        for figure in drawings
        for theme in ("light", "dark")
    }
    return {PAGE: accuracy_markdown(parts, HEADING), **figures}


def accuracy_markdown(parts: Iterable[Part], heading: str) -> str:
    """The page as Markdown beneath its heading."""
    return heading.rstrip() + "\n" + "".join(line for part in parts for line in _markdown(part))


def _markdown(part: Part) -> Iterator[str]:
    yield f"\n{'###' if part.is_under else '##'} {part.title}\n"
    for block in part.blocks:
        if isinstance(block, Line):
            yield f"\n{_wrapped(plain_text(block.words))}\n"
        elif isinstance(block, VectorFigure):
            name = f"![{block.title}](assets/accuracy-{block.name}"
            yield "\n" + "\n".join(f"{name}-{theme}.svg#only-{theme})" for theme in ("light", "dark")) + "\n"
        elif isinstance(block, RowTable):
            yield f"\n{_table(block)}\n"


def _table(table: RowTable) -> str:
    """Numbers stand on the right where no cell is a sentence."""
    titles = [column.title or "" for column in table.columns]
    rows = [[column.cell(row) for column in table.columns] for row in table.rows]
    is_wordy = any(len(cell) > LONGEST_NUMBER for row in rows for cell in row)
    sides = ["---" if is_wordy or place == 0 else "--:" for place in range(len(titles))]
    return "\n".join(map(_line, (titles, sides, *rows)))


def _wrapped(text: str) -> str:
    """Text in lines of at most 130 letters."""
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) > 129:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("_", "\\_").replace("*", "\\*") for cell in cells) + " |"


def is_current(written: Mapping[str, str], folder: Path = DOCS) -> bool:
    """Whether the files say this: the same words, and numbers that differ by one unit of the last decimal at most."""
    return all((folder / path).exists() and _alike((folder / path).read_text(), text) for path, text in written.items())


def _alike(old: str, new: str) -> bool:
    if NUMBER.split(old) != NUMBER.split(new):
        return False
    return all(map(_close, NUMBER.findall(old), NUMBER.findall(new)))


def _close(first: str, second: str) -> bool:
    """Equal, or rounded to different sides: by as many decimals as the more exact of the two has."""
    percent = first.endswith("%")
    old, new = (Decimal(number.removesuffix(" %")) for number in (first, second))
    decimals = max(-int(number.as_tuple().exponent) for number in (old, new))
    unit = Decimal(1).scaleb(-decimals) if decimals or percent else Decimal(0)
    return percent == second.endswith("%") and abs(old - new) <= unit


def main(arguments: list[str]) -> int:
    """Writes or checks the files; returns the exit status."""
    written = files()
    if "--check" in arguments:
        return int(not is_current(written))
    for path, text in written.items():
        (DOCS / path).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
