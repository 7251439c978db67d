"""What the states of a stage cost a step and take in memory, the peak memory of a rank, and model FLOP per token.

Model FLOP are what training a token takes, whatever the plan.
"""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache

import numpy as np

from shardplan.base.arrays import Flags, Numbers, is_zero
from shardplan.base.fields import dataclass, replace
from shardplan.estimation.load import StageStates
from shardplan.estimation.pricing import embedding_block, head_block, mtp_block
from shardplan.estimation.question import Question
from shardplan.estimation.stage_memory import ActivationMemory, StateMemory, gradients_at_peak, state_memory
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.trained import trained_model
from shardplan.physics.costs.state_traffic import orthogonalising_time, update_time
from shardplan.physics.memory import local_parameters
from shardplan.physics.schedules.pipeline import parameter_copies
from shardplan.physics.workload.communication import Shard
from shardplan.physics.workload.layer import layer_block
from shardplan.physics.workload.ops import Block
from shardplan.physics.workload.stage import Stage


@dataclass(frozen=True, kw_only=True)
class StateCharge:
    """What the states of a stage cost a step, before work hides any of it, and the bytes that they take."""

    sharding_time: Numbers
    """Weights gathered and gradients reduced in every micro-batch. [s]"""
    copy_time: Numbers
    """Gathered weights copied in every micro-batch. [s]"""
    reduce_time: Numbers
    """Gradients reduced once per step. [s]"""
    gather_time: Numbers
    """Parameters gathered once per step. [s]"""
    update_time: Numbers
    """Optimizer. [s]"""
    resident_bytes: Numbers
    """What is there all the time, gradients apart."""
    gradient_bytes: Numbers
    fleeting_gradient_bytes: Numbers
    """Of these, the ones that can come as activations go."""
    early_gradient_bytes: Numbers
    """Of those, the ones that exist when layers begin to run backward."""
    update_bytes: Numbers
    """What the update needs besides."""
    host_bytes: Numbers
    """States that live in host memory."""

    @property
    def memory(self) -> StateCharge:
        """The same without times, for who reads none of them."""
        return replace(self, **dict.fromkeys((name for name in CHARGES if name.endswith("_time")), 0.0))

    @property
    def times(self) -> StateCharge:
        """The same without bytes, for who reads none of them."""
        return replace(self, **dict.fromkeys((name for name in CHARGES if name.endswith("_bytes")), 0.0))


CHARGES = tuple(each.name for each in fields(StateCharge))


def _orthogonalising(question: Question, numbers: PlanNumbers, states: StageStates) -> Numbers:
    """Time of Muon's iterations on the matrices that a rank owns. [s]"""
    held = states.sum
    if is_zero(held.orthogonal_dense) and is_zero(held.orthogonal_experts):
        return 0.0
    return orthogonalising_time(
        held.orthogonal_dense, held.orthogonal_experts, states.largest_matrix, numbers, question.machine
    )


def state_charge(
    question: Question,
    numbers: PlanNumbers,
    stage: Stage,
    states: StageStates,
    memory: StateMemory | None = None,
) -> StateCharge:
    """What the states of a stage cost; schedules that run both ways through the ranks hold copies of them.

    A micro-batch goes through one of the copies. ``memory``: what all of them take, where that is known.
    """
    sharding_time, copied_bytes = states.sum.sharding_time, states.sum.copied_bytes
    states = states.times(parameter_copies(numbers))
    memory = memory or state_memory(question, numbers, stage, states)
    updated = local_parameters(states.sum, numbers)
    return StateCharge(
        sharding_time=sharding_time,
        copy_time=2.0 * copied_bytes / question.machine.memory_rate,  # read and written
        reduce_time=states.sum.reduce_time,
        gather_time=states.sum.gather_time,
        update_time=update_time(updated, question.job, numbers, question.machine)
        + _orthogonalising(question, numbers, states),
        resident_bytes=memory.weights + memory.optimizer + memory.whole + memory.companion,
        gradient_bytes=memory.gradients,
        fleeting_gradient_bytes=memory.fleeting,
        early_gradient_bytes=memory.early,
        update_bytes=memory.update,
        host_bytes=memory.on_host,
    )


