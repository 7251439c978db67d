"""The largest or smallest that fits, as a record and as rows."""

from __future__ import annotations

from typing import Any, Final

from shardplan.decisions.largest import LargestFit
from shardplan.reports.decisions.shared import asked_record
from shardplan.reports.plan_file import estimate_record

SCHEMA: Final = "shardplan/fit/1"


def fit_record(fit: LargestFit) -> dict[str, Any]:
    """The answer as a mapping that JSON can hold; units are in the keys."""
    estimate = fit.answered.estimate
    return {
        "schema": SCHEMA,
        **asked_record(fit.answered.question, fit.assumptions),
        "sought": fit.sought,
        "is_largest": fit.is_largest,
        "value": fit.value,
        "next_value": fit.next_value,
        "bound": fit.bound,
        "reason": fit.answered.reason,
        "usable_memory_bytes": fit.usable_memory_bytes,
        "tried": fit_rows(fit),
        "plan": None if estimate is None else estimate_record(estimate),
    }


def fit_rows(fit: LargestFit) -> list[dict[str, Any]]:
    """A row for each value that was tried."""
    return [
        {
            "sought": fit.sought,
            "value": each.value,
            "fits": each.fits,
            "least_memory_bytes": each.least_memory_bytes,
        }
        for each in fit.tried
    ]
