"""The stages of a question's pipeline, with what unlike chunks cost it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shardplan.estimation.flops import part_flops
from shardplan.estimation.question import Question
from shardplan.inputs.model import ModelConfig
from shardplan.schedules.interleaved import unevenness
from shardplan.workload.stage import Stage, chunk_counts, stages, stages_of_chunks


def pipeline_of(
    question: Question,
    pp: int,
    vp: int,
    layers: tuple[int, ...] | None = None,
    *,
    before: NDArray[np.int64] | None = None,
) -> tuple[Stage, ...]:
    """Every stage, and by how much their chunks hold one another up, by the FLOP of each.

    ``before``: ``layers_before(question.model)`` where it is at hand already.
    """
    counts = chunk_counts(question.model, pp, vp, layers, before=before)
    if pp == 1 or vp == 1:
        return stages_of_chunks(question.model, counts)
    work = part_flops(question.model, question.job.sequence_length).of_chunks(counts)
    return stages_of_chunks(question.model, counts, unevenness=unevenness(work))


def whole_model(model: ModelConfig) -> Stage:
    """All layers and ends as one stage: sums over it are sums over the pipeline."""
    return stages(model, 1, 1)[0]
