r"""Which of the plans that tie with the fastest is recommended: the one that bears most that things are worse.

A plan is fragile in two ways. It may need more memory than estimated: it has headroom where the upper end of the band
of its peak memory fits as well. Its step may take longer: with :math:`\Delta_g` what it loses where a group of
constants (network, overlap, host) is at its worse end, the groups being independent,

.. math:: T_{pessimistic} = T + \sqrt{\textstyle\sum_g \Delta_g^2}

Recommended is, of the tied plans with headroom (of all ties, where none has), the one of the smallest pessimistic time;
where several are alike in it, the fastest of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from shardplan.estimation.band import band_of
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.perturbation import GROUPS
from shardplan.estimation.question import Question
from shardplan.fields import dataclass
from shardplan.inputs.plan import Plan
from shardplan.planner.tied import PricedPlans

ALIKE_TIME = 0.001
"""Pessimistic times within this share are alike: steps of one run vary by more."""


@dataclass(frozen=True, kw_only=True)
class Robustness:
    """What a plan bears."""

    lost_time: dict[str, float]
    """How much longer the step takes where a group of constants is at its worse end, by group. [s]"""
    pessimistic_time: float
    """Step time where all groups are worse, as independent of one another. [s]"""


@dataclass(frozen=True, kw_only=True)
class Ties:
    """The plans that are too close to the fastest to call."""

    factor: float
    """Step times within this factor of the fastest are ties."""
    num_plans: int
    """Plans of the whole space that fit and tie, the fastest among them."""
    num_with_headroom: int
    """Those whose memory fits at the upper end of its band too."""
    recommended: Estimate
    """The most robust of them all, listed or not."""
    robustness: Mapping[Plan, Robustness]
    """Of the listed plans that tie, and of the recommended one."""


def has_headroom(estimate: Estimate) -> bool:
    """Whether the upper end of the band of its memory fits."""
    return estimate.peak_memory_p90_bytes <= estimate.usable_memory_bytes


def recommended_of(question: Question, priced: PricedPlans, fastest: int | None) -> int:
    """Index of the plan to recommend: ``fastest``, which is listed first, where others are only as good."""
    tied, times = priced.tied, priced.pessimistic_time
    roomy = tied[_has_headroom(question, priced)[tied]]
    left = roomy if len(roomy) else tied
    left = left[times[left] <= times[left].min() * (1 + ALIKE_TIME)]
    return fastest if fastest is not None and fastest in left else int(left[priced.step_time[left].argmin()])


def ties_of(question: Question, priced: PricedPlans, shown: Sequence[int], recommended: tuple[int, Estimate]) -> Ties:
    """The ties of a search, with the robustness of those of the plans ``shown``, and of that ``recommended``."""
    tied = priced.tied
    told = [index for index in dict.fromkeys((*shown, recommended[0])) if index in tied]
    return Ties(
        factor=priced.factor,
        num_plans=len(tied),
        num_with_headroom=int(np.count_nonzero(_has_headroom(question, priced)[tied])),
        recommended=recommended[1],
        robustness={priced.plan(index): _robustness(priced, index) for index in told},
    )


def _has_headroom(question: Question, priced: PricedPlans) -> NDArray[np.bool_]:
    return priced.peak_memory_bytes * band_of(question, "memory").high <= float(question.usable_memory)


def _robustness(priced: PricedPlans, index: int) -> Robustness:
    lost = dict(zip(GROUPS, priced.lost[:, index].tolist(), strict=True))
    return Robustness(lost_time=lost, pessimistic_time=float(priced.pessimistic_time[index]))
