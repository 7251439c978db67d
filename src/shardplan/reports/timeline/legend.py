"""The legend of a picture of a step: what its colours mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from shardplan.reports.timeline.bars import Bars
from shardplan.reports.timeline.frame import CHARACTER, LEGEND_LINE, MARGIN, WIDTH
from shardplan.reports.timeline.hues import HUES

SWATCH: Final = 12.0
BETWEEN: Final = 18.0
MOST_SWATCHES: Final = 4
CRITICAL: Final = "critical path"
WAITING: Final = "bubble"


class Entry(NamedTuple):
    """A text and what is before it."""

    classes: tuple[str, ...]
    """Of the swatches."""
    text: str
    x: float
    line: int


def entries(bars: Bars, *, is_merged: bool) -> list[Entry]:
    """Everything that the picture shows, line by line."""
    placed: list[Entry] = []
    x, line = MARGIN, 0
    for classes, text in _wanted(bars, is_merged=is_merged):
        width = SWATCH * len(classes) + 6 + CHARACTER * len(text)
        if x + width > WIDTH - MARGIN and placed:
            x, line = MARGIN, line + 1
        placed.append(Entry(classes, text, x, line))
        x += width + BETWEEN
    return placed


def legend(placed: list[Entry], top: float) -> Iterator[str]:
    """Swatches and texts."""
    for entry in placed:
        y = top + LEGEND_LINE * entry.line
        for place, css in enumerate(entry.classes):
            x = entry.x + SWATCH * place
            if css == "k":
                yield f'<path class="k" d="M{x:g} {y + 6:g}h{SWATCH:g}"/>'
            else:
                yield f'<rect class="{css}" x="{x:g}" y="{y:g}" width="{SWATCH:g}" height="{SWATCH:g}"/>'
        yield f'<text class="s" x="{entry.x + SWATCH * len(entry.classes) + 5:g}" y="{y + 10:g}">{entry.text}</text>'


def _wanted(bars: Bars, *, is_merged: bool) -> Iterator[tuple[tuple[str, ...], str]]:
    present = np.unique(bars.hue).tolist()
    for hue in present:
        if hue > 0 and hue - 1 in present and HUES[hue].light == HUES[hue - 1].light and not HUES[hue].is_hatched:
            continue  # the entry before has the same colour and names both
        text = HUES[hue].label
        if hue + 1 in present and HUES[hue + 1].light == HUES[hue].light and not HUES[hue + 1].is_hatched:
            text = f"{text} or {HUES[hue + 1].label}"
        number = 1 if is_merged or HUES[hue].is_hatched else int(bars.shade[bars.hue == hue].max()) + 1
        shown = np.unique(np.linspace(0, number - 1, min(number, MOST_SWATCHES)).round().astype(int)).tolist()
        swatches = ("hx",) if HUES[hue].is_hatched else tuple(f"h{hue}-{chunk}" for chunk in shown)
        yield swatches, text if number == 1 else f"{text} (chunks 0 {'and' if number == 2 else 'to'} {number - 1})"
    yield ("tr",), WAITING
    if not is_merged and bool(bars.events.critical.any()):
        yield ("k",), CRITICAL
