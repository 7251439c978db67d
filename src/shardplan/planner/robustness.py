r"""Which plan is recommended: of those that are about as fast as the fastest the one that bears most that is worse.

A plan is fragile in three ways. It may need more memory than estimated: it has headroom where the upper end of the band
of its peak memory fits as well. Its step may take longer: with :math:`\Delta_g` what it loses where a group of
constants (network, overlap, host) is at its worse end. And nobody may have measured a plan like it: errors of such
plans are f times as large (``estimation.gaps``), of which

.. math:: \Delta_{evidence} = T\,(F^{\sqrt{f^2 - 1}} - 1)

is what they have more than others, with F the factor within which step times of measured plans are ties. All are
independent of one another:

.. math:: T_{pessimistic} = T + \sqrt{\Delta_{evidence}^2 + \textstyle\sum_g \Delta_g^2}

What decides comes in an order. First memory: candidates are the ties with headroom. Where no tie has it, they are the
fastest plan that has, and those with headroom that tie with it, all within ``ROOM_FACTOR`` of the fastest plan; where
none of these has headroom either, all ties. Then the framework's record: candidates that were seen to work, where any
was. Of these, none that another is both faster and smaller than. Of what is left the one of the smallest pessimistic
time; where several are alike in it the simplest of them: stages of equal layers, fewer dimensions, fewer switches,
fewer model chunks on a rank. Where several are as simple, the fastest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import Numbers
from shardplan.base.fields import dataclass
from shardplan.estimation.band import plan_factor, plan_factors
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.perturbation import GROUPS
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan
from shardplan.inputs.software import CHOSEN
from shardplan.physics.frameworks.runnable import all_tested
from shardplan.physics.frameworks.stack import Stack
from shardplan.planner.priced_plans import ROOM_FACTOR, SAME, PricedPlans, has_headroom

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
SWITCHES: Final = {
    each.name: (each.default, CHOSEN.get(each.name, each.default))
    for each in fields(Plan)
    if each.name not in (*DIMENSIONS, *SIZES)
}
"""Switches, with their defaults, and of software with its plain values too."""
Complexity = tuple[bool, int, int, int]
Tested = Callable[[Sequence[Plan]], NDArray[np.bool_]]
"""Whether each of some plans is of a kind that the framework's record shows to work."""


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
    """The recommended plan, listed or not: one answer, which may be made when it is read."""
    robustness: Mapping[Plan, Robustness]
    """Of the listed plans that tie, and of the recommended one, which may be slower than all ties."""
    retimed: Retimed | None = None
    """What the simulation says of the best plans, where it was asked; it then ranks them and decides which of them
    tie."""

    @property
    def recommended(self) -> Estimate:
        """The recommended plan."""
        return self.taken[0]

    def time_of(self, estimate: Estimate) -> float:
        """Step time by which plans are ranked. [s]"""
        return estimate.step_time if self.retimed is None else self.retimed.time_of(estimate)


def complexity_of(plan: Plan, num_layers: int) -> Complexity:
    """Whether stages have unlike numbers of layers, then dimensions, switches that differ from defaults, chunks."""
    is_uneven = plan.stage_layers is not None or num_layers % (plan.pp * plan.vp) != 0
    dimensions = sum(getattr(plan, name) > 1 for name in DIMENSIONS)
    return is_uneven, dimensions, sum(getattr(plan, name) not in plain for name, plain in SWITCHES.items()), plan.vp


def tested_by(stack: Stack | None, question: Question) -> Tested | None:
    """What the record of a framework says of plans; None where nothing is known of any."""
    return None if stack is None or stack.can_run is None else partial(all_tested, stack, question.setting)


