"""Where costs, schedules and memory meet: the step time and the peak memory of a plan, or of each plan of a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from shardplan.arrays import Flags, Numbers
from shardplan.costs.optimizer import host_rate, update_time
from shardplan.costs.overlap import beyond_window
from shardplan.estimation.pricing import Part, Prices
from shardplan.estimation.question import Question
from shardplan.inputs.batch import Batch
from shardplan.memory.activations import applied_share, kept_per_microbatch, working_set
from shardplan.memory.states import gathered_bytes, local_parameters, model_states
from shardplan.schedules.pipeline import idle_time, microbatches_in_flight
from shardplan.workload.layer import Parameters
from shardplan.workload.stage import Stage

__all__ = [
    "StageMemory",
    "StageTimes",
    "Step",
    "held_parameters",
    "stage_memory",
    "stage_times",
    "step_of",
    "straggler_factor",
    "total_over",
]


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
    overhead: float
    """Fixed time per micro-batch."""
    sharded: Numbers
    """Exposed gathering of weights and reduction of gradients, per micro-batch."""
    reduce: Numbers
    """Exposed reduction of gradients, per step."""
    gather: Numbers
    """Exposed gathering of parameters, per step."""
    update: Numbers
    """Optimizer, per step."""

    @property
    def microbatch(self) -> Numbers:
        """One micro-batch through this stage, without the exposed part of sharding."""
        return self.forward + self.backward + self.transfer + self.offload + self.overhead

    @property
    def step_end(self) -> Numbers:
        """What comes once per step."""
        return self.reduce + self.gather + self.update


@dataclass(frozen=True, kw_only=True, slots=True)
class StageMemory:
    """Bytes of one rank of a stage."""

    weights: Numbers
    gradients: Numbers
    optimizer: Numbers
    activations: Numbers
    logits: Numbers
    buffers: Numbers
    framework: float

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
    network_bytes: Numbers
    """Bytes that the first stage's ranks send beyond the innermost tier in one step."""
    fits: Flags


def step_of(question: Question, batch: Batch, prices: Prices, kinds: tuple[Stage, ...], whole: Stage) -> Step:
    r"""Step time and peak memory from the stages that can be slowest or fullest.

    .. math:: T = \left(\max_r \left[M (t_r + s_r) + e_r + idle_r\right] + t_0\right)(1 + g \log_2 (N/8))

    with M micro-batches of time t, exposed sharding s, end-of-step time e, pipeline idle time, fixed time and growth by
    stragglers. ``whole``: all layers and ends at once, as the sum over stages.
    """
    everything = _pipeline_sum(question, batch, prices, whole)
    busiest: Numbers = 0.0
    fullest: Numbers = 0.0
    for stage in kinds:
        times = stage_times(question, batch, prices, stage)
        one = times.microbatch
        within = batch.num_microbatches * one + idle_time(one, everything, batch)
        busiest = np.maximum(busiest, within + (batch.num_microbatches * times.sharded + times.step_end))
        fullest = np.maximum(fullest, stage_memory(question, batch, prices, stage).total)
    growth = straggler_factor(question)
    return Step(
        step_time=(busiest + question.profile.step_time) * growth,
        peak_memory_bytes=fullest,
        network_bytes=_network_bytes(batch, prices, kinds[0]),
        fits=fullest <= question.usable_memory,
    )


def straggler_factor(question: Question) -> float:
    """Slowdown of the slowest of many accelerators: a share per doubling beyond 8."""
    return float(1 + question.profile.straggler_growth * max(np.log2(question.num_accelerators / 8), 0.0))


def total_over(stage: Stage, prices: Prices, value: Callable[[Part], Numbers]) -> Numbers:
    """Sum of ``value`` over everything that a stage holds."""
    total: Numbers = 0.0
    for count, part in zip(stage.counts, prices.layers, strict=True):
        total = total + count * value(part)
    total = total + stage.has_embedding * value(prices.embedding) + stage.has_head * value(prices.head)
    if np.any(stage.num_mtp_layers):
        total = total + stage.num_mtp_layers * value(prices.mtp)
    return total


def held_parameters(stage: Stage, prices: Prices) -> Parameters:
    """Parameters of one rank of a stage."""
    return Parameters(
        total_over(stage, prices, lambda part: part.parameters.dense),
        total_over(stage, prices, lambda part: part.parameters.experts),
    )


def stage_times(question: Question, batch: Batch, prices: Prices, stage: Stage) -> StageTimes:
    """Times of one stage under ``batch``."""
    profile = question.profile
    share = applied_share(stage.num_layers, batch)
    forward = total_over(stage, prices, lambda part: part.cost.forward.total)
    backward = total_over(stage, prices, lambda part: part.cost.backward.total)
    backward = backward + share * total_over(stage, prices, lambda part: part.cost.recomputed.total)
    overlapped = batch.overlap_dp
    sharded = total_over(stage, prices, lambda part: part.traffic.microbatch_time)
    updated = local_parameters(held_parameters(stage, prices), batch)
    return StageTimes(
        forward=forward,
        backward=backward,
        transfer=_exposed_transfer(question, batch, prices),
        offload=_exposed_offload(question, batch, prices, stage, share=share, work=forward + backward),
        overhead=profile.microbatch_time,
        sharded=beyond_window(sharded, profile.fsdp_window * (forward + backward), overlapped),
        reduce=beyond_window(
            total_over(stage, prices, lambda part: part.traffic.reduce_time), profile.dp_window * backward, overlapped
        ),
        gather=beyond_window(
            total_over(stage, prices, lambda part: part.traffic.gather_time), profile.dp_window * forward, overlapped
        ),
        update=update_time(updated, question.job, batch, question.machine),
    )


