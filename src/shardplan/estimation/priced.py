"""One plan with all its prices: time and memory of every stage, the split of the step, what crosses each tier."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import Numbers
from shardplan.base.fields import dataclass
from shardplan.estimation.layout import Rounds
from shardplan.estimation.parts.chunks import MemoryParts, OnceAStep, StepTraffic, chunk_times, memory_parts
from shardplan.estimation.plan_columns import PlanColumns
from shardplan.estimation.pricing import Prices
from shardplan.estimation.question import Question
from shardplan.estimation.stage_memory import StageMemory
from shardplan.estimation.step import fixed_times, straggler_factor
from shardplan.estimation.times import once_windows
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.readers.residuals import Shares
from shardplan.inputs.software import CHOSEN
from shardplan.physics.schedules.base import ChunkTimes
from shardplan.physics.workload.stage import Stage

if TYPE_CHECKING:
    from shardplan.estimation.parts.alive import Alive
    from shardplan.estimation.parts.layer_operators import LayerOperator, LayerRoofline


@dataclass(frozen=True, kw_only=True)
class PricedPlan:
    """Everything about one plan; arrays have one element for every stage."""

    plan: Plan
    numbers: PlanNumbers
    columns: PlanColumns
    """All that is computed, of this plan and of others that are priced together with it."""
    number: int = 0
    """Position of this plan among them."""

    @classmethod
    def of(cls, question: Question, plan: Plan) -> PricedPlan:
        """``plan`` (taken to be valid) as an answer to ``question``."""
        return cls.of_all(question, (plan,))[0]

    @classmethod
    def of_all(cls, question: Question, plans: Sequence[Plan]) -> list[PricedPlan]:
        """Several plans; those that need the same formulas are priced together."""
        numbered = [PlanNumbers.of(plan, question.num_accelerators, question.job) for plan in plans]
        priced: dict[int, PricedPlan] = {}
        for alike in _alike(plans, numbered):
            asked = question.running(vars(plans[alike[0]]))
            columns = PlanColumns.of(asked, [plans[at] for at in alike], [numbered[at] for at in alike])
            for number, at in enumerate(alike):
                priced[at] = cls(plan=plans[at], numbers=numbered[at], columns=columns, number=number)
        return [priced[at] for at in range(len(plans))]

    @property
    def question(self) -> Question:
        """What was asked."""
        return self.columns.question

    @property
    def prices(self) -> Prices:
        """Of every part, maybe of other plans as well."""
        return self.columns.prices

    @property
    def stages(self) -> tuple[Stage, ...]:
        """What every rank of the pipeline holds."""
        return self.columns.rows.stages_of[self.number]

    @property
    def rounds(self) -> Rounds:
        """The longest ways through uneven chunks, in groups of which the slowest counts."""
        return self.columns.rows.rounds_of[self.number]

    @property
    def step_time(self) -> float:
        """One optimizer step. [s]"""
        return float(self.columns.step_time[self.number])

    @property
    def slowest(self) -> int:
        """Position of the stage that takes longest for a step."""
        return int(self.columns.slowest[self.number])

    @property
    def fullest(self) -> int:
        """Position of the stage that needs most memory."""
        return int(self.columns.fullest[self.number])

    @property
    def peak_memory_bytes(self) -> float:
        """Memory of the fullest stage. [bytes]"""
        return float(self.columns.peak_memory_bytes[self.number])

    @property
    def fits(self) -> bool:
        """Whether every device holds its stage, and every node what its accelerators move there."""
        return bool(self.columns.fits[self.number])

    @property
    def host_bytes(self) -> NDArray[np.float64]:
        """Host memory that one rank of every stage needs. [bytes]"""
        return self._of_stages(self.columns.host_bytes)

    def memory_of(self, stage: int) -> StageMemory:
        """Memory of one rank of a stage, by part."""
        memory, row = self.columns.memory, int(self.columns.rows.stages.first[self.number]) + stage
        return StageMemory(**{field.name: getattr(memory, field.name)[row].item() for field in fields(StageMemory)})

    @property
    def breakdown(self) -> dict[str, float]:
        """Seconds of a step by what the slowest stage spends them on; they are what the step is the sum of."""
        return {name: times[self.number].item() for name, times in self.columns.breakdown.items()}

    @property
    def shares(self) -> Shares:
        """Shares of the step whose prices are uncertain."""
        return Shares(**{name: shares[self.number].item() for name, shares in self.columns.shares.items()})

    @cached_property
    def chunk_times(self) -> ChunkTimes:
        """Seconds of one micro-batch in every model chunk: the prices that the step is the sum of."""
        return chunk_times(self.columns, self.number, self.plan, self.numbers)

    @property
    def once_a_step(self) -> OnceAStep:
        """What every rank takes besides its micro-batches."""
        (states,) = self.columns.step.states
        return OnceAStep(
            gather=self._of_stages(states.gather),
            reduce=self._of_stages(states.reduce),
            update=self._of_stages(states.update),
            fixed={key: float(time) for key, time in fixed_times(self.question).items()},
            straggler_factor=float(straggler_factor(self.question)),
        )

    @property
    def step_traffic(self) -> StepTraffic:
        """What states exchange once a step, before computation hides it."""
        (times,), (charge,) = self.columns.step.work.times, self.columns.step.charges
        gather_window, reduce_window = once_windows(self.question, times, charge)
        return StepTraffic(
            gather_time=self._of_stages(charge.gather_time),
            reduce_time=self._of_stages(charge.reduce_time),
            gather_window=self._of_stages(gather_window),
            reduce_window=self._of_stages(reduce_window),
            least_share=float(self.question.profile.hidden_slowdown),
            shares_card=bool(self.columns.shares_card[self.number]),
        )

    @property
    def memory_parts(self) -> MemoryParts:
        """What every rank holds, and when."""
        return memory_parts(self._alone, self.plan)

    def alive_at_peak(self, stage: int) -> tuple[Alive, ...]:
        """What is alive on a rank of a stage at its memory peak, the largest first."""
        from shardplan.estimation.parts.alive import alive_at_peak

        return alive_at_peak(self._alone, self.numbers, self.memory_of(stage), stage)

    @property
    def layer_operators(self) -> tuple[LayerOperator, ...]:
        """What the most frequent kind of layer runs for one micro-batch."""
        from shardplan.estimation.parts.layer_operators import layer_operators

        return layer_operators(self.question, self._alone.prices)

    @property
    def roofline(self) -> LayerRoofline:
        """The operators of that layer under the roofline of the accelerator."""
        from shardplan.estimation.parts.layer_operators import layer_roofline

        return layer_roofline(self.question, self._alone.prices)

    @cached_property
    def _alone(self) -> PlanColumns:
        """The columns of this plan and no other."""
        if len(self.columns.rows.stages_of) == 1:
            return self.columns
        return PlanColumns.of(self.question, (self.plan,), (self.numbers,))

    def hardware_flops(self) -> float:
        """FLOP executed in one step on all accelerators, recomputed ones included."""
        return float(self.columns.hardware_flops[self.number])

    def communication(self) -> dict[str, dict[str, float]]:
        """Bytes that one rank of the slowest stage sends per step, by dimension and network tier."""
        sent = {
            dimension: {tier: moved[self.number].item() for tier, moved in tiers.items()}
            for dimension, tiers in self.columns.communication.items()
        }
        return {dimension: tiers for dimension, tiers in sent.items() if any(tiers.values())}

    def _of_stages(self, values: Numbers) -> NDArray[np.float64]:
        return self.columns.of_stages(values, self.number)


def _alike(plans: Sequence[Plan], numbered: Sequence[PlanNumbers]) -> Iterable[list[int]]:
    """Positions of plans for which the same formulas hold."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for number, each in enumerate(numbered):
        switches = (
            each.schedule, each.placement, each.tp_kind, each.cp_comm, each.second_degree is None, each.pp == 1,
            *(getattr(plans[number], name) for name in CHOSEN),
        )  # fmt: skip
        groups.setdefault(switches, []).append(number)
    return groups.values()
