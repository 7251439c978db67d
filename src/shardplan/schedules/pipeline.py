"""The schedule of a plan, or of each plan of a batch."""

from __future__ import annotations

import numpy as np

from shardplan.arrays import Numbers
from shardplan.inputs.batch import Batch
from shardplan.schedules.base import PipelineRank, PipelineSchedule
from shardplan.schedules.gpipe import GPipe
from shardplan.schedules.interleaved import Interleaved
from shardplan.schedules.one_f_one_b import OneForwardOneBackward

SCHEDULES: dict[str, PipelineSchedule] = {
    schedule.name: schedule for schedule in (OneForwardOneBackward(), Interleaved(), GPipe())
}


def idle_time(stage_time: Numbers, all_stages_time: Numbers, batch: Batch) -> Numbers:
    """Bubble of a rank whose stage takes ``stage_time``; with one chunk per rank interleaving is plain 1F1B. [s]"""
    return SCHEDULES["interleaved"].idle_time(stage_time, all_stages_time, batch.vp)


def microbatches_in_flight(rank: Numbers, batch: Batch) -> Numbers:
    """Micro-batches that a rank keeps at its peak."""
    at = PipelineRank(
        rank=rank,
        pp=batch.pp,
        vp=batch.vp,
        num_microbatches=batch.num_microbatches,
        group_size=batch.microbatch_group_size,
    )
    counts = {name: schedule.microbatches_in_flight(at) for name, schedule in SCHEDULES.items()}
    alternating = np.where(np.asarray(batch.vp) > 1, counts["interleaved"], counts["1f1b"])
    return np.where(batch.gpipe, counts["gpipe"], alternating)
