"""A chart as one self-contained HTML page: drawn by plotly, of which a compressed part for axes is inside."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any, Final

from shardplan.plotting.chart import FEW_NAMES, Axis, Chart, Field, Panel, Series, subplots_of_plotly

MARGIN: Final = 150
LABEL_SHIFT: Final = 4
"""Between a point and its label. [pixels]"""
"""Height of title and legend. [pixels]"""
CONTROLS: Final = {
    "responsive": True,
    "displaylogo": False,
    "modeBarButtonsToRemove": ["sendChartToCloud"],
    "plotlyServerURL": "",
}
"""What a reader can do with a chart: not upload it to a host."""
NUM_CONTOURS: Final = 25
MARKERS: Final = {"circle": "circle", "square": "square", "triangle": "triangle-up"}


def html_page(chart: Chart) -> str:
    """The page as text. Raises ``InputError`` if plotly is not installed."""
    make_subplots = subplots_of_plotly()
    has_right = any(panel.right is not None for panel, _, _ in chart.placed)
    figure = make_subplots(
        rows=chart.num_rows,
        cols=chart.num_columns,
        specs=_places(chart),
        subplot_titles=[panel.title for panel, _, _ in chart.placed],
        horizontal_spacing=(0.42 if has_right else 0.28) / chart.num_columns,
        vertical_spacing=0.36 / chart.num_rows,
    )
    named = {""}
    for panel, row, column in chart.placed:
        at = {"row": row + 1, "col": column + 1}
        _add_field(figure, panel, chart, at)
        _add_series(figure, panel, at, named)
        _set_axes(figure, panel, at)
    height = chart.panel_size[1]
    figure.update_layout(
        title={"text": chart.title},
        barmode="group",
        template="plotly_white",
        legend={"orientation": "h", "yanchor": "top", "y": -0.3 / chart.num_rows},
        height=height * chart.num_rows + MARGIN,
    )
    drawn: str = figure.to_html(include_plotlyjs=False, full_html=False, div_id=chart.name, config=CONTROLS)
    return PAGE.substitute(
        title=_escaped(chart.title),
        figure=re.sub("<script[^>]*>", '<script type="text/plain" id="drawing">', drawn, count=1),
        least=LEAST_WIDTH * chart.num_columns,
        note=_escaped(chart.note),
        library=base64.b64encode(LIBRARY.read_bytes()).decode(),
    )


LIBRARY: Final = Path(__file__).parent / "vendor" / "plotly-cartesian.min.js.gz"
"""The part of plotly.js that draws axes: lines, bars, contours. The whole is 4.8 MB, this part 0.5 MB."""
LEAST_WIDTH: Final = 320
"""Width of a panel below which the page scrolls. [pixels]"""
PAGE: Final = Template("""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="generator" content="shardplan"><title>$title</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>body { margin: 8px; font-family: sans-serif } #all { overflow-x: auto } #all > div { min-width: ${least}px }
p { max-width: 60em }</style></head>
<body>
<div id="all">$figure</div>
<p>$note</p>
<script type="text/plain" id="library">$library</script>
<script>
function run(code) {
  const script = document.createElement("script");
  script.textContent = code;
  document.body.append(script);
}
const text = (id) => document.getElementById(id).textContent;
const packed = Uint8Array.from(atob(text("library")), (letter) => letter.charCodeAt(0));
new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text().then((code) => {
  run(code);
  run(text("drawing"));
});
</script>
</body>
</html>
""")


def _places(chart: Chart) -> list[list[dict[str, bool] | None]]:
    """The kind of panel in every row and column."""
    places: list[list[dict[str, bool] | None]] = [[None] * chart.num_columns for _ in range(chart.num_rows)]
    for panel, row, column in chart.placed:
        places[row][column] = {"secondary_y": panel.right is not None}
    return places


def _add_series(figure: Any, panel: Panel, at: dict[str, int], named: set[str]) -> None:
    """Draws the series of a panel; ``named`` are those that are in the legend already."""
    heights: dict[float | str, float] = {}
    for series in panel.series:
        side = {"secondary_y": series.is_on_right} if panel.right is not None else {}
        figure.add_trace(
            trace_of(panel, series, heights, series.colour, is_named=series.name not in named), **at, **side
        )
        named.add(series.name)
        _add_labels(figure, panel, series, at)


def trace_of(
    panel: Panel, series: Series, heights: dict[float | str, float], colour: str, *, is_named: bool
) -> dict[str, Any]:
    """A series for plotly. ``heights`` are those of the bars below; ``is_named``: whether it is in the legend."""
    along, up = positions(series), list(series.y)
    shared = {"name": series.name, "legendgroup": series.name, "showlegend": is_named, "x": along, "y": up}
    if series.kind == "bars":
        place = bar_place(series, heights, is_stacked=panel.is_stacked)
        trace = {"type": "bar", **shared, "marker": {"color": colour}, **place}
        return trace | ({"orientation": "h", "x": up, "y": along} if panel.is_horizontal else {})
    modes = ["lines"] if series.kind == "line" else []
    modes += ["markers"] if series.marker != "none" or series.kind == "points" else []
    return {
        "type": "scatter",
        **shared,
        "mode": "+".join(modes),
        "line": {"color": colour, "dash": "dash" if series.is_dashed else "solid"},
        "marker": {"color": colour, "symbol": MARKERS.get(series.marker, "circle"), "size": 7},
    }


def bar_place(series: Series, heights: dict[float | str, float], *, is_stacked: bool) -> dict[str, Any]:
    """Next to the other series, or on top of ``heights``: plotly has one mode for all panels of a page."""
    if series.starts:
        return {"offsetgroup": "stack", "base": list(series.starts)}
    if not is_stacked:
        return {"offsetgroup": series.name}
    bases = [heights.get(x, 0.0) for x in series.x]
    heights |= {x: base + y for x, base, y in zip(series.x, bases, series.y, strict=True)}
    return {"offsetgroup": "stack", "base": bases}


def positions(series: Series) -> list[float | str]:
    """Positions of the points of a series, with line feeds in names for plotly."""
    return [x.replace("\n", "<br>") if isinstance(x, str) else x for x in series.x]


def _add_labels(figure: Any, panel: Panel, series: Series, at: dict[str, int]) -> None:
    sides = series.label_sides or ["top right"] * len(series.labels)
    for x, y, label, side in zip(series.x, series.y, series.labels, sides, strict=False):
        if not label:
            continue
        is_top, is_right = side.startswith("top"), side.endswith("right")
        figure.add_annotation(
            x=_along(panel.x, x),
            y=_along(panel.y, y),
            text=label,
            showarrow=False,
            xanchor="left" if is_right else "right",
            yanchor="bottom" if is_top else "top",
            xshift=LABEL_SHIFT if is_right else -LABEL_SHIFT,
            yshift=LABEL_SHIFT if is_top else -LABEL_SHIFT,
            bgcolor="rgba(255, 255, 255, 0.85)",
            **at,
        )


def _along(axis: Axis, value: float | str) -> float | str:
    """Position of an annotation for plotly: on a logarithmic axis the power of ten."""
    return math.log10(value) if axis.scale in ("log2", "log10") and not isinstance(value, str) else value


def _add_field(figure: Any, panel: Panel, chart: Chart, at: dict[str, int]) -> None:
    """Draws filled contours, with the colour scale next to the panel."""
    if panel.field is None:
        return
    trace = contour_of(panel.field)
    middle = 1 - (at["row"] - 0.5) / chart.num_rows
    place = {"x": at["col"] / chart.num_columns, "len": 1 / chart.num_rows, "y": middle}
    drawn = {"colorbar": trace["colorbar"] | place, "contours": {"showlabels": True}}
    figure.add_trace(trace | drawn, **at)


def contour_of(field: Field) -> dict[str, Any]:
    """A field for plotly."""
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


def _set_axes(figure: Any, panel: Panel, at: dict[str, int]) -> None:
    if panel.is_horizontal:
        figure.update_xaxes(**axis_settings(panel.y, values_along(panel, "y")), **at)
        figure.update_yaxes(**axis_settings(panel.x, ()), autorange="reversed", automargin=True, **at)
        return
    figure.update_xaxes(**axis_settings(panel.x, values_along(panel, "x")), **at)
    if 0 < len(panel.names) < FEW_NAMES:
        figure.update_xaxes(range=[-1, len(panel.names)], **at)
    left = {"secondary_y": False} if panel.right is not None else {}
    figure.update_yaxes(**axis_settings(panel.y, values_along(panel, "y", is_on_right=False)), **at, **left)
    if panel.right is not None:
        values = values_along(panel, "y", is_on_right=True)
        figure.update_yaxes(**axis_settings(panel.right, values), **at, secondary_y=True, showgrid=False)


def values_along(panel: Panel, name: str, *, is_on_right: bool | None = None) -> list[float]:
    """All numbers of the series of a panel along one of its axes."""
    chosen = [series for series in panel.series if is_on_right is None or series.is_on_right == is_on_right]
    return [value for series in chosen for value in getattr(series, name) if isinstance(value, (int, float))]


def axis_settings(axis: Axis, values: Sequence[float]) -> dict[str, Any]:
    """Settings of an axis; plotly's limits of a logarithmic axis are powers of ten."""
    settings: dict[str, Any] = {"title": {"text": axis.title}}
    if axis.scale == "names":
        return settings | {"type": "category"}
    if axis.scale == "linear":
        settings |= {"tickmode": "auto"}  # otherwise plotly uses the ticks of the axis on the other side
        return settings | ({} if axis.limits is None else {"range": list(axis.limits)})
    settings |= {"type": "log"}
    if axis.limits is not None:
        settings["range"] = [math.log10(limit) for limit in axis.limits]
    if axis.scale == "log2" and values:
        powers = range(math.floor(math.log2(min(values))), math.ceil(math.log2(max(values))) + 1)
        settings |= {"tickvals": [2.0**power for power in powers], "ticktext": [_power_text(power) for power in powers]}
        return settings
    return settings | {"dtick": 1, "exponentformat": "power"}


def _power_text(power: int) -> str:
    """A power of two as a number."""
    return f"{2**power:,}" if power >= 0 else f"{2.0**power:g}"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
