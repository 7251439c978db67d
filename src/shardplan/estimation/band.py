r"""How sure an estimate is: bands from the errors of comparable measured runs.

``data/profiles/residuals.csv`` holds for every published run the error of a prediction whose constants were fitted
without that run's team, and, where it is on record, the error when the run was first predicted, before anything was
mended with it in view: that is what a stranger meets, and it is taken instead. An error has a part that a team's
machines, software and habits share, and a part of the run's own:

.. math:: z_{ti} = b_t + e_{ti}, \quad b_t \sim (0, \tau), \; e_{ti} \sim (0, \sigma)

A band without runs of one's own has both: it is made of weighted quantiles of z. A run weighs the more, the more alike
it is, and a team as much as its centre tells of teams,

.. math:: w_{ti} = e^{-d_i^2 / 2 \ell^2} \frac{1 + \rho}{n_t + \rho}, \quad \rho = \sigma^2 / \tau^2,
          \quad d_i^2 = \sum_k w_k (x_{ik} - x_k)^2

over accelerator, number format, kind of model and size, with a length :math:`\ell` for step times and another for
memory (``LENGTHS``).
Likeness leaves the scale out: the interval score of left-out runs is the same with it (0.544) and without (0.543), and
bands would narrow where runs of one scale happen to agree. A part that no run covers is taken as the worst of those
that some do, of its generation if there are any: its band spans what each would have. Where little is alike the band is
wider, and says so (``estimation.gaps``). ``calibration.coverage`` counts how often it holds.

Runs to which the profile in use was fitted, each predicted without itself, tell what their team shares and how large
its errors are. With weights :math:`w_i = e^{-d_i^2 / 2 \ell^2}` by all that ``estimation.evidence`` compares (length
``LENGTH_OF_OWN``) and their sum W, of the variance of the shared part :math:`\rho / (\rho + W)` is left. With the ends
:math:`h_b` of the band of both parts and :math:`h_e` of that of the own part alone, an end is known beforehand as

.. math:: h^2 = h_e^2 + (h_b^2 - h_e^2)\,\rho / (\rho + W)

Teams differ in the size s of their errors u: these are Laplace's, and :math:`1 / s \sim \Gamma(a, b)` with the shape a
(``SHAPE``) and the rate b that has this end. Errors that were seen add to both, and the end is the tenth of a Lomax
distribution,

.. math:: A = a + W, \quad B = h / (0.2^{-1/a} - 1) + \sum_i w_i |u_i|, \quad h' = B\,(0.2^{-1/A} - 1)

With no such runs, or none that is like the question, it is that of the published runs.

Steps that wait for the network or for the host, or that mostly attend, are less certain than others, and so are those
that lie outside what a prediction had seen, and runs that are not described in full (``UNDESCRIBED``): errors of step
times are compared, and applied, in units of

.. math:: s = f \sqrt{\sigma^2 + (\sigma_c\,x_c)^2 + (\sigma_h\,x_h)^2 + (\sigma_a\,x_a)^2}

with the factor f of all gaps (``estimation.gaps``) and the shares :math:`x_c, x_h, x_a` of exposed communication, the
host and attention in the predicted step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardplan.base.fields import dataclass
from shardplan.estimation.evidence import LIKELY, KnownRuns
from shardplan.estimation.gaps import (
    OUTSIDE,
    Gap,
    doubts_of,
    gap_of_companions,
    gap_of_plan,
    gaps_of,
    own_runs,
    told_of,
    total_factor,
)
from shardplan.estimation.question import Question
from shardplan.estimation.ties import NORMAL_P90
from shardplan.inputs.plan import Plan
from shardplan.inputs.readers.residuals import EVEN, PLAIN, Features, Residual, Shares, read_residuals
from shardplan.physics.frameworks.stage_layers import recurrent_share

UNCERTAIN = Shares._fields
LOW, HIGH = 0.1, 0.9
LENGTHS = {"time": 3.0, "memory": 1.0}
"""Length of likeness. In units of what is expected of them, errors of step times are those of other parts, formats and
kinds of model: left-out runs have interval scores of 0.477, 0.465, 0.463 and 0.462 with lengths of 1, 2, 3 and without
likeness. Those of memory differ by framework and format: 0.325 with 1, 0.343 without."""
FEW_RUNS = 12.0
"""Number of alike runs, each counted by its likeness, below which errors of all runs are mixed in."""
SHAPE = {"time": 4.0, "memory": 1.5}
"""How much is known beforehand of the scale of a team's errors, in runs: the likeliest for the published teams' errors,
each team's under the width of the others'. The logarithm of the likelihood is within 0.6 of the best from 3 to 6 for
times (16 teams; without any one of them the best is from 4 to 6), from 1.25 to 2 for memory (9 teams)."""
LENGTH_OF_OWN = 2.5
"""Length of likeness of runs of one's own, over all that is compared: after six runs of each of eleven teams
(``benchmarks/six_runs.py``) their others are likeliest with it, of 1.5, 2, 2.5 and 3; less with the plan left out."""
COMPUTING, COMMUNICATING, HOSTING, ATTENDING = 0.12, 0.8, 0.4, 0.3
"""Errors (logarithm) of a step that only computes, and of those parts of a step that wait for the network and the host
or attend: those of the best interval score of left-out runs, rounded. Their ratios alone matter."""
UNDESCRIBED = {"A-": 1.2, "B": 1.5}
"""How much larger errors are of runs of which a minor field is inferred, or one that matters is missing: 8 in 10
left-out errors lie below 0.61 of what is expected for tier A, 0.74 for A- and 0.92 for B, families by the root of their
runs; without any one family the ratios are 1.07 to 1.27 and 1.37 to 1.55. A question says all of itself."""
FORMAT_BITS = {"fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "mxfp8": 8, "nvfp4": 4}
COMPARABLE = "in 8 of 10 comparable runs"


@dataclass(frozen=True, kw_only=True)
class Band:
    """Factors from a prediction to the 10th and the 90th percentile of what comparable runs measured."""

    low: float
    high: float
    note: str | None
    """Why it is wider than that of well-covered questions, or what own runs did to it; None where there is nothing."""
    basis: str = COMPARABLE
    """What the band says as text; where no run is comparable, of what it was guessed."""
    not_measured: str | None = None
    """In which respects no run covers the question or the plan; None where runs do."""
    narrowed: tuple[float, float] | None = None
    """The same two factors once a few runs of one's own have told what they share, never outside the band; None where
    the band has them."""


def scale_of(features: Features, quantity: str) -> float:
    """Size of the errors to be expected of ``time``, relative to others; one of ``memory``."""
    if quantity == "memory":
        return 1.0
    shares = features.shares
    return math.hypot(
        COMPUTING, COMMUNICATING * shares.communication, HOSTING * shares.host, ATTENDING * shares.attention
    )


def features_of(question: Question, shares: Shares = EVEN, plan: Plan = PLAIN) -> Features:
    """What a question's runs are compared by."""
    part = question.cluster.accelerator
    return Features(
        accelerator=part.name,
        generation=part.generation,
        bits=FORMAT_BITS[question.job.precision],
        moe=question.model.is_moe,
        parameters=float(question.model.num_parameters),
        accelerators=float(question.num_accelerators),
        sequence_length=float(question.job.sequence_length),
        global_batch_size=float(question.job.global_batch_size),
        plan=plan,
        shares=Shares(**{name: round(getattr(shares, name), 2) for name in UNCERTAIN}),
        trained=question.job.trained,
        recurrent=recurrent_share(question.model),
    )