class PlanFacts:
    """What decides between priced plans besides their times, looked up once for plans that are the same or alike."""

    def __init__(self, question: Question, priced: PricedPlans, tested: Tested | None = None) -> None:
        """``tested``: all are where it is not given."""
        self.priced, self._factor_of, self.tested = priced, plan_factors(question), tested
        self._is_tested = np.full(len(priced.step_time), tested is None)
        self._is_looked_up = self._is_tested.copy()
        self._num_layers = question.model.num_hidden_layers
        self._complexities: dict[bytes, Complexity] = {}

    @cached_property
    def _kinds(self) -> NDArray[np.intp]:
        """A number for each plan, the same for plans of one kind."""
        return self.priced.kinds(np.arange(len(self.priced.step_time)))

    @cached_property
    def _factors(self) -> NDArray[np.float64]:
        """How much larger errors are where nobody measured a plan of a kind; infinite where it is not known yet."""
        return np.full(int(self._kinds.max(initial=0)) + 1, np.inf)

    def pessimistic_times(self, plans: NDArray[np.intp]) -> NDArray[np.float64]:
        """Step time where constants are worse and plans that nobody measured take longer. [s]

        Infinite where it is not alike in that with the shortest: what was not measured is looked up from the smallest
        time without it on, until no other can be.
        """
        sure, kinds = self.priced.pessimistic_time[plans], self._kinds[plans]
        times = _pessimistic_time(self.priced, plans, self._factors[kinds])
        best, order = times.min(initial=np.inf), np.argsort(sure, kind="stable")
        for first, time in zip(order.tolist(), sure[order].tolist(), strict=True):
            if time > best * (1 + ALIKE_TIME):
                break
            if np.isinf(times[first]):
                alike = np.flatnonzero(kinds == kinds[first])
                self._factors[kinds[first]] = factor = self._factor_of(self.priced.plan(int(plans[first])))
                times[alike] = _pessimistic_time(self.priced, plans[alike], factor)
                best = min(best, times[alike].min())
        return times

    def best_tested(self, plans: NDArray[np.intp]) -> NDArray[np.intp]:
        """Those of the tested ones of ``plans`` than which no other of these is both faster and smaller.

        Only plans that may be among these are looked up.
        """
        left = plans
        while len(left):
            best = not_dominated(self.priced, left)
            untested = best[~self.are_tested(best)]
            if not len(untested):
                return best
            left = np.setdiff1d(left, untested, assume_unique=True)
        return left

    def are_tested(self, plans: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Whether each of ``plans`` is of a kind that the framework's record shows to work."""
        unknown = plans[~self._is_looked_up[plans]]
        if len(unknown) and self.tested is not None:
            self._is_tested[unknown] = self.tested([self.priced.plan(index) for index in unknown.tolist()])
            self._is_looked_up[unknown] = True
        return self._is_tested[plans]

    def complexity(self, index: int) -> Complexity:
        """Of the plan at ``index``."""
        if index in self.priced.instead:
            return complexity_of(self.priced.plan(index), self._num_layers)
        place = self.priced.positions[:, index].tobytes()
        if place not in self._complexities:
            self._complexities[place] = complexity_of(self.priced.plan(index), self._num_layers)
        return self._complexities[place]


def candidates_of(question: Question, priced: PricedPlans, among: NDArray[np.intp] | None = None) -> NDArray[np.intp]:
    """The plans one of which is recommended, as far as time and memory decide.

    Ties with headroom; where there are none, plans with headroom that tie with the fastest of these, all within
    ``ROOM_FACTOR`` of the fastest plan; where there are none either, all ties.
    """
    every = np.arange(len(priced.step_time)) if among is None else among
    tied = priced.tied_among(every)
    roomy = tied[has_headroom(question, priced.peak_memory_bytes[tied])]
    if len(roomy):
        return roomy
    near = priced.within(every, ROOM_FACTOR)
    slower = priced.tied_among(near[has_headroom(question, priced.peak_memory_bytes[near])])
    return slower if len(slower) else tied


def recommended_of(
    question: Question, facts: PlanFacts, fastest: int | None, among: NDArray[np.intp] | None = None
) -> int:
    """Index of the plan to recommend: ``fastest``, which is listed first, where others are only as good.

    ``among``: the plans that answer the question, where others are priced with them.
    """
    priced = facts.priced
    every = candidates_of(question, priced, among)
    best = facts.best_tested(every)
    candidates = best if len(best) else not_dominated(priced, every)
    times = facts.pessimistic_times(candidates)
    alike = candidates[times <= times.min() * (1 + ALIKE_TIME)].tolist()

    def order(index: int) -> tuple[object, ...]:
        time = float(f"{priced.step_time[index]:.12g}")  # sums in another order
        return (*facts.complexity(index), index != fastest, time, index)

    return min(alike, key=order)


def not_dominated(priced: PricedPlans, plans: NDArray[np.intp]) -> NDArray[np.intp]:
    """Those of ``plans`` than which no other of them is both faster and smaller."""
    order = np.argsort(priced.step_time[plans], kind="stable")
    times, memory = priced.step_time[plans[order]], priced.peak_memory_bytes[plans[order]]
    num_faster = np.searchsorted(times, times / (1 + SAME))
    least = np.minimum.accumulate(np.concatenate([[np.inf], memory]))
    dominated = least[num_faster] * (1 + SAME) < memory
    return np.sort(plans[order[~dominated]])


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
        robustness=_WhenRead(partial(_robustness_of, question, priced, shown, recommended[0])),
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


def _robustness_of(
    question: Question, priced: PricedPlans, shown: Sequence[int], recommended: int
) -> dict[Plan, Robustness]:
    """Of those shown that tie, and of the recommended one."""
    tied = set(priced.tied.tolist())
    told = [index for index in dict.fromkeys((*shown, recommended)) if index in tied or index == recommended]
    return {priced.plan(index): _robustness(question, priced, index) for index in told}


def _robustness(question: Question, priced: PricedPlans, index: int) -> Robustness:
    one, factor = np.asarray([index]), plan_factor(question, priced.plan(index))
    lost = dict(zip(GROUPS, priced.lost[:, index].tolist(), strict=True))
    lost[EVIDENCE] = float(_lost_to_evidence(priced, one, factor)[0])
    return Robustness(lost_time=lost, pessimistic_time=float(_pessimistic_time(priced, one, factor)[0]))
