"""The schedule of a plan, or of each plan of a batch."""

from __future__ import annotations

import numpy as np

from shardplan.arrays import Numbers
from shardplan.inputs.batch import Batch
from shardplan.schedules.gpipe import GPipe
from shardplan.schedules.interleaved import Interleaved
from shardplan.schedules.one_f_one_b import OneForwardOneBackward

__all__ = ["SCHEDULES", "idle_time", "microbatches_in_flight"]

SCHEDULES = {schedule.name: schedule for schedule in (OneForwardOneBackward(), Interleaved(), GPipe())}


def idle_time(stage_time: Numbers, all_stages_time: Numbers, batch: Batch) -> Numbers:
    """Bubble of a rank whose stage takes ``stage_time``; one chunk per rank makes the interleaved schedule plain 1F1B. [s]"""
    return SCHEDULES["interleaved"].idle_time(stage_time, all_stages_time, batch.vp)


def microbatches_in_flight(rank: Numbers, batch: Batch) -> Numbers:
    """Micro-batches that a rank keeps at its peak."""
    counts = {
        name: schedule.microbatches_in_flight(
            rank, batch.pp, batch.vp, batch.num_microbatches, batch.microbatch_group_size
        )
        for name, schedule in SCHEDULES.items()
    }
    alternating = np.where(np.asarray(batch.vp) > 1, counts["interleaved"], counts["1f1b"])
    return np.where(batch.gpipe, counts["gpipe"], alternating)
