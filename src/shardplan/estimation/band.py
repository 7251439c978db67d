r"""How sure an estimate is: bands from the errors of comparable measured runs.

``data/profiles/residuals.csv`` holds for every published run the error of a prediction whose constants were fitted
without that run's family. A band is made of weighted quantiles of these errors; a run weighs the more, the more alike
it is,

.. math:: w_i = e^{-d_i^2 / 2} / \sqrt{n_{family}}, \quad d_i^2 = \sum_k (x_{ik} - x_k)^2 / \ell_k^2

over accelerator, number format, kind of model, size and scale. Runs of one family share most of their error, so n of
them weigh as the root of n, as in the fit. Where little is alike the band is wider, and says so (``estimation.gaps``).
``calibration.coverage`` counts how often it holds.

Runs to which the profile in use was fitted count by their own errors, each predicted without itself: every one weighs
:math:`e^{-d_i^2 / 2}`, and the published runs together as ``PUBLISHED_RUNS`` of them, so that few runs move the band
little and many make it, narrower or wider.

Steps that wait for the network or for the host, or that mostly attend, are less certain than others: errors of step
times are compared, and applied, in units of

.. math:: s = \sqrt{\sigma^2 + (\sigma_c\,x_c)^2 + (\sigma_h\,x_h)^2 + (\sigma_a\,x_a)^2}

with the shares :math:`x_c, x_h, x_a` of exposed communication, the host and attention in the predicted step.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from shardplan.estimation.gaps import Gap, gaps_of, total_factor
from shardplan.estimation.own_runs import doubts_of, own_runs, told_of
from shardplan.estimation.question import Question
from shardplan.inputs.profile import PROFILES
from shardplan.inputs.residuals import CONTRADICTORY_MEMORY, EVEN, Features, Residual, Shares, residual_from_row

__all__ = [
    "COMPARABLE",
    "CONTRADICTORY_MEMORY",
    "RESIDUALS",
    "Band",
    "Features",
    "Residual",
    "band_among",
    "band_of",
    "features_of",
    "read_residuals",
    "scale_of",
]

RESIDUALS = PROFILES / "residuals.csv"
UNCERTAIN = tuple(field.name for field in fields(Shares))
LOW, HIGH = 0.1, 0.9
FEW_RUNS = 12.0
"""Effective number of alike runs below which errors of all runs are mixed in."""
PUBLISHED_RUNS = 4.0
"""Runs of a profile's own as which the published ones weigh together. Calibrations drawn from the published runs (a
shift from 3, 6, 12 or 20 runs of one family on one accelerator, held against its others): 80 to 84 % inside, a family
weighing as one, with the narrowest bands of 0, 1, 2, 4, 8, 16 by their interval score; 60 to 77 % with none."""
COMPUTING, COMMUNICATING, HOSTING, ATTENDING = 0.12, 0.8, 0.4, 0.3
"""Errors (logarithm) of a step that only computes, and of those parts of a step that wait for the network and the host
or attend: those of the best interval score of left-out runs, rounded. Their ratios alone matter."""
FORMAT_BITS = {"fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "mxfp8": 8, "nvfp4": 4}
COMPARABLE = "in 8 of 10 comparable runs"


@dataclass(frozen=True, kw_only=True, slots=True)
class Band:
    """Factors from a prediction to the 10th and the 90th percentile of what comparable runs measured."""

    low: float
    high: float
    note: str | None
    """Why it is wider than that of well-covered questions, or what own runs did to it; None where there is nothing."""
    basis: str = COMPARABLE
    """What the band says, in words; where no run is comparable, of what it was guessed."""


def scale_of(features: Features, quantity: str) -> float:
    """Size of the errors to be expected of ``time``, relative to others; one of ``memory``."""
    if quantity == "memory":
        return 1.0
    shares = features.shares
    return math.hypot(
        COMPUTING, COMMUNICATING * shares.communication, HOSTING * shares.host, ATTENDING * shares.attention
    )


def features_of(question: Question, shares: Shares = EVEN, cp: int = 1) -> Features:
    """What a question's runs are compared by; ``cp`` is the plan's."""
    part = question.cluster.accelerator
    return Features(
        accelerator=part.name,
        generation=part.generation,
        bits=FORMAT_BITS.get(question.job.precision, 16),
        moe=question.model.is_moe,
        parameters=float(question.model.num_parameters),
        accelerators=float(question.num_accelerators),
        sequence_length=float(question.job.sequence_length),
        cp=float(cp),
        shares=Shares(**{name: round(getattr(shares, name), 2) for name in UNCERTAIN}),
    )


def band_of(
    question: Question,
    quantity: str = "time",
    residuals: Sequence[Residual] | None = None,
    *,
    shares: Shares = EVEN,
    cp: int = 1,
) -> Band:
    """Band of the step time (``time``) or the peak memory (``memory``), by the shipped errors or by others."""
    asked, part = features_of(question, shares, cp), question.cluster.accelerator.full_name
    own, doubts = own_runs(question, quantity), doubts_of(question)
    if residuals is None and not own and not doubts:
        return _shipped_band(asked, part, quantity)
    known = read_residuals() if residuals is None else residuals
    return band_among(asked, part, quantity, known, own=own, doubts=doubts)


@lru_cache(maxsize=256)
def _shipped_band(asked: Features, part: str, quantity: str) -> Band:
    return band_among(asked, part, quantity, read_residuals())


def band_among(
    asked: Features,
    part: str,
    quantity: str,
    residuals: Sequence[Residual],
    *,
    own: Sequence[Residual] = (),
    doubts: Sequence[Gap] = (),
) -> Band:
    """Band of ``asked`` on the accelerator that is called ``part``, by these errors.

    ``own``: errors of runs that the profile in use was fitted to. ``doubts``: what else widens it.
    """
    known = [run for run in residuals if run.has(quantity)]
    alone = _ends(known, (), asked, quantity)
    low, high = _ends(known, own, asked, quantity) if own else alone
    gaps = (*gaps_of(asked, part, quantity, (*known, *own)), *doubts)
    factor = total_factor(gaps) * scale_of(asked, quantity)
    told = told_of(own, quantity, (high - low) / max(alone[1] - alone[0], 1e-9)) if own else None
    others = next((gap.others for gap in gaps if gap.others), None)
    return Band(
        low=math.exp(low * factor),
        high=math.exp(high * factor),
        note=_note(gaps, told),
        basis=COMPARABLE if others is None else f"a guess from {others}",
    )


def _note(gaps: Sequence[Gap], told: str | None) -> str | None:
    wider = f"{'; '.join(gap.reason for gap in gaps)}: the band is wider" if gaps else None
    return ". ".join(text for text in (told, wider) if text) or None


def _ends(known: Sequence[Residual], own: Sequence[Residual], asked: Features, quantity: str) -> tuple[float, float]:
    """Ends of the band in units of the scale: never above zero, and never below."""
    errors = np.asarray([-getattr(run, quantity) / scale_of(run.features, quantity) for run in (*known, *own)])
    weights = _weights(known, asked)
    if own:
        of_own = np.asarray([math.exp(-_distance(run.features, asked) / 2) for run in own])
        weights = np.concatenate([weights * PUBLISHED_RUNS / max(float(weights.sum()), 1e-300), of_own])
    return min(_quantile(errors, weights, LOW), 0.0), max(_quantile(errors, weights, HIGH), 0.0)


@cache
def read_residuals() -> tuple[Residual, ...]:
    """The shipped errors; none where there is no such file."""
    if not RESIDUALS.exists():
        return ()
    with RESIDUALS.open(encoding="utf-8", newline="") as file:
        return tuple(residual_from_row(row) for row in csv.DictReader(file))


def _distance(one: Features, other: Features) -> float:
    """Squared distance in units of how much each difference matters."""
    return (
        (0.0 if one.generation == other.generation else 1.0)
        + (0.0 if one.accelerator == other.accelerator else 0.5)
        + 4.0 * (one.moe != other.moe)
        + (math.log2(one.bits / other.bits)) ** 2
        + math.log10(one.parameters / other.parameters) ** 2
        + math.log10(one.accelerators / other.accelerators) ** 2
    )


def _weights(known: Sequence[Residual], asked: Features) -> NDArray[np.float64]:
    """Weight of every run by likeness, errors of all runs mixed in where few are alike."""
    counts: dict[str, int] = {}
    for run in known:
        counts[run.family] = counts.get(run.family, 0) + 1
    family = np.asarray([1 / math.sqrt(counts[run.family]) for run in known])
    alike = np.asarray([math.exp(-_distance(run.features, asked) / 2) for run in known])
    same_kind = np.asarray([1.0 if run.features.moe == asked.moe else 0.1 for run in known])
    effective = alike.sum() ** 2 / max(float((alike**2).sum()), 1e-300)
    strength = min(float(alike.sum()), effective)
    mixed_in = max(FEW_RUNS - strength, 0.0) / max(float(same_kind.sum()), 1e-300)
    return family * (alike + mixed_in * same_kind)


def _quantile(values: NDArray[np.float64], weights: NDArray[np.float64], share: float) -> float:
    """Weighted quantile, interpolated between the middles of the weights."""
    order = np.argsort(values)
    middle = np.cumsum(weights[order]) - weights[order] / 2
    return float(np.interp(share * weights.sum(), middle, values[order]))
