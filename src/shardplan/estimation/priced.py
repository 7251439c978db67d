"""One plan with all its prices: time and memory of every stage, the split of the step, what crosses each tier."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardplan.arrays import Numbers, concatenated, mapped
from shardplan.costs.block import BlockCost
from shardplan.estimation.charge import state_charge
from shardplan.estimation.chunk_times import chunk_times
from shardplan.estimation.layout import Rounds, pipeline_of, whole_model
from shardplan.estimation.load import Around, Loads, StageStates, StageWork
from shardplan.estimation.pricing import HeldStates, Prices, price
from shardplan.estimation.question import Question
from shardplan.estimation.stage_memory import (
    ActivationMemory,
    StageMemory,
    StateMemory,
    activation_memory,
    host_holds,
    state_memory,
)
from shardplan.estimation.step import straggler_factor, whole_step
from shardplan.estimation.times import (
    StateTimes,
    WorkTimes,
    chunk_time,
    paced,
    pipeline_sum,
    state_times,
    work_times,
)
from shardplan.fields import dataclass
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.readers.residuals import Shares
from shardplan.memory.activations import applied_share
from shardplan.schedules.base import ChunkTimes, Passes
from shardplan.schedules.pipeline import parameter_copies
from shardplan.workload.parts import Parts
from shardplan.workload.stage import Stage, stacked

BLOCK_TERMS = {
    "matmul": "matmul",
    "attention": "attention",
    "memory": "memory_bound",
    "host": "host",
    "tp": "tp_communication",
    "cp": "cp_communication",
    "ep": "ep_communication",
}
"""Terms of a step by the name of a block's times."""


