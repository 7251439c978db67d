"""Figures of pages: one for each panel of a chart, so that a narrow window shows one below the other.

With their axes in the units and words of the app, and an estimate as texts and bars, each term in the same tone
everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from shardplan.base.fields import dataclass
from shardplan.base.units import format_bytes, format_time
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.parts.terms import MEMORY, TERMS
from shardplan.plotting.chart import GREY, IDLE, PALETTE, SECOND_PALETTE, Axis, Chart, Panel, Series
from shardplan.plotting.page import axis_settings, contour_of, trace_of, values_along
from shardplan.reports.breakdown import MemoryBar, memory_bar, memory_use, step_split
from shardplan.reports.texts.answer import percent
from shardplan.reports.texts.plan import plan_words
from shardplan.web.state import plan_code

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


TICKS_OF_AN_AXIS = 8


def powers_of_two(low: float, high: float) -> dict[str, Any]:
    """A logarithmic axis of counts."""
    first, last = math.ceil(math.log2(max(low, 1.0))), math.floor(math.log2(max(high, 1.0)))
    step = max(1, -(-(last - first + 1) // TICKS_OF_AN_AXIS))
    return log_axis(low, high, [2.0**power for power in range(first, last + 1, step)], lambda at: f"{at:,.0f}")


COLOURS: Final = dict(
    zip(
        (*PALETTE, *SECOND_PALETTE, GREY, IDLE),
        ["c1", "c4", "c2", "c6", "c3", "c1-soft", "c5", "text", "c8", "c2-soft", "c5", "c4", "c3", "c7", "line"],
        strict=True,
    )
)
"""Colours of the library as those of the page, which are legible in light and dark."""


def panel_figures(chart: Chart) -> list[dict[str, Any]]:
    """Title and figure of every panel."""
    return figures_of([panel for panel, _, _ in chart.placed])


FEW_BARS: Final = 2


def figures_of(panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """Title, figure and height of panels: bars one below the other need what they need."""

    def size(panel: Panel) -> str:
        if len(panels) > 1 or not panel.is_horizontal:
            return "m"
        return "s" if len(panel.series[0].x) <= FEW_BARS else "l"

    return [{"title": each.title, "figure": panel_figure(each), "size": size(each)} for each in panels]


def panel_figure(panel: Panel) -> Figure:
    """One panel."""
    heights: dict[float | str, float] = {}
    named: set[str] = set()
    data = [] if panel.field is None else [contour_of(panel.field)]
    for series in panel.series:
        data.append(_trace(panel, series, heights, is_named=bool(series.name) and series.name not in named))
        named.add(series.name)
    return {"data": data, "layout": _layout(panel)}


def tone(colour: str) -> str:
    """A colour of the page in place of one of the library's."""
    return f"var(--{COLOURS[colour]})" if colour in COLOURS else colour


def _trace(panel: Panel, series: Series, heights: dict[float | str, float], *, is_named: bool) -> dict[str, Any]:
    """A series in the colours of the page, with its labels and what the pointer shows."""
    trace = trace_of(panel, series, heights, tone(series.colour), is_named=is_named)
    if series.kind == "bars":
        return trace
    hover = {"hovertext": [*series.hover], "hovertemplate": "%{hovertext}<extra></extra>"} if series.hover else {}
    return trace | {
        **hover,
        "mode": "+".join(filter(None, [trace["mode"], "text" if series.labels else ""])),
        "text": [*series.labels],
        "textposition": [*series.label_sides] or "top right",
        "cliponaxis": False,
        **({"yaxis": "y2"} if series.is_on_right else {}),
    }


def _layout(panel: Panel) -> dict[str, Any]:
    if panel.is_horizontal:
        return {
            "barmode": "group",
            "xaxis": _axis(panel.y, values_along(panel, "y")),
            "yaxis": {**axis_settings(panel.x, ()), "autorange": "reversed"},
        }
    left = values_along(panel, "y", is_on_right=False)
    found = {
        "barmode": "group",
        "xaxis": _axis(panel.x, values_along(panel, "x")),
        "yaxis": _axis(panel.y, left),
    }
    if any(series.labels and series.labels[-1] for series in panel.series):
        found["margin"] = ROOM_FOR_LABELS
    if panel.right is not None:
        right = _axis(panel.right, values_along(panel, "y", is_on_right=True))
        found["yaxis2"] = {**right, "overlaying": "y", "side": "right", "showgrid": False}
    return found


