"""The accuracy record, its figures and its pages."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import generate_accuracy
import pytest
from tests.calibrate import published
from tests.calibrate.rows import PUBLISHED

from shardplan.calibrate.predict import SkippedRun
from shardplan.calibrate.validate import Validation, validate
from shardplan.estimation.band import features_of
from shardplan.inputs.readers.residuals import Residual
from shardplan.reports.accuracy.figures import THEMES, Cloud, Scatter, accuracy_figures, drawn
from shardplan.reports.accuracy.page import accuracy_html, accuracy_sections
from shardplan.reports.accuracy.record import accuracy_record, left_out_validation

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
def record(fresh: Validation, residuals: list[Residual]) -> dict[str, Any]:
    return accuracy_record(fresh, residuals)


def test_left_out_predictions_are_measurements_with_their_residual(
    fresh: Validation, residuals: list[Residual]
) -> None:
    left_out = left_out_validation(fresh, residuals[:-1])
    assert [one.run.id for one in left_out.predictions] == [one.id for one in residuals[:-1]]
    for one, residual in zip(left_out.predictions, residuals, strict=False):
        assert one.log_time_ratio == pytest.approx(residual.time)
    assert left_out.step_time.median == pytest.approx(math.expm1(0.1))


def test_the_record_is_plain_and_counts_every_run(fresh: Validation, record: dict[str, Any]) -> None:
    assert json.loads(json.dumps(record))["counts"]["rows"] == len(fresh.predictions)
    for rows in (*record["step_time"].values(), record["scale"]):
        assert sum(row["in_sample"]["n"] for row in rows) == fresh.step_time.n
        assert all(row["left_out"]["median"] == pytest.approx(math.expm1(0.1)) for row in rows)
    assert len(record["points"]) == len(fresh.predictions)


def test_a_target_is_met_where_both_figures_are_below_the_floor(record: dict[str, Any]) -> None:
    dense = next(row for row in record["targets"]["errors"] if row["label"] == "step time, dense")
    assert not dense["left_out"]["meets_floor"], "10.5 % against a floor of 6 %"
    for side in ("in_sample", "left_out"):
        median, p90 = dense[side]["floor"]
        assert dense[side]["meets_floor"] == (dense[side]["median"] <= median and dense[side]["p90"] <= p90)
    moe = next(row for row in record["targets"]["errors"] if row["label"] == "step time, mixture of experts")
    assert moe["in_sample"]["n"] == 0
    assert not moe["in_sample"]["meets_floor"]


def test_runs_of_ones_own_have_a_record_without_left_out_errors(fresh: Validation) -> None:
    record = accuracy_record(fresh)
    assert record["targets"] is None
    assert record["claims"] is None
    titles = [section.title for section in accuracy_sections(record)]
    assert "Worst runs" in titles
    assert "Targets and what is reached" not in titles
    assert "left out" not in generate_accuracy.accuracy_markdown(record, {}, "# Own")


def test_runs_without_step_times_or_predictions_have_a_page_too(fresh: Validation) -> None:
    first = fresh.predictions[0]
    untimed = replace(first.asked.run, step_time=None, peak_memory_bytes=5e10)
    metered = replace(first, asked=replace(first.asked, run=untimed))
    skipped = SkippedRun(run=untimed, rule="a rule", reason="a rule: it is broken | so")
    for predictions in ((metered,), ()):
        checked = Validation(predictions=predictions, skipped=(skipped,), sweeps=())
        record = accuracy_record(checked)
        assert "it is broken | so" in accuracy_html(record)
        assert "## Step time" not in generate_accuracy.accuracy_markdown(record, {}, "# Own")


def test_the_worst_runs_come_first(record: dict[str, Any]) -> None:
    sizes = [abs(math.log(row["left_out"])) for row in record["worst"]]
    assert sizes == sorted(sizes, reverse=True)
    assert len(record["worst"]) == len(record["points"])


def test_html_is_one_file_that_loads_nothing_and_shows_text_as_text(fresh: Validation) -> None:
    first, *others = fresh.predictions
    hostile = replace(first, asked=replace(first.asked, run=replace(first.run, id="<script>alert(1)</script>")))
    text = accuracy_html(accuracy_record(replace(fresh, predictions=(hostile, *others))))
    assert text.count("<svg") >= 2
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert not re.search(r"(?:src|href|url\()", text)


def test_markdown_keeps_its_tables_whole(record: dict[str, Any]) -> None:
    text = generate_accuracy.accuracy_markdown(record, {"time": "FIGURE"}, "# Accuracy")
    assert text.startswith("# Accuracy\n\n## What is compared\n")
    assert "FIGURE" in text
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


def test_every_figure_draws_all_its_points(record: dict[str, Any]) -> None:
    figures = accuracy_figures(record)
    timed = sum(point["measured_step_time_s"] is not None for point in record["points"])
    assert sum(len(cloud.points) for cloud in figures["time"].clouds) == timed
    assert sum(len(cloud.points) for cloud in figures["scale"].clouds) == timed


def test_the_page_and_its_figures_are_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate_accuracy, "validate", published.validation)
    monkeypatch.setattr(generate_accuracy, "accuracy_record", lambda *_, **__: published.record())
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


def test_no_point_lies_off_its_axis(record: dict[str, Any]) -> None:
    """A run in the wrong unit is drawn where it is."""
    far = {**record["points"][0], "measured_step_time_s": 90_000.0, "left_out_step_time_s": 0.001}
    far |= {"measured_peak_memory_bytes": 1e9, "left_out_peak_memory_bytes": 1e12, "num_accelerators": 100_000}
    for figure in accuracy_figures({**record, "points": [*record["points"], far]}).values():
        for cloud in figure.clouds:
            for x, y in cloud.points:
                assert figure.x_ticks[0][0] <= x <= figure.x_ticks[-1][0]
                assert figure.y_ticks[0][0] <= y <= figure.y_ticks[-1][0]
