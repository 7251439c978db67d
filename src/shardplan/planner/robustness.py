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

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from shardplan.arrays import Numbers
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
SWITCHES: Final = {each.name: each.default for each in fields(Plan) if each.name not in (*DIMENSIONS, *SIZES)}
"""Switches, with their defaults."""
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
    return is_uneven, dimensions, sum(getattr(plan, name) != default for name, default in SWITCHES.items()), plan.vp


class PlanFacts:
    """What decides between priced plans besides their times, looked up once for plans that are the same or alike."""

    def __init__(self, question: Question, priced: PricedPlans) -> None:
        self._priced, self._factor_of = priced, plan_factors(question)
        self._num_layers = question.model.num_hidden_layers
        self._complexities: dict[bytes, Complexity] = {}
        self._kinds = priced.kinds(np.arange(len(priced.step_time)))
        """A number for each plan, the same for plans of one kind."""
        self._factors = np.full(int(self._kinds.max(initial=0)) + 1, np.inf)
        """How much larger errors are where nobody measured a plan of a kind; infinite where it is not known yet."""

    def pessimistic_times(self, plans: NDArray[np.intp]) -> NDArray[np.float64]:
        """Step time where constants are worse and plans that nobody measured take longer. [s]

        Infinite where it is not alike in that with the shortest: what was not measured is looked up from the smallest
        time without it on, until no other can be.
        """
        sure, kinds = self._priced.pessimistic_time[plans], self._kinds[plans]
        times = _pessimistic_time(self._priced, plans, self._factors[kinds])
        best, order = times.min(initial=np.inf), np.argsort(sure, kind="stable")
        for first, time in zip(order.tolist(), sure[order].tolist(), strict=True):
            if time > best * (1 + ALIKE_TIME):
                break
            if np.isinf(times[first]):
                alike = np.flatnonzero(kinds == kinds[first])
                self._factors[kinds[first]] = factor = self._factor_of(self._priced.plan(int(plans[first])))
                times[alike] = _pessimistic_time(self._priced, plans[alike], factor)
                best = min(best, times[alike].min())
        return times

    def complexity(self, index: int) -> Complexity:
        """Of the plan at ``index``."""
        place = self._priced.positions[:, index].tobytes()
        if place not in self._complexities:
            self._complexities[place] = complexity_of(self._priced.plan(index), self._num_layers)
        return self._complexities[place]


def recommended_of(
    question: Question,
    priced: PricedPlans,
    fastest: int | None,
    *,
    among: NDArray[np.intp] | None = None,
    facts: PlanFacts | None = None,
) -> int:
    """Index of the plan to recommend: ``fastest``, which is listed first, where others are only as good.

    ``among``: the plans that answer the question, where others are priced with them; ``facts``: those of ``priced``,
    where they are known.
    """
    tied = priced.tied if among is None else priced.tied_among(among)
    roomy = tied[has_headroom(question, priced.peak_memory_bytes[tied])]
    known = facts or PlanFacts(question, priced)
    candidates = roomy if len(roomy) else tied
    times = known.pessimistic_times(candidates)
    alike = candidates[times <= times.min() * (1 + ALIKE_TIME)].tolist()

    def order(index: int) -> tuple[object, ...]:
        time = float(f"{priced.step_time[index]:.12g}")  # sums in another order
        return (*known.complexity(index), index != fastest, time, index)

    return min(alike, key=order)


def pessimistic_times(question: Question, priced: PricedPlans) -> NDArray[np.float64]:
    """Step time of all plans where constants are worse and plans that nobody measured take longer. [s]"""
    every = np.arange(len(priced.step_time))
    kinds, factor_of = priced.kinds(every), plan_factors(question)
    _, first, kind = np.unique(kinds, return_index=True, return_inverse=True)
    factors = np.asarray([factor_of(priced.plan(index)) for index in first.tolist()])
    return _pessimistic_time(priced, every, factors[kind] if len(every) else 1.0)


def _lost_to_evidence(priced: PricedPlans, plans: NDArray[np.intp], factors: Numbers) -> NDArray[np.float64]:
    lost: NDArray[np.float64] = priced.factor ** np.sqrt(np.maximum(np.square(factors) - 1, 0.0)) - 1
    return priced.step_time[plans] * lost


def _pessimistic_time(priced: PricedPlans, plans: NDArray[np.intp], factors: Numbers) -> NDArray[np.float64]:
    """``factors``: how much larger errors of these plans are where nobody measured one like them."""
    lost = np.vstack([priced.lost[:, plans], _lost_to_evidence(priced, plans, factors)])
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
    counted = priced if whole is None else whole
    return Ties(
        factor=priced.factor,
        num_plans=len(counted.tied),
        num_with_headroom=int(np.count_nonzero(has_headroom(question, counted.peak_memory_bytes)[counted.tied])),
        taken=recommended[1],
        robustness=_WhenRead(partial(_robustness_of, question, priced, (*shown, recommended[0]))),
    )


class _WhenRead(Mapping[Plan, Robustness]):
    """What is known of plans, found when the first of them is asked for."""

    def __init__(self, found: Callable[[], dict[Plan, Robustness]]) -> None:
        self._found = found

    @cached_property
    def _known(self) -> dict[Plan, Robustness]:
        return self._found()

    def __getitem__(self, plan: Plan) -> Robustness:
        return self._known[plan]

    def __iter__(self) -> Iterator[Plan]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


def _robustness_of(question: Question, priced: PricedPlans, plans: Sequence[int]) -> dict[Plan, Robustness]:
    """Of those that tie."""
    tied = set(priced.tied.tolist())
    told = [index for index in dict.fromkeys(plans) if index in tied]
    return {priced.plan(index): _robustness(question, priced, index) for index in told}


def has_headroom(question: Question, peak_memory_bytes: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether plans fit at the upper end of the band of their memory too."""
    return peak_memory_bytes * band_of(question, "memory").high <= float(question.usable_memory)


def _robustness(question: Question, priced: PricedPlans, index: int) -> Robustness:
    one, factor = np.asarray([index]), plan_factor(question, priced.plan(index))
    lost = dict(zip(GROUPS, priced.lost[:, index].tolist(), strict=True))
    lost[EVIDENCE] = float(_lost_to_evidence(priced, one, factor)[0])
    return Robustness(lost_time=lost, pessimistic_time=float(_pessimistic_time(priced, one, factor)[0]))
