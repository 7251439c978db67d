"""The schedule of a plan, or of each plan of an array."""

from __future__ import annotations

import numpy as np

from shardplan.arrays import Flags, Numbers, where
from shardplan.inputs.batch import Batch
from shardplan.schedules.base import Passes, Pipeline, PipelineSchedule
from shardplan.schedules.registry import INTERLEAVED, ONE_F_ONE_B, load_schedule


def idle_time(own: Passes, everyone: Passes, batch: Batch, pace: Numbers = 1.0) -> Numbers:
    """Bubble of a rank that one micro-batch passes in ``own``; see ``PipelineSchedule.idle_time``. [s]"""
    # With one chunk per rank interleaving is plain 1F1B.
    return (named_schedule(batch) or INTERLEAVED).idle_time(pipeline_of(batch), own, everyone, pace)


def microbatches_in_flight(rank: Numbers, batch: Batch) -> Numbers:
    """Micro-batches that a rank keeps at its peak."""
    at, named = pipeline_of(batch), named_schedule(batch)
    if named is not None:
        return named.microbatches_in_flight(at, rank)
    many = np.asarray(batch.vp) > 1
    if not np.any(many):
        return ONE_F_ONE_B.microbatches_in_flight(at, rank)
    return where(
        bool(np.all(many)) or many,
        INTERLEAVED.microbatches_in_flight(at, rank),
        ONE_F_ONE_B.microbatches_in_flight(at, rank),
    )


def splits_backward(batch: Batch) -> bool:
    """Whether gradients of inputs and of weights are separate passes."""
    named = named_schedule(batch)
    return named is not None and named.splits_backward


def parameter_copies(batch: Batch) -> int:
    """Copies of the model that the ranks of one pipeline hold together."""
    named = named_schedule(batch)
    return 1 if named is None else named.parameter_copies


def holds_both_ends(batch: Batch) -> Flags:
    """Whether one rank holds the first and the last stage of the model."""
    named = named_schedule(batch)
    return np.equal(batch.pp, 1) if named is None or not named.ends_meet else True


def named_schedule(batch: Batch) -> PipelineSchedule | None:
    """The schedule that the plans name; None where it follows from ``vp``."""
    return None if batch.schedule is None else load_schedule(batch.schedule)


def pipeline_of(batch: Batch) -> Pipeline:
    """What a schedule reads of a plan."""
    return Pipeline(
        pp=batch.pp,
        vp=batch.vp,
        num_microbatches=batch.num_microbatches,
        group_size=batch.microbatch_group_size,
    )
