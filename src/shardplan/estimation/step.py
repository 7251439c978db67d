"""Where costs, schedules and memory meet: the step time and the peak memory of a plan, or of each plan of an array.

A stage is priced in two halves. Its *work* (a micro-batch's time and activations) does not depend on how states are
sharded; what *sharding* adds (exchanges, the update, bytes of states) does not depend on recomputation but for the
time that can hide it. A search prices each half on the plans that differ in it and joins them last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property, partial

import numpy as np

from shardplan.arrays import Flags, Numbers, all_hold, is_number, is_zero, largest
from shardplan.estimation.charge import StateCharge, state_charge
from shardplan.estimation.load import Around, Loads, StageStates, StageWork, StateLoad
from shardplan.estimation.parts.pipelines import (
    NO_SHARDED_TIMES,
    ShardedTimes,
    StageSum,
    chunk_time,
    head_start,
    pace_of,
    paced,
    pipeline_sum,
    sharded_in_all,
)
from shardplan.estimation.pricing import Prices
from shardplan.estimation.question import Question
from shardplan.estimation.stage_memory import ActivationMemory, activation_memory, gradients_at_peak, host_holds
from shardplan.estimation.times import WorkTimes, state_times, work_times
from shardplan.fields import dataclass
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.schedules.base import Passes
from shardplan.workload.parts import Parts
from shardplan.workload.stage import Stage

Rounds = Sequence[Sequence[Numbers]]
"""Seconds on the longest ways through uneven chunks, in groups of which the slowest counts."""


@dataclass(frozen=True, kw_only=True)
class WorkOfStages:
    """What sharding does not change, of every kind of stage that can be slowest or fullest; computed when read."""

    question: Question
    numbers: PlanNumbers
    around: Around
    kinds: Sequence[Stage]
    works: Sequence[StageWork]
    """Of every kind."""
    whole: Stage
    """All layers and ends at once, as the sum over stages."""
    whole_work: Callable[[], StageWork]
    """Its work, which is asked for times alone."""
    behind: Callable[[int], StageWork]
    """Work of all stages behind a kind, by its position, which is asked where there are some."""
    rounds: Callable[[], Rounds]

    @cached_property
    def times(self) -> list[WorkTimes]:
        """One micro-batch, for every kind."""
        return [
            work_times(self.question, self.numbers, self.around, stage, work)
            for stage, work in zip(self.kinds, self.works, strict=True)
        ]

    @cached_property
    def everyone(self) -> StageSum:
        """One micro-batch through all stages."""
        return pipeline_sum(self.question, self.numbers, self.around, self.whole, self.whole_work())

    @cached_property
    def passes(self) -> list[Numbers]:
        """All micro-batches and the time in which a stage waits for others, for every kind. [s]"""
        return self.passes_with([NO_SHARDED_TIMES] * len(self.kinds))

    def passes_with(self, exchanges: Sequence[ShardedTimes]) -> list[Numbers]:
        """The same with exchanges of sharded states in every micro-batch. [s]"""
        return [
            paced(
                self.numbers,
                times,
                self.everyone.passes,
                self._pace,
                stage=stage,
                behind=partial(self._behind, kind),
                exchanges=each,
            )
            for kind, (times, stage, each) in enumerate(zip(self.times, self.kinds, exchanges, strict=True))
        ]

    @cached_property
    def head_starts(self) -> list[Numbers]:
        """By how much less time than the first stage every kind needs for its passes. [s]"""
        pairs = zip(self.times, self.kinds, strict=True)
        return [head_start(self.numbers, times, self.everyone.passes, stage) for times, stage in pairs]

    @cached_property
    def _pace(self) -> Numbers:
        return pace_of(self.rounds(), self.times)

    @cached_property
    def least_busy(self) -> Numbers:
        """What the slowest stage takes at least, whatever its states cost: a bound of ``Step.busiest``. [s]"""
        return largest(self.passes)

    def _behind(self, kind: int, stage: Stage) -> Passes:
        """One micro-batch through all stages behind one of a kind; the last stage is among the kinds."""
        assert stage.behind is not None
        last = self.kinds[-1]
        if is_number(stage.num_behind, 1) and is_number(last.has_head, 1) and is_zero(last.num_behind):
            return Passes(forward=self.times[-1].microbatch, input_gradient=0.0, weight_gradient=0.0)
        work, count = self.behind(kind), stage.num_behind
        return pipeline_sum(self.question, self.numbers, self.around, stage.behind, work, num_stages=count).passes

    @cached_property
    def kept(self) -> list[ActivationMemory]:
        """Activations and loss, for every kind."""
        return [
            activation_memory(self.question, self.numbers, self.around, stage, work)
            for stage, work in zip(self.kinds, self.works, strict=True)
        ]


@dataclass(frozen=True, kw_only=True)
class Step:
    r"""Outcome of a plan, or arrays over plans: memory of the fullest stage, and the time of the slowest.

    .. math::
        T = \left(\max_r \max\left[v_r + e_0,\; v_r - h_r + e_r\right] + t_0\right)(1 + g \log_2 (N/8)),
        \quad v_r = M t_r + idle_r

    with M micro-batches of time t, exposed exchanges of sharded states included, pipeline idle time, end-of-step time e
    of this stage and of the first one, head start h (``head_start``), fixed time and growth by stragglers. Each is
    computed when read: where nothing fits, nobody asks for the time.
    """

    work: WorkOfStages
    charges: Sequence[StateCharge]
    """What the states of every kind of stage cost."""
    sharding_time: Numbers
    """Exchange of sharded states in every micro-batch, in all stages together, before work hides any of it. [s]"""

    @property
    def question(self) -> Question:
        """What was asked."""
        return self.work.question

    @cached_property
    def busiest(self) -> Numbers:
        """What the slowest stage takes, but for what all plans have in common. [s]"""
        work, pairs = self.work, zip(self.work.times, self.charges, strict=True)
        states = [state_times(self.question, times, charge) for times, charge in pairs]
        passes = work.passes
        if not is_zero(self.sharding_time):
            everyone = sharded_in_all(self.question, work.numbers, work.everyone, self.sharding_time)
            passes = work.passes_with([ShardedTimes(own=each.sharded, everyone=everyone) for each in states])
        others = zip(passes[1:], work.head_starts[1:], states[1:], strict=True)
        after_first = largest(passes) + states[0].once
        return largest([after_first, *(each - start + own.once for each, start, own in others)])

    @cached_property
    def step_time(self) -> Numbers:
        """One optimizer step. [s]"""
        return whole_step(self.question, self.busiest)

    @cached_property
    def peak_memory_bytes(self) -> Numbers:
        """Of one rank of the fullest stage."""
        pairs = zip(self.charges, self.work.kept, strict=True)
        return largest(peak_of(self.question, charge, kept) for charge, kept in pairs)

    @cached_property
    def host_fits(self) -> Flags:
        """Whether every node holds what its accelerators move there."""
        pairs = zip(self.charges, self.work.kept, strict=True)
        return host_holds(self.question, [charge.host_bytes + kept.on_host for charge, kept in pairs])

    @cached_property
    def fits(self) -> Flags:
        """Whether every device holds its stage, and every node what its accelerators move there."""
        pairs = zip(self.charges, self.work.kept, strict=True)
        return all_hold([*(holds(self.question, charge, kept) for charge, kept in pairs), self.host_fits])


def step_of(
    question: Question,
    numbers: PlanNumbers,
    prices: Prices,
    kinds: Sequence[Stage],
    whole: Stage,
    *,
    rounds: Sequence[Sequence[Stage]] = (),
) -> Step:
    """Outcome of plans with these ``kinds`` of stage; ``rounds``: the longest ways, of which the slowest counts."""
    around = Around.of(question, numbers, prices)
    return step_of_loads(question, numbers, Loads.of(prices), kinds, whole, around=around, rounds=rounds)


def step_of_loads(
    question: Question,
    numbers: PlanNumbers,
    loads: Loads,
    kinds: Sequence[Stage],
    whole: Stage,
    *,
    around: Around,
    rounds: Sequence[Sequence[Stage]],
) -> Step:
    """As ``step_of``, from what prices put on a rank."""
    work = WorkOfStages(
        question=question,
        numbers=numbers,
        around=around,
        kinds=kinds,
        works=[StageWork.of(stage, loads.blocks) for stage in kinds],
        whole=whole,
        whole_work=lambda: StageWork.of(whole, loads.blocks),
        behind=lambda kind: StageWork.of(kinds[kind].behind or whole, loads.blocks),
        rounds=lambda: [[chunk_time(chunk, loads.blocks) for chunk in group] for group in rounds],
    )
    charges = [state_charge(question, numbers, stage, StageStates.of(stage, loads.states)) for stage in kinds]
    return Step(work=work, charges=charges, sharding_time=sharding_time(loads.states, whole))


def sharding_time(states: Parts[StateLoad], stage: Stage) -> Numbers:
    """Exchange of a stage's sharded states in every micro-batch, before work hides any of it. [s]"""
    return states.total(stage, lambda part: part.sharding_time)


