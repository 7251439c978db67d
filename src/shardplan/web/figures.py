"""Figures of one step (layout, operators, roofline), and predictions against measured runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

from shardplan.answers.document import NONE
from shardplan.answers.sections import counted_elsewhere, first_group, layout_parts, numbering, span
from shardplan.base.units import format_bytes, format_rate, format_time
from shardplan.estimation.parts.layer_operators import LayerOperator, LayerRoofline, RooflinePoint
from shardplan.estimation.parts.terms import TERMS
from shardplan.estimation.ranks import RankLayout
from shardplan.reports.accuracy.known_runs import KINDS, KnownRun, Quantity
from shardplan.web.pages.rendering import html_of
from shardplan.web.panels import Figure, log_axis, powers_of_two

BOUNDS: Final = {
    "matmul rate": "var(--c1)",
    "memory": "var(--c2)",
    "network": "var(--c4)",
    "launch": "var(--c7)",
}
STREAMED: Final = "memory-bound pass"
ROOM_OF_NAME: Final = 4.0
"""Ratio of intensities within which one name has room."""
ROOFLINE_MARKS: Final = {
    "matrix product": ("var(--c1)", "circle"),
    "attention": ("var(--c4)", "diamond"),
    STREAMED: ("var(--c2)", "square"),
}
"""Colour and shape of every kind of operator."""
DECADES: Final = (0.1, 1.0, 10.0, 100.0, 1000.0, 10_000.0)
RATES: Final = tuple(10.0**power for power in range(9, 17))


def operators_figure(layer: Sequence[LayerOperator]) -> Figure:
    """What every operator of a layer adds to its pass, by what limits it."""
    names = [f"{each.name.replace('_', ' ')}, {each.direction}" for each in layer]
    bars = [
        {
            "type": "bar",
            "orientation": "h",
            "name": bound,
            "y": [name for name, each in zip(names, layer, strict=True) if each.bound == bound],
            "x": [1e6 * each.exposed_time for each in layer if each.bound == bound],
            "text": [format_time(each.exposed_time) for each in layer if each.bound == bound],
            "textposition": "none",
            "hovertemplate": "%{y}: %{text}<extra>" + bound + "</extra>",
            "marker": {"color": tone},
        }
        for bound, tone in BOUNDS.items()
        if any(each.bound == bound for each in layer)
    ]
    return {
        "data": bars,
        "layout": {
            "xaxis": {"title": {"text": "time that it adds [\u00b5s]"}},
            "yaxis": {
                "autorange": "reversed", "categoryorder": "array", "categoryarray": names, "tickfont": {"size": 10},
            },
            "barmode": "overlay",
        },
    }  # fmt: skip


def roofline_figure(roofline: LayerRoofline) -> Figure:
    """Achieved rate against arithmetic intensity, under memory bandwidth and peak."""
    points = roofline.points
    at = [point.intensity for point in points]
    low, high = min(*at, roofline.ridge, 1e30) / 3, max(*at, roofline.ridge, 0.0) * 3
    bottom = min((point.rate for point in points), default=roofline.peak) / 5
    bandwidth, peak = format_rate(roofline.memory_bandwidth), format_rate(roofline.peak, "FLOP")
    heights = [low * roofline.memory_bandwidth, roofline.peak, roofline.peak]
    line = {"line": {"color": "var(--edge)"}, "hoverinfo": "skip"}
    roof = _lines(f"roof: {bandwidth} and {peak} {roofline.peak_format}", [low, roofline.ridge, high], heights) | line
    sides = _sides_of_names([point for point in points if point.kind != STREAMED])
    marks = [_roofline_marks(kind, [point for point in points if point.kind == kind], sides) for kind in ROOFLINE_MARKS]
    return {
        "data": [roof, *(each for each in marks if each["x"])],
        "layout": {
            "xaxis": {
                "title": {"text": "arithmetic intensity [FLOP/byte]"},
                **log_axis(low, high, DECADES, lambda value: f"{value:,g}"),
            },
            "yaxis": {
                "title": {"text": "achieved"},
                **log_axis(bottom, roofline.peak * 2, RATES, lambda value: format_rate(value, "FLOP")),
            },
        },
    }


def _sides_of_names(points: Sequence[RooflinePoint]) -> dict[str, str]:
    """Above or below which points there is room for their names; the others show theirs on hover."""
    found: dict[str, str] = {}
    reached = {"top center": 0.0, "bottom center": 0.0}
    for point in sorted(points, key=lambda each: each.intensity):
        side = next((side for side, last in reached.items() if point.intensity > ROOM_OF_NAME * last), None)
        if side is not None and point.name not in found:
            found[point.name], reached[side] = side, point.intensity
    return found


def _roofline_marks(kind: str, points: Sequence[RooflinePoint], sides: Mapping[str, str]) -> dict[str, Any]:
    """Operators of one kind. ``sides``: on which side of its point a name stands."""
    tone, symbol = ROOFLINE_MARKS[kind]
    names = [point.name.replace("_", " ") for point in points]
    shown = [point.name in sides and point.kind != STREAMED for point in points]
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": kind,
        "x": [point.intensity for point in points],
        "y": [point.rate for point in points],
        "text": [name if is_shown else "" for name, is_shown in zip(names, shown, strict=True)],
        "textposition": [sides.get(point.name, "top center") for point in points],
        "customdata": [
            f"{name}<br>{format_rate(point.rate, 'FLOP')}, {format_rate(point.bandwidth)}, {format_time(point.time)}"
            for name, point in zip(names, points, strict=True)
        ],
        "hovertemplate": "%{customdata}<extra></extra>",
        "cliponaxis": False,
        "marker": {"size": 9, "color": tone, "symbol": symbol},
    }


SAME_AS: Final = {"etp": "tp", "edp": "dp", "dp-cp": "dp"}
"""Kinds of groups that have the tone of another."""


def layout_figure(layout: RankLayout) -> dict[str, Any]:
    """What the picture of the layout draws, and its texts."""
    kinds = [(kind, TERMS[f"{SAME_AS.get(kind.name, kind.name)}_communication"].tone) for kind in layout.kinds]
    node, *_ = layout_parts(layout)
    return {
        "numbering": numbering(layout),
        "tiers": layout.tiers,
        "notes": counted_elsewhere(layout),
        "node": html_of(node.blocks[:1]),
        "data": {
            "num_ranks": layout.num_ranks,
            "levels": [{"name": level.name, "ranks": level.ranks} for level in layout.levels],
            "kinds": [
                {"name": kind.name, "tone": f"--c{tone[1:]}", "runs": kind.runs, "is_shown": kind.name not in SAME_AS}
                for kind, tone in kinds
            ],
        },
        "kinds": [
            {
                "name": kind.name,
                "title": kind.title,
                "tone": tone,
                "size": f"{kind.size:,}",
                "count": f"{layout.num_ranks // kind.size:,}",
                "first": first_group(layout, kind),
                "span": span(layout, kind),
                "cells": [format_bytes(kind.sent[tier]) if kind.sent.get(tier) else NONE for tier in layout.tiers],
            }
            for kind, tone in kinds
        ],
    }


TONES_OF_KINDS: Final = {KINDS[False]: "var(--c1)", KINDS[True]: "var(--c4)"}
SYMBOLS: Final = {KINDS[False]: "circle", KINDS[True]: "diamond"}
BANDS: Final = ((1.25, "within 25 %"), (1.1, "within 10 %"))
"""Factors between which a band is drawn, the widest first."""
SHADES: Final = ("var(--line)", "var(--c1-soft)")
TEXTS: Final[dict[str, Callable[[float], str]]] = {"step_time": format_time, "peak_memory": format_bytes}
TICKS: Final[dict[str, tuple[tuple[float, ...], Callable[[float], str]]]] = {
    "step_time": ((1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1000.0, 1e4), lambda at: f"{at:g} s"),
    "peak_memory": ((1e9, 2e9, 5e9, 1e10, 2e10, 5e10, 1e11, 2e11, 5e11), lambda at: f"{at / 1e9:g} GB"),
}
RATIOS: Final = (1 / 4, 1 / 3, 1 / 2, 1 / 1.25, 1.0, 1.25, 2.0, 3.0, 4.0)
HOVER: Final = "%{text}<extra></extra>"
Place = Callable[[KnownRun], tuple[float | None, float]]
"""Where a run is drawn."""
Group = tuple[str, list[KnownRun], str, str]
"""Name, runs, colour and symbol."""
NOUNS: Final = {"step_time": "step time", "peak_memory": "peak memory"}


def trust_figure(
    runs: Sequence[KnownRun],
    quantity: Quantity,
    selected: str = "",
    near: Collection[str] = (),
    *,
    as_ratio: bool = False,
) -> Figure:
    """The figure of runs that have the quantity.

    ``near``: names of the runs nearest to the question at hand. ``as_ratio``: predicted over measured, in place of
    predicted.
    """
    place = partial(_place, quantity=quantity, as_ratio=as_ratio)
    places = [place(one) for one in runs]
    layout, lines = _fits_axes(places) if quantity == "fits" else _axes(places, quantity, as_ratio=as_ratio)
    clouds = [_cloud(group, quantity, place) for group in _groups(runs, quantity)]
    return {
        "data": [*lines, *clouds, *_marks(runs, selected, near, place)],
        "layout": {**layout, "hovermode": "closest"},
    }


def _place(one: KnownRun, quantity: Quantity, *, as_ratio: bool) -> tuple[float | None, float]:
    """Where a run is drawn: measured and predicted, or the accelerators and the needed share of their memory."""
    if quantity == "fits":
        return one.run.num_accelerators, math.exp(one.fits or 0.0)
    if not as_ratio:
        return one.measured(quantity), one.predicted(quantity) or math.nan
    ratio = one.ratio(quantity)
    return one.measured(quantity), math.nan if ratio is None else math.exp(ratio)


def _groups(runs: Sequence[KnownRun], quantity: Quantity) -> list[Group]:
    """Runs by how they ended or by the kind of model, with colour and symbol; those alone of which there are some."""
    if quantity == "fits":
        groups = [
            ("ran", [one for one in runs if one.run.ran], "var(--c1)", "circle"),
            ("ran out of memory", [one for one in runs if not one.run.ran], "var(--c6)", "x"),
        ]
    else:
        groups = [
            (kind, [one for one in runs if one.kind == kind], TONES_OF_KINDS[kind], SYMBOLS[kind])
            for kind in KINDS.values()
        ]
    return [group for group in groups if group[1]]


def _cloud(group: Group, quantity: Quantity, place: Place) -> dict[str, Any]:
    """Points of a group; ``customdata`` holds the names by which runs are opened."""
    name, runs, tone, symbol = group
    texts = [f"{one.run.id}<br>{_said(one, name, quantity)}" for one in runs]
    points = _points(f"{name} ({len(runs):,})", runs, texts, place)
    return {**points, "hovertemplate": HOVER, "marker": {"color": tone, "symbol": symbol, "size": 7, "opacity": 0.6}}


def _said(one: KnownRun, group: str, quantity: Quantity) -> str:
    if quantity == "fits":
        return f"needs {100 * math.exp(one.fits or 0.0):.0f} % of the usable memory; {group}"
    text = TEXTS[quantity]
    return f"measured {text(one.measured(quantity) or 0)}, predicted {text(one.predicted(quantity) or 0)}"


def _points(name: str, runs: Sequence[KnownRun], texts: Sequence[str], place: Place) -> dict[str, Any]:
    places = [place(one) for one in runs]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [x for x, _ in places],
        "y": [y for _, y in places],
        "customdata": [one.run.id for one in runs],
        "text": texts,
    }


def _marks(runs: Sequence[KnownRun], selected: str, near: Collection[str], place: Place) -> list[dict[str, Any]]:
    """Stars on the runs nearest to the question, and a ring around the run that is shown next to the figure."""
    star = {"color": "var(--accent)", "symbol": "star", "size": 16, "line": {"color": "var(--text)", "width": 1.5}}
    ring = {"color": "rgba(0,0,0,0)", "size": 15, "line": {"color": "var(--text)", "width": 2}}
    marked = (
        ("nearest to your question", [one for one in runs if one.run.id in near], star),
        ("shown", [one for one in runs if one.run.id == selected], ring),
    )
    return [
        {**_points(name, some, [one.run.id for one in some], place), "hovertemplate": HOVER, "marker": marker}
        for name, some, marker in marked
        if some
    ]


def _axes(
    places: Sequence[tuple[float | None, float]], quantity: Quantity, *, as_ratio: bool
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Measured against predicted, with the bands around equality."""
    x, y = [place[0] or math.nan for place in places], [place[1] for place in places]
    ends = x if as_ratio else [*x, *y]
    low, high = min(ends, default=1.0) / 1.5, max(ends, default=1.0) * 1.5
    axis, noun = log_axis(low, high, *TICKS[quantity]), NOUNS[quantity]
    own = log_axis(min(y, default=1.0) / 1.1, max(y, default=1.0) * 1.1, RATIOS, lambda at: f"{100 * (at - 1):+.0f} %")
    layout = {
        "xaxis": {"title": {"text": f"measured {noun}"}, **axis},
        "yaxis": {"title": {"text": f"predicted {noun}: error" if as_ratio else f"predicted {noun}"}}
        | (own if as_ratio else axis),
    }
    return layout, _bands(low, high, as_ratio=as_ratio)


