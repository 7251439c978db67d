"""Runs that are hard to predict for a known reason: how many, how far off, and what a user should state instead."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import yaml

from shardplan.calibration.errors import errors_of
from shardplan.calibration.predict import Prediction
from shardplan.calibration.runs import SHIPPED_RUNS
from shardplan.calibration.validate import Validation

__all__ = ["Cause", "cause_of", "causes", "known_causes"]


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Why some published runs are far from their prediction."""

    cause: str
    runs: tuple[str, ...]
    """Patterns of their ids."""
    state: str
    """What the user of such a setting should state."""


@cache
def known_causes() -> tuple[Cause, ...]:
    """The shipped list, ``data/measured_runs/causes.yaml``."""
    rows = yaml.safe_load((SHIPPED_RUNS.parent / "causes.yaml").read_text(encoding="utf-8"))
    return tuple(Cause(cause=row["cause"], runs=tuple(row["runs"]), state=row["state"]) for row in rows)


def cause_of(run_id: str) -> Cause | None:
    """The first cause whose patterns match; None where none is known."""
    return next((one for one in known_causes() if any(fnmatchcase(run_id, name) for name in one.runs)), None)


def causes(fresh: Validation, left_out: Validation | None) -> list[dict[str, Any]]:
    """A row for every cause, and one for runs of tiers A and A- without any. Empty where no run has a known cause."""
    rows = [_row(one, fresh, left_out) for one in known_causes()]
    found = sorted((row for row in rows if row["in_sample"]["n"]), key=lambda row: -row["in_sample"]["n"])
    return [*found, _row(None, fresh, left_out)] if found else []


def _row(known: Cause | None, fresh: Validation, left_out: Validation | None) -> dict[str, Any]:
    named = {"cause": known and known.cause, "state": known and known.state}
    return named | {
        "in_sample": _errors(fresh, known),
        "left_out": None if left_out is None else _errors(left_out, known),
    }


def _errors(checked: Validation, known: Cause | None) -> dict[str, Any]:
    ratios = [one.log_time_ratio for one in checked.predictions if _belongs(one, known)]
    return asdict(errors_of([math.nan if ratio is None else ratio for ratio in ratios]))


def _belongs(one: Prediction, known: Cause | None) -> bool:
    return cause_of(one.run.id) == known and (known is not None or one.run.tier != "B")
