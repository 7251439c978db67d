"""Seconds of one micro-batch on a stage, and of what its states add to a step."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from shardplan.base.arrays import Numbers, any_holds, is_zero, scaled, where
from shardplan.base.fields import dataclass
from shardplan.estimation.charge import StateCharge
from shardplan.estimation.load import Around, StageWork
from shardplan.estimation.question import Question
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.physics.costs.host import all_windows, exposed, exposed_with_chunks
from shardplan.physics.costs.state_traffic import host_rate
from shardplan.physics.memory import applied_share, kept_per_microbatch, offloaded_share
from shardplan.physics.workload.stage import Stage


@dataclass(frozen=True, kw_only=True)
class WorkTimes:
    """Seconds of one micro-batch on one stage."""

    forward: Numbers
    """Exposed communication included."""
    backward: Numbers
    """The same, recomputation included."""
    plain: Numbers
    """Both without recomputation."""
    weight_gradient: Numbers
    """The part of the backward pass that only the optimizer waits for."""
    transfer: Numbers
    """Exposed transfers to and from neighbours."""
    offload: Numbers
    """Exposed host transfers of activations."""
    overhead: Numbers
    """Fixed time, of all chunks."""
    free_forward: Numbers
    """Computation of the forward pass that hides nothing yet."""
    free_backward: Numbers
    """The same of the backward pass."""
    windows: Windows

    @cached_property
    def between(self) -> Numbers:
        """What forward pass and input gradient share; smallest axes first."""
        return self.transfer + self.offload + self.overhead

    @cached_property
    def microbatch(self) -> Numbers:
        """All of it; smallest axes first."""
        return self.backward + (self.forward + self.between)

    @cached_property
    def free(self) -> Numbers:
        """Computation that hides nothing yet."""
        return self.free_forward + self.free_backward

    @cached_property
    def per_free(self) -> Numbers:
        """One over that. [1/s]"""
        return 1 / np.maximum(self.free, 1e-30)

    @cached_property
    def sharding_window(self) -> Numbers:
        """What can hide the traffic of sharded states in every micro-batch."""
        return self.windows.sharding * self.free

    @cached_property
    def reduce_window(self) -> Numbers:
        """What can hide the reduction of gradients in the last backward pass of one chunk."""
        return self.windows.once * self.free_backward

    @cached_property
    def reduce_windows(self) -> Numbers:
        """The same in the whole step."""
        return self.windows.of_step(self.reduce_window)

    @cached_property
    def gather_window(self) -> Numbers:
        """What can hide the gathering of parameters in the first forward pass of one chunk."""
        return self.windows.once * self.free_forward

    @cached_property
    def gather_windows(self) -> Numbers:
        """The same in the whole step."""
        return self.windows.of_step(self.gather_window)


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Which share of the free computation can hide the traffic of states."""

    vp: Numbers
    group_size: Numbers
    """Micro-batches that one chunk runs in turn."""
    sharding: Numbers
    """Share of it behind which the traffic of every micro-batch travels."""
    once: Numbers
    """Share of it, for one chunk, behind which the traffic of the step travels."""

    @classmethod
    def of(cls, question: Question, numbers: PlanNumbers) -> Windows:
        """Those of a plan."""
        return cls(
            vp=numbers.vp,
            group_size=np.minimum(numbers.microbatch_group_size, numbers.num_microbatches),
            sharding=sharding_window(question, numbers),
            once=once_window(question, numbers) / numbers.vp,
        )

    def of_step(self, own: Numbers) -> Numbers:
        """Window of a whole step where that of one chunk's last pass is ``own``. [s]"""
        return all_windows(own, self.vp, self.group_size)


@dataclass(frozen=True, kw_only=True)
class StateTimes:
    """Seconds that the states of one stage cost, as far as work does not hide them."""

    sharded: Numbers
    """Gathering of weights and reduction of gradients in every micro-batch."""
    reduce: Numbers
    """Reduction of gradients."""
    gather: Numbers
    """Gathering of parameters."""
    update: Numbers
    """Optimizer."""

    @property
    def once(self) -> Numbers:
        """What comes once a step; smallest axes first."""
        times = (self.update, self.gather, self.reduce)
        return sum((time for time in times if not is_zero(time)), start=0.0)


def work_times(question: Question, numbers: PlanNumbers, around: Around, stage: Stage, work: StageWork) -> WorkTimes:
    """Times of one micro-batch on a stage under ``numbers``.

    Computation that hides none of a block's own communication hides, in this order and each part of it once: transfers
    between stages, and what states exchange. Time in which a micro-batch waits for the host's link hides that as well.
    """
    share = applied_share(stage.num_layers, numbers)
    free_forward = work.sum.free_forward
    free_backward = work.sum.free_backward + scaled(share, work.sum.free_recomputed)
    plain = work.sum.forward + work.sum.backward
    again = scaled(share, work.sum.recomputed)
    kept = sent_to_host(numbers, work, share)
    transfer, offload, left = between_stages(
        question, numbers, around, kept, free=free_forward + free_backward, passes=plain + again
    )
    return WorkTimes(
        forward=work.sum.forward,
        backward=work.sum.backward + again,
        plain=plain,
        weight_gradient=work.sum.weight_gradient,
        transfer=transfer,
        offload=offload,
        overhead=calls_of_microbatch(question, numbers),
        free_forward=free_forward if left is None else free_forward * left,
        free_backward=free_backward if left is None else free_backward * left,
        windows=Windows.of(question, numbers),
    )


