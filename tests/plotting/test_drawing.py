"""One description of a chart, drawn by two libraries."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest

from shardplan.base.errors import InputError
from shardplan.plotting.chart import Axis, Chart, Field, Panel, Series
from shardplan.plotting.page import html_page
from shardplan.plotting.picture import png_picture

NAMES = Axis(title="size", scale="names")
BARS = (
    Series(name="one", x=["a", "b"], y=[1.0, 2.0], kind="bars"),
    Series(name="two", x=["a", "b"], y=[3.0, 4.0], kind="bars", colour="#E69F00"),
)


def chart(*panels: Panel | None, num_columns: int = 1, note: str = "") -> Chart:
    return Chart(name="test", title="A <title> & more", panels=panels, num_columns=num_columns, note=note)


def panel(*series: Series, **fields: Any) -> Panel:
    return Panel(**{"title": "p", "x": Axis(title="x"), "y": Axis(title="y"), "series": series, **fields})


def data_of(page: str) -> str:
    """What the page gives plotly to draw, without the library."""
    return page[page.rindex("Plotly.newPlot(") :]


def test_a_page_needs_nothing_else_and_uploads_nothing() -> None:
    page = html_page(chart(panel(Series(name="s", x=[1], y=[2]))))
    assert re.findall(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=", page) == []
    assert "sendChartToCloud" in data_of(page)  # among the buttons to remove
    assert "modeBarButtonsToRemove" in data_of(page)
    assert "<title>A &lt;title&gt; &amp; more</title>" in page


def test_a_page_is_below_a_megabyte_and_as_wide_as_the_window() -> None:
    page = html_page(chart(panel(Series(name="s", x=[1], y=[2])), panel(Series(name="t", x=[1], y=[2])), num_columns=2))
    assert len(page) < 1e6
    assert re.search(r'"width":\d{3}', data_of(page)) is None
    assert '"responsive": true' in data_of(page)


def test_notes_are_escaped() -> None:
    one = panel(Series(name="s", x=[1], y=[2]))
    assert "a &lt;b&gt; &amp; c</p>" in html_page(chart(one, note="a <b> & c"))


def test_stacked_bars_stand_on_each_other_and_others_beside() -> None:
    stacked = Panel(title="stacked", x=NAMES, y=Axis(title="y"), series=BARS, is_stacked=True)
    grouped = Panel(title="grouped", x=NAMES, y=Axis(title="y"), series=BARS)
    page = data_of(html_page(chart(stacked, grouped, num_columns=2)))
    assert page.count('"offsetgroup":"stack"') == 2
    assert '"base":[1.0,2.0]' in page
    assert '"offsetgroup":"one"' in page
    assert page.count('"showlegend":true') == 2  # each name once
    assert png_picture(chart(stacked, grouped, num_columns=2)).startswith(b"\x89PNG")


def test_an_empty_place_is_left_empty() -> None:
    both = chart(None, panel(Series(name="s", x=[1, 2], y=[2, 3])), num_columns=2)
    assert both.num_rows == 1
    assert [(row, column) for _, row, column in both.placed] == [(0, 1)]
    assert png_picture(both).startswith(b"\x89PNG")
    assert data_of(html_page(both)).count('"legendgroup":"s"') == 1


LINE = Series(name="memory", x=["a", "b"], y=[100.0, 50.0], is_on_right=True, marker="circle", is_dashed=True)
POINTS = Series(name="", x=[1.5], y=[1.5], kind="points", labels=["here"], label_sides=["bottom left"])
FIELD = Field(title="days", x=[1, 2], y=[1, 2], z=[[1.0, 2.0], [None, 3.0]])


@pytest.mark.parametrize(
    ("drawn", "parts"),
    [
        (
            panel(
                Series(name="s", x=[4, 16], y=[2, 3]),
                x=Axis(title="n", scale="log2"),
                y=Axis(title="y", scale="log10", limits=(1, 100)),
            ),
            ('"ticktext":["4","8","16"]', '"range":[0.0,2.0]'),
        ),
        (panel(POINTS, field=FIELD), ('"text":"here"', '"xanchor":"right"', '"type":"contour"')),
        (
            panel(*BARS, LINE, x=NAMES, right=Axis(title="GB", limits=(0, 200))),
            ('"side":"right"', '"range":[0,200]', '"dash":"dash"'),
        ),
    ],
    ids=["powers of two on the axis", "a field with labelled points", "a second axis on the right"],
)
def test_parts_of_a_panel_are_drawn(drawn: Panel, parts: tuple[str, ...]) -> None:
    page = data_of(html_page(chart(drawn)))
    assert all(part in page for part in parts)
    assert png_picture(chart(drawn)).startswith(b"\x89PNG")


@pytest.mark.parametrize(("module", "draw"), [("plotly.subplots", html_page), ("matplotlib.figure", png_picture)])
def test_a_missing_library_is_said(module: str, draw: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=f"{module.partition('.')[0]} is not installed") as caught:
        draw(chart(Panel(title="p", x=Axis(title="x"), y=Axis(title="y"))))  # type: ignore[operator]  # either function
    assert "shardplan[plots]" in caught.value.hint
