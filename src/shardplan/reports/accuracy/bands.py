"""How often bands hold: for all runs, for teams large and small, for generations never measured, and at first sight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardplan.base.fields import dataclass
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
from shardplan.calibrate.errors import Errors, errors_of
from shardplan.estimation.band import errors_of as known_errors
from shardplan.inputs.readers.residuals import Residual

COMPOSED: Final = ("vtrain-single",)
"""Families whose step times were put together from times of layers rather than measured as steps."""
ACCEPTABLE: Final = (0.70, 0.90)
"""Share of a large team's runs that should lie in their band."""
ASKED: Final = (0.75, 0.85)
"""Share that would be best."""
BEARABLE: Final = (0.60, 0.95)
"""Share that nine of ten large teams should have at least."""
LARGE_TEAM: Final = 15
"""Runs from which a team is held against that."""
SMALL_TEAM: Final = 8
"""Runs below which the teams are listed together."""
QUANTITIES: Final = {"time": "step time", "memory": "peak memory"}


class Held(NamedTuple):
    """How often the bands of some runs hold."""

    label: str
    coverage: Coverage
    is_acceptable: bool | None = None
    """None: not held against ``ACCEPTABLE``."""


class SmallTeam(NamedTuple):
    """A team whose share says little."""

    team: str
    inside: int
    """Runs inside their band."""
    n: int


class FirstSight(NamedTuple):
    """Errors of runs when they were first predicted, next to what is left out now."""

    label: str
    first: Errors
    now: Errors
    inside: float
    """Share inside the band at first sight."""


class TeamsWithin(NamedTuple):
    """Large teams whose share lies between two."""

    shares: tuple[float, float]
    reached: int
    drawn: dict[str, NDArray[np.int_]]
    """In every draw of a simulation with bands that are calibrated perfectly, by what is taken as known."""


@dataclass(frozen=True, kw_only=True)
class Bands:
    """Left-out errors, each held against the band that all other teams make."""

    residuals: Sequence[Residual]

    @cached_property
    def runs(self) -> dict[str, tuple[Covered, ...]]:
        """By quantity."""
        return {quantity: covered_runs(self.residuals, quantity) for quantity in QUANTITIES}

    def held(self) -> Iterator[Held]:
        """Shares of all runs, of teams large and small, and of step times on a generation that no run covers."""
        for (quantity, runs), name in zip(self.runs.items(), QUANTITIES.values(), strict=True):
            yield from _judged(f"{name}, all", coverage_of(runs))
            if quantity == "time":
                end_to_end = (run for run in runs if run.family not in COMPOSED)
                yield from _judged(f"{name}, without composed steps", coverage_of(end_to_end))
            teams = coverage_by(runs, "team", smallest=SMALL_TEAM)
            for team, one in teams.items():
                yield from _judged(f"{name}, {team}", one)
            small = coverage_of(run for run in runs if run.team not in teams)
            yield from [Held(f"{name}, teams of fewer than {SMALL_TEAM} runs", small)] if small is not None else []
        new = [run for run in covered_runs(self.residuals, unmeasured=True) if run.family not in COMPOSED]
        for generation, one in coverage_by(new, "generation", smallest=SMALL_TEAM).items():
            yield Held(f"new generation, {generation}", one)

    def small_teams(self) -> dict[str, list[SmallTeam]]:
        """By quantity."""
        found: dict[str, list[SmallTeam]] = {}
        for (_, runs), name in zip(self.runs.items(), QUANTITIES.values(), strict=True):
            for team, one in coverage_by(runs, "team", smallest=1).items():
                if one.n < SMALL_TEAM:
                    inside = sum(run.is_inside for run in runs if run.team == team)
                    found.setdefault(name, []).append(SmallTeam(team, inside, one.n))
        return found

    def first_sight(self) -> list[FirstSight]:
        """Runs whose error at first sight is on record: those that are described well, all, and by family."""
        first = [run for run in self.residuals if run.first_time is not None and run.time is not None]
        ratios = {run.id: run.error("time") for run in self.residuals if run.has("time")}
        inside = {run.id: run.is_inside for run in covered_runs(self.residuals, ratios=ratios)}
        groups = {
            "tiers A and A-": [run for run in first if run.tier != "B"],
            "all tiers": first,
            **{name: [run for run in first if run.family == name] for name in sorted({run.family for run in first})},
        }
        return [
            FirstSight(
                label,
                first=errors_of([run.first_time or 0.0 for run in runs]),
                now=errors_of([run.time or 0.0 for run in runs]),
                inside=float(np.mean([inside[run.id] for run in runs])),
            )
            for label, runs in groups.items()
            if runs
        ]

    @cached_property
    def spread(self) -> tuple[Spread, tuple[int, ...]]:
        """How errors of step times differ between large teams and within them, and runs of each."""
        return spread_of(known_errors(self.residuals, "time"), LARGE_TEAM)

    def attainable(self) -> list[TeamsWithin]:
        """How many large teams lie between shares, next to how many a perfect band would put there."""
        large = coverage_by(self.runs["time"], "team", smallest=LARGE_TEAM)
        if not large:
            return []
        reached, (spread, sizes) = np.asarray([[one.inside for one in large.values()]]), self.spread
        drawn = {
            "unknown": attainable(spread, sizes),
            "spread_known": attainable(spread, sizes, is_spread_known=True),
            "independent": attainable(Spread(between=0.0, within=1.0, of_within=0.0), sizes),
        }
        rows = []
        for shares in (ASKED, ACCEPTABLE, BEARABLE):
            in_draws = {name: _within(one, shares) for name, one in drawn.items()}
            rows.append(TeamsWithin(shares, int(_within(reached, shares)[0]), in_draws))
        return rows


def _judged(label: str, coverage: Coverage | None) -> Iterator[Held]:
    """Shares, and whether they are acceptable where there are enough runs; nothing for none."""
    if coverage is not None:
        low, high = ACCEPTABLE
        yield Held(label, coverage, low <= coverage.inside <= high if coverage.n >= LARGE_TEAM else None)


def _within(inside: NDArray[np.float64], shares: tuple[float, float]) -> NDArray[np.int_]:
    """Families of every set whose share lies between ``shares``."""
    return np.asarray(((inside >= shares[0]) & (inside <= shares[1])).sum(axis=1))
