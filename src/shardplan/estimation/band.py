r"""How sure an estimate is: bands from the errors of comparable measured runs.

``data/profiles/residuals.csv`` holds for every published run the error of a prediction whose constants were fitted
without that run's family. A band is made of weighted quantiles of these errors; a run weighs the more, the more alike
it is,

.. math:: w_i = e^{-d_i^2 / 2} / \sqrt{n_{family}}, \quad d_i^2 = \sum_k (x_{ik} - x_k)^2 / \ell_k^2

over accelerator, number format, kind of model, size and scale. Runs of one family share most of their error, so n of
them weigh as the root of n, as in the fit. Where little is alike the band is wider, and says so.
``calibration.coverage`` counts how often it holds.

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

from shardplan.estimation.breakdown import Shares
from shardplan.estimation.question import Question
from shardplan.inputs.profile import PROFILES

__all__ = [
    "CONTRADICTORY_MEMORY",
    "RESIDUALS",
    "Band",
    "Features",
    "Residual",
    "band_among",
    "band_of",
    "features_of",
    "read_residuals",
]

RESIDUALS = PROFILES / "residuals.csv"
UNCERTAIN = tuple(field.name for field in fields(Shares))
EVEN = Shares()
"""A step that only computes."""
LOW, HIGH = 0.1, 0.9
FEW_RUNS = 12.0
"""Effective number of alike runs below which errors of all runs are mixed in."""
UNMEASURED = 1.5
"""Factor on the width (logarithm) for a generation that no run covers."""
UNMEASURED_PART = 1.25
"""The same for an accelerator that no run covers, of a generation that some do. Step times of the published runs, each
kept from those of its accelerator and family: 78 % inside their band without the factor, 88 % with it."""
BEYOND = 0.15
"""Growth of the width per doubling of the accelerators beyond the largest measured run of that kind."""
CONTRADICTORY_MEMORY = ("internevo",)
"""Families whose peak memories contradict their own descriptions: no evidence of how memory errs."""
COMPUTING, COMMUNICATING, HOSTING, ATTENDING = 0.12, 0.5, 0.4, 0.18
"""Errors (logarithm) of a step that only computes, and of those parts of a step that wait for the network and the host
or attend: rounded from the left-out errors of the published runs by these shares. Their ratios alone matter."""
FORMAT_BITS = {"fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "mxfp8": 8, "nvfp4": 4}


@dataclass(frozen=True, kw_only=True, slots=True)
class Features:
    """What makes runs alike."""

    accelerator: str
    generation: str
    bits: int
    """Of the matrix products' number format."""
    moe: bool
    parameters: float
    accelerators: float
    shares: Shares = EVEN
    """Of the predicted step: what is less certain than computing."""

    def scale(self, quantity: str) -> float:
        """Size of the errors to be expected of ``time``, relative to others; one of ``memory``."""
        if quantity == "memory":
            return 1.0
        shares = self.shares
        return math.hypot(
            COMPUTING, COMMUNICATING * shares.communication, HOSTING * shares.host, ATTENDING * shares.attention
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Residual:
    """Error of a run predicted without its family: ln(predicted / measured)."""

    id: str
    family: str
    features: Features
    time: float | None
    memory: float | None
    setting: str = ""
    """What the configurations of one comparison share (model, accelerators, sequence); empty: not fully described."""

    def has(self, quantity: str) -> bool:
        """Whether it is evidence of ``time`` or ``memory``."""
        is_doubted = quantity == "memory" and self.family in CONTRADICTORY_MEMORY
        return getattr(self, quantity) is not None and not is_doubted


@dataclass(frozen=True, kw_only=True, slots=True)
class Band:
    """Factors from a prediction to the 10th and the 90th percentile of what comparable runs measured."""

    low: float
    high: float
    note: str | None
    """Why it is wider than that of well-covered questions; None where it is not."""


def features_of(question: Question, shares: Shares = EVEN) -> Features:
    """What a question's runs are compared by."""
    part = question.cluster.accelerator
    return Features(
        accelerator=part.name,
        generation=part.generation,
        bits=FORMAT_BITS.get(question.job.precision, 16),
        moe=question.model.is_moe,
        parameters=float(question.model.num_parameters),
        accelerators=float(question.num_accelerators),
        shares=Shares(**{name: round(getattr(shares, name), 2) for name in UNCERTAIN}),
    )


def band_of(
    question: Question,
    quantity: str = "time",
    residuals: Sequence[Residual] | None = None,
    *,
    shares: Shares = EVEN,
) -> Band:
    """Band of the step time (``time``) or the peak memory (``memory``), by the shipped errors or by others."""
    asked, part = features_of(question, shares), question.cluster.accelerator.full_name
    return _shipped_band(asked, part, quantity) if residuals is None else band_among(asked, part, quantity, residuals)


@lru_cache(maxsize=256)
def _shipped_band(asked: Features, part: str, quantity: str) -> Band:
    return band_among(asked, part, quantity, read_residuals())


def band_among(asked: Features, part: str, quantity: str, residuals: Sequence[Residual]) -> Band:
    """Band of ``asked`` on the accelerator that is called ``part``, by these errors."""
    known = [run for run in residuals if run.has(quantity)]
    errors = np.asarray([-getattr(run, quantity) / run.features.scale(quantity) for run in known])
    weights = _weights(known, asked)
    low, high = (_quantile(errors, weights, share) for share in (LOW, HIGH))
    covered = [run for run in known if run.features.generation == asked.generation]
    factor, note = _extrapolation(covered, asked, part, quantity)
    factor *= asked.scale(quantity)
    return Band(low=math.exp(min(low, 0.0) * factor), high=math.exp(max(high, 0.0) * factor), note=note)


@cache
def read_residuals() -> tuple[Residual, ...]:
    """The shipped errors; none where there is no such file."""
    if not RESIDUALS.exists():
        return ()
    with RESIDUALS.open(encoding="utf-8", newline="") as file:
        return tuple(_residual(row) for row in csv.DictReader(file))


def _residual(row: dict[str, str]) -> Residual:
    features = Features(
        accelerator=row["accelerator"],
        generation=row["generation"],
        bits=int(row["bits"]),
        moe=row["moe"] == "yes",
        parameters=float(row["parameters"]),
        accelerators=float(row["accelerators"]),
        shares=Shares(**{name: float(row.get(f"{name}_share") or 0) for name in UNCERTAIN}),
    )
    time, memory = (float(row[name]) if row[name] else None for name in ("log_time_ratio", "log_memory_ratio"))
    return Residual(
        id=row["id"], family=row["family"], features=features, time=time, memory=memory, setting=row.get("setting", "")
    )


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


def _extrapolation(covered: Sequence[Residual], asked: Features, part: str, quantity: str) -> tuple[float, str | None]:
    """Factor on the band's width, and its reason. Memory is the framework's, of one part as of another."""
    if not covered:
        return UNMEASURED, f"no measured run covers {part} or its generation: the band is wider"
    factor, reasons = 1.0, []
    if quantity == "time" and all(run.features.accelerator != asked.accelerator for run in covered):
        factor *= UNMEASURED_PART
        reasons.append(f"no measured run covers {part}, only others of its generation")
    largest = max(run.features.accelerators for run in covered)
    doublings = math.log2(asked.accelerators / largest)
    if doublings > 0:
        factor *= 1 + BEYOND * doublings
        reasons.append(f"the largest measured run of this generation had {largest:,.0f} accelerators")
    return factor, f"{'; '.join(reasons)}: the band is wider" if reasons else None
