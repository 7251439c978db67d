"""Figures of one step: memory over time, operators, roofline, bytes on every tier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from shardplan.base.units import format_bytes, format_rate, format_time
from shardplan.estimation.parts.layer_operators import LayerOperator, LayerRoofline, RooflinePoint
from shardplan.simulation.timeline import StepTimeline
from shardplan.web.figures.panels import Figure, log_axis

TONES: Final = tuple(f"var(--c{number})" for number in (1, 4, 2, 6, 3, 5, 8, 7))
BOUNDS: Final = {
    "matmul rate": "var(--c1)",
    "memory": "var(--c2)",
    "network": "var(--c4)",
    "launch": "var(--c7)",
}
MOST_POINTS: Final = 600
"""Of a line of memory."""
MOST_RANKS: Final = 8
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


def memory_figure(timeline: StepTimeline, usable: float) -> Figure:
    """Memory of the ranks over the step: at most eight of them, evenly chosen."""
    ranks = np.unique(np.linspace(0, timeline.num_ranks - 1, min(MOST_RANKS, timeline.num_ranks)).round().astype(int))
    lines = [_memory_line(timeline, int(rank), TONES[place % len(TONES)]) for place, rank in enumerate(ranks)]
    end = timeline.step_time
    limit = {
        "type": "scatter",
        "mode": "lines",
        "name": "usable",
        "x": [0, end],
        "y": [usable / 1e9] * 2,
        "line": {"color": "var(--bad)", "dash": "dash", "width": 1},
        "hoverinfo": "skip",
    }
    return {
        "data": [*lines, limit],
        "layout": {
            "xaxis": {"title": {"text": "time in the step [s]"}},
            "yaxis": {"title": {"text": "memory [GB]"}, "rangemode": "tozero"},
            "hovermode": "x",
        },
    }


def _memory_line(timeline: StepTimeline, rank: int, tone: str) -> dict[str, Any]:
    """A line of steps; of more points than can be seen the highest of each piece."""
    trace = timeline.memory[rank]
    times, held = trace.times, trace.allocated / 1e9
    if len(times) > MOST_POINTS:
        starts = np.linspace(0, len(times), MOST_POINTS, endpoint=False).astype(int)
        times, held = times[starts], np.maximum.reduceat(held, starts)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": timeline.rank_names[rank],
        "x": np.round(times, 6).tolist(),
        "y": np.round(held, 3).tolist(),
        "line": {"shape": "hv", "width": 1.5, "color": tone},
        "hovertemplate": "%{y:.1f} GB",
    }


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
            "xaxis": {"title": {"text": "time that it adds [us]"}},
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
    roof = {
        "type": "scatter",
        "mode": "lines",
        "name": f"roof: {format_rate(roofline.memory_bandwidth)} and {format_rate(roofline.peak, 'FLOP')} "
        f"{roofline.peak_format}",
        "x": [low, roofline.ridge, high],
        "y": [low * roofline.memory_bandwidth, roofline.peak, roofline.peak],
        "line": {"color": "var(--edge)"},
        "hoverinfo": "skip",
    }
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


def traffic_figure(communication: Mapping[str, Mapping[str, float]]) -> Figure:
    """Bytes that one accelerator sends in a step, by dimension, on every tier."""
    tiers = list(dict.fromkeys(tier for each in communication.values() for tier in each))
    bars = [
        {
            "type": "bar",
            "name": dimension,
            "x": tiers,
            "y": [each.get(tier, 0.0) / 1e9 for tier in tiers],
            "text": [format_bytes(each.get(tier, 0.0)) for tier in tiers],
            "textposition": "none",
            "hovertemplate": "%{x}: %{text}<extra>" + dimension + "</extra>",
            "marker": {"color": tone},
        }
        for (dimension, each), tone in zip(communication.items(), TONES, strict=False)
    ]
    return {
        "data": bars,
        "layout": {
            "barmode": "stack",
            "xaxis": {"title": {"text": "tier of the network"}},
            "yaxis": {"title": {"text": "sent in a step [GB]"}},
        },
    }
