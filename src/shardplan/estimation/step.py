"""Where costs, schedules and memory meet: the step time and the peak memory of a plan, or of each plan of an array.

A stage is priced in two halves. Its *work* (a micro-batch's time and activations) does not depend on how states are
sharded; what *sharding* adds (exchanges, the update, bytes of states) does not depend on recomputation but for the
time that can hide it. A search prices each half on the plans that differ in it and joins them last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shardplan.arrays import Flags, Numbers, all_hold, any_holds, is_zero, largest, where
from shardplan.costs.optimizer import host_rate, update_time
from shardplan.costs.overlap import all_windows, beside, beside_chunks
from shardplan.estimation.load import BlockLoad, Loads, StageStates, StageWork
from shardplan.estimation.pricing import Prices, num_logits, output_bytes
from shardplan.estimation.question import Question
from shardplan.inputs.batch import Batch
from shardplan.memory.activations import (
    applied_share,
    backward_set,
    kept_per_microbatch,
    loss_bytes,
    offloaded_share,
    on_device,
    working_set,
)
from shardplan.memory.states import (
    gathered_bytes,
    host_state_bytes,
    local_parameters,
    model_states,
    reduction_bytes,
    unsharded_gradient_bytes,
    update_bytes,
)
from shardplan.schedules.base import Passes
from shardplan.schedules.pipeline import idle_time, microbatches_in_flight, parameter_copies, splits_backward
from shardplan.workload.layer import Parameters
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
    def reduce_windows(self) -> tuple[Numbers, Numbers]:
        """What can hide the reduction of gradients: in one chunk's last backward pass, and in the whole step."""
        own = self.windows.once * self.free_backward
        return own, self.windows.of_step(own)

    @cached_property
    def gather_windows(self) -> tuple[Numbers, Numbers]:
        """The same for the gathering of parameters, in forward passes."""
        own = self.windows.once * self.free_forward
        return own, self.windows.of_step(own)


@dataclass(frozen=True, kw_only=True, slots=True)
class Windows:
    """Which share of the free computation can hide the traffic of states."""

    num_microbatches: Numbers
    vp: Numbers
    group_size: Numbers
    """Micro-batches that one chunk runs in turn."""
    sharding: Numbers
    """Share of it behind which the traffic of every micro-batch travels."""
    once: Numbers
    """Share of it, for one chunk, behind which the traffic of the step travels."""

    @classmethod
    def of(cls, question: Question, batch: Batch) -> Windows:
        """Those of a plan."""
        return cls(
            num_microbatches=batch.num_microbatches,
            vp=batch.vp,
            group_size=np.minimum(batch.microbatch_group_size, batch.num_microbatches),
            sharding=where(batch.overlap_dp, question.profile.fsdp_window, 0.0),
            once=where(batch.overlap_dp, question.profile.dp_window, 0.0) / batch.vp,
        )

    def of_step(self, own: Numbers) -> Numbers:
        """Window of a whole step where that of one chunk's last pass is ``own``. [s]"""
        return all_windows(own, self.vp, self.group_size)


@dataclass(frozen=True, kw_only=True, slots=True)
class StateTimes:
    """Seconds of one step that the states of one stage cost, as far as work does not hide them."""

    sharded: Numbers
    """Gathering of weights and reduction of gradients in all micro-batches."""
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


@dataclass(frozen=True, kw_only=True, slots=True)
class StateCharge:
    """What the states of a stage cost a step, before work hides any of it, and the bytes that they take."""

    sharding_time: Numbers
    """Weights gathered and gradients reduced in every micro-batch. [s]"""
    reduce_time: Numbers
    """Gradients reduced once per step. [s]"""
    gather_time: Numbers
    """Parameters gathered once per step. [s]"""
    update_time: Numbers
    """Optimizer. [s]"""
    resident_bytes: Numbers
    """What is there all the time."""
    update_bytes: Numbers
    """What the update needs besides."""
    host_bytes: Numbers
    """States that live in host memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StateMemory:
    """Bytes of the states of one rank."""

    weights: Numbers
    gradients: Numbers
    optimizer: Numbers
    whole: Numbers
    """Gathered weights and gradients that are not yet sharded."""
    update: Numbers
    """What the update needs besides."""
    on_host: Numbers
    """States that live in host memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ActivationMemory:
    """Bytes of one rank that do not outlive a step."""

    activations: Numbers
    """Kept tensors, and what recomputation brings back of one layer."""
    loss: Numbers
    """Logits and loss, as far as they exceed what recomputation brings back: the two never live at the same time."""
    passing: Numbers
    """What a layer's backward pass needs besides what was kept: comes when the loss is gone, goes before the update."""
    on_host: Numbers
    """Kept activations that wait in host memory."""

    @property
    def total(self) -> Numbers:
        """All of it on the device; smallest axes first."""
        return (self.passing + self.loss) + self.activations


