"""The schedule of a plan, or of each plan of an array."""

from __future__ import annotations

import numpy as np

from shardplan.base.arrays import Flags, Numbers, any_holds, where
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.physics.schedules.base import Passes, Pipeline, PipelineSchedule
from shardplan.physics.schedules.registry import INTERLEAVED, ONE_F_ONE_B, load_schedule


def idle_time(own: Passes, everyone: Passes, numbers: PlanNumbers, pace: Numbers = 1.0) -> Numbers:
    """Bubble of a rank that one micro-batch passes in ``own``; see ``PipelineSchedule.idle_time``. [s]"""
    at, named = pipeline_of(numbers), named_schedule(numbers)
    if named is not None:
        return named.idle_time(at, own, everyone, pace)
    many = np.asarray(numbers.vp) > 1
    if not np.any(many):
        return ONE_F_ONE_B.idle_time(at, own, everyone, pace)
    several = INTERLEAVED.idle_time(at, own, everyone, pace)
    return several if np.all(many) else np.where(many, several, ONE_F_ONE_B.idle_time(at, own, everyone, pace))


def least_bubble(numbers: PlanNumbers) -> Numbers:
    """Passes of a mean stage that the slowest rank is idle for at least, with any number of chunks up to ``vp``."""
    at, named = pipeline_of(numbers), named_schedule(numbers)
    if named is not None:
        return named.least_bubble(at)
    return np.minimum(ONE_F_ONE_B.least_bubble(at), INTERLEAVED.least_bubble(at))


def reads_place(numbers: PlanNumbers) -> bool:
    """Whether the idle time of a rank depends on the ranks behind it, in any of the plans."""
    named = named_schedule(numbers)
    return bool(np.any(np.equal(numbers.vp, 1))) if named is None else named.reads_place


def microbatches_in_flight(rank: Numbers, numbers: PlanNumbers, num_layers: Numbers) -> Numbers:
    """Micro-batches that a rank of so many layers keeps at its peak.

    Where experts' exchanges overlap with another micro-batch, ranks of a pipeline run one more pass before the first
    that goes back (Megatron Core, megatron/core/pipeline_parallel/schedules.py, get_pp_rank_microbatches). From then on
    one micro-batch goes back layer by layer as the next comes (combined_1f1b.py), so that there is one layer more than
    without overlap. Schedules of that kind (DualPipe) keep as many as they say.
    """
    found = _in_flight(rank, numbers)
    if numbers.schedule is not None or not any_holds(numbers.overlap_ep):
        return found
    overlaps = numbers.overlaps_experts & np.greater(numbers.pp, 1)
    return np.minimum(numbers.num_microbatches, found + overlaps / np.maximum(num_layers, 1))


def ends_in_flight(in_flight: Numbers, numbers: PlanNumbers) -> Numbers:
    """Of the micro-batches that the last rank keeps, the ones that have passed the model's last chunk."""
    at, named = pipeline_of(numbers), named_schedule(numbers)
    several = INTERLEAVED.ends_in_flight(at) if named is None else named.ends_in_flight(at)
    return in_flight if several is None else where(np.greater(numbers.vp, 1), several, in_flight)


def _in_flight(rank: Numbers, numbers: PlanNumbers) -> Numbers:
    at, named = pipeline_of(numbers), named_schedule(numbers)
    if named is not None:
        return named.microbatches_in_flight(at, rank)
    many = np.asarray(numbers.vp) > 1
    if not np.any(many):
        return ONE_F_ONE_B.microbatches_in_flight(at, rank)
    return where(
        bool(np.all(many)) or many,
        INTERLEAVED.microbatches_in_flight(at, rank),
        ONE_F_ONE_B.microbatches_in_flight(at, rank),
    )


def splits_backward(numbers: PlanNumbers) -> bool:
    """Whether gradients of inputs and of weights are separate passes."""
    named = named_schedule(numbers)
    return named is not None and named.splits_backward


def parameter_copies(numbers: PlanNumbers) -> int:
    """Copies of the model that the ranks of one pipeline hold together."""
    named = named_schedule(numbers)
    return 1 if named is None else named.parameter_copies


def holds_both_ends(numbers: PlanNumbers) -> Flags:
    """Whether one rank holds the first and the last stage of the model."""
    named = named_schedule(numbers)
    return np.equal(numbers.pp, 1) if named is None or not named.ends_meet else True


def named_schedule(numbers: PlanNumbers) -> PipelineSchedule | None:
    """The schedule that the plans name; None where it follows from ``vp``."""
    return None if numbers.schedule is None else load_schedule(numbers.schedule)


def pipeline_of(numbers: PlanNumbers) -> Pipeline:
    """What a schedule reads of a plan."""
    return Pipeline(
        pp=numbers.pp,
        vp=numbers.vp,
        num_microbatches=numbers.num_microbatches,
        group_size=numbers.microbatch_group_size,
    )
