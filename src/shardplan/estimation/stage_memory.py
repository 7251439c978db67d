"""Bytes of one rank of a stage: of its states, of its activations, and both at their peak."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from shardplan.base.arrays import Flags, Numbers, all_hold, any_holds, is_zero, plus, scaled, where
from shardplan.base.arrays import largest as largest_of
from shardplan.base.fields import dataclass
from shardplan.estimation.companion import borrows_weights, teacher_bytes
from shardplan.estimation.load import Around, StageStates, StageWork
from shardplan.estimation.pricing import parameters_of_parts
from shardplan.estimation.question import Question
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.physics.memory import (
    applied_share,
    backward_set,
    companion_bytes,
    gathered_bytes,
    held_logit_bytes,
    host_state_bytes,
    kept_per_microbatch,
    loss_bytes,
    mask_bytes,
    model_states,
    offloaded_share,
    on_device,
    reduction_bytes,
    unsharded_gradient_bytes,
    update_bytes,
    working_set,
)
from shardplan.physics.schedules.pipeline import ends_in_flight, microbatches_in_flight
from shardplan.physics.workload.layer import Parameters
from shardplan.physics.workload.stage import Stage


@dataclass(frozen=True, kw_only=True)
class StateMemory:
    """Bytes of the states of one rank."""

    weights: Numbers
    gradients: Numbers
    optimizer: Numbers
    companion: Numbers
    """Weights of frozen companions."""
    fleeting: Numbers
    """Of the gradients, those that can come as activations go: all, or none where buffers for them are always there."""
    early: Numbers
    """Of these, the ones that exist when layers begin to run backward: the head's."""
    whole: Numbers
    """Gathered weights and gradients that are not yet sharded."""
    update: Numbers
    """What the update needs besides."""
    on_host: Numbers
    """States that live in host memory."""


@dataclass(frozen=True, kw_only=True)
class ActivationMemory:
    """Bytes of one rank that do not outlive a step."""

    activations: Numbers
    """Saved activations, what recomputation brings back of one layer, and masks of the batch."""
    recomputed: Numbers
    """The part of them that recomputation brings back."""
    loss: Numbers
    """Logits and loss, as far as they exceed what recomputation brings back: the two never live at the same time."""
    passing: Numbers
    """What a layer's backward pass needs besides what was kept: comes when the loss is gone, goes before the update."""
    on_host: Numbers
    """Kept activations that wait in host memory."""
    waiting: Numbers
    """Of the activations, those that are gone when the last layer has run backward."""
    frees_gradients: Flags
    """Whether gradients come as activations go, with the sharding that allows it."""
    first_share: Numbers
    """Share of the gradients that exist before activations go: those of a chunk, whose micro-batches all add to them,
    or none of the only micro-batch."""

    @cached_property
    def total(self) -> Numbers:
        """All of it on the device; smallest axes first."""
        return plus(self.passing, self.loss) + self.activations


@dataclass(frozen=True, kw_only=True)
class StageMemory:
    """Bytes of one rank of a stage."""

    weights: Numbers
    gradients: Numbers
    optimizer: Numbers
    companion: Numbers
    """Weights of frozen companions."""
    activations: Numbers
    """Saved activations, and what recomputation brings back of one layer."""
    logits: Numbers
    """Logits and loss, as far as they exceed what recomputation brings back: the two never live at the same time."""
    buffers: Numbers
    """Gathered weights and gradients of a layer, of its tensors and of its sharded weights; and what the update, when
    activations are gone, needs more than all that took."""
    framework: Numbers

    @classmethod
    def of(cls, states: StateMemory, kept: ActivationMemory, framework: Numbers) -> StageMemory:
        """Both halves together."""
        gradients = gradients_at_peak(states.gradients, states.fleeting, states.early, kept)
        update = states.update + (states.gradients - gradients) if any_holds(states.update) else 0.0
        return cls(
            weights=states.weights,
            gradients=gradients,
            optimizer=states.optimizer,
            companion=states.companion,
            activations=kept.activations,
            logits=kept.loss,
            buffers=states.whole + kept.passing + beyond(update, kept.total),
            framework=framework,
        )

    @property
    def total(self) -> Numbers:
        """All of it."""
        states = self.weights + self.gradients + self.optimizer + self.buffers
        return states + self.companion + (self.activations + self.logits + self.framework)


