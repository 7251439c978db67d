"""Predicted against measured: a point for every published run."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final

from shardplan.base.units import format_bytes, format_time
from shardplan.reports.accuracy.known_runs import KINDS, KnownRun, Quantity
from shardplan.web.figures.panels import Figure, log_axis, powers_of_two

TONES: Final = {KINDS[False]: "var(--c1)", KINDS[True]: "var(--c4)"}
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
            (kind, [one for one in runs if one.kind == kind], TONES[kind], SYMBOLS[kind]) for kind in KINDS.values()
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
    full = {"type": "scatter", "mode": "lines", "name": "full", "x": [first, last], "y": [1, 1], "line": limit}
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
    areas = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": [low, high, high, low, low],
            "y": [left * factor, right * factor, right / factor, left / factor, left * factor],
            "fill": "toself",
            "fillcolor": shade,
            "opacity": 0.5,
            "line": {"width": 0},
            "hoverinfo": "skip",
        }
        for (factor, name), shade in zip(BANDS, SHADES, strict=True)
    ]
    line = {"color": "var(--edge)", "width": 1}
    exact = {"type": "scatter", "mode": "lines", "x": [low, high], "y": [left, right], "line": line}
    return [*areas, {**exact, "name": "exact", "hoverinfo": "skip", "showlegend": False}]
