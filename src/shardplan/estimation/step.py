"""Where costs, schedules and memory meet: the step time and the peak memory of a plan, or of each plan of an array.

A stage is priced in two halves. Its *work* (a micro-batch's time and activations) does not depend on how states are
sharded; what *sharding* adds (exchanges, the update, bytes of states) does not depend on recomputation but for the
time that can hide it. A search prices each half on the plans that differ in it and joins them last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import TypeVar

from shardplan.base.arrays import Flags, Numbers, all_hold, is_number, is_zero, largest
from shardplan.base.fields import dataclass
from shardplan.estimation.charge import StateCharge, holds, peak_of, state_charge
from shardplan.estimation.load import Around, Loads, StageStates, StageWork, StateLoad
from shardplan.estimation.parts.pipelines import (
    NO_SHARDED_TIMES,
    ShardedTimes,
    StageSum,
    chunk_time,
    head_start,
    longest_time,
    paced,
    pipeline_sum,
    sharded_in_all,
)
from shardplan.estimation.plan_rows import StageRows
from shardplan.estimation.pricing import Prices
from shardplan.estimation.question import Question
from shardplan.estimation.stage_memory import ActivationMemory, activation_memory, host_holds
from shardplan.estimation.times import StateTimes, WorkTimes, state_times, work_times
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.physics.schedules.base import Passes
from shardplan.physics.workload.stage import Parts, Stage

Record = TypeVar("Record")


@dataclass(frozen=True, kw_only=True)
class WorkOfStages:
    """What sharding does not change, of every stage that can be slowest or fullest; computed when read."""

    question: Question
    numbers: PlanNumbers
    """Of every plan."""
    around: Around
    """Of every plan."""
    kinds: Sequence[Stage]
    """One kind of stage after the other; with ``rows`` all stages at once."""
    works: Sequence[StageWork]
    """Of every kind."""
    whole: Stage
    """All layers and ends at once, as the sum over stages."""
    whole_work: Callable[[], StageWork]
    """Its work, which is asked for times alone."""
    behind: Callable[[int], StageWork]
    """Work of all stages behind a kind, by its position, which is asked where there are some."""
    longest: Callable[[], Numbers]
    """Seconds of the longest ways of a micro-batch through uneven chunks; zero where there are none."""
    rows: StageRows | None = None
    """Which plan has which rows, where the stages of all plans lie in one column; None where every kind is apart."""

    def spread(self, of_plans: Record) -> Record:
        """What is known of every plan, for each of its stages."""
        return of_plans if self.rows is None else self.rows.spread(of_plans)

    def largest(self, values: Sequence[Numbers]) -> Numbers:
        """The largest of every plan, of values for every kind."""
        return largest(values) if self.rows is None else self.rows.largest(values[0])

    def all_hold(self, flags: Sequence[Flags]) -> Flags:
        """Whether all hold of every plan, of flags for every kind."""
        return all_hold(flags) if self.rows is None else self.rows.all_hold(flags[0])

    def of_first(self, values: Sequence[Numbers]) -> Numbers:
        """That of every plan's first stage."""
        return values[0] if self.rows is None else self.rows.each(values[0])[self.rows.first]

    @cached_property
    def numbers_of_stages(self) -> PlanNumbers:
        """The plan of every stage in numbers."""
        return self.spread(self.numbers)

    @cached_property
    def _around_stages(self) -> Around:
        return self.spread(self.around)

    @cached_property
    def times(self) -> list[WorkTimes]:
        """One micro-batch, for every kind."""
        return [
            work_times(self.question, self.numbers_of_stages, self._around_stages, stage, work)
            for stage, work in zip(self.kinds, self.works, strict=True)
        ]

    @cached_property
    def everyone(self) -> StageSum:
        """One micro-batch through all stages of every plan."""
        return pipeline_sum(self.question, self.numbers, self.around, self.whole, self.whole_work())

    @cached_property
    def passes(self) -> list[Numbers]:
        """All micro-batches and the time in which a stage waits for others, for every kind. [s]"""
        return self.passes_with([NO_SHARDED_TIMES] * len(self.kinds))

    def passes_with(self, exchanges: Sequence[ShardedTimes]) -> list[Numbers]:
        """The same with exchanges of sharded states in every micro-batch. [s]"""
        return [
            paced(
                self.numbers_of_stages,
                times,
                self._everyone_of_stages,
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
        numbers, everyone = self.numbers_of_stages, self._everyone_of_stages
        return [
            head_start(numbers, times, everyone, stage) for times, stage in zip(self.times, self.kinds, strict=True)
        ]

    @cached_property
    def _everyone_of_stages(self) -> Passes:
        return self.spread(self.everyone.passes)

    @cached_property
    def _pace(self) -> Numbers:
        """By how much uneven chunks make a micro-batch slower than on the slowest rank; at most 1 where they do not.

        Recomputation makes all chunks slower alike and is left out.
        """
        longest = self.longest()
        return 1.0 if is_zero(longest) else self.spread(longest / self.largest([each.plain for each in self.times]))

    @cached_property
    def least_busy(self) -> Numbers:
        """What the slowest stage takes at least, whatever its states cost: a bound of ``Step.busiest``. [s]"""
        return self.largest(self.passes)

    def _behind(self, kind: int, stage: Stage) -> Passes:
        """One micro-batch through all stages behind one of a kind; the last stage is among the kinds."""
        assert stage.behind is not None
        last = self.kinds[-1]
        if is_number(stage.num_behind, 1) and is_number(last.has_head, 1) and is_zero(last.num_behind):
            return Passes(forward=self.times[-1].microbatch, input_gradient=0.0, weight_gradient=0.0)
        numbers, around, work = self.numbers_of_stages, self._around_stages, self.behind(kind)
        return pipeline_sum(self.question, numbers, around, stage.behind, work, num_stages=stage.num_behind).passes

    @cached_property
    def kept(self) -> list[ActivationMemory]:
        """Activations and loss, for every kind."""
        return [
            activation_memory(self.question, self.numbers_of_stages, self._around_stages, stage, work)
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
    def states(self) -> list[StateTimes]:
        """What shows of the traffic of states, for every kind of stage. [s]"""
        pairs = zip(self.work.times, self.charges, strict=True)
        return [state_times(self.question, times, charge) for times, charge in pairs]

    @cached_property
    def passes(self) -> list[Numbers]:
        """All micro-batches with their exchanges, and what a stage waits for others, for every kind. [s]"""
        if is_zero(self.sharding_time):
            return self.work.passes
        work = self.work
        everyone = work.spread(sharded_in_all(self.question, work.numbers, work.everyone, self.sharding_time))
        return work.passes_with([ShardedTimes(own=each.sharded, everyone=everyone) for each in self.states])

    @cached_property
    def after_first(self) -> Numbers:
        """When the first stage has updated its states, after the longest of all passes. [s]"""
        return self.work.largest(self.passes) + self.work.of_first([self.states[0].once])

    @cached_property
    def own_ends(self) -> list[Numbers]:
        """When every stage has updated its states, from its own first pass; without the first, if kinds are apart."""
        kinds = [*zip(self.passes, self.work.head_starts, self.states, strict=True)]
        others = kinds[1:] if self.work.rows is None else kinds
        return [passes - start + own.once for passes, start, own in others]

    @cached_property
    def busiest(self) -> Numbers:
        """What the slowest stage takes, but for what all plans have in common. [s]"""
        others = self.own_ends if self.work.rows is None else [self.work.largest(self.own_ends)]
        return largest([self.after_first, *others])

    @cached_property
    def step_time(self) -> Numbers:
        """One optimizer step. [s]"""
        return whole_step(self.question, self.busiest)

    @cached_property
    def peaks(self) -> list[Numbers]:
        """Bytes of one rank at its peak, for every kind of stage."""
        pairs = zip(self.charges, self.work.kept, strict=True)
        return [peak_of(self.question, charge, kept) for charge, kept in pairs]

    @cached_property
    def peak_memory_bytes(self) -> Numbers:
        """Of one rank of the fullest stage."""
        return self.work.largest(self.peaks)

    @property
    def host_bytes(self) -> list[Numbers]:
        """What a rank of every kind of stage moves to the memory of its host."""
        return [charge.host_bytes + kept.on_host for charge, kept in zip(self.charges, self.work.kept, strict=True)]

    @cached_property
    def host_fits(self) -> Flags:
        """Whether every node holds what its accelerators move there."""
        return self.work.all_hold([host_holds(self.question, self.host_bytes)])

    @cached_property
    def fits(self) -> Flags:
        """Whether every device holds its stage, and every node what its accelerators move there."""
        pairs = zip(self.charges, self.work.kept, strict=True)
        held = self.work.all_hold([holds(self.question, charge, kept) for charge, kept in pairs])
        return all_hold([held, self.host_fits])


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
        longest=lambda: longest_time([[chunk_time(chunk, loads.blocks) for chunk in group] for group in rounds]),
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