def band_of(
    question: Question,
    quantity: str = "time",
    residuals: Sequence[Residual] | None = None,
    *,
    shares: Shares = EVEN,
    plan: Plan = PLAIN,
    companions: float = 0.0,
) -> Band:
    """Band of the step time (``time``) or the peak memory (``memory``), by the shipped errors or by others.

    ``companions``: their share of the step.
    """
    asked, part = features_of(question, shares, plan), question.cluster.accelerator.full_name
    own = own_runs(question, quantity)
    beside = gap_of_companions(question, quantity, companions)
    doubts = (*doubts_of(question, quantity, own), *beside), (*doubts_of(question, quantity, ()), *beside)
    if residuals is None:
        return _shipped_band(asked, part, quantity, own, doubts)
    known = errors_of(residuals, quantity)
    return band_among(asked, part, known, own=own, doubts=doubts[0], doubts_without=doubts[1])


Gaps = tuple[Gap, ...]


@lru_cache(maxsize=1024)
def _shipped_band(
    asked: Features, part: str, quantity: str, own: tuple[Residual, ...], doubts: tuple[Gaps, Gaps]
) -> Band:
    return band_among(asked, part, shipped_errors(quantity), own=own, doubts=doubts[0], doubts_without=doubts[1])


def band_among(
    asked: Features,
    part: str,
    known: KnownErrors,
    *,
    own: Sequence[Residual] = (),
    doubts: Sequence[Gap] = (),
    doubts_without: Sequence[Gap] = (),
) -> Band:
    """Band of ``asked`` on the accelerator that is called ``part``, by ``known`` errors.

    ``own``: errors of runs that the profile in use was fitted to. ``doubts``: what else widens it, and
    ``doubts_without``: what would if the profile had no such errors.
    """
    beyond = gaps_of(asked, part, known.quantity, (*known.runs, *own)) if own else _gaps(known, asked, part)
    of_runs = (*beyond, *_gap_of_plan(known, own, asked))
    gaps = (*of_runs, *doubts)
    low, high = _ends(known, own, asked, gaps)
    told = None
    if own:
        usual = (*_gaps(known, asked, part), *_gap_of_plan(known, (), asked), *doubts_without)
        low_without, high_without = _ends(known, (), asked, usual)
        told = told_of(own, known.quantity, (high - low) / max(high_without - low_without, 1e-9))
    others = next((gap.others for gap in gaps if gap.others), None)
    left = None if own else _ends(known, (), asked, gaps, is_own=True)
    return Band(
        low=math.exp(low),
        high=math.exp(high),
        narrowed=None if left is None else (math.exp(max(low, left[0])), math.exp(min(high, left[1]))),
        note=_note(gaps, told),
        basis=COMPARABLE if others is None else f"a guess from {others}",
        not_measured="; ".join(gap.reason for gap in of_runs if gap.factor >= OUTSIDE) or None,
    )