def _fits_axes(
    places: Sequence[tuple[float | None, float]],
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Needed over usable memory by world size: what ran should be below one, what ran out of memory above."""
    sizes, shares = [place[0] or 1 for place in places], [place[1] for place in places]
    first, last = min(sizes, default=1) / 1.5, max(sizes, default=1) * 1.5
    limit = {"color": "var(--bad)", "width": 1, "dash": "dash"}
    full = _lines("full", [first, last], [1, 1]) | {"line": limit}
    shown = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
    ends = min(shares, default=0.1) / 1.3, max(shares, default=1) * 1.3
    layout = {
        "xaxis": {"title": {"text": "accelerators"}, **powers_of_two(first, last)},
        "yaxis": {
            "title": {"text": "predicted need over usable memory"},
            **log_axis(*ends, shown, lambda at: f"{100 * at:g} %"),
        },
    }
    return layout, [{**full, "hoverinfo": "skip"}]


def _bands(low: float, high: float, *, as_ratio: bool) -> list[dict[str, Any]]:
    """Areas around the diagonal (or around one), and that line."""
    left, right = (1.0, 1.0) if as_ratio else (low, high)
    ends, area = [low, high, high, low, low], {"fill": "toself", "opacity": 0.5, "line": {"width": 0}}
    areas = [
        _lines(name, ends, [left * factor, right * factor, right / factor, left / factor, left * factor])
        | {**area, "fillcolor": shade, "hoverinfo": "skip"}
        for (factor, name), shade in zip(BANDS, SHADES, strict=True)
    ]
    exact = _lines("exact", [low, high], [left, right]) | {"line": {"color": "var(--edge)", "width": 1}}
    return [*areas, {**exact, "hoverinfo": "skip", "showlegend": False}]


def _lines(name: str, x: Sequence[float], y: Sequence[float]) -> dict[str, Any]:
    return {"type": "scatter", "mode": "lines", "name": name, "x": x, "y": y}