ROOM_FOR_LABELS: Final = {"l": 56, "r": 64, "t": 16, "b": 48}
"""Margins of a figure whose last points have texts at their right. [pixels]"""
MOST_TICKS: Final = 9
FEW_DECADES: Final = 300.0
LARGE: Final = 1e13


def _axis(axis: Axis, values: Sequence[float]) -> dict[str, Any]:
    """Settings of an axis of these values."""
    return _settled(axis_settings(axis, values), values)


def _settled(settings: dict[str, Any], values: Sequence[float]) -> dict[str, Any]:
    """An axis with as many ticks as have room, and no raised exponents: plotly styles them inline."""
    if settings.get("exponentformat") == "power":
        known = [value for value in values if value > 0] or [1.0]
        steps = (1, 2, 5) if max(known) < FEW_DECADES * min(known) else (1,)
        first, last = math.floor(math.log10(min(known))), math.ceil(math.log10(max(known)))
        at = [step * 10.0**power for power in range(first, last + 1) for step in steps]
        shown = [tick for tick in at if min(known) / 2 <= tick <= 2 * max(known)]
        others = {name: value for name, value in settings.items() if name not in ("exponentformat", "dtick")}
        settings = others | {"tickvals": shown, "ticktext": [_tick_text(tick) for tick in shown]}
    ticks = settings.get("tickvals", ())
    step = math.ceil(len(ticks) / MOST_TICKS) or 1
    if step > 1:
        settings = settings | {key: settings[key][::step] for key in ("tickvals", "ticktext")}
    return settings


def _tick_text(value: float) -> str:
    """A power of ten, or twice or five times one: 0.2, 50, 200k."""
    if value >= LARGE:
        return f"{value:.0e}".replace("e+", "e")
    size, prefix = next((each for each in PREFIXES if value >= each[0]), (1.0, ""))
    return f"{value / size:g}{prefix}"


PREFIXES: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))

REST: Final = "t12"
"""Class of the style sheet."""
LEAST_SHARE: Final = 0.004
"""Terms of the step below this share are one part of the bar."""


@dataclass(frozen=True, kw_only=True)
class BarPart:
    """One of them."""

    label: str
    text: str
    share: float
    """From 0 to 1."""
    tone: str


def memory_parts(bar: MemoryBar) -> list[BarPart]:
    """What fills the memory; shares are of what can be used, or of what is needed where that is more."""
    whole = max(bar.used_bytes, bar.usable_bytes)
    return [
        BarPart(
            label=part.name,
            text=format_bytes(part.value),
            share=part.value / whole,
            tone=MEMORY[part.name].tone,
        )
        for part in bar.parts
    ]


def step_parts(estimate: Estimate, whole: float | None = None) -> list[BarPart]:
    """Where the seconds of the step go; shares are of ``whole`` seconds, or of the step."""
    whole, order = whole or estimate.step_time, [*TERMS]
    shares = step_split(estimate)
    shown = [share for share in shares if share.share >= LEAST_SHARE]
    rest = sum(share.value for share in shares if share.share < LEAST_SHARE)
    shown.sort(key=lambda share: order.index(share.name))
    parts = [
        BarPart(
            label=TERMS[share.name].label,
            text=f"{format_time(share.value)}, {percent(share.value / estimate.step_time)}",
            share=share.value / whole,
            tone=TERMS[share.name].tone,
        )
        for share in shown
    ]
    if rest > 0:
        parts.append(BarPart(label="the rest", text=format_time(rest), share=rest / whole, tone=REST))
    return parts


def shown_plan(estimate: Estimate, whole: float | None = None) -> dict[str, Any]:
    """A plan in words, and bars of its step and its memory. ``whole``: seconds of which the step is a part."""
    bar = memory_bar(estimate)
    return {
        "estimate": estimate,
        "code": plan_code(estimate.plan),
        "words": " \u00b7 ".join(plan_words(estimate)),
        "split": step_parts(estimate, whole),
        "memory": {
            "text": memory_use(estimate),
            "parts": memory_parts(bar),
            "end": bar.usable_bytes / max(bar.used_bytes, bar.usable_bytes),
        },
    }
