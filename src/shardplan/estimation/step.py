"""Where costs, schedules and memory meet: the step time and the peak memory of a plan, or of each plan of an array.

A stage is priced in two halves. Its *work* (a micro-batch's time and activations) does not depend on how states are
sharded; what *sharding* adds (exchanges, the update, bytes of states) does not depend on recomputation but for the
time that can hide it. A search prices each half on the plans that differ in it and joins them last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shardplan.arrays import Flags, Numbers, all_hold, is_zero, largest
from shardplan.estimation.charge import StateCharge, state_charge
from shardplan.estimation.load import Around, Loads, StageStates, StageWork
from shardplan.estimation.pricing import Prices
from shardplan.estimation.question import Question
from shardplan.estimation.stage_memory import ActivationMemory, activation_memory, host_holds
from shardplan.estimation.times import WorkTimes, chunk_time, pace_of, paced, pipeline_sum, state_times, work_times
from shardplan.inputs.batch import Batch
from shardplan.workload.stage import Stage


@dataclass(frozen=True, kw_only=True)
class Step:
    """Outcome of a plan, or arrays over plans."""

    question: Question
    busiest: Numbers
    """What the slowest stage takes, but for what all plans have in common. [s]"""
    peak_memory_bytes: Numbers
    fits: Flags

    @cached_property
    def step_time(self) -> Numbers:
        """One optimizer step. [s]"""
        return whole_step(self.question, self.busiest)


@dataclass(frozen=True, kw_only=True, slots=True)
class PricedStage:
    """A kind of stage: its work, and what its states cost."""

    times: WorkTimes
    passes: Numbers
    """All micro-batches and the time in which it waits for other stages. [s]"""
    kept: ActivationMemory
    charge: StateCharge


def step_of(
    question: Question,
    batch: Batch,
    prices: Prices,
    kinds: Sequence[Stage],
    whole: Stage,
    *,
    rounds: Sequence[Sequence[Stage]] = (),
) -> Step:
    """Step time and peak memory from the ``kinds`` of stage that can be slowest or fullest.

    ``whole``: all layers and ends at once, as the sum over stages. ``rounds``: groups of model chunks of which the
    slowest counts (``estimation.layout``); none where ranks hold one chunk.
    """
    loads, around = Loads.of(prices), Around.of(question, batch, prices)
    everyone = pipeline_sum(question, batch, around, whole, StageWork.of(whole, loads.blocks))
    works = [StageWork.of(stage, loads.blocks) for stage in kinds]
    times = [work_times(question, batch, around, stage, work) for stage, work in zip(kinds, works, strict=True)]
    pace = pace_of([[chunk_time(chunk, loads.blocks) for chunk in group] for group in rounds], times)
    stages = [
        PricedStage(
            times=one,
            passes=paced(batch, one, everyone, pace),
            kept=activation_memory(question, batch, around, stage, work),
            charge=state_charge(question, batch, stage, StageStates.of(stage, loads.states)),
        )
        for stage, work, one in zip(kinds, works, times, strict=True)
    ]
    return joined(question, stages)


def joined(question: Question, stages: Sequence[PricedStage]) -> Step:
    r"""The step that stages make together.

    .. math:: T = \left(\max_r \left[M (t_r + s_r) + e_r + idle_r\right] + t_0\right)(1 + g \log_2 (N/8))

    with M micro-batches of time t, exposed sharding s, end-of-step time e, pipeline idle time, fixed time and growth by
    stragglers. Memory is that of the fullest stage.
    """
    busiest = largest(stage.passes + state_times(question, stage.times, stage.charge).total for stage in stages)
    fullest = largest(peak_of(question, stage.charge, stage.kept) for stage in stages)
    host = host_holds(question, [stage.charge.host_bytes + stage.kept.on_host for stage in stages])
    fits = fullest <= question.usable_memory
    return Step(
        question=question,
        busiest=busiest,
        peak_memory_bytes=fullest,
        fits=fits if host is True else all_hold([fits, host]),
    )


def whole_step(question: Question, busiest: Numbers) -> Numbers:
    """A step whose slowest stage is busy so long: with the fixed time, and the growth by stragglers. [s]"""
    return (busiest + question.profile.step_time) * straggler_factor(question)


def straggler_factor(question: Question) -> Numbers:
    """Slowdown of the slowest of many accelerators: a share per doubling beyond 8."""
    return 1 + question.profile.straggler_growth * max(math.log2(question.num_accelerators / 8), 0.0)


def peak_of(question: Question, states: StateCharge, kept: ActivationMemory) -> Numbers:
    """Memory of one rank at its peak: with activations, or in the update, when these are gone. [bytes]"""
    resident = states.resident_bytes + question.profile.framework_bytes
    return resident + (kept.total if is_zero(states.update_bytes) else np.maximum(kept.total, states.update_bytes))
