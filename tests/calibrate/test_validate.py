"""The record behind ``shardplan validate``, and how good the shipped model must stay on the published runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.calibrate.published import validation
from tests.calibrate.rows import CELLS, PUBLISHED, write

from shardplan.calibrate.validate import Validation, validate

ROW_FIELDS = {
    "id", "predicted_step_time_s", "measured_step_time_s", "step_time_p10_s", "step_time_p90_s",
    "predicted_peak_memory_bytes", "measured_peak_memory_bytes", "skipped",
}  # fmt: skip


def test_record_of_a_file(tmp_path: Path) -> None:
    path = write(tmp_path, {**CELLS, "peak_memory_gb": "60"}, {**CELLS, "id": "odd", "tp": "3"})
    record = json.loads(json.dumps(validate(path).to_record(), allow_nan=False))
    good, odd = record["rows"]
    assert set(good) >= ROW_FIELDS
    assert set(good) == set(odd)
    assert good["skipped"] is None
    assert good["measured_peak_memory_bytes"] == 60e9
    assert good["step_time_p10_s"] < good["predicted_step_time_s"] < good["step_time_p90_s"]
    assert odd["skipped"].startswith("tp x cp x pp divides the accelerators")
    assert odd["predicted_step_time_s"] is None
    assert odd["measured_step_time_s"] == 5
    assert record["counts"] == {
        "rows": 2, "predicted": 1, "skipped": 1, "out_of_memory": 0, "cannot_have_run": 0,
        "predicted_not_to_fit": record["counts"]["predicted_not_to_fit"],
        "skipped_by_rule": {"tp x cp x pp divides the accelerators": 1},
    }  # fmt: skip
    assert record["summary"]["family"]["own"]["n"] == 1
    assert record["summary"]["family"]["own"]["peak_memory"]["n"] == 1
    assert record["ranking"] == []


def test_rows_stand_in_the_order_of_the_file(tmp_path: Path) -> None:
    odd = {**CELLS, "tp": "3"}
    path = write(tmp_path, {**odd, "id": "a"}, {**CELLS, "id": "b"}, {**odd, "id": "c"})
    assert [row["id"] for row in validate(path).to_record()["rows"]] == ["a", "b", "c"]


def test_record_of_published_rows() -> None:
    record = validate(PUBLISHED).to_record()
    tier = record["summary"]["tier"]["A"]
    assert set(tier) == {"n", "median", "p90", "bias", "too_small", "peak_memory"}
    assert tier["n"] == 6
    assert tier["peak_memory"] == {"n": 0, "median": None, "p90": None, "bias": None, "too_small": None}


def test_nothing_can_be_predicted(tmp_path: Path) -> None:
    record = validate(write(tmp_path, {**CELLS, "tp": "3"})).to_record()
    assert record["summary"]["all"]["n"] == 0
    assert record["coverage"] is None
    assert record["ranking_summary"] == {
        "sweeps": 0, "mean_regret": None, "pairs": 0, "pairs_in_order": None, "median_spearman": None,
    }  # fmt: skip


@pytest.fixture(scope="module")
def published() -> Validation:
    return validation()


def test_no_published_run_is_dropped(published: Validation) -> None:
    assert len(published.predictions) == 1709
    assert published.skipped == ()


def test_errors_on_published_runs_stay_small(published: Validation) -> None:
    """Guards against slips; docs state the errors themselves."""
    best = published.step_time_by("tier")["A"]
    assert (best.n, best.median is not None and best.median < 0.08, best.p90 is not None and best.p90 < 0.22) == (
        462, True, True,
    )  # fmt: skip
    memory = published.peak_memory_by("family")
    assert all((memory[name].median or 0) < 0.12 for name in ("bloom", "nanotron", "megatron-lm-ci", "ml-engineering"))
    assert len(published.not_fitting) <= 90
    shares = [one.needed_memory_bytes / one.usable_memory_bytes for one in published.not_fitting]
    assert shares == sorted(shares, reverse=True), "those that lack most come first"


def test_sweeps_of_published_runs(published: Validation) -> None:
    found = published.ranking()
    assert found["sweeps"] == 65
    assert found["pairs_in_order"] is not None
    assert found["pairs_in_order"] > 0.75


@pytest.mark.parametrize(
    ("family", "median", "p90"),
    [("aleph-alpha-layouts", 0.12, 0.30), ("mlperf-llama31-405b", 0.08, 0.20), ("zero-bubble", 0.08, 0.20)],
)
def test_errors_on_families_that_no_fit_has_seen(published: Validation, family: str, median: float, p90: float) -> None:
    """Layouts, benchmark submissions and schedules whose times the constants are not fitted to."""
    found = published.step_time_by("family")[family]
    assert found.median is not None
    assert found.p90 is not None
    assert (found.median, found.p90) <= (median, p90)
    assert found.p90 <= p90


def test_zero_bubble_runs_keep_what_their_schedules_say(published: Validation) -> None:
    """Peak memories of 1F1B, interleaved 1F1B, ZB-1p and ZB-2p (arXiv 2401.10241, tables 4, 11 and 12)."""
    memory = published.peak_memory_by("family")["zero-bubble"]
    assert memory.n == 68
    assert memory.median is not None
    assert memory.median < 0.04
