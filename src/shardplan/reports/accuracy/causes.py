"""Runs that are hard to predict for a known reason: how many, how far off, and what a user should state instead."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Literal

from shardplan.calibration.errors import Misordered, Sweep, errors_of, read_needs, sweeps_of
from shardplan.calibration.predict import Prediction
from shardplan.calibration.runs.rows import SHIPPED_RUNS
from shardplan.calibration.validate import Validation
from shardplan.fields import dataclass
from shardplan.files import shipped_document
from shardplan.inputs.readers.residuals import read_residuals

Subject = Literal["step_time", "peak_memory", "order", "fits", "false_fits"]
"""What is off."""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Why some published runs are far from their prediction."""

    cause: str
    runs: tuple[str, ...]
    """Patterns of their ids."""
    state: str
    """What the user of such a setting should state."""
    against: tuple[str, ...] = ("*",)
    """Of two runs in the wrong order: patterns of the one that was measured to be faster."""

    def is_of(self, run_id: str, other: str = "") -> bool:
        """Whether it is that of a run, or of a run measured to be slower than the ``other``."""
        return _matches(run_id, self.runs) and _matches(other, self.against)


def _matches(run_id: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(run_id, pattern) for pattern in patterns)


@cache
def known_causes(subject: Subject) -> tuple[Cause, ...]:
    """The shipped list, ``data/measured_runs/causes.yaml``."""
    rows = shipped_document(SHIPPED_RUNS.parent / "causes.yaml")[subject]
    return tuple(
        Cause(
            cause=row["cause"], runs=tuple(row["runs"]), state=row["state"], against=tuple(row.get("against", ("*",)))
        )
        for row in rows
    )


@cache
def _published() -> frozenset[str]:
    """Ids of the published runs; a run of one's own may be called like a pattern."""
    return frozenset({*(one.id for one in read_residuals()), *read_needs()})


def cause_of(run_id: str, subject: Subject = "step_time", other: str = "") -> Cause | None:
    """The first cause whose patterns match a published run; None where none is known."""
    if run_id not in _published():
        return None
    return next((one for one in known_causes(subject) if one.is_of(run_id, other)), None)


def causes(fresh: Validation, left_out: Validation | None, subject: Subject = "step_time") -> list[dict[str, Any]]:
    """A row for every cause, and one for the runs without any: of step times, those of tiers A and A-.

    Empty where no run has a known cause.
    """
    rows = [_row(one, fresh, left_out, subject) for one in known_causes(subject)]
    found = sorted((row for row in rows if row["in_sample"]["n"]), key=lambda row: -row["in_sample"]["n"])
    rest = _row(None, fresh, left_out, subject)
    return [*found, *([rest] if rest["in_sample"]["n"] else [])] if found else []


def _row(known: Cause | None, fresh: Validation, left_out: Validation | None, subject: Subject) -> dict[str, Any]:
    named = {"cause": known and known.cause, "state": known and known.state}
    return named | {
        "in_sample": _errors(fresh, known, subject),
        "left_out": None if left_out is None else _errors(left_out, known, subject),
    }


RATIOS: dict[Subject, Callable[[Prediction], float | None]] = {
    "step_time": lambda one: one.log_time_ratio,
    "peak_memory": lambda one: one.log_memory_ratio,
}


def _errors(checked: Validation, known: Cause | None, subject: Subject) -> dict[str, Any]:
    ratios = [RATIOS[subject](one) for one in checked.predictions if _belongs(one, known, subject)]
    return asdict(errors_of([math.nan if ratio is None else ratio for ratio in ratios]))


def _belongs(one: Prediction, known: Cause | None, subject: Subject) -> bool:
    is_wanted = known is not None or subject != "step_time" or one.run.tier != "B"
    return is_wanted and cause_of(one.run.id, subject) == known


def causes_of_order(checked: Validation) -> list[dict[str, Any]]:
    """Pairs of configurations in the wrong order, by cause, those of no known cause last.

    Counted among the sweeps of all runs, and (as the target asks) among those of the runs that are described.
    """
    described = sweeps_of([one for one in checked.predictions if one.run.tier != "B"])
    everywhere, chosen = (_by_cause(sweeps) for sweeps in (checked.sweeps, described))
    rows = [
        {
            "cause": known and known.cause,
            "state": known and known.state,
            "pairs": len(everywhere.get(known, ())),
            "described": len(chosen.get(known, ())),
            "largest": asdict(max((everywhere.get(known) or chosen[known]), key=lambda pair: pair.measured)),
        }
        for known in everywhere.keys() | chosen.keys()
    ]
    return sorted(rows, key=lambda row: (row["cause"] is None, -row["described"], -row["pairs"], row["cause"]))


def _by_cause(sweeps: Sequence[Sweep]) -> dict[Cause | None, list[Misordered]]:
    found: dict[Cause | None, list[Misordered]] = {}
    for pair in (pair for sweep in sweeps for pair in sweep.misordered):
        found.setdefault(cause_of(pair.slower, "order", pair.faster), []).append(pair)
    return found