def least_peak_of(question: Question, states: StateCharge) -> Numbers:
    """What ``peak_of`` is at least, whatever activations are kept: never more than it. [bytes]"""
    busy = least_beside_activations(question, states)
    return busy if is_zero(states.update_bytes) else np.maximum(busy, held_in_update(question, states))


def least_beside_activations(question: Question, states: StateCharge) -> Numbers:
    """States and gradients at least that are there when activations are at their peak. [bytes]"""
    gone = states.fleeting_gradient_bytes if question.job.software.frees_gradients else 0.0
    return states.resident_bytes + question.framework_bytes + (states.gradient_bytes - gone)


def peak_of(question: Question, states: StateCharge, kept: ActivationMemory) -> Numbers:
    """Memory of one rank at its peak: with activations, or in the update, when these are gone. [bytes]"""
    busy = _beside_activations(question, states, kept) + kept.total
    if is_zero(states.update_bytes):
        return busy
    return np.maximum(busy, held_in_update(question, states))


def holds(question: Question, states: StateCharge, kept: ActivationMemory) -> Flags:
    """Whether ``peak_of`` is within the memory, without the sum of states and activations for every plan."""
    usable = question.usable_memory
    busy = kept.total <= usable - _beside_activations(question, states, kept)
    if is_zero(states.update_bytes):
        return busy
    return np.logical_and(busy, held_in_update(question, states) <= usable)


def _beside_activations(question: Question, states: StateCharge, kept: ActivationMemory) -> Numbers:
    """States and gradients when activations are at their peak. [bytes]"""
    gradients = gradients_at_peak(
        states.gradient_bytes, states.fleeting_gradient_bytes, states.early_gradient_bytes, kept
    )
    return states.resident_bytes + question.framework_bytes + gradients


def held_in_update(question: Question, states: StateCharge) -> Numbers:
    """All that is there in the update. [bytes]"""
    return states.resident_bytes + question.framework_bytes + states.gradient_bytes + states.update_bytes


FLOPS_CONVENTION = (
    "forward and backward (3 x forward), a multiply-add is 2 FLOP; matrix products of layers and output head, "
    "attention over the keys that the mask admits (causal: half the sequence); no embedding lookup, no recomputation, "
    "no softmax or norms; multi-token-prediction blocks included"
)
FROZEN_CONVENTION = (
    f"{FLOPS_CONVENTION}; products of frozen weights without the gradient of the weight (2 x forward), what stands "
    "before all that is trained forward alone, adapters included"
)
PACKED_CONVENTION = "; no keys of other documents in the sequence"
COUNTED = ("train", "lora_rank", "lora_targets", "freeze", "documents")
"""Fields of a job that the count depends on."""


def flops_convention(job: Job) -> str:
    """How FLOP are counted for a job."""
    masked = "" if job.packed is None else PACKED_CONVENTION
    return (FLOPS_CONVENTION if job.trains_all else FROZEN_CONVENTION) + masked


def model_flops_per_token(model: ModelConfig, sequence_length: int, job: Job | None = None) -> float:
    """FLOP per token of a forward and a backward pass at this sequence length, with gradients and documents of ``job``.

    Without a job all weights are trained, and one document fills the sequence.
    """
    of_job = {} if job is None else {name: getattr(job, name) for name in COUNTED}
    return _flops_per_token(model, Job(sequence_length=sequence_length, global_batch_size=1, **of_job))


def step_flops(question: Question) -> float:
    """FLOP of a whole step on all accelerators, recomputed ones left out."""
    job = question.job
    return model_flops_per_token(question.model, job.sequence_length, job) * job.tokens_per_step


@lru_cache(maxsize=256)
def _flops_per_token(model: ModelConfig, job: Job) -> float:
    model = trained_model(model, lora=job.train == "lora", freeze=job.freeze)
    shard = Shard.of(model.hidden_size, job, PlanNumbers.of(Plan(), 1, job))
    layers = [_flops(layer_block(kind, shard)) for kind in model.layer_kinds]
    ends = _flops(embedding_block(model, shard)) + _flops(head_block(model, shard))
    if model.num_mtp_layers:
        ends += model.num_mtp_layers * _flops(mtp_block(model, shard))
    return (sum(layers[kind] for kind in model.layer_pattern) + ends) / job.sequence_length


def _flops(block: Block) -> float:
    return float(block.training_flops)
