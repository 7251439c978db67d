"""A chart as a PNG picture: drawn by matplotlib, which needs no browser."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any, Final

from shardplan.plotting.chart import FEW_NAMES, Axis, Chart, Panel, Series, matplotlib_parts, matplotlib_settings

DPI: Final = 100
MARKERS: Final = {"circle": "o", "square": "s", "triangle": "^", "none": ""}
MARGIN: Final = 130
"""Height of title and legend. [pixels]"""
LEVELS: Final = 20
LEGEND_WIDTH: Final = 190
"""Width of an entry of the legend. [pixels]"""
MOST_LEVEL: Final = 8
"""Most names on an axis that fit next to each other."""


def png_picture(chart: Chart) -> bytes:
    """The picture as the content of a file. Raises ``InputError`` if matplotlib is not installed."""
    written = io.BytesIO()
    _drawn(chart).print_png(written, metadata={"Software": "shardplan"})
    return written.getvalue()


def svg_picture(chart: Chart) -> str:
    """The picture as SVG with its text as text. Raises ``InputError`` if matplotlib is not installed."""
    canvas, written = _drawn(chart), io.StringIO()
    with matplotlib_settings({"svg.fonttype": "none", "svg.hashsalt": chart.name}):
        canvas.figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    text = written.getvalue()
    return text[text.index("<svg") :].replace("<svg ", '<svg data-generator="shardplan" ', 1)


def _drawn(chart: Chart) -> Any:
    """The canvas with the chart on it."""
    figure_kind, canvas_kind = matplotlib_parts()
    width, height = chart.panel_size
    size = (width * chart.num_columns / DPI, (height * chart.num_rows + MARGIN) / DPI)
    figure = figure_kind(figsize=size, dpi=DPI, layout="constrained")
    canvas = canvas_kind(figure)
    grid = figure.add_gridspec(chart.num_rows, chart.num_columns)
    handles: dict[str, Any] = {}
    for panel, row, column in chart.placed:
        handles |= _draw(figure, figure.add_subplot(grid[row, column]), panel)
    figure.suptitle(chart.title, fontsize=12)
    if handles:
        columns = max(min(len(handles), width * chart.num_columns // LEGEND_WIDTH), 1)
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns, fontsize=8)
    return canvas


def _draw(figure: Any, axes: Any, panel: Panel) -> dict[str, Any]:
    """Draws a panel; returns the entries of the legend."""
    axes.set_title(panel.title, fontsize=10)
    right = axes.twinx() if panel.right is not None else None
    handles: dict[str, Any] = {}
    if (field := panel.field) is not None:
        values = [[math.nan if value is None else value for value in row] for row in field.z]
        drawn = axes.contourf(field.x, field.y, values, levels=LEVELS, cmap="viridis")
        bar = figure.colorbar(drawn, ax=axes)
        bar.set_label(field.title, fontsize=8)
    places = {name: place for place, name in enumerate(panel.names)}
    bars = _Bars(panel, places)
    for series in panel.series:
        target = right if series.is_on_right and right is not None else axes
        handle = bars.draw(target, series) if series.kind == "bars" else _draw_points(target, series, places)
        if series.name:
            handles[series.name] = handle
    _set_axes(axes, right, panel, places)
    return handles


class _Bars:
    """Bars of a panel: each series on top of those before it, or next to them."""

    def __init__(self, panel: Panel, places: dict[str, int]) -> None:
        self.places, self.is_stacked = places, panel.is_stacked
        self.num_series = sum(series.kind == "bars" for series in panel.series)
        self.is_horizontal = panel.is_horizontal
        self.heights = [0.0] * len(places)
        self.num_drawn = 0

    def draw(self, axes: Any, series: Series) -> Any:
        """Draws the bars of the next series; returns the entry of the legend."""
        at = [self.places[str(x)] for x in series.x]
        if series.starts:
            draw, thick = (axes.barh, "height") if self.is_horizontal else (axes.bar, "width")
            start = "left" if self.is_horizontal else "bottom"
            return draw(at, series.y, color=series.colour, **{start: series.starts, thick: 0.7})
        number, self.num_drawn = self.num_drawn, self.num_drawn + 1
        if not self.is_stacked:
            width = 0.8 / self.num_series
            shift = (number - (self.num_series - 1) / 2) * width
            return axes.bar([place + shift for place in at], series.y, width, color=series.colour)
        bottoms = [self.heights[place] for place in at]
        for place, value in zip(at, series.y, strict=True):
            self.heights[place] += value
        return axes.bar(at, series.y, bottom=bottoms, width=0.7, color=series.colour)


def _draw_points(axes: Any, series: Series, places: dict[str, int]) -> Any:
    x = [places[str(value)] if places else value for value in series.x]
    (handle,) = axes.plot(
        x,
        series.y,
        color=series.colour,
        marker=MARKERS[series.marker] or ("o" if series.kind == "points" else ""),
        markersize=4 if not series.labels else 7,
        linestyle="none" if series.kind == "points" else "--" if series.is_dashed else "-",
        linewidth=1.4,
    )
    sides = series.label_sides or ["top right"] * len(series.labels)
    for at, height, label, side in zip(x, series.y, series.labels, sides, strict=False):
        if not label:
            continue
        is_top, is_right = side.startswith("top"), side.endswith("right")
        axes.annotate(
            label,
            (at, height),
            xytext=(6 if is_right else -6, 6 if is_top else -6),
            textcoords="offset points",
            ha="left" if is_right else "right",
            va="bottom" if is_top else "top",
            fontsize=8,
            bbox={"facecolor": "white", "alpha": 0.85, "edgecolor": "none", "pad": 1.5},
        )
    return handle


def _set_axes(axes: Any, right: Any, panel: Panel, places: dict[str, int]) -> None:
    axes.grid(visible=True, color="#e0e0e0", linewidth=0.6)
    axes.set_axisbelow(True)
    if panel.is_horizontal:
        _set_lying_axes(axes, panel, places)
        return
    axes.set_xlabel(panel.x.title, fontsize=8)
    axes.set_ylabel(panel.y.title, fontsize=8)
    axes.tick_params(labelsize=7)
    if places:
        is_long = len(places) > MOST_LEVEL and not any("\n" in name for name in places)
        axes.set_xticks(list(places.values()), list(places), rotation=45 if is_long else 0)
        if len(places) < FEW_NAMES:
            axes.set_xlim(-1, len(places))
    else:
        _scale(axes.xaxis, axes.set_xscale, axes.set_xlim, panel.x, [x for s in panel.series for x in s.x])
    left = [y for s in panel.series if not s.is_on_right for y in s.y]
    _scale(axes.yaxis, axes.set_yscale, axes.set_ylim, panel.y, left)
    if right is not None and panel.right is not None:
        right.set_ylabel(panel.right.title, fontsize=8)
        right.tick_params(labelsize=7)
        values = [y for s in panel.series if s.is_on_right for y in s.y]
        _scale(right.yaxis, right.set_yscale, right.set_ylim, panel.right, values)


def _set_lying_axes(axes: Any, panel: Panel, places: dict[str, int]) -> None:
    """Sets axes with names from the top down on the left, and values along the bottom."""
    axes.set_yticks(list(places.values()), list(places), fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel(panel.y.title, fontsize=8)
    axes.tick_params(labelsize=7)
    ends = [start + size for s in panel.series for start, size in zip(s.starts or [0.0] * len(s.y), s.y, strict=True)]
    _scale(axes.xaxis, axes.set_xscale, axes.set_xlim, panel.y, ends)


def _scale(axis: Any, set_scale: Any, set_limits: Any, described: Axis, values: Sequence[float | str]) -> None:
    if described.scale in ("log2", "log10") and (values or described.limits):
        set_scale("log", base=2 if described.scale == "log2" else 10)
    if described.scale == "log2":
        axis.set_major_formatter(lambda value, _: f"{value:,g}")
        numbers = [float(value) for value in values]
        if numbers:
            powers = range(math.floor(math.log2(min(numbers))), math.ceil(math.log2(max(numbers))) + 1)
            every = 1 if len(powers) <= 8 else 2
            axis.set_ticks([2.0**power for power in powers][::every])
        axis.set_tick_params(which="minor", size=0)
    if described.limits is not None:
        set_limits(*described.limits)
