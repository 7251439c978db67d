"""How errors grow with the distance from evidence: runs predicted without those whose plans are near to theirs.

    python benchmarks/neighbourhoods.py    some minutes

An exhaustive search goes where no run was measured, so a band has to know how good predictions are there. Left out is
the *neighbourhood* of a run: all runs, of any team, whose plan, model and sequences resemble its own. What is left
is as far from it as a plan of a search may be from every run. Of these predictions, and of those that leave out
teams, it prints the size below which 8 in 10 errors lie, in units of what the parts of each step let expect, and how
many lie inside the band that the other runs make. A team counts as the root of its runs.
``evidence.SPREADS`` (0.7, 1 and 1.5) come from such sizes; ``docs/evidence.md`` has the table.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.fields import dataclass
from shardplan.calibrate.defaults import LeftOut, refit, residuals_of
from shardplan.calibrate.left_out import distances_of, unmeasured_pairs
from shardplan.estimation.band import KnownErrors, band_of_run, errors_of, scale_of, weighted_quantile
from shardplan.inputs.readers.residuals import Residual

GROUPS: Final[tuple[LeftOut, ...]] = ("neighbourhood", "team")
"""What predictions are made without."""
Vector = NDArray[np.float64]
EDGES = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, math.inf)
"""Of the distances that are distinguished."""
MOST = 0.8
"""Share of the runs whose errors are below the size that is reported."""


@dataclass(frozen=True, kw_only=True)
class AtDistance:
    """Runs so far from the nearest that their predictions had seen."""

    least: float
    most: float
    n: int
    num_teams: int
    size: float
    """Error (logarithm) below which 8 in 10 of them lie, in units of what the parts of the step let expect."""
    inside: float
    """Share inside the band that runs outside their group make for them."""
    width: float
    """Median of the upper over the lower end of that band."""


@dataclass(frozen=True, kw_only=True)
class LeftOutRun:
    """A run predicted without its group."""

    run: Residual
    distance: float
    """From the nearest run of another group."""
    is_apart: bool
    """Whether no run of another group was near to it in some two respects at once."""
    weight: float
    size: float
    """Of its error."""
    is_inside: bool
    width: float


def study() -> tuple[AtDistance, ...]:
    """Errors by distance, of predictions without each neighbourhood and without each team: two fits, some minutes."""
    fits = [refit(left_out=group) for group in GROUPS]
    return by_distance([run for found in fits for run in left_out_runs(residuals_of(found), found.groups_that_ran)])


def left_out_runs(runs: Sequence[Residual], groups: Sequence[str]) -> tuple[LeftOutRun, ...]:
    """Every timed run with the band that the runs of other groups make for it."""
    others = {group: _without(runs, groups, group) for group in set(groups)}
    counts = Counter(run.team or run.family for run in runs)
    found: list[LeftOutRun] = []
    distances, pairs = distances_of(runs, groups), unmeasured_pairs(runs, groups)
    for run, group, distance, is_apart in zip(runs, groups, distances, pairs, strict=True):
        if run.time is None:
            continue
        band = band_of_run(run, others[group])
        found.append(
            LeftOutRun(
                run=run,
                distance=distance,
                is_apart=is_apart,
                weight=1 / math.sqrt(counts[run.team or run.family]),
                size=abs(run.time) / scale_of(run.features, "time"),
                is_inside=band.low <= math.exp(-run.time) <= band.high,
                width=band.high / band.low,
            )
        )
    return tuple(found)


def _without(runs: Sequence[Residual], groups: Sequence[str], group: str) -> KnownErrors:
    return errors_of([run for run, name in zip(runs, groups, strict=True) if name != group], "time")


def by_distance(found: Sequence[LeftOutRun], edges: Sequence[float] = EDGES) -> tuple[AtDistance, ...]:
    """Sizes of errors and coverage of bands by distance; teams count as the root of their runs."""
    told = []
    for least, most in pairwise(edges):
        here = [one for one in found if least <= one.distance < most]
        if here:
            told.append(_at_distance(here, least, most))
    return tuple(told)


def by_pairs(found: Sequence[LeftOutRun]) -> tuple[AtDistance, AtDistance]:
    """The same of runs to which others were near in any two respects, and of those where in some two none was.

    Of predictions without each team: 809 and 60 runs, of which 8 in 10 errors lie below 0.90 and below 1.15, and 80 %
    of both inside their bands. From this ``gaps.UNMEASURED_PAIR`` is taken.
    """
    usual, apart = ([one for one in found if one.is_apart == is_apart] for is_apart in (False, True))
    return _at_distance(usual, 0.0, math.inf), _at_distance(apart, 0.0, math.inf)


def _at_distance(here: Sequence[LeftOutRun], least: float, most: float) -> AtDistance:
    weights = np.asarray([one.weight for one in here])
    return AtDistance(
        least=least,
        most=most,
        n=len(here),
        num_teams=len({one.run.team or one.run.family for one in here}),
        size=weighted_quantile(np.asarray([one.size for one in here]), weights, MOST),
        inside=float(np.average([one.is_inside for one in here], weights=weights)),
        width=float(np.median([one.width for one in here])),
    )


def main() -> None:
    """Prints the table of ``docs/evidence.md``."""
    for each in study():
        size = f"{each.least:g} to {each.most:g}, {each.n:,}, {each.num_teams}, {each.size:.2f}"
        print(f"{size}, {100 * each.inside:.0f} %, {each.width:.2f}")


if __name__ == "__main__":
    main()
