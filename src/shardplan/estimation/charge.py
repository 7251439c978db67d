"""What the states of a stage cost a step, the bytes that they take, and the memory of a rank at its peak."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from shardplan.arrays import Flags, Numbers, is_zero
from shardplan.costs.optimizer import orthogonalising_time, update_time
from shardplan.estimation.load import StageStates
from shardplan.estimation.question import Question
from shardplan.estimation.stage_memory import ActivationMemory, StateMemory, gradients_at_peak, state_memory
from shardplan.fields import dataclass, replace
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.memory.states import local_parameters
from shardplan.schedules.pipeline import parameter_copies
from shardplan.workload.stage import Stage


@dataclass(frozen=True, kw_only=True)
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
    sharding_time = states.sum.sharding_time
    states = states.times(parameter_copies(numbers))
    memory = memory or state_memory(question, numbers, stage, states)
    updated = local_parameters(states.sum, numbers)
    return StateCharge(
        sharding_time=sharding_time,
        reduce_time=states.sum.reduce_time,
        gather_time=states.sum.gather_time,
        update_time=update_time(updated, question.job, numbers, question.machine)
        + _orthogonalising(question, numbers, states),
        resident_bytes=memory.weights + memory.optimizer + memory.whole,
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
    return states.resident_bytes + question.profile.framework_bytes + (states.gradient_bytes - gone)


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
    return states.resident_bytes + question.profile.framework_bytes + gradients


def held_in_update(question: Question, states: StateCharge) -> Numbers:
    """All that is there in the update. [bytes]"""
    return states.resident_bytes + question.profile.framework_bytes + states.gradient_bytes + states.update_bytes
