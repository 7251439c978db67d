"""The bytes of a priced plan's model chunks and ranks: what an estimate counts at the peak, part by part."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shardplan.arrays import Numbers
from shardplan.estimation.load import Around, Loads, StageWork
from shardplan.estimation.parts.chunk_times import chunk_ranks, chunk_stages
from shardplan.estimation.question import Question
from shardplan.estimation.stage_memory import (
    ActivationMemory,
    StateMemory,
    kept_outputs,
    waiting_bytes,
)
from shardplan.fields import dataclass
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.memory.activations import applied_share, offloaded_share, on_device
from shardplan.workload.stage import Stage

Column = NDArray[np.float64]


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


def memory_parts(  # noqa: PLR0917  # what a priced plan is made of
    question: Question,
    plan: Plan,
    numbers: PlanNumbers,
    loads: Loads,
    around: Around,
    stages: Stage,
    work: StageWork,
    states: StateMemory,
    activations: ActivationMemory,
) -> MemoryParts:
    """The parts of every rank's memory, so that its passes in flight and these sum to what the estimate counts.

    ``stages``, ``work``, ``states`` and ``activations`` have an element for every rank.
    """

    def of_rank(values: Numbers) -> Column:
        return np.broadcast_to(np.asarray(values, dtype=np.float64), (plan.pp,))

    share = applied_share(stages.num_layers, numbers)
    return MemoryParts(
        kept=_kept(question, plan, numbers, loads, around, stages),
        weights=of_rank(states.weights),
        gradients=of_rank(states.gradients),
        optimizer=of_rank(states.optimizer),
        whole=of_rank(states.whole),
        framework=of_rank(question.profile.framework_bytes),
        recomputed=of_rank(activations.recomputed),
        passing=of_rank(activations.passing),
        loss=of_rank(activations.loss),
        moving=of_rank(waiting_bytes(question, work, share, on_device(0.0, stages.num_layers, numbers))),
        update=of_rank(states.update),
    )


def _kept(  # noqa: PLR0917  # the same
    question: Question, plan: Plan, numbers: PlanNumbers, loads: Loads, around: Around, stages: Stage
) -> Column:
    """Activations of one micro-batch in every chunk, as far as they stay on the device, and the chunk's output."""
    ranks = chunk_ranks(plan, numbers)

    def of_chunk(values: Numbers) -> list[float]:
        return np.broadcast_to(np.asarray(values, dtype=np.float64), (plan.pp,))[ranks].tolist()

    shares = of_chunk(applied_share(stages.num_layers, numbers))
    present = of_chunk(1.0 - np.asarray(offloaded_share(stages.num_layers, numbers)))
    return np.array(
        [
            float(waiting_bytes(question, StageWork.of(chunk, loads.blocks), again, here))
            + float(kept_outputs(question, numbers, around, num_chunks=1 - chunk.has_head, in_flight=1))
            for chunk, again, here in zip(chunk_stages(question, plan), shares, present, strict=True)
        ]
    )