def gradients_at_peak(gradients: Numbers, fleeting: Numbers, early: Numbers, kept: ActivationMemory) -> Numbers:
    """All gradients, or where some come as activations go, what these need beyond those that are gone by then. [bytes]

    The peak is that of the loss, without gradients; of the first layer that runs backward, with those of the head, or
    of all micro-batches of the first chunk; or of the last layer, with all of them. ``early``: those of the head.
    """
    if not any_holds(kept.frees_gradients) or (is_zero(fleeting) and is_zero(early)):
        return gradients
    first = np.maximum(early, kept.first_share * fleeting)
    beyond = np.maximum(first, fleeting - kept.waiting) - kept.loss
    return where(kept.frees_gradients, (gradients - fleeting) + np.maximum(beyond, 0.0), gradients)


def beyond(peak: Numbers, gone: Numbers) -> Numbers:
    """What a peak needs beyond what is gone by then; nothing where no plan has such a peak. [bytes]"""
    return np.maximum(peak - gone, 0.0) if any_holds(peak) else 0.0


def host_holds(question: Question, host: Sequence[Numbers]) -> Flags:
    """Whether a node holds what its accelerators move to its memory (taken to be of one stage)."""
    share = question.host_memory
    if share is None or not any(any_holds(needed) for needed in host):
        return True
    return all_hold(needed <= share for needed in host)


def state_memory(question: Question, numbers: PlanNumbers, stage: Stage, states: StageStates) -> StateMemory:
    """Bytes of the states of one rank of a stage."""
    job, held = question.job, states.sum
    resident = model_states(held, job, numbers)
    whole = gathered_bytes(states.part, states.layer, job, numbers)
    early = _early(stage, states.part.trained, states.layer.trained)
    whole = whole + unsharded_gradient_bytes(early, states.layer, job, numbers)
    comes_late: Flags = False
    if job.software.frees_gradients:
        comes_late = numbers.scatters_gradients | np.equal(numbers.replicas, 1)
    return StateMemory(
        weights=resident.weights,
        gradients=resident.gradients,
        optimizer=resident.optimizer,
        companion=companion_bytes(held, job, numbers),
        fleeting=where(comes_late, resident.gradients, 0.0),
        early=where(comes_late, model_states(early, job, numbers).gradients, 0.0) if any_holds(comes_late) else 0.0,
        whole=_with_companions(whole, question, numbers) + reduction_bytes(states.part, states.layer, job, numbers),
        update=update_bytes(held, job, numbers),
        on_host=host_state_bytes(held, job, numbers),
    )


def _with_companions(gathered: Numbers, question: Question, numbers: PlanNumbers) -> Numbers:
    """Gathered weights at their most: of the model, or of a companion, whose passes have the rank to themselves."""
    for companion, other in question.companions:
        if not borrows_weights(companion, question.job):
            layers = parameters_of_parts(other, numbers).layers
            layer = Parameters(*(largest_of([getattr(each, name) for each in layers]) for name in ("dense", "experts")))
            gathered = np.maximum(gathered, gathered_bytes(layer, layer, other.job, numbers))
    return gathered


def activation_memory(
    question: Question, numbers: PlanNumbers, around: Around, stage: Stage, work: StageWork
) -> ActivationMemory:
    """Bytes of one rank of a stage that hold activations and the loss, at their peak."""
    profile, software = question.profile, question.job.software
    share = applied_share(stage.num_layers, numbers)
    in_flight = microbatches_in_flight(stage.rank, numbers, stage.num_layers)
    present = on_device(in_flight, stage.num_layers, numbers) if any_holds(numbers.offload_activations) else in_flight
    freed = scaled(share, work.sum.freed_bytes)
    factor = profile.activation_factor[software.kernels]
    recomputed = scaled(factor, np.minimum(working_set(work.freed_of_part, share), present * freed))
    waiting = waiting_bytes(question, work, share, present) - _not_at_ends(question, numbers, stage, work, in_flight)
    passing = backward_set(work.kept_of_layer, work.gradients_of_core, profile)
    if any_holds(work.fleeting_of_layer):  # of one layer's passes, whose gradients come when these are gone
        passing = np.maximum(passing, work.fleeting_of_layer)
    outputs = kept_outputs(question, numbers, around, num_chunks=numbers.vp - stage.has_head, in_flight=in_flight)
    return ActivationMemory(
        activations=plus(waiting + recomputed, outputs) + mask_bytes(question.job, numbers),
        recomputed=recomputed,
        loss=_loss_beyond(question, numbers, around, stage, recomputed + passing),
        passing=passing,
        waiting=waiting,
        frees_gradients=software.frees_gradients and _runs_forward_first(numbers, in_flight),
        first_share=where(np.equal(numbers.num_microbatches, 1), 0.0, 1 / np.asarray(numbers.vp)),
        on_host=_waiting_on_host(numbers, stage, in_flight, work, share),
    )


