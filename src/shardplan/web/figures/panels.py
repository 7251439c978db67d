"""Charts of the library as figures of a page: each panel is one, so that a narrow window shows one below the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from shardplan.plotting.chart import GREY, PALETTE, SECOND_PALETTE, Axis, Chart, Panel, Series
from shardplan.plotting.page import MARKERS, NUM_CONTOURS, axis_settings, bar_place, positions, values_along
from shardplan.web.figures.axes import Figure

COLOURS: Final = dict(
    zip(
        (*PALETTE, *SECOND_PALETTE, GREY),
        (
            "--c1",
            "--c4",
            "--c2",
            "--c6",
            "--c3",
            "--c1-soft",
            "--c5",
            "--text",
            "--c8",
            "--c2-soft",
            "--c5",
            "--c4",
            "--c3",
            "--c7",
        ),
        strict=True,
    )
)
"""Colours of the library as those of the page, which are legible in light and dark."""


def panel_figures(chart: Chart) -> list[dict[str, Any]]:
    """Title and figure of every panel."""
    return [{"title": panel.title, "figure": panel_figure(panel)} for panel, _, _ in chart.placed]


def panel_figure(panel: Panel) -> Figure:
    """One panel."""
    heights: dict[float | str, float] = {}
    named: set[str] = set()
    data = [_field(panel)] if panel.field is not None else []
    for series in panel.series:
        data.append(_trace(panel, series, heights, is_named=bool(series.name) and series.name not in named))
        named.add(series.name)
    return {"data": data, "layout": _layout(panel)}


def tone(colour: str) -> str:
    """A colour of the page in place of one of the library's."""
    return f"var({COLOURS[colour]})" if colour in COLOURS else colour


def _trace(panel: Panel, series: Series, heights: dict[float | str, float], *, is_named: bool) -> dict[str, Any]:
    along, up = positions(series), list(series.y)
    shared: dict[str, Any] = {
        "name": series.name,
        "legendgroup": series.name,
        "showlegend": is_named,
        "x": along,
        "y": up,
    }
    if series.kind == "bars":
        trace = {
            "type": "bar",
            **shared,
            "marker": {"color": tone(series.colour)},
            **bar_place(series, heights, is_stacked=panel.is_stacked),
        }
        return trace | ({"orientation": "h", "x": up, "y": along} if panel.is_horizontal else {})
    marks = ["markers"] if series.marker != "none" or series.kind == "points" else []
    texts = ["text"] if series.labels else []
    hover = {"hovertext": [*series.hover], "hovertemplate": "%{hovertext}<extra></extra>"} if series.hover else {}
    return {
        "type": "scatter",
        **shared,
        **hover,
        "mode": "+".join([*(["lines"] if series.kind == "line" else []), *marks, *texts]),
        "line": {"color": tone(series.colour), "dash": "dash" if series.is_dashed else "solid"},
        "marker": {"color": tone(series.colour), "symbol": MARKERS.get(series.marker, "circle"), "size": 7},
        "text": [*series.labels],
        "textposition": [*series.label_sides] or "top right",
        "cliponaxis": False,
        **({"yaxis": "y2"} if series.is_on_right else {}),
    }


def _field(panel: Panel) -> dict[str, Any]:
    field = panel.field
    assert field is not None
    return {
        "type": "contour",
        "x": [*field.x],
        "y": [*field.y],
        "z": [[*row] for row in field.z],
        "colorscale": "Viridis",
        "colorbar": {"title": {"text": field.title}},
        "ncontours": NUM_CONTOURS,
        "showlegend": False,
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
    if any(series.labels for series in panel.series):
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
