"""The schedule of a plan, or of each plan of a batch."""

from __future__ import annotations

import numpy as np

from shardplan.arrays import Numbers
from shardplan.inputs.batch import Batch
from shardplan.schedules.base import Passes, Pipeline, PipelineSchedule
from shardplan.schedules.registry import INTERLEAVED, ONE_F_ONE_B, load_schedule


def idle_time(own: Passes, everyone: Passes, batch: Batch, pace: Numbers = 1.0) -> Numbers:
    """Bubble of a rank that one micro-batch passes in ``own``; see ``PipelineSchedule.idle_time``. [s]"""
    at, named = _pipeline(batch), _named(batch)
    # With one chunk per rank interleaving is plain 1F1B.
    return (named or INTERLEAVED).idle_time(at, own, everyone, pace)


def microbatches_in_flight(rank: Numbers, batch: Batch) -> Numbers:
    """Micro-batches that a rank keeps at its peak."""
    at, named = _pipeline(batch), _named(batch)
    if named is not None:
        return named.microbatches_in_flight(at, rank)
    return np.where(
        np.asarray(batch.vp) > 1,
        INTERLEAVED.microbatches_in_flight(at, rank),
        ONE_F_ONE_B.microbatches_in_flight(at, rank),
    )


def _named(batch: Batch) -> PipelineSchedule | None:
    """The schedule that the plans name; None where it follows from ``vp``."""
    return None if batch.schedule is None else load_schedule(batch.schedule)


def _pipeline(batch: Batch) -> Pipeline:
    return Pipeline(
        pp=batch.pp,
        vp=batch.vp,
        num_microbatches=batch.num_microbatches,
        group_size=batch.microbatch_group_size,
    )
