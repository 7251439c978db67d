"""Methods of estimating a training run as text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from shardplan.cli.layout import Page
from shardplan.reports.methods.catalogue import OURS, MethodEntry

MOST_SHOWN = 3
"""Entries of what a method leaves out that the list shows."""


def show_list(page: Page, entries: Sequence[MethodEntry]) -> None:
    """All of them in a few lines each."""
    for number, entry in enumerate(entries):
        if number:
            page.console.print()
        page.hanging(Text(entry.name, style="bold"), Text(entry.title, style="dim"), indent=0)
        if entry.fault is not None:
            page.line(entry.fault, style="red")
            continue
        page.hanging(Text("counts    "), Text("; ".join(entry.counts)))
        more = len(entry.leaves_out) - MOST_SHOWN
        left_out = [*entry.leaves_out[:MOST_SHOWN], *([f"and {more} more"] if more > 0 else [])]
        page.hanging(Text("leaves out"), Text("; ".join(left_out)))
        page.hanging(Text("source    "), Text(entry.source, style="dim"))
    page.heading("Next steps")
    page.line("All that a method counts and leaves out; a question of yours in its terms; a case in its own words:")
    for command in (
        "shardplan methods subramanian2024",
        "shardplan plan llama-2-70b --cluster dgx-h100 --gpus 64 --method subramanian2024",
        "shardplan published --help",
    ):
        page.verbatim(command)


def show_one(page: Page, entry: MethodEntry) -> None:
    """Everything that a method says of itself."""
    page.line(entry.name, style="bold", indent=0)
    page.line(entry.title, indent=0)
    page.line(f"Source: {entry.source}", indent=0, style="dim")
    page.heading("Counts")
    page.bullets(entry.counts)
    page.heading("Leaves out" if entry.name == OURS.name else "Leaves out or has wrong")
    page.bullets(entry.leaves_out)