def band_of_run(run: Residual, known: KnownErrors) -> Band:
    """Band that ``known`` errors make for a measured run, as far as that is described."""
    doubts = described(run) if known.quantity == "time" else ()
    return band_among(run.features, run.features.accelerator, known, doubts=doubts)


def described(run: Residual) -> tuple[Gap, ...]:
    """What widens the band of a run's step time where the run is not described in full."""
    factor = UNDESCRIBED.get(run.tier)
    return () if factor is None else (Gap(reason="not all of it is described", factor=factor),)


def _note(gaps: Sequence[Gap], told: str | None) -> str | None:
    reasons = [gap.reason for gap in gaps if gap.factor > 1]
    if not reasons:
        return told
    wider = f"{'; '.join(reasons)}: the band is wider"
    return wider if told is None else f"{told}. {wider} than where runs cover this"


TELLING = 3
"""Runs from which a team's median is what its runs share rather than their own part."""
EQUAL = 1e-3
"""Least spread, in units of what is expected, of teams or runs whose errors are equal."""


def parts_of(errors: NDArray[np.float64], teams: NDArray[np.intp]) -> tuple[float, float]:
    """Standard deviations of what teams share, and of what a run has of its own (by the tenths of each team)."""
    of_teams = [errors[teams == team] for team in range(teams.max(initial=-1) + 1)]
    centres = np.asarray([np.median(each) for each in of_teams])
    spreads = [np.subtract(*np.quantile(each, (0.9, 0.1))) / (2 * NORMAL_P90) for each in of_teams if len(each) > 1]
    within = float(np.median(spreads)) if spreads else 0.0
    return max(float(np.sqrt(np.mean(centres**2))), EQUAL), max(within, EQUAL)


