r"""Which constants a fit may move, how far, and their maximum a posteriori fit to measured runs.

A constant is free where its profile file states a prior and its standard deviation. Moves are multiplicative: a value
is its prior times :math:`e^\theta`; a share of one moves in its log-odds. A table's keys joined by ``+`` move together.
The fit to all runs, and those with each team left out, are made at once:

.. math:: \min_\theta \sum_i w_i\,\rho(r_i(\theta) / s) + \frac12 \sum_j \theta_j^2 / \sigma_j^2

with residuals :math:`r_i = \ln(predicted / measured)`, Huber's loss :math:`\rho`, and priors of standard deviation
:math:`\sigma_j` around component measurements. A family of n runs weighs as :math:`\sqrt n` of them: runs of one team
share their errors. Steps are Gauss-Newton with damping; the array formulas price every fold's constants and all their
perturbations in one pass over the runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import Numbers
from shardplan.base.fields import dataclass
from shardplan.calibrate.predict import PosedRun, log_ratios
from shardplan.inputs.profile import Constant, Profile, assemble, constants_of, generations

Vector = NDArray[np.float64]
DIGITS, SD_DIGITS = 4, 2
"""Significant digits of values and of standard deviations that are written."""
SHARE = "share"
"""Unit of constants between zero and one that move in their log-odds."""


@dataclass(frozen=True)
class Free:
    """One constant, or one group of keys of a table, that a fit may move."""

    generation: str
    """Generation whose file states it, or ``default``."""
    name: str
    keys: tuple[str, ...]
    """Keys of the table that move together; none where the constant is a number."""
    priors: tuple[float, ...]
    """Prior value of each key."""
    sd: float
    is_share: bool

    @property
    def own_label(self) -> str:
        """Its name without that of its generation."""
        return f"{self.name}[{'+'.join(self.keys)}]" if self.keys else self.name

    @property
    def label(self) -> str:
        """Its name in reports."""
        return self.own_label if self.generation == "default" else f"{self.generation}.{self.own_label}"

    def stated(self, values: Sequence[Numbers]) -> Any:
        """Values of its keys as a profile states them: a part of a table, or the number."""
        return dict(zip(self.keys, values, strict=True)) if self.keys else values[0]

    def stated_together(self, value: float) -> Any:
        """What its keys share, likewise."""
        return {"+".join(self.keys): value} if self.keys else value

    def at(self, theta: Numbers) -> tuple[Numbers, ...]:
        """Value of each key at a move of ``theta``."""
        if self.is_share:
            return tuple(1 / (1 + (1 - prior) / prior * np.exp(-np.asarray(theta))) for prior in self.priors)
        return tuple(prior * np.exp(theta) for prior in self.priors)


@cache
def free_constants() -> tuple[Free, ...]:
    """Every free constant of the shipped profiles."""
    return tuple(
        free
        for generation in ("default", *generations())
        for name, constant in constants_of(generation).items()
        for free in _frees(generation, name, constant)
    )


def profiles_at(frees: Sequence[Free], theta: Vector) -> Callable[[str], Profile]:
    """Profiles by generation at moves ``theta``: a row for each set of constants, a column for each of ``frees``."""

    def moved(generation: str) -> dict[str, Constant]:
        constants = dict(constants_of(generation))
        for column, free in enumerate(frees):
            if free.generation == generation:
                before, values = constants[free.name], free.stated(free.at(theta[:, column]))
                constants[free.name] = replace(before, value=with_part(before.value, values))
        return constants

    @cache
    def profile(generation: str) -> Profile:
        return assemble(generation, moved("default"), moved(generation))

    return profile


def rounded(value: float, digits: int = DIGITS) -> float:
    """To significant digits, as it is written."""
    return float(f"{value:.{digits}g}")


def _frees(generation: str, name: str, constant: Constant) -> list[Free]:
    prior, sd = constant.prior, constant.prior_sd
    if prior is None or sd is None:
        return []
    is_share = constant.unit == SHARE
    if isinstance(prior, dict):
        assert isinstance(sd, dict), name
        groups = {tuple(group.split("+")): spread for group, spread in sd.items()}
        return [
            Free(generation, name, keys, tuple(float(prior[key]) for key in keys), float(spread), is_share)
            for keys, spread in groups.items()
        ]
    assert not isinstance(sd, dict), name
    return [Free(generation, name, (), (float(prior),), float(sd), is_share)]


def with_part(table: object, part: Any) -> Any:
    """A table of a profile with a ``part`` of it replaced; a number is replaced as a whole."""
    return {**(table if isinstance(table, Mapping) else {}), **part} if isinstance(part, Mapping) else part


SCALE = 0.05
"""Error of a run that the model describes well (logarithm)."""
HUBER = 1.5
"""Residuals beyond this many scales count linearly."""
STEP = 1e-3
"""Perturbation of the finite differences, in standard deviations of the prior."""
MOST_ITERATIONS = 24
CONVERGED = 1e-6
"""Relative change of the objective at which a fold stops."""

TIER_WEIGHT: Final = {"A": 1.0, "A-": 0.8, "B": 0.1}
"""A run described in full, with one minor gap, with a gap that matters; one that states no tier counts in full.

