"""Seconds of one micro-batch on a stage, of all of them through a pipeline, and of what states add to a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from shardplan.arrays import Numbers, any_holds, is_zero, largest, scaled, where
from shardplan.costs.optimizer import host_rate
from shardplan.costs.overlap import all_windows, exposed, exposed_with_chunks
from shardplan.estimation.charge import StateCharge
from shardplan.estimation.load import Around, BlockLoad, StageWork
from shardplan.estimation.question import Question
from shardplan.fields import dataclass
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.memory.activations import applied_share, kept_per_microbatch, offloaded_share
from shardplan.schedules.base import Passes, RankPasses
from shardplan.schedules.pipeline import idle_time, least_bubble, reads_place, splits_backward
from shardplan.workload.parts import Parts
from shardplan.workload.stage import Stage


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
    """Fixed time."""
    free_forward: Numbers
    """Computation of the forward pass that hides nothing yet."""
    free_backward: Numbers
    """The same of the backward pass."""
    windows: Windows

    @cached_property
    def microbatch(self) -> Numbers:
        """All of it; smallest axes first."""
        return self.backward + (self.forward + (self.transfer + self.offload + self.overhead))

    @cached_property
    def free(self) -> Numbers:
        """Computation that hides nothing yet."""
        return self.free_forward + self.free_backward

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Windows:
    """Which share of the free computation can hide the traffic of states."""

    num_microbatches: Numbers
    waits: Numbers
    """Micro-batches that would fill the bubble of a rank among equal ones."""
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
            num_microbatches=numbers.num_microbatches,
            waits=waits(numbers),
            vp=numbers.vp,
            group_size=np.minimum(numbers.microbatch_group_size, numbers.num_microbatches),
            sharding=where(numbers.overlap_dp, question.profile.fsdp_window, 0.0),
            once=where(numbers.overlap_dp, question.profile.dp_window, 0.0) / numbers.vp,
        )

    def of_step(self, own: Numbers) -> Numbers:
        """Window of a whole step where that of one chunk's last pass is ``own``. [s]"""
        return all_windows(own, self.vp, self.group_size)


@dataclass(frozen=True, kw_only=True, slots=True)
class StateTimes:
    """Seconds of one step that the states of one stage cost, as far as work does not hide them."""

    sharded: Numbers
    """Gathering of weights and reduction of gradients in all micro-batches, and in those that a rank waits for."""
    reduce: Numbers
    """Reduction of gradients."""
    gather: Numbers
    """Gathering of parameters."""
    update: Numbers
    """Optimizer."""

    @property
    def total(self) -> Numbers:
        """All of it; smallest axes first."""
        times = (self.update, self.sharded, self.gather, self.reduce)
        return sum((time for time in times if not is_zero(time)), start=0.0)


def work_times(question: Question, numbers: PlanNumbers, around: Around, stage: Stage, work: StageWork) -> WorkTimes:
    """Times of one micro-batch on a stage under ``numbers``.

    Computation that hides none of a block's own communication hides, in this order and each part of it once: transfers
    between stages, activations on their way to the host, and what states exchange.
    """
    share = applied_share(stage.num_layers, numbers)
    free_forward = work.sum.free_forward
    free_backward = work.sum.free_backward + scaled(share, work.sum.free_recomputed)
    kept = _sent_to_host(numbers, work, share)
    transfer, offload, left = _between(question, numbers, around, kept, free_forward + free_backward)
    return WorkTimes(
        forward=work.sum.forward,
        backward=work.sum.backward + scaled(share, work.sum.recomputed),
        plain=work.sum.forward + work.sum.backward,
        weight_gradient=work.sum.weight_gradient,
        transfer=transfer,
        offload=offload,
        overhead=question.profile.microbatch_time,
        free_forward=free_forward if left is None else free_forward * left,
        free_backward=free_backward if left is None else free_backward * left,
        windows=Windows.of(question, numbers),
    )


def _between(
    question: Question, numbers: PlanNumbers, around: Around, kept: Numbers, free: Numbers
) -> tuple[Numbers, Numbers, Numbers | None]:
    """Exposed transfers to other stages and to the host, and the share of ``free`` that hides neither (None: all).

    ``kept``: activations of a micro-batch. [bytes]
    """
    transfer, rest = _exposed_transfer(question, numbers, around, free)
    offload: Numbers = 0.0
    if any_holds(numbers.offload_activations):
        offload, rest = _exposed_offload(question, numbers, kept, rest)
    return transfer, offload, None if rest is free else rest / np.maximum(free, 1e-30)


