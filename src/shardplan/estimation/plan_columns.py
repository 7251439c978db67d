"""Plans of one question priced together: every number is a column, with an element for each plan or for each stage.

One plan goes the same way as a thousand: its columns have one element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from shardplan.arrays import Flags, Numbers, column, gather, mapped, where
from shardplan.costs.block import BlockCost
from shardplan.estimation.charge import StateCharge, state_charge
from shardplan.estimation.layout import whole_model
from shardplan.estimation.load import Around, Loads, StageStates, StageWork
from shardplan.estimation.parts.chunk_memory import MemoryParts, memory_parts
from shardplan.estimation.parts.chunk_times import chunk_times
from shardplan.estimation.parts.once_a_step import OnceAStep, StepTraffic
from shardplan.estimation.parts.pipelines import (
    ShardedTimes,
    StageSum,
    chunk_time,
    head_start,
    paced,
    pipeline_sum,
    sharded_in_all,
)
from shardplan.estimation.parts.stage_totals import sent_for_states, sent_in_layers, work_terms
from shardplan.estimation.parts.step_ends import StepEnds
from shardplan.estimation.parts.terms import IN_FILES, keys_of
from shardplan.estimation.plan_rows import Index, PlanRows, StageRows
from shardplan.estimation.pricing import Prices, price
from shardplan.estimation.question import Question
from shardplan.estimation.stage_memory import (
    ActivationMemory,
    StageMemory,
    StateMemory,
    activation_memory,
    host_holds,
    state_memory,
)
from shardplan.estimation.step import fixed_times, sharding_time, straggler_factor, whole_step
from shardplan.estimation.times import StateTimes, WorkTimes, once_windows, state_times, work_times
from shardplan.fields import dataclass, replace
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.schedules.base import ChunkTimes, Passes
from shardplan.schedules.pipeline import parameter_copies
from shardplan.workload.parts import Parts
from shardplan.workload.stage import Stage

Record = TypeVar("Record")
Value = TypeVar("Value")
Column = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class PlanColumns:
    """Everything about plans for which the same formulas hold, computed when it is read."""

    question: Question
    numbers: PlanNumbers
    """Of every plan; what is the same in all is one number."""
    rows: PlanRows
    prices: Prices
    """Of every part, for every plan."""

    @classmethod
    def of(cls, question: Question, plans: Sequence[Plan], numbered: Sequence[PlanNumbers]) -> PlanColumns:
        """``plans`` (taken to be valid), with their numbers, as answers to ``question``."""
        numbers = joined(numbered)
        return cls(
            question=question,
            numbers=numbers,
            rows=PlanRows.of(question.model, plans),
            prices=price(question, numbers),
        )

    # Time.

    @cached_property
    def step_time(self) -> Column:
        """One optimizer step of every plan. [s]"""
        return self._each(whole_step(self.question, self._ends.busy))

    @cached_property
    def slowest(self) -> Index:
        """Position of the stage of every plan that takes longest for a step."""
        return self._slowest - self.rows.stages.first

    @cached_property
    def breakdown(self) -> dict[str, Column]:
        """Seconds of a step by what the slowest stage spends them on; they are what the step is the sum of."""
        growth = straggler_factor(self.question)
        terms = work_terms(self.prices.blocks, self._slow_stage, self.numbers) | self._other_terms()
        for key, time in fixed_times(self.question).items():
            terms[key] = terms.get(key, 0.0) + time
        terms["stragglers"] = sum(terms.values(), start=np.zeros(1)) * (growth - 1)
        return {term.key: self._each(terms[term.key]) for term in IN_FILES}

    @cached_property
    def shares(self) -> dict[str, Column]:
        """Shares of the step whose prices are uncertain."""
        terms = self.breakdown
        whole = sum(terms.values(), start=np.zeros(1))
        sent = sum((terms[key] for key in keys_of("communication")), start=np.zeros(1))
        return {"host": terms["host"] / whole, "communication": sent / whole, "attention": terms["attention"] / whole}

    # Of a single plan.

    def chunk_times_of(self, number: int, plan: Plan, numbers: PlanNumbers) -> ChunkTimes:
        """Seconds of one micro-batch in every chunk of one of the plans: the prices that its step is the sum of."""
        rows = self._rows_of(number)
        return chunk_times(
            self.question,
            plan,
            numbers,
            self._loads,
            self._around,
            of_plan=lambda values: float(self._each(values)[number]),
            stages=gather(self.rows.stages.stages, rows),
            times=gather(self._times, rows),
            sharded=self.rows.stages.each(self._state_times.sharded)[rows],
        )

    def once_a_step_of(self, number: int) -> OnceAStep:
        """What one of the plans takes once a step."""
        each, states, rows = self.rows.stages.each, self._state_times, self._rows_of(number)
        return OnceAStep(
            gather=each(states.gather)[rows],
            reduce=each(states.reduce)[rows],
            update=each(states.update)[rows],
            fixed={key: float(time) for key, time in fixed_times(self.question).items()},
            straggler_factor=float(straggler_factor(self.question)),
        )

    def step_traffic_of(self, number: int) -> StepTraffic:
        """What the states of one of the plans exchange once a step, before computation hides it."""
        each, charge, rows = self.rows.stages.each, self._charge, self._rows_of(number)
        gather_window, reduce_window = once_windows(self.question, self._times, charge)
        return StepTraffic(
            gather_time=each(charge.gather_time)[rows],
            reduce_time=each(charge.reduce_time)[rows],
            gather_window=each(gather_window)[rows],
            reduce_window=each(reduce_window)[rows],
            least_share=float(self.question.profile.hidden_slowdown),
            shares_card=bool(self._shares_card[number]),
        )

    def _rows_of(self, number: int) -> Index:
        """Rows of the stages of one of the plans."""
        return np.flatnonzero(self.rows.stages.plan == number)

    def memory_parts_of(self, plan: Plan) -> MemoryParts:
        """What the ranks of the only plan hold, and when."""
        return memory_parts(
            self.question,
            plan,
            self.numbers,
            self._loads,
            self._around,
            self.rows.stages.stages,
            self._work,
            self._states_memory,
            self._kept,
        )

    # Memory.

    @cached_property
    def memory(self) -> StageMemory:
        """Memory of one rank of every stage of every plan. [bytes]"""
        memory = StageMemory.of(self._states_memory, self._kept, self.question.profile.framework_bytes)
        each = self.rows.stages.each
        return replace(memory, **{f.name: each(getattr(memory, f.name)) for f in fields(StageMemory)})

    @cached_property
    def fullest(self) -> Index:
        """Position of the stage of every plan that needs most memory."""
        return self._fullest - self.rows.stages.first

    @cached_property
    def peak_memory_bytes(self) -> Column:
        """Memory of the fullest stage of every plan."""
        peak: Column = self.memory.total[self._fullest]  # type: ignore[index]  # a column, as its fields are
        return peak

    @cached_property
    def host_bytes(self) -> Column:
        """Host memory that one rank of every stage of every plan needs."""
        return self.rows.stages.each(self._states_memory.on_host + self._kept.on_host)

    @cached_property
    def fits(self) -> NDArray[np.bool_]:
        """Whether every device holds its stage, and every node what its accelerators move there."""
        host: Flags = host_holds(self.question, [self.host_bytes])
        held = np.broadcast_to(host, self.rows.stages.plan.shape)
        fits: NDArray[np.bool_] = np.logical_and.reduceat(held, self.rows.stages.first)
        return fits & (self.peak_memory_bytes <= self.question.usable_memory)

    # Work and traffic.

    @cached_property
    def hardware_flops(self) -> Column:
        """FLOP executed in one step on all accelerators, recomputed ones included."""
        numbers, question = self.numbers, self.question
        share = np.minimum(1.0, numbers.recompute_num_layers * numbers.pp / question.model.num_hidden_layers)

        def executed(cost: BlockCost) -> Numbers:
            return cost.training_flops + share * cost.recomputed_flops

        one_rank = self.prices.blocks.total(self._whole, executed)
        return self._each(one_rank * numbers.num_microbatches * question.num_accelerators / numbers.pp)

    @cached_property
    def communication(self) -> dict[str, dict[str, Column]]:
        """Bytes that one rank of the slowest stage sends per step, by dimension and network tier."""
        names = [tier.name for tier in self.question.network.tiers]
        tiers, m = range(len(names)), self.numbers.num_microbatches
        blocks, stage = self.prices.blocks, self._slow_stage
        sent = {
            name: [m * sent_in_layers(blocks, stage, self.numbers, name, tier) for tier in tiers]
            for name in ("tp", "cp", "ep", "etp")
        }
        copies = parameter_copies(self.numbers)
        sent["dp"] = [sent_for_states(self.prices.states, stage, self.numbers, tier, copies) for tier in tiers]
        sent["pp"] = [2.0 * m * self.numbers.vp * moved for moved in self.prices.handover.bytes]
        return {dim: dict(zip(names, map(self._each, moved), strict=True)) for dim, moved in sent.items()}

    def _other_terms(self) -> dict[str, Numbers]:
        """What comes between micro-batches and once a step, and how long the slowest stage waits for others. [s]"""
        m, at = self.numbers.num_microbatches, self._at_slowest
        times, states, each, last = self._times, self._state_times, self.rows.stages.each, self._ends.last
        waiting = self._ends.waiting - m * (at(times.microbatch) + at(states.sharded))
        return {
            "dp_communication": m * at(states.sharded) + each(states.reduce)[last] + each(states.gather)[last],
            "pp_communication": m * at(times.transfer),
            "offload": m * at(times.offload),
            "optimizer": each(states.update)[last],
            "fixed": m * at(times.overhead),
            "bubble": where(np.greater(self.numbers.pp, 1), waiting, 0.0),
        }

    # What a stage has.

    @cached_property
    def _whole(self) -> Stage:
        return whole_model(self.question.model)

    @cached_property
    def _slow_stage(self) -> Stage:
        """The slowest stage of every plan."""
        return gather(self.rows.stages.stages, self._slowest)

    @cached_property
    def _of_rows(self) -> PlanNumbers:
        """Plans in numbers, for every stage."""
        return self._spread(self.numbers)

    @cached_property
    def _loads(self) -> Loads:
        loads = Loads.of(self.prices)
        return loads if len(self.rows.stages.first) > 1 else mapped(loads, lambda array: float(array.item()))

    @cached_property
    def _around(self) -> Around:
        return Around.of(self.question, self.numbers, self.prices)

    @cached_property
    def _work(self) -> StageWork:
        rows = self.rows.stages
        return StageWork.of(rows.stages, self._held(self._loads.blocks, rows))

    @cached_property
    def _states(self) -> StageStates:
        rows = self.rows.stages
        return StageStates.of(rows.stages, self._held(self._loads.states, rows))

    @cached_property
    def _times(self) -> WorkTimes:
        return work_times(self.question, self._of_rows, self._spread(self._around), self.rows.stages.stages, self._work)

    @cached_property
    def _paced(self) -> Numbers:
        """All micro-batches of a step, and waiting for other stages, on every stage. [s]"""
        exchanged = sharding_time(self._loads.states, self._whole)
        in_all = sharded_in_all(self.question, self.numbers, self._everyone, exchanged)
        return paced(
            self._of_rows,
            self._times,
            self._spread(self._everyone.passes),
            self._spread(self._pace),
            stage=self.rows.stages.stages,
            behind=self._behind,
            exchanges=ShardedTimes(own=self._state_times.sharded, everyone=self._spread(in_all)),
        )

    @cached_property
    def _head_start(self) -> Numbers:
        """By how much less time than the first stage every stage needs for its passes. [s]"""
        everyone = self._spread(self._everyone.passes)
        return head_start(self._of_rows, self._times, everyone, self.rows.stages.stages)

    def _behind(self, stage: Stage) -> Passes:
        """One micro-batch through all stages behind every stage."""
        assert stage.behind is not None
        rows = replace(self.rows.stages, stages=stage.behind)
        work = StageWork.of(rows.stages, self._held(self._loads.blocks, rows))
        around = self._spread(self._around)
        together = pipeline_sum(self.question, self._of_rows, around, rows.stages, work, num_stages=stage.num_behind)
        return together.passes

    @cached_property
    def _pace(self) -> Numbers:
        """By how much uneven chunks slow a micro-batch of every plan; see ``pipelines.pace_of``."""
        chunks = self.rows.chunks
        if chunks is None:
            return 1.0
        times = chunks.each(chunk_time(chunks.stages, self._held(self._loads.blocks, chunks)))
        slowest = np.maximum.reduceat(times, self.rows.group_first)
        together = np.bincount(self.rows.group_plan, slowest, minlength=len(chunks.first))
        return np.where(together > 0, together / self.rows.stages.largest(self._times.plain), 1.0)

    @cached_property
    def _everyone(self) -> StageSum:
        whole = StageWork.of(self._whole, self._loads.blocks)
        return pipeline_sum(self.question, self.numbers, self._around, self._whole, whole)

    @cached_property
    def _charge(self) -> StateCharge:
        return state_charge(self.question, self._of_rows, self.rows.stages.stages, self._states)

    @cached_property
    def _state_times(self) -> StateTimes:
        return state_times(self.question, self._times, self._charge)

    @cached_property
    def _shares_card(self) -> NDArray[np.bool_]:
        """Whether transfers between stages and the traffic of states use a network tier in common."""
        states, stage = self.prices.states, self._slow_stage
        moved = (
            np.multiply(sent, sent_for_states(states, stage, self.numbers, tier))
            for tier, sent in enumerate(self.prices.handover.bytes)
        )
        return self._each(sum(moved, start=np.zeros(1))) > 0

    @cached_property
    def _ends(self) -> StepEnds:
        return StepEnds(
            rows=self.rows.stages, passes=self._paced, head_start=self._head_start, once=self._state_times.once
        )

    @property
    def _slowest(self) -> Index:
        return self._ends.slowest

    @cached_property
    def _fullest(self) -> Index:
        return self.rows.stages.at_largest(self.memory.total)

    @cached_property
    def _states_memory(self) -> StateMemory:
        held = self._states.times(parameter_copies(self.numbers))
        return state_memory(self.question, self._of_rows, self.rows.stages.stages, held)

    @cached_property
    def _kept(self) -> ActivationMemory:
        around, stages = self._spread(self._around), self.rows.stages.stages
        return activation_memory(self.question, self._of_rows, around, stages, self._work)

    def _spread(self, record: Record) -> Record:
        """What is known of every plan, for each of its stages."""
        rows = self.rows.stages
        return record if len(rows.first) == 1 else gather(record, rows.plan)

    def _held(self, parts: Parts[Value], rows: StageRows) -> Parts[Value]:
        """What is known of every part and plan, for some rows."""
        return parts if len(rows.first) == 1 else parts.at(rows.plan, rows.stages)

    def _each(self, values: Numbers) -> Column:
        """One number for every plan."""
        return np.broadcast_to(np.asarray(values, dtype=np.float64), self.rows.stages.first.shape)

    def _at_slowest(self, values: Numbers) -> Column:
        return self.rows.stages.each(values)[self._slowest]


def joined(numbered: Sequence[PlanNumbers]) -> PlanNumbers:
    """Plans in numbers as columns; what is the same in all stays one number."""
    names = [field.name for field in fields(PlanNumbers) if field.name != "stage_layers"]
    columns: dict[str, Any] = {name: column([getattr(numbers, name) for numbers in numbered]) for name in names}
    return replace(numbered[0], **columns, stage_layers=None)
