"""The model chunks of a priced plan: what an estimate sums up over stages, chunk by chunk, in time and in memory.

Also what a step takes apart from its micro-batches, rank by rank: exchanges of states, the optimizer, fixed time.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import Numbers, scaled
from shardplan.base.fields import dataclass
from shardplan.estimation.layout import Chunk
from shardplan.estimation.load import StageWork
from shardplan.estimation.plan_columns import PlanColumns
from shardplan.estimation.question import Question
from shardplan.estimation.stage_memory import kept_outputs, waiting_bytes
from shardplan.estimation.times import WorkTimes
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.physics.memory import applied_share, offloaded_share, on_device
from shardplan.physics.schedules.base import ChunkTimes
from shardplan.physics.schedules.registry import load_schedule
from shardplan.physics.workload.stage import Stage, chunk_counts

Column = NDArray[np.float64]


def chunk_stages(question: Question, plan: Plan) -> list[Stage]:
    """What every chunk of the model holds, in order."""
    model = question.model
    counts = chunk_counts(model, plan.pp, plan.vp, plan.stage_layers)
    chunks = counts.reshape(len(counts), -1).T.tolist()
    last = len(chunks) - 1

    @cache
    def stage(counts: tuple[int, ...], is_first: bool, is_last: bool) -> Stage:  # noqa: FBT001  # few are unlike
        return Chunk(
            counts=counts,
            num_embeddings=int(is_first),
            num_heads=int(is_last),
            num_mtp_layers=model.num_mtp_layers if is_last else 0,
        ).as_stage()

    return [stage(tuple(held), number == 0, number == last) for number, held in enumerate(chunks)]


def chunk_ranks(plan: Plan, numbers: PlanNumbers) -> NDArray[np.int64]:
    """The rank of every chunk, for the first micro-batch."""
    path = load_schedule(plan.effective_schedule).path(plan.pp, plan.vp, int(numbers.num_microbatches), 0)
    return np.array([place.rank for place in path])


def chunk_times(columns: PlanColumns, number: int, plan: Plan, numbers: PlanNumbers) -> ChunkTimes:
    """Seconds of one micro-batch in every chunk of one of the plans, so that those of a rank sum to its stage's.

    What comes between chunks and the exposed exchange of sharded states, as far as they keep the rank busy, are shared
    by its chunks and by forward and backward pass; the rest of a transfer takes time on its way. What waits for the
    host's link does so more in the shorter pass, as each hides what it takes.
    """
    stages_of_chunks = chunk_stages(columns.question, plan)
    places = {stage: place for place, stage in enumerate(dict.fromkeys(stages_of_chunks))}
    place_of_chunk = np.array([places[stage] for stage in stages_of_chunks])
    ranks, work = chunk_ranks(plan, numbers), columns.step.work
    (times,), (states,) = work.times, columns.step.states

    def of_rank(values: Numbers) -> Column:
        return columns.of_stages(values, number)[ranks]

    def of_plan(values: Numbers) -> float:
        return float(columns.each(values)[number])

    def of_chunk(name: str) -> Column:
        value = attrgetter(name)
        return np.array([of_plan(columns.loads.blocks.total(stage, value)) for stage in places])[place_of_chunk]

    share = of_rank(applied_share(work.kinds[0].num_layers, work.numbers_of_stages))
    between = of_rank(times.transfer + times.overhead + states.sharded) / plan.vp / 2
    away = _offload_of_forward(times, columns.question.profile.offload_window)
    weight_gradient = of_chunk("weight_gradient")
    recomputed = np.asarray(scaled(share, of_chunk("recomputed")))
    backward = of_chunk("backward") + recomputed + between + of_rank(times.offload - away) / plan.vp
    exposed = of_rank(times.transfer) / plan.vp / 2
    return ChunkTimes(
        forward=of_chunk("forward") + between + of_rank(away) / plan.vp,
        input_gradient=backward - weight_gradient,
        weight_gradient=weight_gradient,
        transfer=np.maximum(of_plan(work.around.handover_time) - exposed, 0.0),
        recomputed=recomputed,
        sending=exposed,
        exchanging=of_rank(states.sharded) / plan.vp / 2,
    )


def _offload_of_forward(times: WorkTimes, window: Numbers) -> Numbers:
    r"""What of the exposed transfers to and from the host, :math:`2 T - w (F + B)`, the forward pass waits for. [s]

    That is :math:`T - w F`: as much travels in either pass, and a share w of each hides its own.
    """
    return np.clip((times.offload + window * (times.backward - times.forward)) / 2, 0.0, times.offload)


@dataclass(frozen=True, kw_only=True)
class MemoryParts:
    """What ranks hold, and when. Arrays have an element for every rank, ``kept`` one for every model chunk. [bytes]"""

    kept: Column
    """Activations of one micro-batch, from its forward pass to the gradient of its weights."""
    weights: Column
    gradients: Column
    optimizer: Column
    whole: Column
    """Gathered weights and gradients that are not yet sharded; counted all the time, as in an estimate."""
    framework: Column
    recomputed: Column
    """What recomputation brings back of one layer, in a backward pass."""
    passing: Column
    """Gradients of one layer's tensors, in a backward pass."""
    loss: Column
    """Logits and loss, as far as they exceed these two, in the backward pass of the last chunk."""
    moving: Column
    """Activations on their way to the host or back, in every pass but that of weight gradients."""
    update: Column
    """What the optimizer needs when activations are gone."""


