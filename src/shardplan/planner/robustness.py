r"""Which of the plans that tie with the fastest is recommended: the one that bears most that things are worse.

A plan is fragile in three ways. It may need more memory than estimated: it has headroom where the upper end of the band
of its peak memory fits as well. Its step may take longer: with :math:`\Delta_g` what it loses where a group of
constants (network, overlap, host) is at its worse end. And nobody may have measured a plan like it: errors of such
plans are f times as large (``estimation.gaps``), of which

.. math:: \Delta_{evidence} = T\,(F^{\sqrt{f^2 - 1}} - 1)

is what they have more than others, with F the factor within which step times of measured plans are ties. All are
independent of one another:

.. math:: T_{pessimistic} = T + \sqrt{\Delta_{evidence}^2 + \textstyle\sum_g \Delta_g^2}

Recommended is, of the tied plans with headroom (of all ties, where none has), the one of the smallest pessimistic time;
where several are alike in it the simplest of them: stages of equal layers, fewer dimensions, fewer switches, fewer
model chunks on a rank. Where several are as simple, the fastest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from shardplan.estimation.band import band_of, plan_factor, plan_factors
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.perturbation import GROUPS
from shardplan.estimation.question import Question
from shardplan.fields import dataclass
from shardplan.inputs.plan import Plan
from shardplan.planner.tied import PricedPlans

if TYPE_CHECKING:
    from shardplan.planner.retiming import Retimed

ALIKE_TIME = 0.005
"""Pessimistic times within this share are alike: equal configurations that several teams measured (MLPerf training)
differ by 1.3 %."""
EVIDENCE = "evidence"
"""What a plan loses where plans that were not measured take longer than estimated."""
DIMENSIONS: Final = ("tp", "cp", "pp", "vp", "ep", "etp")
"""Degrees that split a model or its work, each a dimension where it is more than one."""
SIZES: Final = ("micro_batch_size", "sharding_degree", "stage_layers", "microbatch_group_size", "tp_rows")
"""Other fields that are no switches."""
Complexity = tuple[bool, int, int, int]


@dataclass(frozen=True, kw_only=True)
class Robustness:
    """What a plan bears."""

    lost_time: dict[str, float]
    """How much longer the step takes where a group of constants is at its worse end, by group; and under ``evidence``
    what it may take longer because no plan near to it was measured. [s]"""
    pessimistic_time: float
    """Step time where all of these are worse, as independent of one another. [s]"""


@dataclass(frozen=True, kw_only=True)
class Ties:
    """The plans that are too close to the fastest to call."""

    factor: float
    """Step times within this factor of the fastest are ties."""
    num_plans: int
    """Plans of the whole space that fit and tie by their closed form, the fastest among them."""
    num_with_headroom: int
    """Those whose memory fits at the upper end of its band too."""
    taken: Sequence[Estimate]
    """The most robust of them all, listed or not: one answer, which may be made when it is read."""
    robustness: Mapping[Plan, Robustness]
    """Of the listed plans that tie, and of the recommended one."""
    retimed: Retimed | None = None
    """What the simulation says of the best plans, where it was asked; it then ranks them and decides which of them
    tie."""

    @property
    def recommended(self) -> Estimate:
        """The most robust of them all."""
        return self.taken[0]

    def time_of(self, estimate: Estimate) -> float:
        """Step time by which plans are ranked. [s]"""
        return estimate.step_time if self.retimed is None else self.retimed.time_of(estimate)


def complexity_of(plan: Plan, num_layers: int) -> Complexity:
    """Whether stages have unlike numbers of layers, then dimensions, switches that differ from defaults, chunks."""
    is_uneven = plan.stage_layers is not None or num_layers % (plan.pp * plan.vp) != 0
    dimensions = sum(getattr(plan, name) > 1 for name in DIMENSIONS)
    others = (field for field in fields(Plan) if field.name not in (*DIMENSIONS, *SIZES))
    return is_uneven, dimensions, sum(getattr(plan, field.name) != field.default for field in others), plan.vp


def recommended_of(question: Question, priced: PricedPlans, fastest: int | None) -> int:
    """Index of the plan to recommend: ``fastest``, which is listed first, where others are only as good."""
    tied = priced.tied
    roomy = tied[_has_headroom(question, priced)[tied]]
    alike = _most_robust(question, priced, roomy if len(roomy) else tied)
    layers = question.model.num_hidden_layers

    def order(index: int) -> tuple[object, ...]:
        return (*complexity_of(priced.plan(index), layers), index != fastest, priced.step_time[index])

    return min(alike, key=order)


def _most_robust(question: Question, priced: PricedPlans, plans: NDArray[np.intp]) -> list[int]:
    """Those of the smallest pessimistic time, and those that are alike in it.

    What was not measured is looked up once for plans of one kind, from the smallest time without it on, until no other
    can be less.
    """
    kinds, sure = priced.kinds(plans), priced.pessimistic_time[plans]
    least = np.full(kinds.max() + 1, np.inf)
    np.minimum.at(least, kinds, sure)
    times, limit = np.full(len(plans), np.inf), np.inf
    of_kinds, factor_of = _by_kind(kinds), plan_factors(question)
    for kind in np.argsort(least, kind="stable"):
        if least[kind] > limit:
            break
        here = of_kinds[kind]
        factor = factor_of(priced.plan(int(plans[here[0]])))
        times[here] = _pessimistic_time(priced, plans[here], factor)
        limit = min(limit, float(times[here].min()) * (1 + ALIKE_TIME))
    return [int(index) for index in plans[times <= limit]]


def pessimistic_times(question: Question, priced: PricedPlans) -> NDArray[np.float64]:
    """Step time of all plans where constants are worse and plans that nobody measured take longer. [s]"""
    every = np.arange(len(priced.step_time))
    times, factor_of = np.empty(len(every)), plan_factors(question)
    for here in _by_kind(priced.kinds(every)):
        times[here] = _pessimistic_time(priced, here, factor_of(priced.plan(int(here[0]))))
    return times


def _by_kind(kinds: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Positions of the plans of every kind, ascending; kinds are numbered from zero without a gap."""
    order = np.argsort(kinds, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(kinds[order])) + 1)