def whole_step(question: Question, busiest: Numbers) -> Numbers:
    """A step whose slowest stage is busy so long: with the fixed time, and the growth by stragglers. [s]"""
    return (busiest + sum(fixed_times(question).values())) * straggler_factor(question)


def fixed_times(question: Question) -> dict[str, Numbers]:
    """What every plan takes once a step besides its work, by term of the step. [s]"""
    alone = question.num_accelerators == 1  # without others to wait for
    return {"fixed": question.profile.step_time_alone if alone else question.profile.step_time}


def straggler_factor(question: Question) -> Numbers:
    """Slowdown of the slowest of many accelerators: a share per doubling beyond 8."""
    return 1 + question.profile.straggler_growth * max(math.log2(question.num_accelerators / 8), 0.0)


def least_peak_of(question: Question, states: StateCharge) -> Numbers:
    """What ``peak_of`` is at least, whatever activations are kept: never more than it. [bytes]"""
    busy = least_beside_activations(question, states)
    return busy if is_zero(states.update_bytes) else np.maximum(busy, held_in_update(question, states))


def least_beside_activations(question: Question, states: StateCharge) -> Numbers:
    """States and gradients at least that are there when activations are at their peak. [bytes]"""
    gone = states.fleeting_gradient_bytes if question.job.software.frees_gradients else 0.0
    return states.resident_bytes + question.profile.framework_bytes + (states.gradient_bytes - gone)