@dataclass(frozen=True, kw_only=True)
class PricedPlan:
    """Everything about one plan, computed once; arrays have one element for every stage."""

    question: Question
    plan: Plan
    numbers: PlanNumbers
    stages: tuple[Stage, ...]
    rounds: Rounds
    """Model chunks in groups of which the slowest counts."""
    prices: Prices
    """Of every part, maybe of other plans as well."""
    loads: Loads
    """Of every part, of this plan alone."""
    number: int = 0
    """Position of this plan among those that ``prices`` are of."""

    @classmethod
    def of(cls, question: Question, plan: Plan) -> PricedPlan:
        """``plan`` (taken to be valid) as an answer to ``question``."""
        return cls.of_all(question, (plan,))[0]

    @classmethod
    def of_all(cls, question: Question, plans: Sequence[Plan]) -> list[PricedPlan]:
        """Several plans; those that need the same formulas are priced together."""
        numbered = [PlanNumbers.of(plan, question.num_accelerators, question.job) for plan in plans]
        priced: dict[int, PricedPlan] = {}
        for alike in _alike(numbered):
            prices = price(question, _columns([numbered[number] for number in alike]))
            loads = Loads.of(prices)
            for at, number in enumerate(alike):
                own = mapped(loads, partial(_element, at))
                plan, numbers = plans[number], numbered[number]
                held, rounds = pipeline_of(question.model, plan.pp, plan.vp, plan.stage_layers, schedule=plan.schedule)
                priced[number] = cls(
                    question=question, plan=plan, numbers=numbers, stages=held, rounds=rounds,
                    prices=prices, loads=own, number=at,
                )  # fmt: skip
        return [priced[number] for number in range(len(plans))]

    @property
    def step_time(self) -> float:
        """One optimizer step. [s]"""
        return float(whole_step(self.question, self._busy[self.slowest]))

    @property
    def slowest(self) -> int:
        """Position of the stage that takes longest for a step."""
        return int(np.argmax(self._busy))

    @property
    def fullest(self) -> int:
        """Position of the stage that needs most memory."""
        return int(np.argmax(self._memory.total))

    @property
    def peak_memory_bytes(self) -> float:
        """Memory of the fullest stage. [bytes]"""
        return float(self.memory_of(self.fullest).total)

    @property
    def fits(self) -> bool:
        """Whether every device holds its stage, and every node what its accelerators move there."""
        return bool(self.peak_memory_bytes <= self.question.usable_memory) and bool(
            np.all(host_holds(self.question, [self.host_bytes]))
        )

    @cached_property
    def host_bytes(self) -> NDArray[np.float64]:
        """Host memory that one rank of every stage needs. [bytes]"""
        return self._each(self._states_memory.on_host + self._kept.on_host)

    def memory_of(self, stage: int) -> StageMemory:
        """Memory of one rank of a stage, by part."""
        return self._memories[stage]

    @cached_property
    def breakdown(self) -> dict[str, float]:
        """Seconds of a step by what the slowest stage spends them on; they are what the step is the sum of."""
        growth = float(straggler_factor(self.question))
        terms = self._work_terms() | self._other_terms()
        terms["stragglers"] = sum(terms.values()) * (growth - 1)
        return {**{name: time for name, time in terms.items() if name != "bubble"}, "bubble": terms["bubble"]}

    @property
    def shares(self) -> Shares:
        """Shares of the step whose prices are uncertain."""
        terms = self.breakdown
        whole = sum(terms.values())
        sent = sum(time for name, time in terms.items() if name.endswith("_communication"))
        return Shares(host=terms["host"] / whole, communication=sent / whole, attention=terms["attention"] / whole)

    @property
    def chunk_times(self) -> ChunkTimes:
        """Seconds of one micro-batch in every model chunk: the prices that the step is the sum of."""
        return chunk_times(self.question, self.plan, self.numbers, self.loads, self._around, self._rows, self._times)

    def step_time_after(self, busy: NDArray[np.float64]) -> float:
        """The step whose micro-batches keep the ranks for ``busy`` seconds: with what comes once a step. [s]"""
        return float(whole_step(self.question, np.max(busy + self._each(self._state_times.total))))

    def hardware_flops(self) -> float:
        """FLOP executed in one step on all accelerators, recomputed ones included."""
        layers = self.question.model.num_hidden_layers
        share = min(1.0, float(self.numbers.recompute_num_layers) * self.plan.pp / layers)

        def executed(cost: BlockCost) -> Numbers:
            return cost.training_flops + share * cost.recomputed_flops

        one_rank = self._total(self.prices.blocks, self._whole, executed)
        return one_rank * float(self.numbers.num_microbatches) * self.question.num_accelerators / self.plan.pp

    def communication(self) -> dict[str, dict[str, float]]:
        """Bytes that one rank of the slowest stage sends per step, by dimension and network tier."""
        m, stage = float(self.numbers.num_microbatches), self.stages[self.slowest]
        share = float(applied_share(stage.num_layers, self.numbers))
        tiers = range(len(self.question.network.tiers))

        def in_layers(cost: BlockCost, dimension: str, tier: int) -> Numbers:
            return _of(cost.sent_bytes, dimension, tier) + share * _of(cost.resent_bytes, dimension, tier)

        def in_states(states: HeldStates, tier: int) -> Numbers:
            return states.traffic.step_bytes[tier] + m * states.traffic.microbatch_bytes[tier]

        blocks, states = self.prices.blocks, self.prices.states
        sent = {
            name: [m * self._total(blocks, stage, _fixed(in_layers, name, tier)) for tier in tiers]
            for name in ("tp", "cp", "ep", "etp")
        }
        copies = parameter_copies(self.numbers)
        sent["dp"] = [copies * self._total(states, stage, _fixed(in_states, tier)) for tier in tiers]
        sent["pp"] = [2.0 * m * self.plan.vp * float(self._own(moved)) for moved in self.prices.handover.bytes]
        names = [tier.name for tier in self.question.network.tiers]
        return {dimension: dict(zip(names, moved, strict=True)) for dimension, moved in sent.items() if any(moved)}

    def _work_terms(self) -> dict[str, float]:
        """What every micro-batch of the slowest stage takes in its blocks. [s]"""
        m, stage = float(self.numbers.num_microbatches), self.stages[self.slowest]
        share, blocks = float(applied_share(stage.num_layers, self.numbers)), self.prices.blocks

        def both(cost: BlockCost, name: str) -> Numbers:
            times: Numbers = getattr(cost.forward, name) + getattr(cost.backward, name)
            return times

        terms = {term: m * self._total(blocks, stage, _fixed(both, name)) for name, term in BLOCK_TERMS.items()}
        return terms | {"recompute": m * share * self._total(blocks, stage, lambda cost: cost.recomputed.total)}

    def _other_terms(self) -> dict[str, float]:
        """What comes between micro-batches and once a step, and how long the slowest stage waits for others. [s]"""
        m, at = float(self.numbers.num_microbatches), self.slowest
        times, states = self._times, self._state_times
        one = float(self._at(times.microbatch, at))
        passes = float(self._at(self._paced, at))
        return {
            "dp_communication": float(
                self._at(states.sharded, at) + self._at(states.reduce, at) + self._at(states.gather, at)
            ),
            "pp_communication": m * float(self._at(times.transfer, at)),
            "offload": m * float(self._at(times.offload, at)),
            "optimizer": float(self._at(states.update, at)),
            "fixed": float(m * times.overhead + self.question.profile.step_time),
            "bubble": passes - m * one if self.plan.pp > 1 else 0.0,
        }

    @cached_property
    def _rows(self) -> Stage:
        return stacked(self.stages)

    @cached_property
    def _whole(self) -> Stage:
        return whole_model(self.question.model)

    @cached_property
    def _around(self) -> Around:
        around = Around.of(self.question, self.numbers, self.prices)
        return replace(around, handover_time=self._own(around.handover_time))

    @cached_property
    def _work(self) -> StageWork:
        return StageWork.of(self._rows, self.loads.blocks)

    @cached_property
    def _states(self) -> StageStates:
        return StageStates.of(self._rows, self.loads.states)

    @cached_property
    def _paced(self) -> Numbers:
        """All micro-batches of a step, and waiting for other stages, on every stage. [s]"""
        return paced(self.numbers, self._times, self._everyone, self._pace)

    @cached_property
    def _pace(self) -> float:
        loads = self.loads.blocks
        chunks = [[float(chunk_time(chunk.as_stage(), loads)) for chunk in group] for group in self.rounds]
        return sum(max(group) for group in chunks) / float(np.max(self._times.plain)) if chunks else 1.0

    @cached_property
    def _everyone(self) -> Passes:
        whole = StageWork.of(self._whole, self.loads.blocks)
        return pipeline_sum(self.question, self.numbers, self._around, self._whole, whole)

    @cached_property
    def _times(self) -> WorkTimes:
        return work_times(self.question, self.numbers, self._around, self._rows, self._work)

    @cached_property
    def _state_times(self) -> StateTimes:
        charge = state_charge(self.question, self.numbers, self._rows, self._states)
        return state_times(self.question, self._times, charge)

    @cached_property
    def _busy(self) -> NDArray[np.float64]:
        """What every stage spends on a step, the fixed time and stragglers apart. [s]"""
        return self._each(self._paced + self._state_times.total)

    @cached_property
    def _states_memory(self) -> StateMemory:
        held = self._states.times(parameter_copies(self.numbers))
        return state_memory(self.question, self.numbers, self._rows, held)

    @cached_property
    def _kept(self) -> ActivationMemory:
        return activation_memory(self.question, self.numbers, self._around, self._rows, self._work)

    @cached_property
    def _memory(self) -> StageMemory:
        memory = StageMemory.of(self._states_memory, self._kept, self.question.profile.framework_bytes)
        return replace(memory, **{f.name: self._each(getattr(memory, f.name)) for f in fields(StageMemory)})

    @cached_property
    def _memories(self) -> list[StageMemory]:
        """Memory of one rank of every stage."""
        columns = {f.name: getattr(self._memory, f.name).tolist() for f in fields(StageMemory)}
        return [
            StageMemory(**{name: values[stage] for name, values in columns.items()})
            for stage in range(len(self.stages))
        ]

    def _total(self, parts: Parts[Any], stage: Stage, value: Callable[[Any], Numbers]) -> float:
        """Sum of a number over everything that a stage holds."""
        return float(parts.total(stage, lambda part: self._own(value(part))))

    def _own(self, values: Numbers) -> Numbers:
        """This plan's of what was priced for several."""
        return _element(self.number, values) if isinstance(values, np.ndarray) else values

    def _each(self, values: Numbers) -> NDArray[np.float64]:
        """One number for every stage."""
        return np.broadcast_to(np.asarray(values, dtype=np.float64), (len(self.stages),))

    def _at(self, values: Numbers, stage: int) -> Numbers:
        return self._each(values)[stage]


def _fixed(value: Callable[..., Numbers], *arguments: object) -> Callable[[object], Numbers]:
    """A value of a part with its other arguments."""
    return lambda part: value(part, *arguments)


def _of(sent: dict[str, tuple[Numbers, ...]], dimension: str, tier: int) -> Numbers:
    tiers = sent.get(dimension)
    return tiers[tier] if tiers is not None else 0.0


def _alike(numbered: Sequence[PlanNumbers]) -> Iterable[list[int]]:
    """Positions of plans for which the same formulas hold."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for number, each in enumerate(numbered):
        switches = (each.schedule, each.placement, each.tp_kind, each.cp_comm, each.second_degree is None)
        groups.setdefault(switches, []).append(number)
    return groups.values()


def _columns(numbered: Sequence[PlanNumbers]) -> PlanNumbers:
    """Plans in numbers as columns; what is the same in all stays one number."""
    return concatenated([replace(numbers, stage_layers=None) for numbers in numbered], [1] * len(numbered))


def _element(number: int, values: NDArray[Any]) -> float:
    """The value at a position; the one value where all have the same."""
    value: float = values[number].item() if values.size > 1 else values.item()
    return value
