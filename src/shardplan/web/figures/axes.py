"""Axes of figures: ticks in the units and words of the rest of the app."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

Figure = dict[str, Any]
"""A plotly figure: ``data`` and ``layout``. A colour such as ``var(--c1)`` is one of the page's."""


def log_axis(low: float, high: float, ticks: Iterable[float], text: Callable[[float], str]) -> dict[str, Any]:
    """A logarithmic axis with these of the ticks that are in it."""
    shown = [tick for tick in ticks if low <= tick <= high]
    return {
        "type": "log",
        "range": [math.log10(max(low, 1e-30)), math.log10(max(high, 1e-30))],
        "tickvals": shown,
        "ticktext": [text(tick) for tick in shown],
    }


MOST_TICKS = 8


def powers_of_two(low: float, high: float) -> dict[str, Any]:
    """A logarithmic axis of counts."""
    first, last = math.ceil(math.log2(max(low, 1.0))), math.floor(math.log2(max(high, 1.0)))
    step = max(1, -(-(last - first + 1) // MOST_TICKS))
    return log_axis(low, high, [2.0**power for power in range(first, last + 1, step)], lambda at: f"{at:,.0f}")
