"""The times of a priced plan's model chunks: what an estimate sums up over stages, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from shardplan.arrays import Numbers, scaled
from shardplan.estimation.layout import Chunk
from shardplan.estimation.load import Around, Loads
from shardplan.estimation.question import Question
from shardplan.estimation.times import WorkTimes
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.memory.activations import applied_share
from shardplan.schedules.base import ChunkTimes
from shardplan.schedules.registry import load_schedule
from shardplan.workload.stage import Stage, chunk_counts


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


def chunk_times(
    question: Question,
    plan: Plan,
    numbers: PlanNumbers,
    loads: Loads,
    around: Around,
    *,
    of_plan: Callable[[Numbers], float],
    stages: Stage,
    times: WorkTimes,
    sharded: Numbers,
) -> ChunkTimes:
    """Seconds of one micro-batch in every chunk, so that those of a rank sum to ``times`` of its stage and ``sharded``.

    ``loads`` and ``around`` may be columns over plans, of which ``of_plan`` takes the number of this one;
    ``stages``, ``times`` and ``sharded`` have an element for every rank. What comes between chunks and ``sharded``
    (the exposed exchange of sharded states in a micro-batch), as far as they keep the rank busy, are shared by its
    chunks and by forward and backward pass; the rest of a transfer takes time on its way.
    """
    stages_of_chunks = chunk_stages(question, plan)
    places = {stage: place for place, stage in enumerate(dict.fromkeys(stages_of_chunks))}
    place_of_chunk = np.array([places[stage] for stage in stages_of_chunks])
    ranks = chunk_ranks(plan, numbers)

    def of_rank(values: Numbers) -> NDArray[np.float64]:
        return np.broadcast_to(np.asarray(values, dtype=np.float64), (plan.pp,))[ranks]

    def of_chunk(name: str) -> NDArray[np.float64]:
        work = attrgetter(name)
        return np.array([of_plan(loads.blocks.total(stage, work)) for stage in places])[place_of_chunk]

    share = of_rank(applied_share(stages.num_layers, numbers))
    between = of_rank(times.transfer + times.offload + times.overhead + sharded) / plan.vp / 2
    weight_gradient = of_chunk("weight_gradient")
    recomputed = np.asarray(scaled(share, of_chunk("recomputed")))
    backward = of_chunk("backward") + recomputed + between
    exposed = of_rank(times.transfer) / plan.vp / 2
    return ChunkTimes(
        forward=of_chunk("forward") + between,
        input_gradient=backward - weight_gradient,
        weight_gradient=weight_gradient,
        transfer=np.maximum(of_plan(around.handover_time) - exposed, 0.0),
        recomputed=recomputed,
        sending=exposed,
        exchanging=of_rank(sharded) / plan.vp / 2,
    )