def memory_parts(columns: PlanColumns, plan: Plan) -> MemoryParts:
    """The parts of every rank's memory of the only plan, so that its passes in flight and these sum to the estimate."""
    question, states, work = columns.question, columns.states_memory, columns.step.work
    (stages,), (kept,) = work.kinds, work.kept
    share = applied_share(stages.num_layers, columns.numbers)
    moving = waiting_bytes(question, work.works[0], share, on_device(0.0, stages.num_layers, columns.numbers))

    def of_rank(values: Numbers) -> Column:
        return columns.of_stages(values, 0)

    return MemoryParts(
        kept=_kept(columns, plan),
        weights=of_rank(states.weights + states.companion),
        gradients=of_rank(states.gradients),
        optimizer=of_rank(states.optimizer),
        whole=of_rank(states.whole),
        framework=of_rank(question.framework_bytes),
        recomputed=of_rank(kept.recomputed),
        passing=of_rank(kept.passing),
        loss=of_rank(kept.loss),
        moving=of_rank(moving),
        update=of_rank(states.update),
    )


def _kept(columns: PlanColumns, plan: Plan) -> Column:
    """Activations of one micro-batch in every chunk, as far as they stay on the device, and the chunk's output."""
    question, numbers, work = columns.question, columns.numbers, columns.step.work
    ranks, layers = chunk_ranks(plan, numbers), work.kinds[0].num_layers
    shares = columns.of_stages(applied_share(layers, numbers), 0)[ranks]
    present = columns.of_stages(1.0 - np.asarray(offloaded_share(layers, numbers)), 0)[ranks]
    return np.array(
        [
            float(waiting_bytes(question, StageWork.of(chunk, columns.loads.blocks), again, here))
            + float(kept_outputs(question, numbers, work.around, num_chunks=1 - chunk.has_head, in_flight=1))
            for chunk, again, here in zip(chunk_stages(question, plan), shares.tolist(), present.tolist(), strict=True)
        ]
    )


@dataclass(frozen=True, kw_only=True)
class OnceAStep:
    r"""Seconds that come once a step; arrays have an element for every rank.

    A rank that its micro-batches keep for b seconds takes :math:`(b + g + r + u + t_0) \cdot f`.
    """

    gather: Column
    """Parameters gathered, as far as no computation hides it: g."""
    reduce: Column
    """Gradients reduced, as far as no computation hides it: r."""
    update: Column
    """Optimizer: u."""
    fixed: Mapping[str, float]
    """Fixed time of a step by term; together t_0."""
    straggler_factor: float
    """By how much the slowest of many accelerators lengthens a step: f."""

    def after(self, busy: Column) -> Column:
        """The step of every rank that its micro-batches keep for ``busy`` seconds. [s]"""
        return (busy + (self.update + self.gather + self.reduce) + sum(self.fixed.values())) * self.straggler_factor

    def after_passes(self, busy: Column) -> dict[str, Column]:
        """What comes after the last pass and the reduction of gradients, by term of the step. [s]

        Stragglers lengthen the step of all ranks, as the slowest has it.
        """
        every = np.ones(len(busy))
        stretched = float(self.after(busy).max()) * (1 - 1 / self.straggler_factor)
        fixed = {key: every * time for key, time in self.fixed.items()}
        return {"optimizer": self.update, **fixed, "stragglers": every * stretched}


@dataclass(frozen=True, kw_only=True)
class StepTraffic:
    """What states exchange once a step, before any computation hides it; arrays have an element for every rank."""

    gather_time: Column
    """Parameters gathered. [s]"""
    reduce_time: Column
    """Gradients reduced. [s]"""
    gather_window: Column
    """The work of a chunk's forward pass of one micro-batch behind which this traffic can travel. [s]"""
    reduce_window: Column
    """The same of its backward pass. [s]"""
    least_share: float
    """Share of the traffic that costs time however much computation there is."""
    shares_card: bool
    """Whether transfers between stages use a network tier that this traffic uses too."""
