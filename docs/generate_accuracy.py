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

from shardplan.calibrate.errors import read_needs
from shardplan.calibrate.validate import validate
from shardplan.inputs.readers.residuals import read_residuals
from shardplan.reports.accuracy.figures import accuracy_figures, drawn
from shardplan.reports.accuracy.page import accuracy_sections
from shardplan.reports.accuracy.page_targets import Record
from shardplan.reports.accuracy.record import accuracy_record
from shardplan.reports.breakdown import Section, is_wordy

DOCS = Path(__file__).parent
PAGE = "accuracy.md"
HEADING = """# Accuracy

Generated from the published runs by `docs/generate_accuracy.py`. `shardplan validate` shows the same in the terminal,
and for a [file of your own](inputs/measured-runs.md).
"""
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?: %)?")


def files() -> dict[str, str]:
    """Text of the page and of its figures by path."""
    record = accuracy_record(validate(), read_residuals(), needs=read_needs())
    figures = accuracy_figures(record)
    links = {
        name: "\n".join(
            f"![{figure.title}](assets/accuracy-{name}-{theme}.svg#only-{theme})" for theme in ("light", "dark")
        )
        for name, figure in figures.items()
    }
    drawings = {
        f"assets/accuracy-{name}-{theme}.svg": drawn(figure, theme)
        for name, figure in figures.items()
        for theme in ("light", "dark")
    }
    return {PAGE: accuracy_markdown(record, links, HEADING), **drawings}


def accuracy_markdown(record: Record, figures: Mapping[str, str], heading: str) -> str:
    """The page as Markdown beneath its heading. ``figures``: Markdown of every figure by name."""
    lines = (line for section in accuracy_sections(record) for line in _markdown(section, figures))
    return heading.rstrip() + "\n" + "".join(lines)


def _markdown(section: Section, figures: Mapping[str, str]) -> Iterator[str]:
    yield f"\n{'#' * section.level} {section.title}\n"
    if section.text:
        yield f"\n{_wrapped(section.text)}\n"
    if section.figure in figures:
        yield f"\n{figures[section.figure]}\n"
    if section.rows:
        sides = ["---" if is_wordy(section) or column == 0 else "--:" for column in range(len(section.columns))]
        yield "\n" + "\n".join(_line(row) for row in (section.columns, sides, *section.rows)) + "\n"


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