def _runs_forward_first(numbers: PlanNumbers, in_flight: Numbers) -> Flags:
    """Whether chunks run backward one after the other: with all micro-batches in flight, or in one interleaved group.

    Ranks that alternate within that group do so in its last chunk alone.
    """
    all_in_flight = np.greater_equal(in_flight, numbers.num_microbatches)
    if numbers.schedule not in (None, "interleaved"):
        return all_in_flight
    one_group = np.less_equal(numbers.num_microbatches, numbers.microbatch_group_size)
    return all_in_flight | (np.greater(numbers.vp, 1) & one_group)


def _waiting_on_host(
    numbers: PlanNumbers, stage: Stage, in_flight: Numbers, work: StageWork, share: Numbers
) -> Numbers:
    """Kept activations of all micro-batches in flight that wait in host memory. [bytes]"""
    if not any_holds(numbers.offload_activations):
        return 0.0
    one = kept_per_microbatch(work.sum.kept_bytes, work.sum.freed_bytes, share)
    return in_flight * offloaded_share(stage.num_layers, numbers) * one


def _early(stage: Stage, part: Parameters, layer: Parameters) -> Parameters:
    """The part of a stage whose gradients can exist when activations do: its head, or a layer where it has none."""
    ends = np.asarray(stage.has_head + stage.num_mtp_layers) > 0
    return Parameters(where(ends, part.dense, layer.dense), where(ends, part.experts, layer.experts))


def _loss_beyond(
    question: Question, numbers: PlanNumbers, around: Around, stage: Stage, recomputed: Numbers
) -> Numbers:
    """Logits and loss at their peak, where a stage has a head, beyond what layers bring back when they are gone."""
    heads, software = stage.has_head + stage.num_mtp_layers, question.job.software
    if not any_holds(heads):
        return 0.0
    held = held_logit_bytes(software, around.logits, heads)
    peak = loss_bytes(software, question.profile.logits_bytes, around.logits, heads, numbers.tp_columns)
    loss = held + beyond(peak - held, recomputed)
    teachers = teacher_bytes(question, numbers, around.logits)
    return loss if is_zero(teachers) else loss + where(np.asarray(stage.has_head) > 0, teachers, 0.0)


def waiting_bytes(question: Question, work: StageWork, share: Numbers, passes: Numbers) -> Numbers:
    """Activations that ``passes`` micro-batches keep where recomputation frees its part on a share of the layers."""
    factor = question.profile.activation_factor[question.job.software.kernels]
    return scaled(factor, passes) * kept_per_microbatch(work.sum.kept_bytes, work.sum.freed_bytes, share)


def _not_at_ends(
    question: Question, numbers: PlanNumbers, stage: Stage, work: StageWork, in_flight: Numbers
) -> Numbers:
    """What head and multi-token prediction do not keep, of micro-batches in flight that have not come that far."""
    if is_zero(work.kept_of_ends) or not np.any(np.greater(numbers.vp, 1)):
        return 0.0
    away = offloaded_share(stage.num_layers, numbers) if any_holds(numbers.offload_activations) else 0.0
    missing = np.maximum(in_flight - ends_in_flight(in_flight, numbers), 0.0) * (1 - np.asarray(away))
    share = applied_share(stage.num_layers, numbers)
    factor = question.profile.activation_factor[question.job.software.kernels]
    return scaled(factor, missing) * kept_per_microbatch(work.kept_of_ends, work.freed_of_ends, share)


def kept_outputs(
    question: Question, numbers: PlanNumbers, around: Around, *, num_chunks: Numbers, in_flight: Numbers
) -> Numbers:
    """Outputs of chunks that a framework keeps till their backward pass; the last chunk's is the loss. [bytes]"""
    if not question.job.software.stage_outputs or np.all(np.asarray(numbers.pp) == 1):
        return 0.0
    kept = in_flight * num_chunks * around.output_bytes
    return where(np.equal(numbers.pp, 1), 0.0, kept)
