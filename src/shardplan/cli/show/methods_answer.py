"""The answer of another method to a question of ours, our own estimate next to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from rich.text import Text

from shardplan.cli.layout import Column, Page
from shardplan.cli.show.answer import show_question
from shardplan.published.base import MethodRow
from shardplan.reports.methods.question import Beside, MethodReport, our_part, part_label, part_text
from shardplan.reports.texts.plan import plan_flags
from shardplan.units import format_bytes, format_time

SHORT: Final = {"micro_batch_size": "mb", "tp_rows": "rows", "tp_in": "in", "tp_out": "out"}
"""Degrees, short enough for a table."""
WORDS: Final = {"micro_batch_size": "micro-batch", "tp_rows": "rows of the grid", "tp_in": "tp in", "tp_out": "tp out"}
"""The same in sentences."""
MOST_LINES = 3


def show_report(page: Page, report: MethodReport) -> None:
    """Verdict, configurations, how the question was put, what was ignored."""
    show_question(page, report.question)
    _show_verdict(page, report)
    _show_rows(page, report)
    _show_parts(page, report)
    answer = report.answer
    for title, note, texts in (
        ("Put in its terms", "", answer.mapped),
        ("Ignored", "what the method does not know", answer.ignored),
        ("Wrong with it", "known errors that touch this answer", answer.notes),
        ("Assumed", "", report.assumptions),
    ):
        if texts:
            page.heading(title, note)
            page.bullets(texts, style="dim" if title == "Assumed" else "", most_lines=MOST_LINES)
    _show_way_on(page, report)


def _show_verdict(page: Page, report: MethodReport) -> None:
    page.console.print()
    name = report.entry.name
    page.hanging(Text(name, style="bold"), Text(report.entry.title, style="dim"), indent=0)
    if not report.answer.rows:
        page.line(Text(f"{name} names no configuration.", style="bold red"), indent=0)
        return
    best, ours = report.answer.rows[0], report.ours[0]
    verdict = Text()
    if best.fits is False:
        verdict.append("Nothing fits by its own rule. ", style="bold red").append("Closest: ")
    else:
        verdict.append("Its best: ", style="bold green")
    verdict.append(", ".join(_said(best)), style="bold")
    page.line(verdict, indent=0)
    page.line(Text("Our estimate of it: ", style="bold").append(_ours_text(ours)), indent=0)


def _said(row: MethodRow) -> list[str]:
    """A row as text."""
    degrees = ", ".join(f"{WORDS.get(name, name)} {degree}" for name, degree in row.degrees.items())
    time = [] if row.step_time is None else [f"{format_time(row.step_time)} a step"]
    memory = [] if row.memory_bytes is None else [format_bytes(row.memory_bytes)]
    return [degrees, *time, *memory]


def _ours_text(ours: Beside) -> str:
    if ours.estimate is None:
        return f"none, as {ours.broken_rule}"
    estimate = ours.estimate
    text = f"{format_time(estimate.step_time)} a step, {format_bytes(estimate.peak_memory_bytes)}; "
    return text + ("it fits" if estimate.feasible else f"it does not fit: {estimate.reason}")


def _show_rows(page: Page, report: MethodReport) -> None:
    """Every configuration: theirs and ours in turn."""
    rows, ours = report.answer.rows, report.ours
    if not rows:
        return
    page.heading("Configurations", "in its order, and our own estimate of the same degrees")
    estimates = [each.estimate for each in ours]
    columns = [
        *_degrees(rows),
        *_known("its step", [row.step_time for row in rows], format_time),
        *_known("our step", [None if e is None else e.step_time for e in estimates], format_time),
        *_known("its memory", [row.memory_bytes for row in rows], format_bytes, rank=1),
        *_known("our memory", [None if e is None else e.peak_memory_bytes for e in estimates], format_bytes, rank=1),
        *_known("its fit", [row.fits for row in rows], lambda fits: "yes" if fits else "no", rank=4),
        Column(title="our fit", cells=[_our_fit(each) for each in ours], is_text=True, rank=2),
    ]
    page.table(columns, styles=["bold"])
    broken = list(dict.fromkeys(each.broken_rule for each in ours if each.estimate is None))
    if broken:
        page.line(f"No plan of ours: {'; '.join(broken)}.", style="dim")


def _degrees(rows: Sequence[MethodRow]) -> list[Column]:
    names = list(dict.fromkeys(name for row in rows for name in row.degrees))
    return [
        Column(
            title=SHORT.get(name, name),
            cells=[str(row.degrees.get(name, "-")) for row in rows],
            rank=3 if name == "micro_batch_size" else 0,
        )
        for name in names
    ]


def _known(title: str, values: Sequence[Any], text: Callable[[Any], str], rank: int = 0) -> list[Column]:
    """The column, unless there is nothing in it."""
    if all(value is None for value in values):
        return []
    return [Column(title=title, cells=["-" if value is None else text(value) for value in values], rank=rank)]


def _our_fit(ours: Beside) -> str:
    if ours.estimate is None:
        return "no plan"
    return "yes" if ours.estimate.feasible else "no"


def _show_parts(page: Page, report: MethodReport) -> None:
    """The method's own terms of its first configuration, and ours where we have the same."""
    if not report.answer.rows or not report.answer.rows[0].parts:
        return
    page.heading("Its terms", "of the first configuration; ours where we count the same")
    parts, ours = report.answer.rows[0].parts, report.ours[0].estimate
    our_parts = [None if ours is None else our_part(name, ours) for name in parts]
    page.table(
        [
            Column(title="term", cells=[part_label(name) for name in parts], is_text=True),
            Column(title="its", cells=[part_text(name, value) for name, value in parts.items()]),
            *(
                []
                if all(value is None for value in our_parts)
                else [Column(title="ours", cells=[*map(part_text, parts, our_parts)])]
            ),
        ]
    )


def _show_way_on(page: Page, report: MethodReport) -> None:
    priced = [each.estimate for each in report.ours if each.estimate is not None]
    page.heading("Next steps")
    page.line("Leave out --method for our own search. All that the method counts and leaves out:")
    page.verbatim(f"shardplan methods {report.entry.name}")
    if priced:
        page.line("The first plan of ours above as flags of `shardplan estimate`:")
        page.verbatim(" ".join(plan_flags(report.question, priced[0])) or "none: every field has its default")
