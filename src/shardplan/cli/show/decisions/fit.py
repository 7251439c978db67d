"""The answer of ``fit``: the value, its plan, and the memory around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shardplan.cli.layout import Column, Page
from shardplan.cli.show.answer import show_given, show_memory, show_question, show_verdict
from shardplan.cli.show.decisions.columns import NONE, bars, show_written
from shardplan.decisions.largest import LargestFit, Tried
from shardplan.units import format_bytes

NAMES: Final = {
    "sequence_length": "sequence length",
    "micro_batch_size": "micro-batch size",
    "layers": "number of layers",
    "gpus": "number of accelerators",
}
UNITS: Final = {"sequence_length": " tokens", "micro_batch_size": " sequences", "layers": " layers", "gpus": ""}
MOST_ROWS: Final = 8


def show_fit(page: Page, fit: LargestFit, given: Sequence[str], written: Sequence[str]) -> None:
    """The whole answer."""
    show_question(page, fit.answered.question)
    show_given(page, given)
    page.console.print()
    label = "Largest" if fit.is_largest else "Smallest"
    style = "bold green" if fit.value is not None else "bold red"
    page.labelled(label, _verdict(fit), style=style)
    if fit.answered.estimate is not None:
        show_verdict(page, fit.answered.question, fit.answered.estimate)
        show_memory(page, fit.answered.estimate)
    if fit.tried:
        page.heading("Values around it", f"bar: least memory of all plans, of {format_bytes(fit.usable_memory_bytes)}")
        page.table(_columns(page, fit))
    show_written(page, written)


def _verdict(fit: LargestFit) -> str:
    """The value, and what the next one does."""
    name, unit = NAMES[fit.sought], UNITS[fit.sought]
    if fit.value is None:
        why = fit.answered.reason or fit.bound or "no plan is valid"
        return f"No {name} fits: {why}."
    text = f"The {'largest' if fit.is_largest else 'smallest'} {name} that fits is {fit.value:,}{unit}."
    if fit.bound is not None:
        return f"{text} The search ends there: {fit.bound}."
    return text if fit.next_value is None else f"{text} {fit.next_value:,}{unit} does not fit."


def _columns(page: Page, fit: LargestFit) -> list[Column]:
    tried = _near(fit)
    shares = [each.least_memory_bytes and each.least_memory_bytes / fit.usable_memory_bytes for each in tried]
    memory = [NONE if each.least_memory_bytes is None else format_bytes(each.least_memory_bytes) for each in tried]
    return [
        Column(title=NAMES[fit.sought], cells=[f"{each.value:,}" for each in tried]),
        Column(title="fits", cells=["yes" if each.fits else "no" for each in tried], is_text=True),
        Column(title="least memory", cells=memory),
        Column(title="", cells=bars(page, shares, 24), is_text=True),
    ]


def _near(fit: LargestFit) -> list[Tried]:
    """Values next to the answer that were tried."""
    values = [each.value for each in fit.tried]
    place = values.index(fit.value) if fit.value in values else len(values) - 1
    start = max(min(place - MOST_ROWS // 2, len(values) - MOST_ROWS), 0)
    return list(fit.tried[start : start + MOST_ROWS])
