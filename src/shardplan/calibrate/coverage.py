r"""How often bands hold: each run against the band that all other teams make for it.

A run that lies inside its 10-90 band under constants and errors that never saw its team is what a user with a new
stack can expect; four in five should. Runs of one team share much of their error, so not even a perfect band covers
every team as it should. Errors, in the units of ``estimation.band``, are of two parts, what a team shares and what
its runs have of their own:

.. math:: z_{tr} = b_t + s_t\,e_{tr}, \quad b_t \sim N(0, \tau), \; \ln s_t \sim N(\ln s, \omega), \; e \sim N(0, 1)

A band of which 80 % of all such runs are inside covers less of a team with a large :math:`b_t` or :math:`s_t`, and
more of one with small ones, and neither is known of a team that nobody has measured. The share of a team with few
runs is a draw besides: of 20 independent runs 15 to 17 lie inside three times in five. ``attainable`` draws them with
the teams' sizes, and with the spreads of their centres and of their runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from shardplan.base.fields import dataclass
from shardplan.calibrate.errors import grouped
from shardplan.estimation.band import KnownErrors, band_of_run, errors_of
from shardplan.estimation.ties import NORMAL_P90
from shardplan.inputs.readers.residuals import Residual

INSIDE: Final = 0.8
"""Share of runs that should lie inside."""
EQUAL: Final = 1e-4
"""Least standard deviation, of families whose errors are equal."""
DRAWS: Final = 2000
"""Sets of families that are drawn."""


@dataclass(frozen=True, kw_only=True)
class Covered:
    """A run with the band that other families make for it."""

    id: str
    team: str
    family: str
    generation: str
    measured: float
    """Measured / predicted."""
    low: float
    """10th percentile of the band / predicted."""
    high: float
    """90th percentile of the band / predicted."""

    @property
    def is_inside(self) -> bool:
        """Whether the measurement lies in the band."""
        return self.low <= self.measured <= self.high


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """Runs inside their band, and outside it on either side."""

    n: int
    inside: float
    """Share inside."""
    below: float
    """Share measured below the band."""
    above: float
    """Share measured above it."""
    width: float
    """Median of the upper over the lower end."""


def covered_runs(
    residuals: Sequence[Residual],
    quantity: str = "time",
    *,
    unmeasured: bool = False,
    ratios: Mapping[str, float] | None = None,
) -> tuple[Covered, ...]:
    """Every run that is evidence of ``time`` or ``memory``, with a band of the other families' errors.

    ``unmeasured``: without the errors of its generation of accelerators too, as if no run had ever covered it.
    ``ratios``: ln(predicted / measured) by name, by constants that have not seen even that. A run without others has no
    band.
    """
    known = [run for run in residuals if run.has(quantity)]

    def left_out(run: Residual) -> tuple[str, str | None]:
        return run.team or run.family, run.features.generation if unmeasured else None

    others = {
        (team, generation): errors_of(
            [run for run in known if left_out(run)[0] != team and run.features.generation != generation], quantity
        )
        for team, generation in {left_out(run) for run in known}
    }
    found = [(run, others[left_out(run)]) for run in known]
    told = ratios or {run.id: getattr(run, quantity) for run in known}
    bands = [(run, math.exp(-told[run.id]), band_of_run(run, rest)) for run, rest in found if rest.runs]
    return tuple(
        Covered(
            id=run.id,
            team=run.team or run.family,
            family=run.family,
            generation=run.features.generation,
            measured=measured,
            low=band.low,
            high=band.high,
        )
        for run, measured, band in bands
    )


def coverage_of(runs: Iterable[Covered]) -> Coverage | None:
    """Shares over all of ``runs``; None of no runs."""
    table = np.asarray([(run.measured, run.low, run.high) for run in runs])
    if not table.size:
        return None
    measured, low, high = table.T
    below, above = measured < low, measured > high
    return Coverage(
        n=len(table),
        inside=float(np.mean(~(below | above))),
        below=float(np.mean(below)),
        above=float(np.mean(above)),
        width=float(np.median(high / low)),
    )


def coverage_by(runs: Sequence[Covered], by: Literal["team", "generation"], *, smallest: int) -> dict[str, Coverage]:
    """Shares of every team (or generation) that has at least ``smallest`` runs, in the order of their names."""
    groups = grouped(runs, attrgetter(by))
    found = {name: coverage_of(groups[name]) for name in sorted(groups) if len(groups[name]) >= smallest}
    return {name: coverage for name, coverage in found.items() if coverage is not None}


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Spread of errors between teams and within them, in the units of bands."""

    between: float
    """Root mean square of the teams' median errors."""
    within: float
    """Geometric mean of the standard deviations of runs of one team."""
    of_within: float
    """Standard deviation of their logarithm."""


def spread_of(known: KnownErrors, smallest: int) -> tuple[Spread, tuple[int, ...]]:
    """Spread of the teams of at least ``smallest`` runs, and how many runs each has.

    Medians, and tenths to nine tenths of a team as those of a normal distribution: a few runs with a cause of their
    own are no spread.
    """
    teams = [known.scaled[known.teams == team] for team in range(known.teams.max(initial=-1) + 1)]
    large = [errors for errors in teams if len(errors) >= smallest]
    centres = np.asarray([np.median(errors) for errors in large])
    deviations = [np.subtract(*np.quantile(errors, (0.9, 0.1))) / (2 * NORMAL_P90) for errors in large]
    widths = np.log(np.maximum(deviations, EQUAL))
    spread = Spread(
        between=float(np.sqrt(np.mean(centres**2))),
        within=float(np.exp(np.mean(widths))),
        of_within=float(np.std(widths)),
    )
    return spread, tuple(map(len, large))


def attainable(spread: Spread, sizes: Sequence[int], *, is_spread_known: bool = False) -> NDArray[np.float64]:
    """Share inside of each team (column), of many sets (row) of teams with these ``sizes`` of runs.

    ``is_spread_known``: a band as wide as the runs of each team spread, instead of the same for all.
    """
    random = np.random.default_rng(0)
    of_teams = random.standard_normal((2, DRAWS, len(sizes)))
    centres = spread.between * of_teams[0]
    within = spread.within * np.exp(spread.of_within * of_teams[1])
    ends = NORMAL_P90 * np.hypot(spread.between, within)
    if not is_spread_known:
        every = centres + within * random.standard_normal((20, *centres.shape))
        ends = np.full_like(ends, np.quantile(np.abs(every), INSIDE))
    shares = []
    for centre, deviation, end, size in zip(centres.T, within.T, ends.T, sizes, strict=True):
        errors = centre[:, None] + deviation[:, None] * random.standard_normal((DRAWS, size))
        shares.append(np.mean(np.abs(errors) <= end[:, None], axis=1))
    return np.stack(shares, axis=1)