What a gap hides moves all runs of a source one way, most often to longer times, so that many of them do not make up for
it: with 0.3 in place of 0.1, left-out errors of tiers A and A- are 5.9 % in the median, with 0.1 5.1 % (dense 5.3 and
4.7), and those of all tiers 6.5 and 6.2 %."""

Residuals = Callable[[Vector], Vector]
"""Moves (sets x constants) to residuals (runs x sets)."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What a fit sees of the measured runs."""

    residuals: Residuals
    families: tuple[str, ...]
    """Family of each residual."""
    tier_weights: Vector
    """Weight of each residual by how completely its run is described."""
    groups: tuple[str, ...] | None = None
    """What each residual is left out with; None: its family."""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Moves of the constants, by fold."""

    frees: tuple[Free, ...]
    folds: tuple[str | None, ...]
    """Family (or group) that each fold leaves out; None: none."""
    theta: Vector
    """Moves: folds x constants."""
    residuals: Vector
    """Residuals of all runs, those left out included: runs x folds."""
    sd: Vector
    """Posterior standard deviations of the first fold's moves."""
    objectives: tuple[float, ...]
    """Objective of the first fold after every iteration."""
    next_step: Vector
    """What the next iteration would move: folds x constants."""
    next_gain: Vector
    """Share by which that would lower the objective of each fold, were residuals linear in the constants."""


def fold_weights(evidence: Evidence, folds: Sequence[str | None]) -> Vector:
    """Weight of every residual in every fold: folds x runs."""
    families = np.asarray(evidence.families)
    counts = {name: float(np.sum(evidence.tier_weights[families == name])) for name in set(evidence.families)}
    weights = evidence.tier_weights / np.sqrt([max(counts[name], 1.0) for name in evidence.families])
    groups = np.asarray(evidence.groups or evidence.families)
    return np.stack([np.where(groups == left_out, 0.0, weights) for left_out in folds])