def calls_of_microbatch(question: Question, numbers: PlanNumbers) -> Numbers:
    r"""Fixed time of a micro-batch on a stage of v chunks, :math:`v\,t_0`. [s]

    A schedule calls the passes of every chunk by themselves, with transfers of their own (Megatron Core,
    pipeline_parallel/schedules.py: ``forward_step`` and ``backward_step`` of each virtual micro-batch).
    """
    return question.profile.microbatch_time * numbers.vp


def sharding_window(question: Question, numbers: PlanNumbers) -> Numbers:
    """Share of the free computation behind which the traffic of every micro-batch travels."""
    return where(numbers.overlap_dp, question.profile.fsdp_window, 0.0)


def once_window(question: Question, numbers: PlanNumbers) -> Numbers:
    """Share of the free computation of a stage's last pass behind which the traffic of the step travels."""
    return where(numbers.overlap_dp, question.profile.dp_window, 0.0)


def between_stages(
    question: Question, numbers: PlanNumbers, around: Around, kept: Numbers, *, free: Numbers, passes: Numbers
) -> tuple[Numbers, Numbers, Numbers | None]:
    """Exposed transfers to other stages and to the host, and the share of ``free`` that hides none (None: all).

    ``kept``: activations of a micro-batch [bytes]; ``passes``: its passes with their exposed communication. [s]
    """
    transfer, rest = _exposed_transfer(question, numbers, around, free)
    offload: Numbers = 0.0
    if any_holds(numbers.offload_activations):
        offload = _exposed_offload(question, numbers, kept, passes + transfer)
        rest = rest + offload  # what waits for the host alone leaves other links free
    return transfer, offload, None if rest is free else rest / np.maximum(free, 1e-30)


def sent_to_host(numbers: PlanNumbers, work: StageWork, share: Numbers) -> Numbers:
    """Activations of one micro-batch, where some may be sent to the host; else nothing. [bytes]"""
    if not any_holds(numbers.offload_activations):
        return 0.0
    return kept_per_microbatch(work.sum.kept_bytes, work.sum.freed_bytes, share)


def state_times(question: Question, times: WorkTimes, load: StateCharge) -> StateTimes:
    """What the states of a stage cost beyond the work that hides their traffic."""
    profile, vp, sharded = question.profile, times.windows.vp, _sharded(question, times, load)
    left: Numbers | None = None
    if not (is_zero(sharded) or (is_zero(load.reduce_time) and is_zero(load.gather_time))):
        left = _left(times, load.sharding_time - sharded)

    def shown(time: Numbers, own: Callable[[], Numbers], windows: Callable[[], Numbers]) -> Numbers:
        if is_zero(time):
            return 0.0
        if left is None:
            return exposed_with_chunks(time, own(), windows, vp, profile)
        return exposed_with_chunks(time, left * own(), lambda: left * windows(), vp, profile)

    return StateTimes(
        sharded=sharded + load.copy_time,
        reduce=shown(load.reduce_time, lambda: times.reduce_window, lambda: times.reduce_windows),
        gather=shown(load.gather_time, lambda: times.gather_window, lambda: times.gather_windows),
        update=load.update_time,
    )


def _sharded(question: Question, times: WorkTimes, load: StateCharge) -> Numbers:
    """What of the exchanges of a micro-batch shows. [s]"""
    if is_zero(load.sharding_time):
        return 0.0
    return exposed(load.sharding_time, times.sharding_window, question.profile)


def _left(times: WorkTimes, hidden: Numbers) -> Numbers:
    """Share of the free computation that hides nothing where it hides ``hidden`` seconds of every micro-batch.

    What hides the traffic of every micro-batch cannot hide that of the step as well.
    """
    return 1 - hidden * times.per_free


def once_windows(question: Question, times: WorkTimes, load: StateCharge) -> tuple[Numbers, Numbers]:
    """What of one chunk's first forward and last backward pass can hide the traffic of the step. [s]"""
    left = _left(times, load.sharding_time - _sharded(question, times, load))
    return left * times.gather_window, left * times.reduce_window


def _exposed_transfer(
    question: Question, numbers: PlanNumbers, around: Around, free: Numbers
) -> tuple[Numbers, Numbers]:
    """Transfers that show, and the free computation that is left.

    Every chunk hands its output on and its input gradient back.
    """
    if not any_holds(around.handover_time):
        return 0.0, free
    time = 2.0 * numbers.vp * around.handover_time
    if not any_holds(numbers.overlap_pp):
        return time, free
    shown = where(numbers.overlap_pp, exposed(time, question.profile.pp_window * free, question.profile), time)
    return shown, free - (time - shown)


def _exposed_offload(question: Question, numbers: PlanNumbers, kept: Numbers, passes: Numbers) -> Numbers:
    """What shows of kept activations that go to the host and come back.

    Engines of their own copy them over a link of their own (``cudaMemcpyAsync``; DMA of TPUs): ``passes``, all that a
    micro-batch spends, hides them, its exposed communication too, and what hides them hides other traffic as well. A
    number of offloaded layers is taken as that of a mean stage.
    """
    away = offloaded_share(question.model.num_hidden_layers / numbers.pp, numbers)
    time = 2.0 * away * kept / host_rate(question.machine)
    shown = exposed(time, question.profile.offload_window * passes, question.profile)
    return where(numbers.offload_activations, shown, 0.0)
