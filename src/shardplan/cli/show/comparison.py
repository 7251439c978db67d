"""Two or more plans side by side."""

from __future__ import annotations

from rich.text import Text

from shardplan.cli.layout import Column, Page
from shardplan.estimation.ties import tie_factor
from shardplan.reports.comparison import Comparison, Row
from shardplan.reports.texts.answer import percent
from shardplan.reports.texts.plan import short_policy
from shardplan.units import format_bytes, format_count, format_rate, format_time
from shardplan.words import joined

TITLES = {
    "question": ("Question", "where it differs"),
    "plan": ("Plan", "where it differs"),
    "time": ("Step", "on the slowest stage; in brackets the change from the first"),
    "rates": ("Rates", ""),
    "memory": ("Memory", "of the fullest stage"),
    "communication": ("Traffic", "bytes that an accelerator sends in a step, where they differ"),
}
LONGEST_NAME = 12
"""Longer names of plans are distinguished by letters."""
LONGEST_CELL = 24
SMALLEST_CHANGE = 5e-4
"""Share of a value below which a change is not shown: the numbers read the same."""
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def show_comparison(page: Page, comparison: Comparison) -> None:
    """Verdict, then every quantity that differs."""
    labels = [side.label for side in comparison.sides]
    if max(len(label) for label in labels) > LONGEST_NAME:
        labels = [*LETTERS[: len(labels)]]
        for letter, side in zip(labels, comparison.sides, strict=True):
            page.hanging(Text(letter, style="bold"), Text(side.label), indent=0)
        page.console.print()
    _show_verdict(page, comparison, labels)
    if not comparison.is_one_question:
        rates = "rates" if comparison.is_one_model else "MFU"
        page.line(f"The plans answer different questions: compare {rates}, not step times.", indent=0, style="yellow")
    for section, (title, note) in TITLES.items():
        rows = [row for row in comparison.rows if row.section == section]
        if rows:
            page.heading(title, note)
            _table(page, labels, rows)


def _show_verdict(page: Page, comparison: Comparison, labels: list[str]) -> None:
    """Which plan trains most per accelerator, and which is done soonest where that is another."""
    if comparison.fastest is None or comparison.soonest is None:
        page.line("None of these plans fits.", style="bold red", indent=0)
        return
    best, soonest = (comparison.sides[index] for index in (comparison.fastest, comparison.soonest))
    rate, most = (each.estimate.tokens_per_second_per_accelerator for each in (best, soonest))
    total = format_count(round(most * soonest.estimate.num_accelerators_used))
    is_one = comparison.fastest == comparison.soonest or not comparison.is_one_model
    is_fastest = is_one and comparison.is_one_model
    what = "the fastest that fits" if is_fastest else "the most efficient"
    speed = f"{format_count(round(rate))} tokens/s per accelerator" if comparison.is_one_model else "the highest MFU"
    text = Text(f"{labels[comparison.fastest]} is {what}", style="bold green")
    text.append(f": {speed}, {format_time(best.estimate.step_time)} a step.", style="default")
    page.line(text, indent=0)
    if not best.estimate.has_headroom:
        page.line("It may not fit: the upper end of its memory band is above what is usable.", indent=0, style="yellow")
    if comparison.ties:
        near = joined([labels[index] for index in comparison.ties])
        verb = "is" if len(comparison.ties) == 1 else "are"
        share = f"{100 * (tie_factor() - 1):.0f} %"
        page.line(f"{near} {verb} within {share} of it: too close to call.", indent=0, style="yellow")
    if is_one:
        return
    text = Text(f"{labels[comparison.soonest]} is done soonest", style="bold green")
    page.line(text.append(f": {total} tokens/s in all.", style="default"), indent=0)


def _table(page: Page, labels: list[str], rows: list[Row]) -> None:
    """One line for each row; changes give way on narrow terminals, and plans for which there is no room go below."""
    names = Column(title="", cells=[row.label for row in rows], is_text=True)
    styles = ["bold" if row.name in ("step_time", "peak_memory_bytes") else "" for row in rows]
    columns = _columns(labels, rows, has_changes=True)
    if not page.has_room([names, *columns]):
        columns = _columns(labels, rows, has_changes=False)
    while columns:
        count = next((n for n in range(len(columns), 1, -1) if page.has_room([names, *columns[:n]])), 1)
        page.table([names, *columns[:count]], styles=styles)
        columns = columns[count:]
        if columns:
            page.console.print()


def _columns(labels: list[str], rows: list[Row], *, has_changes: bool) -> list[Column]:
    return [
        Column(title=label, cells=[_cell(row, index, has_changes=has_changes) for row in rows])
        for index, label in enumerate(labels)
    ]


def _cell(row: Row, index: int, *, has_changes: bool) -> str:
    value, change = row.values[index], row.changes[index]
    if value is None:
        return "-"
    text = short_policy(value) if (row.section, row.name) == ("plan", "recompute") else _value(row, value)
    if not has_changes or index == 0 or not change or row.section not in ("time", "rates", "memory"):
        return text
    if abs(change) < SMALLEST_CHANGE * max(abs(value), abs(row.values[0])):
        return text
    return f"{text} ({'+' if change > 0 else '-'}{_value(row, abs(change))})"


def _value(row: Row, value: float | str) -> str:
    if isinstance(value, str):
        return value if len(value) <= LONGEST_CELL else f"{value[: LONGEST_CELL - 3]}..."
    match row.unit:
        case "s":
            return format_time(value)
        case "bytes":
            return format_bytes(value)
        case "share":
            return percent(value)
        case "flops_per_s":
            return format_rate(value, "FLOP")
    return format_count(round(value))