def fit(
    frees: Sequence[Free],
    evidence: Evidence,
    folds: Sequence[str | None] = (None,),
    *,
    start: Vector | None = None,
    iterations: int | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Fit:
    """Fits every fold. ``progress``: called with the iteration and the first fold's objective.

    ``start``: moves to begin with, of each fold or of all; the priors where it is None. ``iterations``: at most this
    many.
    """
    problem = _Problem(tuple(frees), evidence, fold_weights(evidence, folds))
    theta = np.zeros((len(folds), len(frees))) + (0.0 if start is None else start)
    damping = np.full(len(folds), 1e-3)
    at = problem.linearised(theta)
    best = problem.objective(at.residuals, theta)
    told = [float(best[0])]
    for iteration in range(MOST_ITERATIONS if iterations is None else iterations):
        trial = theta + problem.steps(at, theta, damping)
        seen = problem.linearised(trial)
        value = problem.objective(seen.residuals, trial)
        better = value < best
        change = np.where(better, (best - value) / np.maximum(best, np.finfo(float).tiny), 0.0)
        theta = np.where(better[:, None], trial, theta)
        at = at.where(better, seen)
        best = np.where(better, value, best)
        damping = np.where(better, damping / 5, damping * 10)
        told.append(float(best[0]))
        if progress is not None:
            progress(iteration + 1, told[-1])
        if np.all(change < CONVERGED) and np.all(better | (damping > 1e3)):
            break
    step = problem.steps(at, theta, np.zeros(len(folds)))
    return Fit(
        frees=tuple(frees),
        folds=tuple(folds),
        theta=theta,
        residuals=at.residuals,
        sd=problem.posterior_sd(at),
        objectives=tuple(told),
        next_step=step,
        next_gain=-np.sum(problem.slopes(at, theta) * step, axis=1) / 2 / np.maximum(best, np.finfo(float).tiny),
    )


@dataclass(frozen=True)
class _Linearised:
    """Residuals (runs x folds) and their derivatives (folds x runs x constants)."""

    residuals: Vector
    jacobian: Vector

    def where(self, better: NDArray[np.bool_], other: _Linearised) -> _Linearised:
        return _Linearised(
            np.where(better[None, :], other.residuals, self.residuals),
            np.where(better[:, None, None], other.jacobian, self.jacobian),
        )


@dataclass(frozen=True)
class _Problem:
    frees: tuple[Free, ...]
    evidence: Evidence
    weights: Vector
    """Folds x runs."""

    @property
    def prior_sd(self) -> Vector:
        return np.asarray([free.sd for free in self.frees])

    def linearised(self, theta: Vector) -> _Linearised:
        """Residuals at ``theta`` and by finite differences their derivatives, in one pass over the runs.

        Folds at the same place, as all are at the start, share theirs.
        """
        theta, fold = np.unique(theta, axis=0, return_inverse=True)
        fold = fold.reshape(-1)  # numpy 2.0 gives it another shape
        num_folds, num_constants = theta.shape
        shifts = np.vstack([np.zeros(num_constants), np.diag(STEP * self.prior_sd)])
        sets = (theta[:, None, :] + shifts[None, :, :]).reshape(-1, num_constants)
        residuals = self.evidence.residuals(sets).reshape(-1, num_folds, num_constants + 1)
        at = residuals[:, :, 0]
        slopes = (residuals[:, :, 1:] - at[:, :, None]) / (STEP * self.prior_sd)
        return _Linearised(at[:, fold], np.moveaxis(slopes, 0, 1)[fold])

    def objective(self, residuals: Vector, theta: Vector) -> Vector:
        """One number per fold."""
        u = np.abs(residuals.T) / SCALE
        loss = np.where(u <= HUBER, u * u / 2, HUBER * (u - HUBER / 2))
        return np.sum(self.weights * loss, axis=1) + np.sum((theta / self.prior_sd) ** 2, axis=1) / 2

    def steps(self, at: _Linearised, theta: Vector, damping: Vector) -> Vector:
        """Damped Gauss-Newton steps of all folds."""
        pulls = self._pulls(at)
        normal = self._normal(at, pulls)
        diagonal = np.einsum("fcc->fc", normal)
        damped = normal + damping[:, None, None] * (diagonal[:, :, None] * np.eye(len(self.frees)))
        return -np.linalg.solve(damped, self.slopes(at, theta)[:, :, None])[:, :, 0]

    def slopes(self, at: _Linearised, theta: Vector) -> Vector:
        """Derivatives of the objectives: folds x constants."""
        pulled = self._pulls(at) * at.residuals.T
        return np.einsum("frc,fr->fc", at.jacobian, pulled) + theta / self.prior_sd**2

    def posterior_sd(self, at: _Linearised) -> Vector:
        """Standard deviations of the first fold's constants around the optimum (Laplace's approximation)."""
        return np.sqrt(np.diag(np.linalg.inv(self._normal(at, self._pulls(at))[0])))

    def _pulls(self, at: _Linearised) -> Vector:
        """Weight of each residual in the normal equations, Huber's reduction included."""
        u = np.abs(at.residuals.T) / SCALE
        return self.weights * np.minimum(1.0, HUBER / np.maximum(u, HUBER)) / SCALE**2

    def _normal(self, at: _Linearised, pulls: Vector) -> Vector:
        data = np.einsum("frc,fr,frd->fcd", at.jacobian, pulls, at.jacobian, optimize=True)
        return data + np.diag(1 / self.prior_sd**2)


def evidence_of(
    cases: Sequence[PosedRun], frees: Sequence[Free], groups: Sequence[str] | None = None, *, by_family: bool = True
) -> Evidence:
    """Residuals of all cases that have them.

    ``groups``: what a fold leaves each case out with. ``by_family``: whether runs of one family count less, for what
    they share; otherwise every one counts in full.
    """
    runs = [case.asked.run for case in cases]
    timed = [place for place, run in enumerate(runs) if run.step_time is not None]
    metered = [place for place, run in enumerate(runs) if run.peak_memory_bytes is not None]
    places = (*timed, *metered)

    def residuals(theta: Vector) -> Vector:
        time, memory = log_ratios(cases, profiles_at(frees, theta))
        return np.concatenate([time[timed], memory[metered]])

    return Evidence(
        residuals=residuals,
        families=tuple(runs[place].family if by_family else str(row) for row, place in enumerate(places)),
        tier_weights=np.asarray([TIER_WEIGHT.get(runs[place].tier, 1.0) for place in places]),
        groups=None if groups is None else tuple(groups[place] for place in places),
    )
