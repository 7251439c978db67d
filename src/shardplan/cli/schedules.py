"""``shardplan schedules``: the pipeline schedules, as a list or one of them with a drawing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import typer
from rich.text import Text

from shardplan.cli.flags import OutputFlags, with_flags
from shardplan.physics.schedules.base import Schedule
from shardplan.physics.schedules.registry import list_all_schedules, load_any_schedule
from shardplan.render.page import INDENT, Page, TextColumn
from shardplan.reports.schedules import (
    NUM_MICROBATCHES,
    NUM_RANKS,
    Drawing,
    Mark,
    ScheduleRow,
    drawing,
    schedule_record,
    schedule_row,
)
from shardplan.reports.texts.answer import percent
from shardplan.reports.timeline.bars import HUES, OF_KIND, ink_on, shades
from shardplan.simulation.timeline import BACKWARD, FORWARD, WEIGHT_GRADIENT

ScheduleArgument = Annotated[
    str | None, typer.Argument(metavar="NAME", show_default=False, help="Name of an entry to show.")
]
HUES_OF: Final = {"F": OF_KIND[FORWARD], "B": OF_KIND[BACKWARD], "W": OF_KIND[WEIGHT_GRADIENT]}
"""Hues of the passes, as in the pictures of a step."""
NUMBER: Final = 3
"""Width of the number of a rank."""


@with_flags
def schedules(*, output: OutputFlags, name: ScheduleArgument = None) -> int:
    """List the pipeline schedules, or show and draw one.

    Bubble and micro-batches in flight are simulated for 8 ranks and 32 micro-batches, with free transfers.
    """
    target = output.checked_target(name)
    if name is not None:
        found = load_any_schedule(name.strip().lower())
        target.write({"schema": "shardplan/schedule/1", **schedule_record(found)})
        if not target.is_stdout:
            _show_schedule(Page(), found)
        return 0
    every = [load_any_schedule(each) for each in list_all_schedules()]
    target.write({"schema": "shardplan/schedules/1", "schedules": [schedule_record(each) for each in every]})
    if not target.is_stdout:
        _show_schedules(Page(), [schedule_row(each) for each in every])
    return 0


def _show_schedules(page: Page, rows: Sequence[ScheduleRow]) -> None:
    """Writes one line for each."""
    page.table(
        [
            TextColumn(title="name", cells=[row.name for row in rows], is_text=True),
            TextColumn(title="bubble", cells=[percent(row.bubble_rate_equal) for row in rows]),
            TextColumn(title="1 : 1.2 : 0.8", cells=[percent(row.bubble_rate) for row in rows], rank=2),
            TextColumn(title="in flight", cells=[f"{row.microbatches_in_flight:g}" for row in rows]),
            TextColumn(title="copies", cells=[str(row.parameter_copies) for row in rows], rank=1),
            TextColumn(
                title="frameworks", cells=[", ".join(row.frameworks) or "none known" for row in rows], is_text=True
            ),
        ]
    )
    page.console.print()
    page.line(
        f"Bubble: share of the step for {NUM_RANKS} ranks, {NUM_MICROBATCHES} micro-batches and F = B = W. In flight: "
        "micro-batches of which a rank keeps activations. Copies: of the model, in all ranks together.",
        style="dim",
    )
    page.line("shardplan schedules NAME shows and draws one.", style="dim")


def _show_schedule(page: Page, schedule: Schedule) -> None:
    """Writes the facts about a schedule, and a drawing."""
    row = schedule_row(schedule)
    page.line(f"{row.title} ({row.name})", style="bold", indent=0)
    page.line(row.source, style="dim")
    page.console.print()
    page.labelled("Rule", row.rule)
    page.labelled(
        "Bubble",
        f"{percent(row.bubble_rate_equal)} of the step for F = B = W, {percent(row.bubble_rate)} for "
        f"1 : 1.2 : 0.8 ({NUM_RANKS} ranks, {NUM_MICROBATCHES} micro-batches, free transfers)",
    )
    copies = "" if row.parameter_copies == 1 else f", and {row.parameter_copies} copies of the model in all ranks"
    page.labelled("Memory", f"{row.microbatches_in_flight:g} micro-batches in flight{copies}")
    runs = [f"{name} ({own})" for name, own in row.frameworks.items()]
    page.labelled("Run by", "; ".join(runs) or "no framework whose record names it")
    _show_drawing(page, drawing(schedule, page.width - INDENT - NUMBER))


def _show_drawing(page: Page, drawn: Drawing) -> None:
    """Writes a line for every rank, a character for every unit of time."""
    page.heading("Step", f"{drawn.num_ranks} ranks, {drawn.num_microbatches} micro-batches; every pass takes one unit")
    for rank, marks in enumerate(drawn.rows):
        text = Text()
        text.append(f"{' ' * INDENT}{rank:<{NUMBER}}", style="dim")
        for mark in marks:
            text.append(mark.text, style=_style(page, mark))
        page.console.print(text, soft_wrap=True)
    page.line(
        "0-9: forward pass of a micro-batch, by its last digit. a-z: its input gradient, or both gradients (two "
        "units), from a for micro-batch 0. A-Z: its weight gradient. A dot is a unit in which the rank waits.",
        style="dim",
    )


def _style(page: Page, mark: Mark) -> str:
    if not page.is_coloured or not mark.kind:
        return "dim" if not mark.kind else ""
    first, other = shades(HUES[HUES_OF[mark.kind[0]]], "light", 2)
    colour = first if mark.chunk == 0 else other
    return f"{ink_on(colour)} on {colour}"