def _sent_to_host(numbers: PlanNumbers, work: StageWork, share: Numbers) -> Numbers:
    """Activations of one micro-batch, where some may be sent to the host; else nothing. [bytes]"""
    if not any_holds(numbers.offload_activations):
        return 0.0
    return kept_per_microbatch(work.sum.kept_bytes, work.sum.freed_bytes, share)


def chunk_time(stage: Stage, parts: Parts[BlockLoad]) -> Numbers:
    """One micro-batch forward and backward through a model chunk, without recomputation. [s]"""
    return parts.total(stage, lambda part: part.forward + part.backward)


def pace_of(rounds: Sequence[Sequence[Numbers]], stages: Sequence[WorkTimes]) -> Numbers:
    r"""By how much a micro-batch is slower where every round of chunks runs at the pace of its slowest.

    .. math:: \frac{\sum_k \max_r w_{kr}}{\max_r \sum_k w_{kr}}

    ``rounds``: seconds of chunks in groups of which the slowest counts. 1 where there are none. Recomputation makes all
    chunks slower alike and is left out.
    """
    if not rounds:
        return 1.0
    return sum((largest(group) for group in rounds[1:]), start=largest(rounds[0])) / largest(s.plain for s in stages)


def paced(
    numbers: PlanNumbers,
    times: WorkTimes,
    everyone: Passes,
    pace: Numbers,
    *,
    stage: Stage,
    behind: Callable[[Stage], Passes],
) -> Numbers:
    """All micro-batches of a step through a stage, and the time in which it waits for others. [s]

    ``everyone``: one micro-batch through all stages; ``behind``: through the stages behind ``stage``, which is asked
    where the schedule reads the place of a rank; ``pace``: of uneven chunks.
    """
    passes = numbers.num_microbatches * times.microbatch
    if np.all(np.asarray(numbers.pp) == 1):
        return passes
    own = passes_of(numbers, times)
    if reads_place(numbers) and not is_zero(stage.num_behind):
        own = _placed(times, everyone, stage, behind)
    return passes + idle_time(own, everyone, numbers, pace)


def _placed(times: WorkTimes, everyone: Passes, stage: Stage, behind: Callable[[Stage], Passes]) -> RankPasses:
    """One micro-batch through a stage whose place is known. Behind the first stage are all others."""
    between = (times.transfer + times.offload + times.overhead) / 2
    forward = times.forward + between
    others = everyone.total - times.microbatch
    is_first = np.equal(stage.rank, 0)
    if not np.all(is_first):
        after = behind(stage).total
        others = np.where(is_first, others, after) if np.any(is_first) else after
    return RankPasses(
        forward=forward,
        input_gradient=times.microbatch - forward,
        weight_gradient=0.0,
        num_behind=stage.num_behind,
        behind=others,
    )


def least_passes(numbers: PlanNumbers, whole: Stage, passes: Numbers, recomputed: Numbers) -> Numbers:
    r"""All micro-batches on a mean stage, without transfers, with the bubble that every pipeline has at least. [s]

    .. math:: \frac{M + b}{p} \sum_r t_r

    The slowest stage takes no less, with any number of chunks per rank up to ``numbers.vp``. ``passes``,
    ``recomputed``: seconds of a micro-batch in all stages together. A number of recomputed layers counts as if one
    stage held all layers: its share of them is the least that any stage has.
    """
    again = scaled(applied_share(whole.num_layers, numbers), recomputed)
    return (numbers.num_microbatches + least_bubble(numbers)) / numbers.pp * (passes + again)


def waits(numbers: PlanNumbers) -> Numbers:
    """Bubble of a rank among equal ones, in micro-batches: p - 1 in 1F1B.

    What forward pass and input gradient of every micro-batch take more, such as exposed exchanges of sharded states,
    passes through the pipeline with the first micro-batch and with the last. No weight gradient hides it.
    """
    pp = np.asarray(numbers.pp)
    if np.all(pp == 1):
        return 0.0
    own = Passes(forward=0.5, input_gradient=0.5, weight_gradient=0.0)
    return idle_time(own, Passes(forward=pp / 2, input_gradient=pp / 2, weight_gradient=0.0), numbers)