def _pipeline_sum(question: Question, batch: Batch, prices: Prices, whole: Stage) -> Numbers:
    """One micro-batch's time summed over all stages. [s]"""
    # Recomputed layers are counted stage by stage: the number applies to each.
    share = np.minimum(1.0, batch.recompute_num_layers * batch.pp / whole.num_layers)
    work = total_over(whole, prices, lambda part: part.cost.forward.total + part.cost.backward.total)
    again = share * total_over(whole, prices, lambda part: part.cost.recomputed.total)
    offload = _exposed_offload(question, batch, prices, whole, share=share, work=work)
    between = _exposed_transfer(question, batch, prices) + question.profile.microbatch_time
    return work + again + offload + batch.pp * between


def _exposed_transfer(question: Question, batch: Batch, prices: Prices) -> Numbers:
    """Every chunk hands its output on and its input gradient back."""
    visible = 1 - np.where(batch.overlap_pp, question.profile.hidden_pp, 0.0)
    return 2.0 * batch.vp * prices.transfer_time * visible


def _exposed_offload(
    question: Question, batch: Batch, prices: Prices, stage: Stage, *, share: Numbers, work: Numbers
) -> Numbers:
    """Kept activations go to the host and come back: what is not hidden, or what outlasts the work itself."""
    if not np.any(batch.offload_activations):
        return 0.0
    kept = _kept_bytes(stage, prices, share)
    time = 2.0 * kept / host_rate(question.machine)
    visible = np.maximum(time * (1 - question.profile.hidden_offload), time - work)
    return np.where(batch.offload_activations, visible, 0.0)


def stage_memory(question: Question, batch: Batch, prices: Prices, stage: Stage) -> StageMemory:
    """Memory of one rank of a stage at its peak. [bytes]"""
    profile, job = question.profile, question.job
    states = model_states(held_parameters(stage, prices), job, batch)
    share = applied_share(stage.num_layers, batch)
    one = _kept_bytes(stage, prices, share)
    in_flight = microbatches_in_flight(stage.rank, batch)
    on_device = np.where(batch.offload_activations, np.minimum(2.0 / np.maximum(stage.num_layers, 1), 1.0), in_flight)
    freed = _largest(stage, prices, lambda part: part.cost.freed_bytes)
    held_layer = Parameters(
        _largest(stage, prices, lambda part: part.parameters.dense),
        _largest(stage, prices, lambda part: part.parameters.experts),
    )
    return StageMemory(
        weights=states.weights,
        gradients=states.gradients,
        optimizer=states.optimizer,
        activations=profile.activation_factor * (on_device * one + working_set(freed, share)),
        logits=profile.logits_bytes * prices.logits * stage.has_head,
        buffers=gathered_bytes(held_layer, job, batch),
        framework=profile.framework_bytes,
    )


def _kept_bytes(stage: Stage, prices: Prices, share: Numbers) -> Numbers:
    """Activations of one micro-batch on a stage."""
    return total_over(
        stage, prices, lambda part: kept_per_microbatch(part.cost.kept_bytes, part.cost.freed_bytes, share)
    )


def _largest(stage: Stage, prices: Prices, value: Callable[[Part], Numbers]) -> Numbers:
    """Largest ``value`` among the layers that a stage holds."""
    largest: Numbers = 0.0
    for count, part in zip(stage.counts, prices.layers, strict=True):
        largest = np.maximum(largest, np.where(np.asarray(count) > 0, value(part), 0.0))
    return largest


def _network_bytes(batch: Batch, prices: Prices, stage: Stage) -> Numbers:
    """Bytes that a rank sends beyond the innermost tier in one step."""

    def outside(part: Part) -> Numbers:
        total: Numbers = 0.0
        for tiers in part.cost.sent_bytes.values():
            for moved in tiers[1:]:
                total = total + moved
        return total

    per_microbatch = total_over(stage, prices, outside) + 2.0 * batch.vp * _beyond(prices.transfer_bytes)
    sharded = total_over(stage, prices, lambda part: _beyond(part.traffic.microbatch_bytes))
    step = total_over(stage, prices, lambda part: _beyond(part.traffic.step_bytes))
    return batch.num_microbatches * per_microbatch + (batch.num_microbatches * sharded + step)


def _beyond(tiers: tuple[Numbers, ...]) -> Numbers:
    total: Numbers = 0.0
    for moved in tiers[1:]:
        total = total + moved
    return total
