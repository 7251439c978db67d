"""The answer of ``compare``: two or more plans side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final

from shardplan.answers.document import (
    NONE,
    AnswerDocument,
    Column,
    Line,
    Part,
    RowTable,
    SideBySide,
    Span,
    Tone,
    plain_tone,
)
from shardplan.base.units import format_bytes, format_count, format_rate, format_time
from shardplan.base.words import joined
from shardplan.estimation.ties import tie_factor
from shardplan.reports.comparison import Comparison, Row, Unit
from shardplan.reports.texts.answer import percent
from shardplan.reports.texts.plan import short_policy

TITLES: Final = {
    "question": ("Question", "where it differs"),
    "plan": ("Plan", "where it differs"),
    "time": ("Step", "on the slowest stage; in brackets the change from the first"),
    "rates": ("Rates", ""),
    "memory": ("Memory", "of the fullest stage"),
    "communication": ("Traffic", "bytes that an accelerator sends in a step, where they differ"),
}
WITH_CHANGES: Final = ("time", "rates", "memory")
LONGEST_NAME: Final = 12
"""Longer names of plans are distinguished by letters."""
LONGEST_CELL: Final = 24
SMALLEST_CHANGE: Final = 5e-4
"""Share of a value below which a change is not shown: the numbers read the same."""
LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
TEXTS: Final[Mapping[Unit, Callable[[Any], str]]] = {
    "text": lambda text: text if len(text) <= LONGEST_CELL else f"{text[: LONGEST_CELL - 3]}...",
    "s": format_time,
    "bytes": format_bytes,
    "share": percent,
    "flops_per_s": lambda value: format_rate(value, "FLOP"),
    "count": lambda value: format_count(round(value)),
}
"""Values as text, by unit."""
MAIN: Final = ("step_time", "peak_memory_bytes")


def comparison_document(comparison: Comparison) -> AnswerDocument:
    """Verdict, then every quantity that differs."""
    names = labels = [side.label for side in comparison.sides]
    if max(len(label) for label in labels) > LONGEST_NAME:
        labels = [*LETTERS[: len(names)]]
    sections = {section: [row for row in comparison.rows if row.section == section] for section in TITLES}
    return AnswerDocument(
        name="comparison",
        head=[Line((Span(a, "strong"), Span(f"  {name}"))) for a, name in zip(labels, names, strict=True) if a != name],
        verdict=_verdict(comparison, labels),
        parts=[
            Part(TITLES[section][0], [_side_by_side(labels, rows)], TITLES[section][1])
            for section, rows in sections.items()
            if rows
        ],
        record=lambda: {
            "plans": [{"label": side.label, "pick": side.pick} for side in comparison.sides],
            "fastest": comparison.fastest,
            "soonest": comparison.soonest,
            "ties": [*comparison.ties],
            "is_one_question": comparison.is_one_question,
            "rows": RowTable(comparison.rows, RECORDED),
        },
    )


RECORDED: Final = (
    *(Column(name, None, attrgetter(name)) for name in ("section", "name", "unit")),
    Column("values", None, lambda row: list(row.values)),
    Column("changes", None, lambda row: list(row.changes)),
)
"""What a record has of every row."""


def _verdict(comparison: Comparison, labels: Sequence[str]) -> list[Line]:
    """Which plan trains most per accelerator, and which is done soonest where that is another."""
    lines = _best(comparison, labels)
    if not comparison.is_one_question:
        rates = "rates" if comparison.is_one_model else "MFU"
        lines.append(Line(f"The plans answer different questions: compare {rates}, not step times.", tone="doubt"))
    return lines


def _best(comparison: Comparison, labels: Sequence[str]) -> list[Line]:
    if comparison.fastest is None or comparison.soonest is None:
        return [Line("None of these plans fits.", tone="bad")]
    best, soonest = (comparison.sides[index].estimate for index in (comparison.fastest, comparison.soonest))
    is_one = comparison.fastest == comparison.soonest or not comparison.is_one_model
    what = "the fastest that fits" if is_one and comparison.is_one_model else "the most efficient"
    rate = format_count(round(best.tokens_per_second_per_accelerator))
    speed = f"{rate} tokens/s per accelerator" if comparison.is_one_model else "the highest MFU"
    text = Span(f": {speed}, {format_time(best.step_time)} a step.")
    lines = [Line((Span(f"{labels[comparison.fastest]} is {what}", "good"), text))]
    if not best.has_headroom:
        lines.append(Line("It may not fit: the upper end of its memory band is above what is usable.", tone="doubt"))
    if comparison.ties:
        near = joined([labels[index] for index in comparison.ties])
        verb = "is" if len(comparison.ties) == 1 else "are"
        share = f"{100 * (tie_factor() - 1):.0f} %"
        lines.append(Line(f"{near} {verb} within {share} of it: too close to call.", tone="doubt"))
    if not is_one:
        total = format_count(round(soonest.tokens_per_second_per_accelerator * soonest.num_accelerators_used))
        who = Span(f"{labels[comparison.soonest]} is done soonest", "good")
        lines.append(Line((who, Span(f": {total} tokens/s in all."))))
    return lines


def _side_by_side(labels: Sequence[str], rows: Sequence[Row]) -> SideBySide:
    """One line for each row; on a narrow terminal without changes."""

    def table(*, has_changes: bool) -> RowTable:
        cells = [partial(_cell, index, has_changes=has_changes) for index in range(len(labels))]
        sides = [Column("", label, cell) for label, cell in zip(labels, cells, strict=True)]
        return RowTable(rows, [Column("", "", attrgetter("label"), is_text=True), *sides], _tone)

    return SideBySide(table(has_changes=True), table(has_changes=False))


def _tone(row: Row) -> Tone:
    return "strong" if row.name in MAIN else plain_tone(row)


def _cell(index: int, row: Row, *, has_changes: bool) -> str:
    """A value, and what it is more or less than that of the first side."""
    value, change, as_text = row.values[index], row.changes[index], TEXTS[row.unit]
    if value is None:
        return NONE
    if (row.section, row.name) == ("plan", "recompute"):
        return short_policy(value)
    text = as_text(value)
    if not has_changes or index == 0 or not change or row.section not in WITH_CHANGES:
        return text
    if abs(change) < SMALLEST_CHANGE * max(abs(value), abs(row.values[0])):
        return text
    return f"{text} ({'+' if change > 0 else '-'}{as_text(abs(change))})"