def passes_of(numbers: PlanNumbers, times: WorkTimes) -> Passes:
    """One micro-batch through a stage, apart by gradient where the schedule runs these apart.

    What comes between stages is shared by forward pass and input gradient.
    """
    if not splits_backward(numbers):
        return Passes(forward=times.microbatch, input_gradient=0.0, weight_gradient=0.0)
    between = (times.transfer + times.offload + times.overhead) / 2
    return Passes(
        forward=times.forward + between,
        input_gradient=times.backward - times.weight_gradient + between,
        weight_gradient=times.weight_gradient,
    )


def state_times(question: Question, times: WorkTimes, load: StateCharge) -> StateTimes:
    """What the states of a stage cost a step beyond the work that hides their traffic."""
    profile, vp = question.profile, times.windows.vp
    sharded: Numbers = 0.0
    left: Numbers | None = None
    if not is_zero(load.sharding_time):
        each = exposed(load.sharding_time, times.sharding_window, profile)
        sharded = (times.windows.num_microbatches + times.windows.waits) * each
        if not (is_zero(load.reduce_time) and is_zero(load.gather_time)):
            left = _left(times, load.sharding_time - each)

    def shown(time: Numbers, own: Callable[[], Numbers], windows: Callable[[], Numbers]) -> Numbers:
        if is_zero(time):
            return 0.0
        if left is None:
            return exposed_with_chunks(time, own(), windows, vp, profile)
        return exposed_with_chunks(time, left * own(), lambda: left * windows(), vp, profile)

    return StateTimes(
        sharded=sharded,
        reduce=shown(load.reduce_time, lambda: times.reduce_window, lambda: times.reduce_windows),
        gather=shown(load.gather_time, lambda: times.gather_window, lambda: times.gather_windows),
        update=load.update_time,
    )


def _left(times: WorkTimes, hidden: Numbers) -> Numbers:
    """Share of the free computation that hides nothing where it hides ``hidden`` seconds of every micro-batch.

    What hides the traffic of every micro-batch cannot hide that of the step as well.
    """
    return 1 - hidden / np.maximum(times.free, 1e-30)


def once_windows(question: Question, times: WorkTimes, load: StateCharge) -> tuple[Numbers, Numbers]:
    """What of one chunk's first forward and last backward pass can hide the traffic of the step. [s]"""
    left = _left(times, load.sharding_time - exposed(load.sharding_time, times.sharding_window, question.profile))
    return left * times.gather_window, left * times.reduce_window


def pipeline_sum(
    question: Question,
    numbers: PlanNumbers,
    around: Around,
    whole: Stage,
    work: StageWork,
    *,
    num_stages: Numbers | None = None,
) -> Passes:
    """One micro-batch's time summed over all stages, or over ``num_stages`` that hold ``whole`` together. [s]

    A number of recomputed layers applies to each stage; where stages are unlike, their mean stands for all.
    """
    num_stages = numbers.pp if num_stages is None else num_stages
    each = np.maximum(num_stages, 1)
    share = applied_share(whole.num_layers / each, numbers)
    passes = work.sum.forward + work.sum.backward
    again = scaled(share, work.sum.recomputed)
    free = (work.sum.free_forward + work.sum.free_backward) + scaled(share, work.sum.free_recomputed)
    kept = _sent_to_host(numbers, work, share) / each
    transfer, offload, _ = _between(question, numbers, around, kept, free / each)
    between = num_stages * (transfer + offload + question.profile.microbatch_time)
    if not splits_backward(numbers):
        return Passes(forward=(passes + between) + again, input_gradient=0.0, weight_gradient=0.0)
    forward = work.sum.forward + between / 2
    weight_gradient = work.sum.weight_gradient
    return Passes(
        forward=forward,
        input_gradient=(passes + between) + again - forward - weight_gradient,
        weight_gradient=weight_gradient,
    )


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


def _exposed_offload(question: Question, numbers: PlanNumbers, kept: Numbers, free: Numbers) -> tuple[Numbers, Numbers]:
    """Kept activations that go to the host and come back: what shows, and the free computation that is left.

    A number of offloaded layers is taken as that of a mean stage.
    """
    away = offloaded_share(question.model.num_hidden_layers / numbers.pp, numbers)
    time = 2.0 * away * kept / host_rate(question.machine)
    shown = exposed(time, question.profile.offload_window * free, question.profile)
    shown = where(numbers.offload_activations, shown, 0.0)
    return shown, free - where(numbers.offload_activations, time - shown, 0.0)
