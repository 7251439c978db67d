"""Charts of the study and of the limits curve: what they show is what their records say."""

from __future__ import annotations

import pytest

from shardplan.answers.methods.data_movement import limits_chart
from shardplan.methods.catalogue import load_method
from shardplan.methods.subramanian2024.figures import FIGURES, figure
from shardplan.methods.subramanian2024.study import Study, study
from shardplan.plotting.chart import Chart, Panel
from shardplan.plotting.page import html_page
from shardplan.plotting.picture import png_picture
from shardplan.plotting.subramanian2024 import chart_of


@pytest.fixture(scope="module")
def results() -> Study:
    return study()


@pytest.fixture(scope="module")
def charts(results: Study) -> dict[str, Chart]:
    return {name: chart_of(figure(name, results)) for name in FIGURES}


def panels(chart: Chart) -> list[Panel]:
    return [panel for panel, _, _ in chart.placed]


def test_every_figure_has_a_chart(charts: dict[str, Chart]) -> None:
    assert list(charts) == [f"F{number}" for number in range(1, 9)]
    for name, chart in charts.items():
        assert chart.name == name
        assert chart.title.startswith(name)
        assert "2410.00273" in chart.note
        for panel in panels(chart):
            assert panel.x.title
            assert panel.y.title
            for series in panel.series:
                assert len(series.x) == len(series.y) > 0


def test_training_days_have_nine_systems_and_two_guides_per_panel(charts: dict[str, Chart]) -> None:
    first = panels(charts["F1"])[0]
    names = [series.name for series in first.series]
    assert len(names) == 11
    assert sum(series.is_dashed for series in first.series) == 2
    a100 = next(series for series in first.series if series.name == "A100, domain 4")
    assert dict(zip(a100.x, a100.y, strict=True))[4096] == pytest.approx(97.956, abs=6e-4)
    assert len(panels(charts["F1"])) == 5  # the vision transformer fits nowhere with 1D


def test_the_best_configurations_are_of_the_system_that_is_asked_for(results: Study) -> None:
    chart = chart_of(figure("F3", results), system="A100", nvs=4)
    assert "A100, domain 4" in chart.title
    memory = next(series for series in panels(chart)[0].series if series.is_on_right)
    assert memory.y[0] == pytest.approx(73.42104576)


def test_shares_of_the_time_fill_the_bars(charts: dict[str, Chart]) -> None:
    shares = [panel for panel in panels(charts["F3"]) if panel.is_stacked]
    assert len(shares) == 5
    for panel in shares:
        bars = [series.y for series in panel.series if series.kind == "bars"]
        assert [sum(parts) for parts in zip(*bars, strict=True)] == pytest.approx([100] * len(bars[0]))


def test_stacked_times_of_the_hand_picked_are_the_published_ones(charts: dict[str, Chart]) -> None:
    times = [series.y for series in panels(charts["F5"])[0].series]
    totals = [sum(parts) for parts in zip(*times, strict=True)]
    assert totals == pytest.approx([4.69, 4.43, 4.07, 3.77, 3.43, 3.28, 3.23, 3.27], abs=0.0051)


def test_contours_carry_the_points_of_the_systems(charts: dict[str, Chart]) -> None:
    (panel,) = panels(charts["F7"])
    assert panel.field is not None
    assert len(panel.field.z) == len(panel.field.y) == 10
    assert len(panel.field.z[0]) == len(panel.field.x) == 22
    assert panel.series[0].labels == ["A100: 42.70", "H200: 15.59", "B200: 7.35", "B200-next: 5.35"]
    assert panel.series[0].label_sides == ["top right", "top right", "top left", "bottom left"]


def test_collectives_are_drawn_for_the_paper_s_two_shapes_and_one_more(charts: dict[str, Chart]) -> None:
    names = {series.name for series in panels(charts["F8"])[0].series}
    assert {"8 nodes of 4, model", "8 nodes of 4, measured", "16 nodes of 2, model", "16 nodes of 2, measured"} < names


@pytest.mark.parametrize("name", FIGURES)
def test_every_chart_is_drawn_as_a_page_and_as_a_picture(name: str, charts: dict[str, Chart]) -> None:
    picture = png_picture(charts[name])
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    assert int.from_bytes(picture[16:20]) == charts[name].panel_size[0] * charts[name].num_columns
    page = html_page(charts[name])
    assert f"<title>{name}: " in page
    assert f'id="{name}"' in page


@pytest.mark.parametrize("limits", [{"points_per_decade": 1}, {"training_time_s": 1.0, "min_flop": 1e25}])
def test_the_limits_curve_is_drawn_even_where_nothing_ends_in_time(limits: dict[str, float]) -> None:
    chart = limits_chart(load_method("data-movement").answer({"limits": limits}))
    assert png_picture(chart).startswith(b"\x89PNG")
    assert "2411.01137" in html_page(chart)
