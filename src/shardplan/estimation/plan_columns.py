"""Plans of one question priced together: every number is a column, with an element for each plan or for each stage.

One plan goes the same way as a thousand: its columns have one element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import Numbers, column, gather, mapped, where
from shardplan.base.fields import dataclass, replace
from shardplan.estimation.charge import state_charge
from shardplan.estimation.layout import whole_model
from shardplan.estimation.load import Around, Loads, StageStates, StageWork
from shardplan.estimation.parts.terms import IN_FILES, OF_BLOCKS, keys_of
from shardplan.estimation.plan_rows import Index, PlanRows, StageRows
from shardplan.estimation.pricing import HeldStates, Prices, price
from shardplan.estimation.question import Question
from shardplan.estimation.stage_memory import StageMemory, StateMemory, state_memory
from shardplan.estimation.step import Step, WorkOfStages, fixed_times, sharding_time, straggler_factor
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.physics.costs.block import BlockCost
from shardplan.physics.memory import applied_share
from shardplan.physics.schedules.pipeline import parameter_copies
from shardplan.physics.workload.stage import Parts, Stage


def work_terms(blocks: Parts[BlockCost], stage: Stage, numbers: PlanNumbers) -> dict[str, Numbers]:
    """What all micro-batches of a step take in the blocks of a stage, by term of the step. [s]"""
    m, share = numbers.num_microbatches, applied_share(stage.num_layers, numbers)

    def both(name: str) -> Callable[[BlockCost], Numbers]:
        return lambda cost: getattr(cost.forward, name) + getattr(cost.backward, name)

    terms = {term.key: m * blocks.total(stage, both(term.times)) for term in OF_BLOCKS}
    return terms | {"recompute": m * share * blocks.total(stage, attrgetter("recomputed.total"))}


def sent_in_layers(blocks: Parts[BlockCost], stage: Stage, numbers: PlanNumbers, dimension: str, tier: int) -> Numbers:
    """What a micro-batch sends in the layers and ends of a stage over one dimension and tier. [bytes]"""
    share = applied_share(stage.num_layers, numbers)

    def sent(cost: BlockCost) -> Numbers:
        passes, again = (each.get(dimension) for each in (cost.sent_bytes, cost.resent_bytes))
        return (passes[tier] if passes else 0.0) + share * (again[tier] if again else 0.0)

    return blocks.total(stage, sent)


def sent_for_states(
    states: Parts[HeldStates], stage: Stage, numbers: PlanNumbers, tier: int, copies: int = 1
) -> Numbers:
    """What a step sends for the states of a stage over one tier, of which a micro-batch reads one copy. [bytes]"""
    m = numbers.num_microbatches

    def sent(held: HeldStates) -> Numbers:
        return copies * held.traffic.step_bytes[tier] + m * held.traffic.microbatch_bytes[tier]

    return states.total(stage, sent)


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

    @cached_property
    def step(self) -> Step:
        """The step of every plan, whose stages are rows of one column."""
        work, memory = self._work, self.states_memory
        charge = state_charge(self.question, work.numbers_of_stages, self._rows.stages, self._states, memory)
        return Step(work=work, charges=[charge], sharding_time=sharding_time(self.loads.states, work.whole))

    @cached_property
    def _work(self) -> WorkOfStages:
        rows, blocks, whole = self._rows, self.loads.blocks, whole_model(self.question.model)

        def work_behind(_kind: int) -> StageWork:
            behind = replace(rows, stages=rows.stages.behind or whole)
            return StageWork.of(behind.stages, behind.held(blocks))

        return WorkOfStages(
            question=self.question,
            numbers=self.numbers,
            around=Around.of(self.question, self.numbers, self.prices),
            kinds=[rows.stages],
            works=[StageWork.of(rows.stages, rows.held(blocks))],
            whole=whole,
            whole_work=lambda: StageWork.of(whole, blocks),
            behind=work_behind,
            longest=lambda: self.rows.longest_time(blocks),
            rows=rows,
        )

    @cached_property
    def _states(self) -> StageStates:
        return StageStates.of(self._rows.stages, self._rows.held(self.loads.states))

    @cached_property
    def loads(self) -> Loads:
        """What every part puts on a rank, for every plan."""
        loads = Loads.of(self.prices)
        return loads if len(self._rows.first) > 1 else mapped(loads, lambda array: float(array.item()))

    @property
    def _rows(self) -> StageRows:
        return self.rows.stages

    # Time.

    @cached_property
    def step_time(self) -> Column:
        """One optimizer step of every plan. [s]"""
        return self.each(self.step.step_time)

    @cached_property
    def ends_first(self) -> NDArray[np.bool_]:
        """Whether the first stage ends the step of every plan."""
        ends: NDArray[np.bool_] = self._rows.largest(self.step.own_ends[0]) <= self.step.after_first
        return ends

    @cached_property
    def slowest_row(self) -> Index:
        """The stage of every plan whose passes are longest, or that ends after the first one."""
        longest, ends_last = (self._rows.at_largest(kind) for kind in (self.step.passes[0], self.step.own_ends[0]))
        return np.where(self.ends_first, longest, ends_last)

    @cached_property
    def last_row(self) -> Index:
        """The stage of every plan that ends its step."""
        return np.where(self.ends_first, self._rows.first, self.slowest_row)

    @cached_property
    def waiting(self) -> Column:
        """Passes of the slowest stage of every plan and its waiting, as far as they lengthen the step. [s]"""
        start = np.where(self.ends_first, 0.0, self._at_slowest(self.step.work.head_starts[0]))
        return self._at_slowest(self.step.passes[0]) - start

    @property
    def slowest(self) -> Index:
        """Position of the stage of every plan that takes longest for a step."""
        return self.slowest_row - self._rows.first

    @cached_property
    def breakdown(self) -> dict[str, Column]:
        """Seconds of a step by what the slowest stage spends them on; they are what the step is the sum of."""
        growth = straggler_factor(self.question)
        terms = work_terms(self.prices.blocks, self.slow_stage, self.numbers) | self._other_terms()
        for key, time in fixed_times(self.question).items():
            terms[key] = terms.get(key, 0.0) + time
        terms["stragglers"] = sum(terms.values(), start=np.zeros(1)) * (growth - 1)
        return {term.key: self.each(terms[term.key]) for term in IN_FILES}

    def _other_terms(self) -> dict[str, Numbers]:
        """What comes between micro-batches and once a step, and how long the slowest stage waits for others. [s]"""
        m, at, each, last = self.numbers.num_microbatches, self._at_slowest, self._rows.each, self.last_row
        (times,), (states,) = self.step.work.times, self.step.states
        waiting = self.waiting - m * (at(times.microbatch) + at(states.sharded))
        return {
            "dp_communication": m * at(states.sharded) + each(states.reduce)[last] + each(states.gather)[last],
            "pp_communication": m * at(times.transfer),
            "offload": m * at(times.offload),
            "optimizer": each(states.update)[last],
            "fixed": m * at(times.overhead),
            "bubble": where(np.greater(self.numbers.pp, 1), waiting, 0.0),
        }

    @cached_property
    def shares(self) -> dict[str, Column]:
        """Shares of the step whose prices are uncertain; companions are taken to have as much of each as the rest."""
        terms = self.breakdown
        whole = sum((time for key, time in terms.items() if key != "companion"), start=np.zeros(1))
        sent = sum((terms[key] for key in keys_of("communication")), start=np.zeros(1))
        return {"host": terms["host"] / whole, "communication": sent / whole, "attention": terms["attention"] / whole}

    # Memory.

    @cached_property
    def states_memory(self) -> StateMemory:
        """Bytes of the states of one rank of every stage, of all copies of the model that it holds."""
        held = self._states.times(parameter_copies(self.numbers))
        return state_memory(self.question, self._work.numbers_of_stages, self._rows.stages, held)

    @cached_property
    def memory(self) -> StageMemory:
        """Memory of one rank of every stage of every plan. [bytes]"""
        memory = StageMemory.of(self.states_memory, self._work.kept[0], self.question.framework_bytes)
        each = self._rows.each
        return replace(memory, **{f.name: each(getattr(memory, f.name)) for f in fields(StageMemory)})

    @cached_property
    def fullest_row(self) -> Index:
        """The stage of every plan that needs most memory."""
        return self._rows.at_largest(self.memory.total)

    @property
    def fullest(self) -> Index:
        """Its position."""
        return self.fullest_row - self._rows.first

    @cached_property
    def peak_memory_bytes(self) -> Column:
        """Memory of the fullest stage of every plan."""
        peak: Column = self.memory.total[self.fullest_row]  # type: ignore[index]  # a column, as its fields are
        return peak

    @cached_property
    def host_bytes(self) -> Column:
        """Host memory that one rank of every stage of every plan needs."""
        return self._rows.each(self.step.host_bytes[0])

    @cached_property
    def fits(self) -> NDArray[np.bool_]:
        """Whether every device holds its stage, and every node what its accelerators move there."""
        fits: NDArray[np.bool_] = self.step.host_fits & (self.peak_memory_bytes <= self.question.usable_memory)
        return fits

    # Work and traffic.

    @cached_property
    def hardware_flops(self) -> Column:
        """FLOP executed in one step on all accelerators, recomputed ones included."""
        numbers, question = self.numbers, self.question
        share = np.minimum(1.0, numbers.recompute_num_layers * numbers.pp / question.model.num_hidden_layers)

        def executed(cost: BlockCost) -> Numbers:
            return cost.training_flops + share * cost.recomputed_flops + cost.companion_flops

        one_rank = self.prices.blocks.total(self._work.whole, executed)
        return self.each(one_rank * numbers.num_microbatches * question.num_accelerators / numbers.pp)

    @cached_property
    def communication(self) -> dict[str, dict[str, Column]]:
        """Bytes that one rank of the slowest stage sends per step, by dimension and network tier."""
        names = [tier.name for tier in self.question.network.tiers]
        tiers, m = range(len(names)), self.numbers.num_microbatches
        blocks, stage = self.prices.blocks, self.slow_stage
        sent = {
            name: [m * sent_in_layers(blocks, stage, self.numbers, name, tier) for tier in tiers]
            for name in ("tp", "cp", "ep", "etp")
        }
        copies = parameter_copies(self.numbers)
        sent["dp"] = [sent_for_states(self.prices.states, stage, self.numbers, tier, copies) for tier in tiers]
        sent["pp"] = [2.0 * m * self.numbers.vp * moved for moved in self.prices.handover.bytes]
        return {dim: dict(zip(names, map(self.each, moved), strict=True)) for dim, moved in sent.items()}

    @cached_property
    def shares_card(self) -> NDArray[np.bool_]:
        """Whether transfers between stages and the traffic of states use a network tier in common."""
        states, stage = self.prices.states, self.slow_stage
        moved = (
            np.multiply(sent, sent_for_states(states, stage, self.numbers, tier))
            for tier, sent in enumerate(self.prices.handover.bytes)
        )
        return self.each(sum(moved, start=np.zeros(1))) > 0

    @cached_property
    def slow_stage(self) -> Stage:
        """What the slowest stage of every plan holds."""
        return gather(self._rows.stages, self.slowest_row)

    def each(self, values: Numbers) -> Column:
        """One number for every plan."""
        return np.broadcast_to(np.asarray(values, dtype=np.float64), self._rows.first.shape)

    def of_stages(self, values: Numbers, number: int) -> Column:
        """Values of the stages of one of the plans."""
        return self._rows.each(values)[self._rows.plan == number]

    def _at_slowest(self, values: Numbers) -> Column:
        return self._rows.each(values)[self.slowest_row]


def joined(numbered: Sequence[PlanNumbers]) -> PlanNumbers:
    """Plans in numbers as columns; what is the same in all stays one number."""
    names = [field.name for field in fields(PlanNumbers) if field.name != "stage_layers"]
    columns: dict[str, Any] = {name: column([getattr(numbers, name) for numbers in numbered]) for name in names}
    return replace(numbered[0], **columns, stage_layers=None)
