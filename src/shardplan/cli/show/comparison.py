"""Two or more plans side by side."""

from __future__ import annotations

from rich.text import Text

from shardplan.cli.layout import Column, Page
from shardplan.cli.show.answer import percent
from shardplan.reports.comparison import Comparison, Row
from shardplan.reports.plan_words import short_policy
from shardplan.units import format_bytes, format_count, format_rate, format_time

TITLES = {
    "question": ("Question", "where it differs"),
    "plan": ("Plan", "where it differs"),
    "time": ("Step", "on the slowest stage; in brackets the change from the first"),
    "rates": ("Rates", ""),
    "memory": ("Memory", "of the fullest stage"),
    "communication": ("Traffic", "bytes that an accelerator sends in a step, where they differ"),
}
LONGEST_NAME = 28


def show_comparison(page: Page, comparison: Comparison) -> None:
    """Verdict, then every quantity that differs."""
    labels = [_short(side.label) for side in comparison.sides]
    page.line(_verdict(comparison, labels), indent=0)
    if not comparison.is_one_question:
        page.line("The plans answer different questions: compare rates, not step times.", indent=0, style="yellow")
    for section, (title, note) in TITLES.items():
        rows = [row for row in comparison.rows if row.section == section]
        if rows:
            page.heading(title, note)
            _table(page, labels, rows)


def _verdict(comparison: Comparison, labels: list[str]) -> Text:
    if comparison.fastest is None:
        return Text("None of these plans fits.", style="bold red")
    fastest = comparison.sides[comparison.fastest].estimate
    rate = format_count(round(fastest.tokens_per_second_per_accelerator))
    text = Text(f"{labels[comparison.fastest]} is the fastest that fits", style="bold green")
    return text.append(f": {rate} tokens/s per accelerator, {format_time(fastest.step_time)} a step.", style="default")


def _table(page: Page, labels: list[str], rows: list[Row]) -> None:
    """One line for each row; changes give way on narrow terminals."""
    for has_changes in (True, False):
        cells = [[_cell(row, index, has_changes=has_changes) for row in rows] for index in range(len(labels))]
        columns = [Column(title="", cells=[row.label for row in rows], is_text=True)]
        columns += [Column(title=label, cells=texts) for label, texts in zip(labels, cells, strict=True)]
        if sum(column.width + 2 for column in columns) <= page.width or not has_changes:
            break
    page.table(columns, styles=["bold" if row.name in ("step_time", "peak_memory_bytes") else "" for row in rows])


def _cell(row: Row, index: int, *, has_changes: bool) -> str:
    value, change = row.values[index], row.changes[index]
    if value is None:
        return "-"
    text = short_policy(value) if (row.section, row.name) == ("plan", "recompute") else _value(row, value)
    if not has_changes or index == 0 or not change or row.section not in ("time", "rates", "memory"):
        return text
    return f"{text} ({'+' if change > 0 else '-'}{_value(row, abs(change))})"


def _value(row: Row, value: float | str) -> str:
    if isinstance(value, str):
        return value
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


def _short(label: str) -> str:
    return label if len(label) <= LONGEST_NAME else f"...{label[3 - LONGEST_NAME :]}"
