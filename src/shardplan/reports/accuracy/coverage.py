"""How often bands hold, as a record: all runs, teams large and small, generations never measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.records import plain
from shardplan.calibrate.coverage import (
    Coverage,
    Covered,
    Spread,
    attainable,
    coverage_by,
    coverage_of,
    covered_runs,
    spread_of,
)
from shardplan.calibrate.errors import errors_of as errors_of_ratios
from shardplan.estimation.band import errors_of
from shardplan.inputs.readers.residuals import Residual

COMPOSED: Final = ("vtrain-single",)
"""Families whose step times were put together from times of layers rather than measured as steps."""
ACCEPTABLE: Final = (0.70, 0.90)
"""Share of a large team's runs that should lie in their band."""
ASKED: Final = (0.75, 0.85)
"""Share that would be best."""
LARGE_TEAM: Final = 20
"""Runs from which a team is held against that."""
SMALL_TEAM: Final = 8
"""Runs below which the teams are listed together."""


def coverage_record(residuals: Sequence[Residual]) -> dict[str, Any]:
    """Coverage of step times and of peak memories, and of step times on a generation that no run covers."""
    result: dict[str, Any] = {quantity: _of_quantity(residuals, quantity) for quantity in ("time", "memory")}
    new = [run for run in covered_runs(residuals, unmeasured=True) if run.family not in COMPOSED]
    generations = coverage_by(new, "generation", smallest=SMALL_TEAM)
    return result | {
        "generation": plain(generations),
        "attainable": _attainable(residuals, result["time"]["team"]),
        "first_sight": _first_sight(residuals),
    }


def _first_sight(residuals: Sequence[Residual]) -> list[dict[str, Any]]:
    """Runs whose error at first sight is on record: by family, those that are described well, and all of them."""
    first = [run for run in residuals if run.first_time is not None and run.time is not None]
    ratios = {run.id: run.error("time") for run in residuals if run.has("time")}
    inside = {run.id: run.is_inside for run in covered_runs(residuals, ratios=ratios)}
    groups = {
        "tiers A and A-": [run for run in first if run.tier != "B"],
        "all tiers": first,
        **{name: [run for run in first if run.family == name] for name in sorted({run.family for run in first})},
    }
    return [_at_first_sight(label, runs, inside) for label, runs in groups.items() if runs]


def _at_first_sight(label: str, runs: Sequence[Residual], inside: Mapping[str, bool]) -> dict[str, Any]:
    first, now = ([getattr(run, name) for run in runs] for name in ("first_time", "time"))
    return {
        "label": label,
        "n": len(runs),
        "first": asdict(errors_of_ratios(first)),
        "now": asdict(errors_of_ratios(now)),
        "inside": float(np.mean([inside[run.id] for run in runs])),
    }


def _attainable(residuals: Sequence[Residual], teams: Mapping[str, Any]) -> dict[str, Any]:
    """How many large teams lie between shares, and how many would with bands that are perfectly calibrated."""
    known = errors_of(residuals, "time")
    reached = np.asarray([[one["inside"] for one in teams.values() if one["n"] >= LARGE_TEAM]])
    if not reached.size:
        return {}
    spread, sizes = spread_of(known, LARGE_TEAM)
    alone = Spread(between=0.0, within=1.0, of_within=0.0)
    drawn = {
        "unknown": attainable(spread, sizes),
        "spread_known": attainable(spread, sizes, is_spread_known=True),
        "independent": attainable(alone, sizes),
    }
    return {
        "num_teams": len(sizes),
        "spread": plain(spread),
        "within": [
            {"shares": shares, "reached": int(_within(reached, shares)[0])}
            | {name: _counted(_within(inside, shares)) for name, inside in drawn.items()}
            for shares in (ASKED, ACCEPTABLE)
        ],
    }


def _within(inside: NDArray[np.float64], shares: tuple[float, float]) -> NDArray[np.int_]:
    """Families of every set whose share lies between ``shares``."""
    return np.asarray(((inside >= shares[0]) & (inside <= shares[1])).sum(axis=1))


def _counted(counts: NDArray[np.int_]) -> dict[str, float]:
    low, high = np.quantile(counts, (0.1, 0.9))
    return {"mean": float(counts.mean()), "p10": float(low), "p90": float(high)}


def _of_quantity(residuals: Sequence[Residual], quantity: str) -> dict[str, Any]:
    runs = covered_runs(residuals, quantity)
    teams = coverage_by(runs, "team", smallest=1)
    small = {name for name, one in teams.items() if one.n < SMALL_TEAM}
    return {
        "all": _judged(coverage_of(runs)),
        "end_to_end": _judged(coverage_of(run for run in runs if run.family not in COMPOSED)),
        "team": {name: _judged(one) for name, one in teams.items() if name not in small},
        "small": plain(coverage_of(run for run in runs if run.team in small)),
        "small_teams": [_small(name, runs) for name in sorted(small)],
    }


def _judged(coverage: Coverage | None) -> dict[str, Any] | None:
    """Its shares, and whether they are acceptable; None for that of few runs."""
    if coverage is None:
        return None
    low, high = ACCEPTABLE
    is_acceptable = low <= coverage.inside <= high if coverage.n >= LARGE_TEAM else None
    return {**plain(coverage), "is_acceptable": is_acceptable}


def _small(team: str, runs: Sequence[Covered]) -> dict[str, Any]:
    inside = [run.is_inside for run in runs if run.team == team]
    return {"team": team, "n": len(inside), "inside": sum(inside)}