@dataclass(frozen=True, kw_only=True, slots=True)
class StageMemory:
    """Bytes of one rank of a stage."""

    weights: Numbers
    gradients: Numbers
    optimizer: Numbers
    activations: Numbers
    """Kept tensors, and what recomputation brings back of one layer."""
    logits: Numbers
    """Logits and loss, as far as they exceed what recomputation brings back: the two never live at the same time."""
    buffers: Numbers
    """Gathered weights and gradients of a layer, of its tensors and of its sharded weights; and what the update, when
    activations are gone, needs more than all that took."""
    framework: Numbers

    @classmethod
    def of(cls, states: StateMemory, kept: ActivationMemory, framework: Numbers) -> StageMemory:
        """Both halves together."""
        return cls(
            weights=states.weights,
            gradients=states.gradients,
            optimizer=states.optimizer,
            activations=kept.activations,
            logits=kept.loss,
            buffers=states.whole + kept.passing + in_update(states.update, kept.total),
            framework=framework,
        )

    @property
    def total(self) -> Numbers:
        """All of it."""
        states = self.weights + self.gradients + self.optimizer + self.buffers
        return states + (self.activations + self.logits + self.framework)


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """Outcome of a plan, or arrays over plans."""

    step_time: Numbers
    peak_memory_bytes: Numbers
    fits: Flags


@dataclass(frozen=True, kw_only=True, slots=True)
class Around:
    """What the work of every stage of a plan has in common."""

    handover_time: Numbers
    """One micro-batch from one stage to the next, one way. [s]"""
    output_bytes: Numbers
    """Output of a stage for one micro-batch."""
    logits: Numbers
    """Logits of one micro-batch on the last stage."""

    @classmethod
    def of(cls, question: Question, batch: Batch, prices: Prices) -> Around:
        """Of plans that have been priced."""
        return cls(
            handover_time=prices.handover.time,
            output_bytes=output_bytes(question, batch),
            logits=num_logits(question, batch),
        )


def step_of(
    question: Question,
    batch: Batch,
    prices: Prices,
    kinds: Sequence[Stage],
    whole: Stage,
    *,
    rounds: Sequence[Sequence[Stage]] = (),
) -> Step:
    r"""Step time and peak memory from the stages that can be slowest or fullest.

    .. math:: T = \left(\max_r \left[M (t_r + s_r) + e_r + idle_r\right] + t_0\right)(1 + g \log_2 (N/8))

    with M micro-batches of time t, exposed sharding s, end-of-step time e, pipeline idle time, fixed time and growth by
    stragglers. ``whole``: all layers and ends at once, as the sum over stages. ``rounds``: groups of model chunks of
    which the slowest counts (``estimation.layout``); none where ranks hold one chunk.
    """
    loads, around = Loads.of(prices), Around.of(question, batch, prices)
    everyone = pipeline_sum(question, batch, around, whole, StageWork.of(whole, loads.blocks))
    works = [StageWork.of(stage, loads.blocks) for stage in kinds]
    times = [work_times(question, batch, around, stage, work) for stage, work in zip(kinds, works, strict=True)]
    chunks = [[chunk_time(chunk, loads.blocks) for chunk in group] for group in rounds]
    pace = pace_of(chunks, times)
    busy, memory, host = [], [], []
    for stage, work, one in zip(kinds, works, times, strict=True):
        kept = activation_memory(question, batch, around, stage, work)
        charge = state_charge(question, batch, stage, StageStates.of(stage, loads.states))
        busy.append(paced(batch, one, everyone, pace) + state_times(question, one, charge).total)
        memory.append(peak_of(question, charge, kept))
        host.append(charge.host_bytes + kept.on_host)
    fullest = largest(memory)
    return Step(
        step_time=whole_step(question, largest(busy)),
        peak_memory_bytes=fullest,
        fits=all_hold([fullest <= question.usable_memory, host_holds(question, host)]),
    )


