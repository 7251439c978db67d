"""Verdicts "fits" against how runs ended: by hand, and on the published runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.calibrate.published import validation
from tests.calibrate.rows import CELLS, write

from shardplan.calibrate.errors import read_needs, verdicts_of
from shardplan.calibrate.predict import Prediction
from shardplan.calibrate.validate import validate

OOM = {**CELLS, "step_time_s": "", "result": "out_of_memory"}
LARGE = {"num_accelerators": "1", "tp": "1", "model": "llama-3.1-70b"}
"""70.6e9 parameters on one device of 80 GB."""


def ended(folder: Path) -> tuple[Prediction, ...]:
    """Two runs that ran and two that did not, one of each with a right verdict."""
    rows = (
        {**CELLS, "id": "ran"}, {**CELLS, **LARGE, "id": "ran large", "step_time_s": "900"},
        {**OOM, "id": "out"}, {**OOM, **LARGE, "id": "out large"},
    )  # fmt: skip
    return validate(write(folder, *rows)).predictions


def test_each_kind_of_verdict_is_counted(tmp_path: Path) -> None:
    found = verdicts_of(ended(tmp_path))
    assert (found.n, found.out_of_memory, found.right) == (4, 2, 0.5)
    assert (found.false_fits, found.false_misfits) == (1, 1)


@pytest.mark.parametrize(("free", "beyond"), [(0.02, (0, 0)), (0.05, (1, 0)), (0.2, (1, 1))])
def test_a_false_fits_is_told_by_what_it_would_leave_free(tmp_path: Path, free: float, beyond: tuple[int, int]) -> None:
    out = next(one for one in ended(tmp_path) if one.run.id == "out")
    found = verdicts_of([replace(out, needed_memory_bytes=(1 - free) * out.usable_memory_bytes, fits=True)])
    assert (found.false_fits_beyond_3_percent, found.false_fits_beyond_10_percent) == beyond


def test_no_runs_have_no_verdicts() -> None:
    assert verdicts_of([]).right is None


def test_a_file_says_of_every_row_how_it_ended_and_what_it_needs(tmp_path: Path) -> None:
    odd = {**OOM, "id": "odd", "tp": "3"}
    checked = validate(write(tmp_path, {**CELLS, "peak_memory_gb": "40"}, {**OOM, "id": "out"}, odd))
    record = json.loads(json.dumps(checked.to_record()))
    ran, out, *skipped = record["rows"]
    assert (ran["result"], out["result"]) == ("ran", "oom")
    assert [row["result"] for row in skipped] == ["oom"]
    assert out["measured_step_time_s"] is None
    assert out["measured_peak_memory_bytes"] is None
    for row in (ran, out):
        assert row["fits"] == (row["needed_memory_bytes"] <= row["usable_memory_bytes"])
    assert record["fits"]["all"]["n"] == 2
    assert record["fits"]["family"]["own"]["out_of_memory"] == record["counts"]["out_of_memory"] == 1
    assert record["summary"]["all"]["n"] == 1, "a run without a time has no error"
    assert [one.run.id for one in checked.false_fits] == ["out"]


def test_verdicts_on_published_layouts() -> None:
    """Of 390 layouts that Aleph Alpha ran, 198 ran out of memory (arXiv 2311.05610)."""
    found = validation().fits_by("family")["aleph-alpha-layouts"]
    assert (found.n, found.out_of_memory) == (390, 198)
    assert found.right is not None
    assert found.right >= 0.95
    assert found.false_fits_beyond_10_percent <= 7, "unfused attention at micro-batch 8: docs/formulas/memory.md"


def test_what_the_norm_keeps_decides() -> None:
    """13B, micro-batch 4, tp 2, pp 2: with norms of one kernel it ran, with norms of PyTorch, which keep fp32, not."""
    found = {one.run.id: one for one in validation().predictions}
    ran, out_of_memory = found["aa-13b-2048-132181"], found["aa-13b-2048-132318"]
    assert (ran.run.ran, out_of_memory.run.ran) == (True, False)
    assert (ran.fits, out_of_memory.fits) == (True, False)


def test_every_predicted_run_has_a_left_out_need() -> None:
    assert read_needs().keys() == {one.run.id for one in validation().predictions}