class KnownErrors:
    """Runs that are evidence of one quantity; itself alone its equal, so that what is made of it can be kept."""

    def __init__(self, runs: tuple[Residual, ...], quantity: str) -> None:
        self.runs, self.quantity = runs, quantity

    @cached_property
    def table(self) -> KnownRuns:
        """The runs with their coordinates."""
        return KnownRuns(self.runs)

    @cached_property
    def scaled(self) -> NDArray[np.float64]:
        """What was measured over what was predicted (logarithm), in units of the size of errors to be expected."""
        return _scaled(self.runs, self.quantity)

    @cached_property
    def teams(self) -> NDArray[np.intp]:
        """Number of every run's team."""
        return np.unique([run.team or run.family for run in self.runs], return_inverse=True)[1]

    @cached_property
    def own_part(self) -> NDArray[np.float64]:
        """What is left of :attr:`scaled` without what a team's runs share, their median; all of it of few runs."""
        of_teams = [self.scaled[self.teams == team] for team in range(self.teams.max(initial=-1) + 1)]
        centres = [np.median(each) if len(each) >= TELLING else 0.0 for each in of_teams]
        return np.asarray(self.scaled - np.asarray(centres)[self.teams])

    @cached_property
    def ratio(self) -> float:
        r"""Variance of a run's own part over that of what teams share, :math:`\rho = \sigma^2 / \tau^2`."""
        between, within = parts_of(self.scaled, self.teams)
        return (within / between) ** 2

    @cached_property
    def of_teams(self) -> NDArray[np.float64]:
        r"""Weight of every run for its team, one where it is alone.

        A team's centre tells of teams as far as its runs make it known: n of them weigh as
        :math:`(1 + \rho) / (1 + \rho / n)`.
        """
        counts = np.bincount(self.teams)
        return np.asarray(((1 + self.ratio) / (counts + self.ratio))[self.teams])

    @cached_property
    def are_moe(self) -> NDArray[np.bool_]:
        """Which runs are of models with experts."""
        return np.asarray([run.features.moe for run in self.runs], dtype=np.bool_)

    @cached_property
    def accelerators(self) -> set[tuple[str, str]]:
        """Generation and name of every accelerator that has runs."""
        return {(run.features.generation, run.features.accelerator) for run in self.runs}


def errors_of(residuals: Sequence[Residual], quantity: str) -> KnownErrors:
    """Those of ``residuals`` that are evidence of ``time`` or ``memory``."""
    return KnownErrors(tuple(run for run in residuals if run.has(quantity)), quantity)


@cache
def shipped_errors(quantity: str) -> KnownErrors:
    """The published runs that are evidence of ``time`` or ``memory``."""
    return errors_of(read_residuals(), quantity)


def _gaps(known: KnownErrors, asked: Features, part: str) -> tuple[Gap, ...]:
    """Respects in which a question lies outside the published runs, whatever its plan."""
    return _gaps_of(known, asked._replace(shares=EVEN, plan=PLAIN), part)


@lru_cache(maxsize=1024)
def _gaps_of(known: KnownErrors, asked: Features, part: str) -> tuple[Gap, ...]:
    return gaps_of(asked, part, known.quantity, known.runs)


def plan_factor(question: Question, plan: Plan) -> float:
    """How much wider the band of a step time is for what was not measured of ``plan``; one or less where it was."""
    return plan_factors(question)(plan)


def plan_factors(question: Question) -> Callable[[Plan], float]:
    """The same for many plans: what they have in common is found once."""
    known, own = shipped_errors("time"), own_runs(question, "time")
    features = features_of(question)._replace(accelerators=1.0, global_batch_size=1.0)  # a neighbourhood has no scale
    return lambda plan: _factor_of_plan(known, own, features._replace(plan=plan))


@lru_cache(maxsize=4096)
def _factor_of_plan(known: KnownErrors, own: tuple[Residual, ...], asked: Features) -> float:
    (gap,) = _gap_of_plan(known, own, asked)
    return gap.factor


def _gap_of_plan(known: KnownErrors, own: Sequence[Residual], asked: Features) -> tuple[Gap, ...]:
    """What is unmeasured of a plan; of its memory nothing, which is counted as that of others."""
    if known.quantity == "memory":
        return ()
    return (gap_of_plan(asked, known.table, KnownRuns(own) if own else None),)


def _ends(
    known: KnownErrors,
    own: Sequence[Residual],
    asked: Features,
    gaps: Sequence[Gap],
    *,
    is_own: bool = False,
) -> tuple[float, float]:
    """Logarithms of the ends of the band: never above zero, and never below. ``is_own``: without what teams share."""
    factor = total_factor(gaps) * scale_of(asked, known.quantity)
    low, high = _ends_with(known, own, asked) if own else _ends_of_published(known, asked, is_own=is_own)
    return min(low, 0.0) * factor, max(high, 0.0) * factor