def whole_step(question: Question, busiest: Numbers) -> Numbers:
    """A step whose slowest stage is busy so long: with the fixed time, and the growth by stragglers. [s]"""
    return (busiest + question.profile.step_time) * straggler_factor(question)


def peak_of(question: Question, states: StateCharge, kept: ActivationMemory) -> Numbers:
    """Memory of one rank at its peak. [bytes]"""
    peak = (states.resident_bytes + question.profile.framework_bytes) + kept.total
    return peak if is_zero(states.update_bytes) else peak + in_update(states.update_bytes, kept.total)


def in_update(needed: Numbers, gone: Numbers) -> Numbers:
    """What the update needs beyond activations, which are gone by then. [bytes]"""
    return np.maximum(needed - gone, 0.0) if any_holds(needed) else 0.0


def host_holds(question: Question, host: Sequence[Numbers]) -> Flags:
    """Whether a node holds what its accelerators move to its memory (taken to be of one stage)."""
    share = question.host_memory
    if share is None or not any(any_holds(needed) for needed in host):
        return True
    return all_hold(needed <= share for needed in host)


def straggler_factor(question: Question) -> Numbers:
    """Slowdown of the slowest of many accelerators: a share per doubling beyond 8."""
    return 1 + question.profile.straggler_growth * max(math.log2(question.num_accelerators / 8), 0.0)


def work_times(question: Question, batch: Batch, around: Around, stage: Stage, work: StageWork) -> WorkTimes:
    """Times of one micro-batch on a stage under ``batch``.

    Computation that hides none of a block's own communication hides, in this order and each part of it once: transfers
    between stages, activations on their way to the host, and what states exchange.
    """
    share = applied_share(stage.num_layers, batch)
    free_forward = work.sum.free_forward
    free_backward = work.sum.free_backward + share * work.sum.free_recomputed
    kept = kept_per_microbatch(work.sum.kept_bytes, work.sum.freed_bytes, share)
    transfer, offload, left = _between(question, batch, around, kept, free_forward + free_backward)
    return WorkTimes(
        forward=work.sum.forward,
        backward=work.sum.backward + share * work.sum.recomputed,
        plain=work.sum.forward + work.sum.backward,
        weight_gradient=work.sum.weight_gradient,
        transfer=transfer,
        offload=offload,
        overhead=question.profile.microbatch_time,
        free_forward=free_forward if left is None else free_forward * left,
        free_backward=free_backward if left is None else free_backward * left,
        windows=Windows.of(question, batch),
    )


def _between(
    question: Question, batch: Batch, around: Around, kept: Numbers, free: Numbers
) -> tuple[Numbers, Numbers, Numbers | None]:
    """Exposed transfers to other stages and to the host, and the share of ``free`` that hides neither (None: all).

    ``kept``: activations of a micro-batch. [bytes]
    """
    transfer, rest = _exposed_transfer(question, batch, around, free)
    offload: Numbers = 0.0
    if any_holds(batch.offload_activations):
        offload, rest = _exposed_offload(question, batch, kept, rest)
    return transfer, offload, None if rest is free else rest / np.maximum(free, 1e-30)


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


def paced(batch: Batch, times: WorkTimes, everyone: Passes, pace: Numbers) -> Numbers:
    """All micro-batches of a step through a stage, and the time in which it waits for others. [s]

    ``everyone``: one micro-batch through all stages; ``pace``: of uneven chunks.
    """
    passes = batch.num_microbatches * times.microbatch
    if np.all(np.asarray(batch.pp) == 1):
        return passes
    return passes + idle_time(passes_of(batch, times), everyone, batch, pace)