def peak_of(question: Question, states: StateCharge, kept: ActivationMemory) -> Numbers:
    """Memory of one rank at its peak: with activations, or in the update, when these are gone. [bytes]"""
    busy = _beside_activations(question, states, kept) + kept.total
    if is_zero(states.update_bytes):
        return busy
    return np.maximum(busy, held_in_update(question, states))


def holds(question: Question, states: StateCharge, kept: ActivationMemory) -> Flags:
    """Whether ``peak_of`` is within the memory, without the sum of states and activations for every plan."""
    usable = question.usable_memory
    busy = kept.total <= usable - _beside_activations(question, states, kept)
    if is_zero(states.update_bytes):
        return busy
    return np.logical_and(busy, held_in_update(question, states) <= usable)


def _beside_activations(question: Question, states: StateCharge, kept: ActivationMemory) -> Numbers:
    """States and gradients when activations are at their peak. [bytes]"""
    gradients = gradients_at_peak(
        states.gradient_bytes, states.fleeting_gradient_bytes, states.early_gradient_bytes, kept
    )
    return states.resident_bytes + question.profile.framework_bytes + gradients


def held_in_update(question: Question, states: StateCharge) -> Numbers:
    """All that is there in the update. [bytes]"""
    return states.resident_bytes + question.profile.framework_bytes + states.gradient_bytes + states.update_bytes
