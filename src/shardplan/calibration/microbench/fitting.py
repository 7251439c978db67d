"""Constants of the estimate's own formulas that make them meet timed kernels, by least squares with priors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shardplan.arrays import Numbers
from shardplan.calibration.constants import Free, Vector
from shardplan.calibration.fit import Evidence, fit
from shardplan.fields import dataclass
from shardplan.inputs.profile import Profile

WELL_DETERMINED = 0.7
"""A constant whose uncertainty the timings leave above this share of what it was before is not reported."""
USUAL_RESIDUAL = 0.054
"""Median of |ln(predicted / measured)| that fits expect; where formulas miss by more, constants are less sure."""
SHARES = ("matmul_wave_weight",)
"""Constants between zero and one that move in their log-odds."""


@dataclass(frozen=True)
class Found:
    """A constant that the timings determine."""

    value: float
    sd: float
    """Standard deviation of its logarithm (log-odds of a share)."""


@dataclass(frozen=True, kw_only=True)
class Solution:
    """What a fit found."""

    profile: Profile
    """The profile at the optimum."""
    found: dict[tuple[str, str], Found]
    """Constants by name and key of the table (empty for a number), those alone that the timings determine."""
    undetermined: tuple[tuple[str, str], ...]
    """Those that were free and that the timings leave about as uncertain as they were."""
    residual: float
    """Median of \\|predicted / measured - 1\\|."""
    num_samples: int


def free(base: Profile, name: str, sd: float, *, key: str = "") -> Free:
    """The constant ``name`` of ``base`` (or one ``key`` of it) as one that may move."""
    table = getattr(base, name)
    prior = table.get(key, table.get("other", 0.5)) if key else table
    return Free(base.name, name, (key,) if key else (), (float(prior),), sd, name in SHARES)


def solve(
    base: Profile, frees: Sequence[Free], predict: Callable[[Profile], Sequence[Numbers]], times: Sequence[float]
) -> Solution:
    """Fits ``frees``. ``predict``: times of all samples under a profile whose constants may be arrays."""
    if not times:
        return Solution(profile=base, found={}, undetermined=(), residual=0.0, num_samples=0)
    measured = np.log(np.asarray(times))

    def residuals(theta: Vector) -> Vector:
        rows = [np.broadcast_to(np.log(time), len(theta)) for time in predict(_moved(base, frees, theta))]
        return np.stack(rows) - measured[:, None]

    # Every sample is a family of its own: they err independently, unlike runs of one team.
    own = tuple(str(index) for index in range(len(times)))
    best = fit(frees, Evidence(residuals=residuals, families=own, tier_weights=np.ones(len(times))))
    residual = float(np.median(np.abs(best.residuals[:, 0])))
    uncertain = best.sd * max(1.0, residual / USUAL_RESIDUAL)
    places = _places(frees)
    found = {
        place: Found(float(one.at(move)[0]), float(sd))
        for place, one, move, sd in zip(places, frees, best.theta[0], uncertain, strict=True)
        if sd < WELL_DETERMINED * one.sd
    }
    return Solution(
        profile=_with(base, {key: entry.value for key, entry in found.items()}),
        found=found,
        undetermined=tuple(place for place in places if place not in found),
        residual=float(np.expm1(residual)),
        num_samples=len(times),
    )


def _moved(base: Profile, frees: Sequence[Free], theta: Vector) -> Profile:
    """``base`` with each constant an array over the rows of ``theta``."""
    columns = zip(_places(frees), frees, strict=True)
    return _with(base, {place: one.at(theta[:, column])[0] for column, (place, one) in enumerate(columns)})


def _places(frees: Sequence[Free]) -> list[tuple[str, str]]:
    """Name and key of the table (empty for a number) of each."""
    return [(one.name, one.keys[0] if one.keys else "") for one in frees]


def _with(base: Profile, values: dict[tuple[str, str], Any]) -> Profile:
    changed: dict[str, Any] = {}
    for (name, key), value in values.items():
        changed[name] = {**changed.get(name, getattr(base, name)), key: value} if key else value
    return replace(base, **changed)