def passes_of(batch: Batch, times: WorkTimes) -> Passes:
    """One micro-batch through a stage, apart by gradient where the schedule runs these apart.

    What comes between stages is shared by forward pass and input gradient.
    """
    if not splits_backward(batch):
        return Passes(forward=times.microbatch, input_gradient=0.0, weight_gradient=0.0)
    between = (times.transfer + times.offload + times.overhead) / 2
    return Passes(
        forward=times.forward + between,
        input_gradient=times.backward - times.weight_gradient + between,
        weight_gradient=times.weight_gradient,
    )


def state_times(question: Question, times: WorkTimes, load: StateCharge) -> StateTimes:
    """What the states of a stage cost a step beyond the work that hides their traffic."""
    profile, windows = question.profile, times.windows
    sharded: Numbers = 0.0
    left: Numbers | None = None
    once = not (is_zero(load.reduce_time) and is_zero(load.gather_time))
    if not is_zero(load.sharding_time):
        each = beside(load.sharding_time, times.sharding_window, profile)
        sharded = windows.num_microbatches * each
        if once:  # What hides the traffic of every micro-batch cannot hide that of the step as well.
            left = 1 - (load.sharding_time - each) / np.maximum(times.free, 1e-30)

    def shown(time: Numbers, hidden_in: Callable[[], tuple[Numbers, Numbers]]) -> Numbers:
        if is_zero(time):
            return 0.0
        own, whole = hidden_in() if left is None else (left * window for window in hidden_in())
        return beside_chunks(time, own, whole, windows.vp, profile)

    return StateTimes(
        sharded=sharded,
        reduce=shown(load.reduce_time, lambda: times.reduce_windows),
        gather=shown(load.gather_time, lambda: times.gather_windows),
        update=load.update_time,
    )


def pipeline_sum(question: Question, batch: Batch, around: Around, whole: Stage, work: StageWork) -> Passes:
    """One micro-batch's time summed over all stages. [s]

    A number of recomputed layers applies to each stage; where stages are unlike, their mean stands for all.
    """
    share = np.minimum(1.0, batch.recompute_num_layers * batch.pp / whole.num_layers)
    passes = work.sum.forward + work.sum.backward
    again = share * work.sum.recomputed
    free = (work.sum.free_forward + work.sum.free_backward) + share * work.sum.free_recomputed
    kept = kept_per_microbatch(work.sum.kept_bytes, work.sum.freed_bytes, share) / batch.pp
    transfer, offload, _ = _between(question, batch, around, kept, free / batch.pp)
    between = batch.pp * (transfer + offload + question.profile.microbatch_time)
    if not splits_backward(batch):
        return Passes(forward=(passes + between) + again, input_gradient=0.0, weight_gradient=0.0)
    forward = work.sum.forward + between / 2
    weight_gradient = work.sum.weight_gradient
    return Passes(
        forward=forward,
        input_gradient=(passes + between) + again - forward - weight_gradient,
        weight_gradient=weight_gradient,
    )


def _exposed_transfer(question: Question, batch: Batch, around: Around, free: Numbers) -> tuple[Numbers, Numbers]:
    """Transfers that show, and the free computation that is left.

    Every chunk hands its output on and its input gradient back.
    """
    if not any_holds(around.handover_time):
        return 0.0, free
    time = 2.0 * batch.vp * around.handover_time
    if not any_holds(batch.overlap_pp):
        return time, free
    shown = where(batch.overlap_pp, beside(time, question.profile.pp_window * free, question.profile), time)
    return shown, free - (time - shown)


def _exposed_offload(question: Question, batch: Batch, kept: Numbers, free: Numbers) -> tuple[Numbers, Numbers]:
    """Kept activations that go to the host and come back: what shows, and the free computation that is left.

    A number of offloaded layers is taken as that of a mean stage.
    """
    away = offloaded_share(question.model.num_hidden_layers / batch.pp, batch)
    time = 2.0 * away * kept / host_rate(question.machine)
    shown = beside(time, question.profile.offload_window * free, question.profile)
    shown = where(batch.offload_activations, shown, 0.0)
    return shown, free - where(batch.offload_activations, time - shown, 0.0)


