"""Where costs, schedules and memory meet: the step time and the peak memory of a plan, or of each plan of a batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shardplan.arrays import Flags, Numbers, all_hold, any_holds, largest
from shardplan.costs.optimizer import host_rate, update_time
from shardplan.costs.overlap import beside, beside_chunks
from shardplan.estimation.load import Load, Loads
from shardplan.estimation.question import Question
from shardplan.inputs.batch import Batch
from shardplan.inputs.software import Software
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
from shardplan.schedules.pipeline import idle_time, microbatches_in_flight
from shardplan.workload.layer import Parameters
from shardplan.workload.stage import Stage


@dataclass(frozen=True, kw_only=True, slots=True)
class StageTimes:
    """Seconds of one stage."""

    forward: Numbers
    """One micro-batch, exposed communication included."""
    backward: Numbers
    """One micro-batch, recomputation included."""
    transfer: Numbers
    """Exposed transfers to and from neighbours, per micro-batch."""
    offload: Numbers
    """Exposed host transfers of activations, per micro-batch."""
    overhead: Numbers
    """Fixed time per micro-batch."""
    sharded: Numbers
    """Exposed gathering of weights and reduction of gradients in all micro-batches, per step."""
    reduce: Numbers
    """Exposed reduction of gradients, per step."""
    gather: Numbers
    """Exposed gathering of parameters, per step."""
    update: Numbers
    """Optimizer, per step."""
    unevenness: Numbers
    """Share by which unlike chunks slow every micro-batch."""

    @property
    def microbatch(self) -> Numbers:
        """One micro-batch through this stage, without the exposed part of sharding; smallest axes first."""
        return self.backward + (self.forward + (self.transfer + self.offload + self.overhead))

    def busy(self, batch: Batch, all_stages_time: Numbers) -> Numbers:
        """A whole step as this stage sees it: all micro-batches, idle time and what comes once at the end. [s]

        ``all_stages_time``: one micro-batch through all stages.
        """
        one = self.microbatch
        paced = batch.num_microbatches * (1 + self.unevenness)
        within = paced * one + idle_time(one, all_stages_time, batch)
        return (within + self.update) + self.sharded + self.gather + self.reduce


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

    @property
    def total(self) -> Numbers:
        """All of it, smallest axes first."""
        states = self.weights + self.gradients + self.optimizer + self.buffers
        return states + (self.activations + self.logits + self.framework)


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """Outcome of a plan, or arrays over plans."""

    step_time: Numbers
    peak_memory_bytes: Numbers
    fits: Flags


def step_of(question: Question, batch: Batch, loads: Loads, kinds: tuple[Stage, ...], whole: Stage) -> Step:
    r"""Step time and peak memory from the stages that can be slowest or fullest.

    .. math:: T = \left(\max_r \left[M (t_r + s_r) + e_r + idle_r\right] + t_0\right)(1 + g \log_2 (N/8))

    with M micro-batches of time t, exposed sharding s, end-of-step time e, pipeline idle time, fixed time and growth by
    stragglers. ``whole``: all layers and ends at once, as the sum over stages.
    """
    everything = pipeline_sum(question, batch, loads, whole)
    held = [(stage, loads.on(stage)) for stage in kinds]
    busiest = largest(stage_times(question, batch, loads, stage, load).busy(batch, everything) for stage, load in held)
    fullest = largest(stage_memory(question, batch, loads, stage, load).total for stage, load in held)
    growth = straggler_factor(question)
    return Step(
        step_time=(busiest + question.profile.step_time) * growth,
        peak_memory_bytes=fullest,
        fits=_fits(question, batch, held, fullest),
    )


def _fits(question: Question, batch: Batch, held: Sequence[tuple[Stage, Load]], fullest: Numbers) -> Flags:
    """Whether a device holds its stage, and a node what its accelerators move there (taken to be of one stage)."""
    fits: Flags = fullest <= question.usable_memory
    share = question.host_memory
    if share is None or not np.any(np.logical_or(batch.offload_optimizer, batch.offload_activations)):
        return fits
    return all_hold([fits, *(host_bytes(question, batch, stage, load) <= share for stage, load in held)])


def straggler_factor(question: Question) -> Numbers:
    """Slowdown of the slowest of many accelerators: a share per doubling beyond 8."""
    return 1 + question.profile.straggler_growth * max(math.log2(question.num_accelerators / 8), 0.0)


def stage_times(question: Question, batch: Batch, loads: Loads, stage: Stage, load: Load) -> StageTimes:
    """Times of one stage, which carries ``load``, under ``batch``."""
    profile = question.profile
    share = applied_share(stage.num_layers, batch)
    forward = load.forward
    backward = load.backward + share * load.recomputed
    overlapped = np.where(batch.overlap_dp, 1.0, 0.0)
    work = np.maximum(forward + backward, 1e-30)
    offload = _exposed_offload(question, batch, load, share=share, work=work)
    whole = work + offload
    window = overlapped * profile.fsdp_window * whole
    # What hides the traffic of every micro-batch cannot hide that of the step as well.
    rest = whole - np.minimum(load.sharding_time, window)
    usable = overlapped * profile.dp_window / batch.vp / work
    group = np.minimum(batch.microbatch_group_size, batch.num_microbatches)
    updated = local_parameters(load.parameters, batch)
    return StageTimes(
        forward=forward,
        backward=backward,
        transfer=_exposed_transfer(question, batch, loads),
        offload=offload,
        overhead=profile.microbatch_time,
        sharded=beside(batch.num_microbatches * load.sharding_time, batch.num_microbatches * window, profile),
        reduce=beside_chunks(load.reduce_time, rest * (usable * backward), batch.vp, group, profile),
        gather=beside_chunks(load.gather_time, rest * (usable * forward), batch.vp, group, profile),
        update=update_time(updated, question.job, batch, question.machine),
        unevenness=stage.unevenness,
    )


def pipeline_sum(question: Question, batch: Batch, loads: Loads, whole: Stage) -> Numbers:
    """One micro-batch's time summed over all stages. [s]

    A number of recomputed layers applies to each stage; where stages are unlike, their mean stands for all.
    """
    load = loads.on(whole)
    share = np.minimum(1.0, batch.recompute_num_layers * batch.pp / whole.num_layers)
    work = load.forward + load.backward
    again = share * load.recomputed
    offload = _exposed_offload(question, batch, load, share=share, work=work + again)
    between = _exposed_transfer(question, batch, loads) + question.profile.microbatch_time
    return (work + batch.pp * between) + (again + offload)


def _exposed_transfer(question: Question, batch: Batch, loads: Loads) -> Numbers:
    """Every chunk hands its output on and its input gradient back."""
    visible = 1 - np.where(batch.overlap_pp, question.profile.hidden_pp, 0.0)
    return 2.0 * batch.vp * loads.transfer_time * visible


def _exposed_offload(question: Question, batch: Batch, load: Load, *, share: Numbers, work: Numbers) -> Numbers:
    """Kept activations go to the host and come back: what is not hidden, or what outlasts the work itself.

    A number of offloaded layers is taken as that of a mean stage.
    """
    if not any_holds(batch.offload_activations):
        return 0.0
    away = offloaded_share(question.model.num_hidden_layers / batch.pp, batch)
    moved = away * kept_per_microbatch(load.kept_bytes, load.freed_bytes, share)
    time = 2.0 * moved / host_rate(question.machine)
    visible = np.maximum(time * (1 - question.profile.hidden_offload), time - work)
    return np.where(batch.offload_activations, visible, 0.0)


def stage_memory(question: Question, batch: Batch, loads: Loads, stage: Stage, load: Load) -> StageMemory:
    """Memory of one rank of a stage, which carries ``load``, at its peak. [bytes]"""
    profile, job = question.profile, question.job
    states = model_states(load.parameters, job, batch)
    share = applied_share(stage.num_layers, batch)
    in_flight = microbatches_in_flight(stage.rank, batch)
    present = on_device(in_flight, stage.num_layers, batch)
    brought_back, part = loads.largest_part(stage)
    freed = share * load.freed_bytes
    factor = profile.activation_factor[job.software.kernels]
    recomputed = factor * np.minimum(working_set(brought_back, share), present * freed)
    waiting = factor * present * (load.kept_bytes - freed)
    activations = waiting + recomputed + _kept_outputs(batch, loads, stage, in_flight, job.software)
    kept, layer = loads.largest_layer(stage)
    # What a layer's backward pass needs besides what was kept comes when the loss is gone, and goes before the update.
    passing = backward_set(kept, profile)
    loss = _beyond(_loss(question, batch, loads, stage), recomputed + passing)
    in_update = _beyond(update_bytes(load.parameters, job, batch), activations + loss + passing)
    sharded = gathered_bytes(part, layer, job, batch)
    sharded = sharded + unsharded_gradient_bytes(_early(stage, part, layer), layer, job, batch)
    sharded = sharded + reduction_bytes(part, layer, job, batch)
    return StageMemory(
        weights=states.weights,
        gradients=states.gradients,
        optimizer=states.optimizer,
        activations=activations,
        logits=loss,
        buffers=sharded + passing + in_update,
        framework=profile.framework_bytes,
    )


def _early(stage: Stage, part: Parameters, layer: Parameters) -> Parameters:
    """The part of a stage whose gradients can exist when activations do: its head, or a layer where it has none."""
    ends = np.asarray(stage.has_head + stage.num_mtp_layers) > 0
    return Parameters(np.where(ends, part.dense, layer.dense), np.where(ends, part.experts, layer.experts))


def _beyond(peak: Numbers, gone: Numbers) -> Numbers:
    """What a peak needs beyond what is gone by then; nothing where no plan has such a peak."""
    return np.maximum(peak - gone, 0.0) if any_holds(peak) else 0.0


def _loss(question: Question, batch: Batch, loads: Loads, stage: Stage) -> Numbers:
    """Logits and loss at their peak, where a stage has a head."""
    heads = stage.has_head + stage.num_mtp_layers
    if not any_holds(heads):
        return 0.0
    return loss_bytes(question.job.software, question.profile.logits_bytes, loads.logits, heads, batch.tp_columns)


def _kept_outputs(batch: Batch, loads: Loads, stage: Stage, in_flight: Numbers, software: Software) -> Numbers:
    """Outputs of every chunk that a framework keeps till their backward pass; the last chunk's is the loss."""
    if batch.pp == 1 or not software.stage_outputs:
        return 0.0
    return in_flight * (batch.vp - stage.has_head) * loads.output_bytes


def host_bytes(question: Question, batch: Batch, stage: Stage, load: Load) -> Numbers:
    """Host memory that one rank of a stage needs: states, or kept activations of all micro-batches in flight."""
    one = kept_per_microbatch(load.kept_bytes, load.freed_bytes, applied_share(stage.num_layers, batch))
    kept = microbatches_in_flight(stage.rank, batch) * offloaded_share(stage.num_layers, batch) * one
    return host_state_bytes(load.parameters, question.job, batch) + kept