def _ends_of_published(known: KnownErrors, asked: Features, *, is_own: bool = False) -> tuple[float, float]:
    """Quantiles of the published errors; of a part without runs the furthest of those of the parts that have some."""
    like = asked._replace(**ANYWHERE)  # none of these is likeness
    ends = [
        _quantiles(known, like._replace(generation=each[0], accelerator=each[1]), is_own=is_own)
        for each in _parts(known, asked)
    ]
    return min(low for low, _ in ends), max(high for _, high in ends)


ANYWHERE: Any = {
    "accelerators": 1.0,
    "sequence_length": 1.0,
    "global_batch_size": 1.0,
    "plan": PLAIN,
    "shares": EVEN,
}
"""Features that are no likeness of errors."""


def _parts(known: KnownErrors, asked: Features) -> set[tuple[str, str]]:
    """Generation and name: the part itself if it has runs; else those of its generation; else all that have."""
    of_generation = {each for each in known.accelerators if each[0] == asked.generation}
    return {(asked.generation, asked.accelerator)} & known.accelerators or of_generation or known.accelerators


@lru_cache(maxsize=1024)
def _quantiles(known: KnownErrors, like: Features, *, is_own: bool = False) -> tuple[float, float]:
    """Of the errors of strangers, or of the part that is a run's own."""
    return _both(known.own_part if is_own else known.scaled, _weights(known, like))


def _ends_with(known: KnownErrors, own: Sequence[Residual], asked: Features) -> tuple[float, float]:
    """Ends of the band by the errors of one's ``own`` runs, and by those of published ones as known beforehand."""
    weights = np.exp(-KnownRuns(own).squared(asked) / (2 * LENGTH_OF_OWN**2))
    left = known.ratio / (known.ratio + float(weights.sum()))
    both, alone = (_ends_of_published(known, asked, is_own=is_own) for is_own in (False, True))
    before = [
        math.sqrt(max(end, 0.0) ** 2 * left + max(own_end, 0.0) ** 2 * (1 - left))
        for end, own_end in ((-both[0], -alone[0]), (both[1], alone[1]))
    ]
    seen = float(weights.sum()), float(weights @ np.abs(_scaled(own, known.quantity)))
    low, high = (end_after(end, *seen, shape=SHAPE[known.quantity]) for end in before)
    return -low, high


def end_after(before: float, weight: float, error: float, *, shape: float) -> float:
    """End of a band that was at ``before``, after errors whose weights, and sizes times weights, have these sums."""

    def tenth(shape: float) -> float:
        return float((2 * LOW) ** (-1 / shape) - 1)

    return (before / tenth(shape) + error) * tenth(shape + weight)


def _scaled(runs: Sequence[Residual], quantity: str) -> NDArray[np.float64]:
    """What was measured over what was predicted (logarithm), in units of the size of errors to be expected."""
    return np.asarray([-run.error(quantity) / _size_of_errors(run, quantity) for run in runs])


def _size_of_errors(run: Residual, quantity: str) -> float:
    """Size of the errors to be expected of a run that was predicted without its team."""
    if quantity == "memory":
        return 1.0
    return scale_of(run.features, quantity) * run.gap_factor * UNDESCRIBED.get(run.tier, 1.0)


def _both(errors: NDArray[np.float64], weights: NDArray[np.float64]) -> tuple[float, float]:
    return weighted_quantile(errors, weights, LOW), weighted_quantile(errors, weights, HIGH)


def _weights(known: KnownErrors, asked: Features) -> NDArray[np.float64]:
    """Weight of every run by likeness, errors of all runs mixed in where few are alike."""
    alike = np.exp(-known.table.squared(asked, LIKELY) / (2 * LENGTHS[known.quantity] ** 2))
    same_kind = np.where(known.are_moe == asked.moe, 1.0, 0.1)
    mixed_in = max(FEW_RUNS - float(alike.sum()), 0.0) / max(float(same_kind.sum()), 1e-300)
    return known.of_teams * (alike + mixed_in * same_kind)


def weighted_quantile(values: NDArray[np.float64], weights: NDArray[np.float64], share: float) -> float:
    """Weighted quantile, interpolated between the middles of the weights."""
    order = np.argsort(values)
    middle = np.cumsum(weights[order]) - weights[order] / 2
    return float(np.interp(share * weights.sum(), middle, values[order]))
