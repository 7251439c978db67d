"""How often bands hold: each run against the band that all other families make for it.

A run that lies inside its 10-90 band under constants and errors that never saw its family is what a user with a new
stack can expect; four in five should.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from shardplan.estimation.band import KnownErrors, band_of_run, errors_of
from shardplan.fields import dataclass
from shardplan.inputs.readers.residuals import Residual


@dataclass(frozen=True, kw_only=True)
class Covered:
    """A run with the band that other families make for it."""

    id: str
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
        return run.family, run.features.generation if unmeasured else None

    others = {
        (family, generation): errors_of(
            [run for run in known if run.family != family and run.features.generation != generation], quantity
        )
        for family, generation in {left_out(run) for run in known}
    }
    found = [(run, others[left_out(run)]) for run in known]
    told = ratios or {run.id: getattr(run, quantity) for run in known}
    return tuple(_covered(run, told[run.id], rest) for run, rest in found if rest.runs)


def _covered(run: Residual, ratio: float, others: KnownErrors) -> Covered:
    band = band_of_run(run, others)
    measured = math.exp(-ratio)
    return Covered(
        id=run.id,
        family=run.family,
        generation=run.features.generation,
        measured=measured,
        low=band.low,
        high=band.high,
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


def coverage_by_family(runs: Sequence[Covered], smallest: int) -> dict[str, Coverage]:
    """Shares of every family that has at least ``smallest`` runs, in the order of their names."""
    return _coverage_by(runs, lambda run: run.family, smallest)


def coverage_by_generation(runs: Sequence[Covered], smallest: int) -> dict[str, Coverage]:
    """The same by generation of accelerators."""
    return _coverage_by(runs, lambda run: run.generation, smallest)


def _coverage_by(runs: Sequence[Covered], name_of: Callable[[Covered], str], smallest: int) -> dict[str, Coverage]:
    families: dict[str, list[Covered]] = {}
    for run in runs:
        families.setdefault(name_of(run), []).append(run)
    found = {name: coverage_of(families[name]) for name in sorted(families) if len(families[name]) >= smallest}
    return {name: coverage for name, coverage in found.items() if coverage is not None}