def state_charge(question: Question, batch: Batch, stage: Stage, states: StageStates) -> StateCharge:
    """What the states of a stage cost; schedules that run both ways through the ranks hold copies of them."""
    states = states.times(parameter_copies(batch))
    memory = state_memory(question, batch, stage, states)
    updated = local_parameters(states.sum.parameters, batch)
    return StateCharge(
        sharding_time=states.sum.sharding_time,
        reduce_time=states.sum.reduce_time,
        gather_time=states.sum.gather_time,
        update_time=update_time(updated, question.job, batch, question.machine),
        resident_bytes=memory.weights + memory.gradients + memory.optimizer + memory.whole,
        update_bytes=memory.update,
        host_bytes=memory.on_host,
    )


def state_memory(question: Question, batch: Batch, stage: Stage, states: StageStates) -> StateMemory:
    """Bytes of the states of one rank of a stage."""
    job, held = question.job, states.sum.parameters
    resident = model_states(held, job, batch)
    whole = gathered_bytes(states.part, states.layer, job, batch)
    whole = whole + unsharded_gradient_bytes(_early(stage, states.part, states.layer), states.layer, job, batch)
    return StateMemory(
        weights=resident.weights,
        gradients=resident.gradients,
        optimizer=resident.optimizer,
        whole=whole + reduction_bytes(states.part, states.layer, job, batch),
        update=update_bytes(held, job, batch),
        on_host=host_state_bytes(held, job, batch),
    )


def activation_memory(
    question: Question, batch: Batch, around: Around, stage: Stage, work: StageWork
) -> ActivationMemory:
    """Bytes of one rank of a stage that hold activations and the loss, at their peak."""
    profile, software = question.profile, question.job.software
    share = applied_share(stage.num_layers, batch)
    in_flight = microbatches_in_flight(stage.rank, batch)
    present = on_device(in_flight, stage.num_layers, batch) if any_holds(batch.offload_activations) else in_flight
    freed = share * work.sum.freed_bytes
    factor = profile.activation_factor[software.kernels]
    recomputed = factor * np.minimum(working_set(work.freed_of_part, share), present * freed)
    waiting = factor * present * (work.sum.kept_bytes - freed)
    passing = backward_set(work.kept_of_layer, profile)
    return ActivationMemory(
        activations=waiting + recomputed + _kept_outputs(question, batch, around, stage, in_flight),
        loss=_beyond(_loss(question, batch, around, stage), recomputed + passing),
        passing=passing,
        on_host=_waiting_on_host(batch, stage, in_flight, work, share),
    )


def _waiting_on_host(batch: Batch, stage: Stage, in_flight: Numbers, work: StageWork, share: Numbers) -> Numbers:
    """Kept activations of all micro-batches in flight that wait in host memory. [bytes]"""
    if not any_holds(batch.offload_activations):
        return 0.0
    one = kept_per_microbatch(work.sum.kept_bytes, work.sum.freed_bytes, share)
    return in_flight * offloaded_share(stage.num_layers, batch) * one


def _early(stage: Stage, part: Parameters, layer: Parameters) -> Parameters:
    """The part of a stage whose gradients can exist when activations do: its head, or a layer where it has none."""
    ends = np.asarray(stage.has_head + stage.num_mtp_layers) > 0
    return Parameters(where(ends, part.dense, layer.dense), where(ends, part.experts, layer.experts))


def _beyond(peak: Numbers, gone: Numbers) -> Numbers:
    """What a peak needs beyond what is gone by then; nothing where no plan has such a peak."""
    return np.maximum(peak - gone, 0.0) if any_holds(peak) else 0.0


def _loss(question: Question, batch: Batch, around: Around, stage: Stage) -> Numbers:
    """Logits and loss at their peak, where a stage has a head."""
    heads = stage.has_head + stage.num_mtp_layers
    if not any_holds(heads):
        return 0.0
    return loss_bytes(question.job.software, question.profile.logits_bytes, around.logits, heads, batch.tp_columns)


def _kept_outputs(question: Question, batch: Batch, around: Around, stage: Stage, in_flight: Numbers) -> Numbers:
    """Outputs of every chunk that a framework keeps till their backward pass; the last chunk's is the loss."""
    if not question.job.software.stage_outputs or np.all(np.asarray(batch.pp) == 1):
        return 0.0
    kept = in_flight * (batch.vp - stage.has_head) * around.output_bytes
    return where(np.equal(batch.pp, 1), 0.0, kept)