def _lost_to_evidence(priced: PricedPlans, plans: NDArray[np.intp], factor: float) -> NDArray[np.float64]:
    return priced.step_time[plans] * (priced.factor ** math.sqrt(max(factor**2 - 1, 0.0)) - 1)


def _pessimistic_time(priced: PricedPlans, plans: NDArray[np.intp], factor: float) -> NDArray[np.float64]:
    lost = np.vstack([priced.lost[:, plans], _lost_to_evidence(priced, plans, factor)])
    return priced.step_time[plans] + np.sqrt((lost**2).sum(axis=0))


def ties_of(
    question: Question,
    priced: PricedPlans,
    shown: Sequence[int],
    recommended: tuple[int, Sequence[Estimate]],
    *,
    whole: PricedPlans | None = None,
) -> Ties:
    """The ties of a search, with the robustness of those of the plans ``shown``, and of that ``recommended``.

    ``whole``: the plans of which ties are counted, where they are others than ``priced``.
    """
    tied, counted = priced.tied, priced if whole is None else whole
    told = [index for index in dict.fromkeys((*shown, recommended[0])) if index in tied]
    return Ties(
        factor=priced.factor,
        num_plans=len(counted.tied),
        num_with_headroom=int(np.count_nonzero(_has_headroom(question, counted)[counted.tied])),
        taken=recommended[1],
        robustness={priced.plan(index): _robustness(question, priced, index) for index in told},
    )


def _has_headroom(question: Question, priced: PricedPlans) -> NDArray[np.bool_]:
    return priced.peak_memory_bytes * band_of(question, "memory").high <= float(question.usable_memory)


def _robustness(question: Question, priced: PricedPlans, index: int) -> Robustness:
    one, factor = np.asarray([index]), plan_factor(question, priced.plan(index))
    lost = dict(zip(GROUPS, priced.lost[:, index].tolist(), strict=True))
    lost[EVIDENCE] = float(_lost_to_evidence(priced, one, factor)[0])
    return Robustness(lost_time=lost, pessimistic_time=float(_pessimistic_time(priced, one, factor)[0]))
