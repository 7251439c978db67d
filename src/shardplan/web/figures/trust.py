"""Predicted against measured: a point for every published run."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from shardplan.reports.accuracy.known_runs import KINDS, KnownRun, Quantity
from shardplan.units import format_bytes, format_time
from shardplan.web.figures.axes import Figure, log_axis, powers_of_two

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
    if quantity == "fits":
        return _fits_figure(runs, selected, near)
    x = [one.measured(quantity) or math.nan for one in runs]
    y = [_height(one, quantity, as_ratio=as_ratio) for one in runs]
    ends = x if as_ratio else [*x, *y]
    low, high = min(ends, default=1.0) / 1.5, max(ends, default=1.0) * 1.5
    clouds = [
        _cloud(kind, [one for one in runs if one.kind == kind], quantity, as_ratio=as_ratio)
        for kind in KINDS.values()
        if any(one.kind == kind for one in runs)
    ]
    axis, noun = log_axis(low, high, *TICKS[quantity]), NOUNS[quantity]
    own = log_axis(min(y, default=1.0) / 1.1, max(y, default=1.0) * 1.1, RATIOS, lambda at: f"{100 * (at - 1):+.0f} %")
    return {
        "data": [
            *_bands(low, high, as_ratio=as_ratio),
            *clouds,
            *_marks(runs, quantity, selected, near, as_ratio=as_ratio),
        ],
        "layout": {
            "xaxis": {"title": {"text": f"measured {noun}"}, **axis},
            "yaxis": {"title": {"text": f"predicted {noun}: error" if as_ratio else f"predicted {noun}"}}
            | (own if as_ratio else axis),
            "hovermode": "closest",
        },
    }


def _height(one: KnownRun, quantity: Quantity, *, as_ratio: bool) -> float:
    ratio = one.ratio(quantity)
    if as_ratio:
        return math.nan if ratio is None else math.exp(ratio)
    return one.predicted(quantity) or math.nan


def _cloud(kind: str, runs: Sequence[KnownRun], quantity: Quantity, *, as_ratio: bool) -> dict[str, Any]:
    text = TEXTS[quantity]
    return _points(
        kind,
        [one.measured(quantity) for one in runs],
        [_height(one, quantity, as_ratio=as_ratio) for one in runs],
        runs,
        [
            f"measured {text(one.measured(quantity) or 0)}, predicted {text(one.predicted(quantity) or 0)}"
            for one in runs
        ],
        tone=TONES[kind],
        symbol=SYMBOLS[kind],
    )


def _points(
    name: str,
    x: Sequence[float | None],
    y: Sequence[float | None],
    runs: Sequence[KnownRun],
    texts: Sequence[str],
    *,
    tone: str,
    symbol: str,
) -> dict[str, Any]:
    """A cloud; ``customdata`` holds the names by which runs are opened."""
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"{name} ({len(runs):,})",
        "x": [*x],
        "y": [*y],
        "customdata": [one.run.id for one in runs],
        "text": [f"{one.run.id}<br>{said}" for one, said in zip(runs, texts, strict=True)],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"color": tone, "symbol": symbol, "size": 7, "opacity": 0.6},
    }


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


def _marks(
    runs: Sequence[KnownRun], quantity: Quantity, selected: str, near: Collection[str], *, as_ratio: bool = False
) -> list[dict[str, Any]]:
    """Stars on the runs nearest to the question, and a ring around the run that is shown next to the figure."""
    star = {"color": "var(--accent)", "symbol": "star", "size": 16, "line": {"color": "var(--text)", "width": 1.5}}
    ring = {"color": "rgba(0,0,0,0)", "size": 15, "line": {"color": "var(--text)", "width": 2}}
    marked = (
        ("nearest to your question", [one for one in runs if one.run.id in near], star),
        ("shown", [one for one in runs if one.run.id == selected], ring),
    )
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": [one.run.num_accelerators if quantity == "fits" else one.measured(quantity) for one in chosen],
            "y": [
                math.exp(one.fits or 0.0) if quantity == "fits" else _height(one, quantity, as_ratio=as_ratio)
                for one in chosen
            ],
            "customdata": [one.run.id for one in chosen],
            "text": [one.run.id for one in chosen],
            "hovertemplate": "%{text}<extra></extra>",
            "marker": marker,
        }
        for name, chosen, marker in marked
        if chosen
    ]


def _fits_figure(runs: Sequence[KnownRun], selected: str, near: Collection[str]) -> Figure:
    """Needed over usable memory by world size: what ran should be below one, what ran out of memory above."""
    shares = [math.exp(one.fits or 0.0) for one in runs]
    sizes = [one.run.num_accelerators for one in runs]
    first, last = min(sizes, default=1) / 1.5, max(sizes, default=1) * 1.5
    groups = (
        ("ran", [one for one in runs if one.run.ran], "var(--c1)", "circle"),
        ("ran out of memory", [one for one in runs if not one.run.ran], "var(--c6)", "x"),
    )
    clouds = [
        _points(
            name,
            [one.run.num_accelerators for one in group],
            [math.exp(one.fits or 0.0) for one in group],
            group,
            [f"needs {100 * math.exp(one.fits or 0.0):.0f} % of the usable memory; {name}" for one in group],
            tone=tone,
            symbol=symbol,
        )
        for name, group, tone, symbol in groups
        if group
    ]
    limit = {"color": "var(--bad)", "width": 1, "dash": "dash"}
    full = {"type": "scatter", "mode": "lines", "name": "full", "x": [first, last], "y": [1, 1], "line": limit}
    shown = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
    return {
        "data": [{**full, "hoverinfo": "skip"}, *clouds, *_marks(runs, "fits", selected, near)],
        "layout": {
            "xaxis": {"title": {"text": "accelerators"}, **powers_of_two(first, last)},
            "yaxis": {
                "title": {"text": "predicted need over usable memory"},
                **log_axis(
                    min(shares, default=0.1) / 1.3, max(shares, default=1) * 1.3, shown, lambda at: f"{100 * at:g} %"
                ),
            },
            "hovermode": "closest",
        },
    }
