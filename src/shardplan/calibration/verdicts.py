"""Verdicts "fits" against how runs ended: right ones, and wrong ones of either kind.

A run that ended out of memory judges the verdict alone. The predicted need is that of the tensors on the fullest
accelerator, of the memory that they can fill.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

import numpy as np

from shardplan.calibration.errors import GROUPINGS
from shardplan.calibration.predict import Prediction
from shardplan.fields import dataclass
from shardplan.files import DATA

NEEDS: Final = DATA / "profiles" / "needs.csv"
"""ln(needed / usable memory) of every shipped run by constants that never saw its family."""
NEEDS_HEAD: Final = ("id", "log_need")
CLOSE, FAR = 0.03, 0.10
"""Shares of the usable memory by which a false "fits" is distinguished."""


@dataclass(frozen=True, kw_only=True)
class Verdicts:
    """Verdicts on a set of runs."""

    n: int
    """Runs: those that ran, and those that ran out of memory."""
    out_of_memory: int
    """Of these the latter."""
    right: float | None
    """Share of the verdicts that are right; None where there are no runs."""
    false_fits: int
    """Runs that ran out of memory and are predicted to fit."""
    false_fits_beyond_3_percent: int
    """Of these, those predicted to leave more than 3 % of the usable memory free."""
    false_fits_beyond_10_percent: int
    """Of these, those predicted to leave more than 10 % of it free."""
    false_misfits: int
    """Runs that ran and are predicted not to fit."""


def verdicts_of(predictions: Sequence[Prediction]) -> Verdicts:
    """Verdicts on these runs."""
    ended = [one for one in predictions if not one.run.ran]
    false_fits = [one.free_share for one in ended if one.fits]
    false_misfits = sum(one.run.ran and not one.fits for one in predictions)
    wrong = len(false_fits) + false_misfits
    return Verdicts(
        n=len(predictions),
        out_of_memory=len(ended),
        right=1 - wrong / len(predictions) if predictions else None,
        false_fits=len(false_fits),
        false_fits_beyond_3_percent=int(np.sum(np.asarray(false_fits) > CLOSE)),
        false_fits_beyond_10_percent=int(np.sum(np.asarray(false_fits) > FAR)),
        false_misfits=false_misfits,
    )


def verdicts_by(predictions: Sequence[Prediction], group: str) -> dict[str, Verdicts]:
    """Verdicts by the names of one of ``GROUPINGS``; ``unstated`` where it is empty."""
    name_of = GROUPINGS[group]
    groups: dict[str, list[Prediction]] = {}
    for one in predictions:
        groups.setdefault(name_of(one) or "unstated", []).append(one)
    return {name: verdicts_of(groups[name]) for name in sorted(groups)}


@cache
def read_needs() -> Mapping[str, float]:
    """The shipped left-out needs by run; none where there is no such file."""
    if not NEEDS.exists():
        return {}
    with NEEDS.open(encoding="utf-8", newline="") as file:
        return {row["id"]: float(row["log_need"]) for row in csv.DictReader(file)}
