"""Errors of runs as they stand in files."""

from __future__ import annotations

import csv
from typing import Any

import pytest

from shardplan.errors import InputError
from shardplan.estimation.band import RESIDUALS, read_residuals
from shardplan.inputs.residuals import Features, Residual, Shares, residual_from_row, residual_row

RUN = Residual(
    id="a",
    family="b",
    features=Features(
        accelerator="h100-sxm-80gb",
        generation="hopper",
        bits=8,
        moe=True,
        parameters=8.03e9,
        accelerators=64,
        sequence_length=8192,
        cp=4,
        shares=Shares(host=0.1, communication=0.2, attention=0.3),
    ),
    time=0.125,
    memory=None,
    setting="llama/64",
)


def test_a_row_is_read_as_it_was_written() -> None:
    assert residual_from_row(residual_row(RUN)) == RUN


def test_the_shipped_rows_are_those_that_would_be_written() -> None:
    with RESIDUALS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [residual_row(run) for run in read_residuals()] == rows


@pytest.mark.parametrize(
    "change",
    [
        {"moe": "perhaps"},
        {"bits": "0"},
        {"parameters": "nan"},
        {"accelerators": "-8"},
        {"cp": None},
        {"log_time_ratio": "inf"},
        {"log_time_ratio": "far"},
        {"host_share": "1.5"},
        {"sequence_length": []},
    ],
)
def test_cells_that_cannot_be_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="the error of a run"):
        residual_from_row(residual_row(RUN) | change)


@pytest.mark.parametrize("row", [None, 3, "a", [], {}])
def test_what_is_no_row_is_refused(row: Any) -> None:
    with pytest.raises(InputError):
        residual_from_row(row)
