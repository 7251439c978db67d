"""The answer of ``fit``: the value, its plan, and the memory around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shardplan.cli.layout import Column, Page
from shardplan.cli.show.answer import show_memory, show_question, show_verdict
from shardplan.cli.show.decisions.columns import NONE, bars, show_written
from shardplan.decisions.largest import LargestFit
from shardplan.reports.texts.decisions import SOUGHT, fit_sentence, tried_near
from shardplan.units import format_bytes

MOST_ROWS: Final = 8


def show_fit(page: Page, fit: LargestFit, given: Sequence[str], written: Sequence[str]) -> None:
    """The whole answer."""
    show_question(page, fit.answered.question, given)
    page.console.print()
    label = "Largest" if fit.is_largest else "Smallest"
    style = "bold green" if fit.value is not None else "bold red"
    page.labelled(label, fit_sentence(fit), style=style)
    if fit.answered.estimate is not None:
        show_verdict(page, fit.answered.question, fit.answered.estimate)
        show_memory(page, fit.answered.estimate)
    if fit.tried:
        page.heading("Values around it", f"bar: least memory of all plans, of {format_bytes(fit.usable_memory_bytes)}")
        page.table(_columns(page, fit))
    show_written(page, written)


def _columns(page: Page, fit: LargestFit) -> list[Column]:
    tried = tried_near(fit, MOST_ROWS)
    shares = [each.least_memory_bytes and each.least_memory_bytes / fit.usable_memory_bytes for each in tried]
    memory = [NONE if each.least_memory_bytes is None else format_bytes(each.least_memory_bytes) for each in tried]
    return [
        Column(title=SOUGHT[fit.sought], cells=[f"{each.value:,}" for each in tried]),
        Column(title="fits", cells=["yes" if each.fits else "no" for each in tried], is_text=True),
        Column(title="least memory", cells=memory),
        Column(title="", cells=bars(page, shares, 24), is_text=True),
    ]
