"""What is said of accuracy, its figures and its pages."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import generate_accuracy
import pytest
from tests.calibrate import published
from tests.calibrate.rows import PUBLISHED

from shardplan.answers.accuracy.page import accuracy_parts
from shardplan.calibrate.errors import GROUPINGS
from shardplan.calibrate.predict import SkippedRun
from shardplan.calibrate.validate import TIME, Validation, validate
from shardplan.estimation.band import features_of
from shardplan.inputs.readers.residuals import Residual
from shardplan.render.html import parts_page
from shardplan.reports.accuracy.figures import THEMES, Cloud, Scatter, accuracy_figures, drawn
from shardplan.reports.accuracy.record import Accuracy, left_out_validation
from shardplan.reports.accuracy.shortfalls import worst
from shardplan.reports.accuracy.targets import reached, targets

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def fresh() -> Validation:
    return validate(PUBLISHED)


@pytest.fixture(scope="module")
def residuals(fresh: Validation) -> list[Residual]:
    """Left-out errors of 10 %, runs in two families by turns."""
    return [
        Residual(
            id=one.run.id,
            family=f"family {index % 2}",
            features=features_of(one.asked.question),
            time=0.1 if index % 2 else -0.1,
            memory=None,
        )
        for index, one in enumerate(fresh.predictions)
    ]


@pytest.fixture(scope="module")
def accuracy(fresh: Validation, residuals: list[Residual]) -> Accuracy:
    return Accuracy.of(fresh, residuals)


def _page(accuracy: Accuracy) -> str:
    return parts_page("Accuracy", accuracy_parts(accuracy))


def _markdown(accuracy: Accuracy) -> str:
    return generate_accuracy.accuracy_markdown(accuracy_parts(accuracy), "# Accuracy")


def test_left_out_predictions_are_measurements_with_their_residual(
    fresh: Validation, residuals: list[Residual]
) -> None:
    left_out = left_out_validation(fresh, residuals[:-1])
    assert [one.run.id for one in left_out.predictions] == [one.id for one in residuals[:-1]]
    for one, residual in zip(left_out.predictions, residuals, strict=False):
        assert one.log_time_ratio == pytest.approx(residual.time)
    assert left_out.step_time.median == pytest.approx(math.expm1(0.1))


def test_every_run_is_counted_in_every_table(fresh: Validation, accuracy: Accuracy) -> None:
    for rows in (
        *(accuracy.errors_by(name_of, TIME) for name_of in GROUPINGS.values()),
        accuracy.errors_by_scale(TIME),
    ):
        assert sum(row.in_sample.n for row in rows) == fresh.step_time.n
        assert all(row.left_out and row.left_out.median == pytest.approx(math.expm1(0.1)) for row in rows)
    assert len(accuracy.pairs) == len(fresh.predictions)


def test_a_target_is_met_where_both_figures_are_below_the_floor(accuracy: Accuracy) -> None:
    by_label = {target.label: target for target in targets()}
    dense = {side: reached(by_label["step time, dense"], side, checked) for side, checked in accuracy.sides.items()}
    assert not dense["left_out"].meets_floor, "10.5 % against a floor of 6 %"
    for found in dense.values():
        median, p90 = found.floor or (0.0, 0.0)
        assert found.meets_floor == ((found.errors.median or 1) <= median and (found.errors.p90 or 1) <= p90)
    moe = reached(by_label["step time, mixture of experts"], "in_sample", accuracy.fresh)
    assert moe.errors.n == 0
    assert not moe.meets_floor


def test_runs_of_ones_own_have_a_page_without_left_out_errors(fresh: Validation) -> None:
    titles = [part.title for part in accuracy_parts(Accuracy.of(fresh))]
    assert "Worst runs" in titles
    assert "Targets and what is reached" not in titles
    assert "Other tools" not in titles
    assert "left out" not in _markdown(Accuracy.of(fresh))


def test_runs_without_step_times_or_predictions_have_a_page_too(fresh: Validation) -> None:
    first = fresh.predictions[0]
    untimed = replace(first.asked.run, step_time=None, peak_memory_bytes=5e10)
    metered = replace(first, asked=replace(first.asked, run=untimed))
    skipped = SkippedRun(run=untimed, rule="a rule", reason="a rule: it is broken | so")
    for predictions in ((metered,), ()):
        checked = Validation(predictions=predictions, skipped=(skipped,), sweeps=())
        assert "it is broken | so" in _page(Accuracy.of(checked))
        assert "## Step time" not in _markdown(Accuracy.of(checked))


def test_the_worst_runs_come_first(accuracy: Accuracy) -> None:
    rows = worst(accuracy, TIME, most=25)
    sizes = [abs(math.log(row.left_out or math.nan)) for row in rows]
    assert sizes == sorted(sizes, reverse=True)
    assert len(rows) == len(accuracy.pairs)


def test_html_is_one_file_that_loads_nothing_and_shows_text_as_text(fresh: Validation) -> None:
    first, *others = fresh.predictions
    hostile = replace(first, asked=replace(first.asked, run=replace(first.run, id="<script>alert(1)</script>")))
    text = _page(Accuracy.of(replace(fresh, predictions=(hostile, *others))))
    assert text.count("<svg") >= 2
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert not re.search(r"(?:src|href|url\()", text)


def test_markdown_keeps_its_tables_whole(accuracy: Accuracy) -> None:
    text = _markdown(accuracy)
    assert text.startswith("# Accuracy\n\n## What is compared\n")
    assert "(assets/accuracy-time-light.svg#only-light)" in text
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1


def test_figures_put_points_where_they_belong() -> None:
    figure = Scatter(
        title="a < b",
        x_label="x",
        y_label="y",
        x_ticks=((1, "1"), (100, "100")),
        y_ticks=((1, "1"), (100, "100")),
        clouds=[Cloud(label="some", points=[(1, 1), (10, 10), (100, 100), (1e6, 1e-6)])],
    )
    for theme in THEMES:
        root = ET.fromstring(drawn(figure, theme))  # noqa: S314  our own text
        paths = [
            str(path.get("d")) for path in root.iter("{http://www.w3.org/2000/svg}path") if path.get("class") == "a"
        ]
        places = [tuple(map(float, place)) for place in re.findall(r"M([\d.]+) ([\d.]+)h0", paths[0])]
        (x0, y0), (x1, y1), (x2, y2), beyond = places
        assert (x1, y1) == pytest.approx(((x0 + x2) / 2, (y0 + y2) / 2), abs=0.06)
        assert beyond == (x2, y0), "what lies beyond the limits is drawn on the edge"


def test_every_figure_draws_all_its_points(accuracy: Accuracy) -> None:
    figures = accuracy_figures(accuracy)
    timed = sum(one.run.step_time is not None for one in accuracy.fresh.predictions)
    assert sum(len(cloud.points) for cloud in figures["time"].clouds) == timed
    assert sum(len(cloud.points) for cloud in figures["scale"].clouds) == timed


def test_the_page_and_its_figures_are_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate_accuracy, "validate", published.validation)
    assert generate_accuracy.is_current(generate_accuracy.files()), "run docs/generate_accuracy.py"


WRITTEN = "median 5.5 % of 880 runs, 83 % inside, x 1.33, bias -0.0"
ALIKE = (
    "median 5.6 % of 880 runs, 83 % inside, x 1.33, bias -0.0",
    "median 5.5 % of 880 runs, 84 % inside, x 1.34, bias +0.1",
)
UNLIKE = (
    "median 5.7 % of 880 runs, 83 % inside, x 1.33, bias -0.0",
    "median 5.5 % of 881 runs, 83 % inside, x 1.33, bias -0.0",
    "median 5.5 % of 880 runs, 85 % inside, x 1.33, bias -0.0",
    "median 5.5 % of 880 runs, 83 % inside, x 1.35, bias -0.0",
    "median 5.5 % of 880 runs, 83 % inside, x 1.33, bias +0.2",
    "mean 5.5 % of 880 runs, 83 % inside, x 1.33, bias -0.0",
    "median 5.5 of 880 runs, 83 % inside, x 1.33, bias -0.0",
)


def test_a_page_is_current_up_to_one_unit_of_the_last_decimal(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(WRITTEN)
    assert [now for now in (*ALIKE, *UNLIKE) if generate_accuracy.is_current({"page.md": now}, tmp_path)] == [*ALIKE]
    assert not generate_accuracy.is_current({"other.md": WRITTEN}, tmp_path)


def test_no_point_lies_off_its_axis(fresh: Validation) -> None:
    """A run in the wrong unit is drawn where it is."""
    first = fresh.predictions[0]
    run = replace(first.run, step_time=90_000.0, peak_memory_bytes=1e9, num_accelerators=100_000)
    far = replace(first, asked=replace(first.asked, run=run), step_time=0.001, peak_memory_bytes=1e12)
    for figure in accuracy_figures(Accuracy(fresh=replace(fresh, predictions=(*fresh.predictions, far)))).values():
        for cloud in figure.clouds:
            for x, y in cloud.points:
                assert figure.x_ticks[0][0] <= x <= figure.x_ticks[-1][0]
                assert figure.y_ticks[0][0] <= y <= figure.y_ticks[-1][0]
