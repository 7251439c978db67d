"""Prices of everything that a stage can hold, each on the axes that it names and no others.

Blocks (time and activations of a micro-batch) name the degrees that shape a layer and the micro-batch; states (their
bytes and their traffic) name the degrees, the placement and the sharding; the way to the next stage names both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TypeVar

import numpy as np

from shardplan.base.arrays import Numbers, where
from shardplan.base.fields import dataclass, replace
from shardplan.estimation.companion import companion_parameters, companion_passes, forward_numbers, joined_parts
from shardplan.estimation.layout import whole_model
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.layers import Layer, MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.physics.costs.block import BlockCost, price_block
from shardplan.physics.costs.block import computing_time as time_of_computing
from shardplan.physics.costs.collectives import Group, collective_bytes, collective_time, groups_of, sharding_groups
from shardplan.physics.costs.state_traffic import StateTraffic, state_traffic, with_tied_table
from shardplan.physics.schedules.pipeline import holds_both_ends
from shardplan.physics.workload.communication import Shard
from shardplan.physics.workload.embedding import embedding, head, logits, mtp_projection
from shardplan.physics.workload.layer import (
    Orthogonal,
    Parameters,
    embedding_parameters,
    head_parameters,
    held_parameters,
    layer_block,
    mtp_parameters,
    orthogonalised,
    reads_table_last,
)
from shardplan.physics.workload.ops import Block
from shardplan.physics.workload.stage import Parts
from shardplan.physics.workload.training import forward_alone, frozen

Groups = dict[str, Group]
Made = TypeVar("Made")


@dataclass(frozen=True, kw_only=True)
class HeldStates:
    """Parameters of a part on one rank, and what they cost the network."""

    parameters: Parameters
    traffic: StateTraffic
    orthogonal: Orthogonal = field(default_factory=Orthogonal)
    """Work of the optimizer on the part's matrices, where it is Muon."""


@dataclass(frozen=True, kw_only=True)
class Handover:
    """What a stage hands on for each micro-batch."""

    time: Numbers
    """One way, from one stage to the next. [s]"""
    bytes: tuple[Numbers, ...]
    """Bytes of that on each tier."""


@dataclass(frozen=True, kw_only=True)
class Prices:
    """All that is priced of a plan, or of each plan of an array."""

    blocks: Parts[BlockCost]
    states: Parts[HeldStates]
    handover: Handover


def price(question: Question, numbers: PlanNumbers) -> Prices:
    """Prices under ``numbers``: for one plan or for an array of them."""
    groups = groups_of(numbers, question.network)
    return Prices(
        blocks=price_blocks(question, numbers, groups),
        states=price_states(question, numbers, groups["pp"], sharding_groups(numbers, question.network)),
        handover=price_handover(question, numbers, groups),
    )


def price_blocks(question: Question, numbers: PlanNumbers, groups: Groups) -> Parts[BlockCost]:
    """Prices of one micro-batch; of the groups those of ``tp``, ``cp``, ``ep`` and ``etp`` are read."""
    machine, network = question.machine, question.network

    def cost(block: Block, *, routed: bool) -> BlockCost:
        return price_block(block, machine, network, groups, numbers, routed=routed)

    own = _of_blocks(question, numbers, cost)
    for companion, other in question.companions:
        passes = companion_passes(companion, other.model, question.model, price_blocks(other, numbers, groups))
        own = joined_parts(own, passes, BlockCost.beside)
    return own


def computing_time(question: Question, numbers: PlanNumbers) -> Numbers:
    """Computation of one micro-batch in all stages together, both passes, which no network changes. [s]"""
    parts = _of_blocks(question, numbers, lambda block, **_: time_of_computing(block, question.machine, numbers))
    return parts.total(whole_model(question.model), lambda each: each)


def _of_blocks(question: Question, numbers: PlanNumbers, made: Callable[..., Made]) -> Parts[Made]:
    """What is ``made`` of the block of every part, given whether experts are in it."""
    model, shard = question.model, Shard.of(question.model.hidden_size, question.job, numbers)
    last = mtp_block(model, shard) if model.num_mtp_layers else Block()
    return Parts(
        layers=tuple(
            made(layer_block(kind, shard), routed=isinstance(kind.mlp, MixtureOfExperts)) for kind in model.layer_kinds
        ),
        embedding=made(embedding_block(model, shard), routed=False),
        head=made(head_block(model, shard), routed=False),
        mtp=made(last, routed=bool(model.num_mtp_layers) and isinstance(model.mtp_layer.mlp, MixtureOfExperts)),
    )


def price_states(
    question: Question, numbers: PlanNumbers, pipeline: Group, groups: dict[str, Group]
) -> Parts[HeldStates]:
    """Parameters of every part, and their traffic among the ranks that hold the same (``sharding_groups``)."""
    job, network = question.job, question.network

    def states(held: Parameters) -> HeldStates:
        return HeldStates(parameters=held, traffic=state_traffic(held, job, numbers, network, groups))

    parts = parameters_of_parts(question, numbers).map(states)
    if job.optimizer == "muon":
        parts = _orthogonal(parts, question, numbers)
    parts = replace(parts, head=_tied(parts.head, question, numbers, pipeline))
    for companion, other in question.companions:
        held = companion_parameters(companion, other.model, question, parameters_of_parts(other, numbers))
        once = forward_numbers(numbers)
        added = held.map(lambda each: (each, state_traffic(each.as_frozen(), job, once, network, groups)))  # noqa: B023
        parts = joined_parts(parts, added, _beside)
    return parts


def _beside(states: HeldStates, companion: tuple[Parameters, StateTraffic]) -> HeldStates:
    """The same with the weights of a companion, which a forward pass gathers."""
    held, traffic = companion
    own = states.parameters
    return replace(
        states,
        parameters=replace(
            own,
            companion_dense=own.companion_dense + held.dense,
            companion_experts=own.companion_experts + held.experts,
        ),
        traffic=states.traffic.beside(traffic),
    )


def _orthogonal(parts: Parts[HeldStates], question: Question, numbers: PlanNumbers) -> Parts[HeldStates]:
    """The same with the work of Muon on every layer."""
    model, job = question.model, question.job

    def worked(held: HeldStates, layer: Layer) -> HeldStates:
        return replace(held, orthogonal=orthogonalised(model, layer, job, numbers))

    layers = tuple(worked(held, kind) for held, kind in zip(parts.layers, model.layer_kinds, strict=True))
    return replace(parts, layers=layers, mtp=worked(parts.mtp, model.mtp_layer) if model.num_mtp_layers else parts.mtp)


def parameters_of_parts(question: Question, numbers: PlanNumbers) -> Parts[Parameters]:
    """Parameters of every part on one rank, those among them that are frozen marked."""
    model, job = question.model, question.job
    ends = head_parameters(model, numbers, holds_table=holds_both_ends(numbers))
    return Parts(
        layers=tuple(held_parameters(model, kind, job, numbers) for kind in model.layer_kinds),
        embedding=_end(embedding_parameters(model, numbers), job, is_frozen=job.freezes_embedding(model)),
        head=_end(ends, job, is_frozen=job.freezes_head(model)),
        mtp=mtp_parameters(model, job, numbers) if model.num_mtp_layers else Parameters(),
    )


def num_trained_parameters(question: Question) -> float:
    """Parameters that the job trains, adapters included."""
    parts = parameters_of_parts(question, PlanNumbers.of(Plan(), 1, question.job))
    trained = parts.map(lambda held: held.trained.dense + held.trained.experts)
    return float(trained.total(whole_model(question.model), lambda number: number))


def _end(held: Parameters, job: Job, *, is_frozen: bool) -> Parameters:
    """Tables and heads: frozen, or trained by Adam where matrices have Muon."""
    return held.as_frozen() if is_frozen else held.with_adam(held.dense, job)


def price_handover(question: Question, numbers: PlanNumbers, groups: Groups) -> Handover:
    r"""The output of a stage on its way to a neighbour, :math:`(t_{far} + t_{near}) / 2`.

    Of the groups those of ``pp`` and ``tp`` are read. The mean of the two neighbours of the worst-placed stage: one
    with two of them exchanges with both for every micro-batch, and where domains hold two stages or more, at most one
    of the two lies in another domain.
    """
    network, pairs = question.network, (_neighbours(groups["pp"]), _near_neighbours(groups["pp"]))
    output, gathered = _stage_output(
        question, Shard.of(question.model.hidden_size, question.job, numbers), groups["tp"]
    )
    far, near = (collective_time("p2p", output, pair, network) for pair in pairs)
    sent = zip(*(collective_bytes("p2p", output, pair) for pair in pairs), strict=True)
    handover = Handover(time=(far + near) / 2 + gathered, bytes=tuple(sum(each) / 2 for each in sent))
    for _, other in question.companions:  # one way, of the two that are counted
        its = price_handover(other, numbers, groups)
        moved = tuple(own + more / 2 for own, more in zip(handover.bytes, its.bytes, strict=True))
        handover = Handover(time=handover.time + its.time / 2, bytes=moved)
    return handover


def output_bytes(question: Question, numbers: PlanNumbers) -> Numbers:
    """Output of a stage for one micro-batch. [bytes]"""
    shard = Shard.of(question.model.hidden_size, question.job, numbers)
    return shard.split_tokens * (question.model.residual_size * shard.element)


def num_logits(question: Question, numbers: PlanNumbers) -> Numbers:
    """Logits of one micro-batch on the last stage."""
    return logits(question.model, Shard.of(question.model.hidden_size, question.job, numbers))


def mtp_block(model: ModelConfig, shard: Shard) -> Block:
    """One multi-token-prediction block with its head."""
    joined = mtp_projection(shard, model.mtp_layer.streams)
    joined = frozen(joined, shard) if shard.job.train == "lora" else joined
    return layer_block(model.mtp_layer, shard) + joined + head_block(model, shard)


def embedding_block(model: ModelConfig, shard: Shard) -> Block:
    """The embedding; its rows get gradients where it is trained."""
    block = embedding(model, shard)
    return forward_alone(block) if shard.job.freezes_embedding(model) else block


def head_block(model: ModelConfig, shard: Shard) -> Block:
    """The head; a frozen one hands gradients on alone."""
    block = head(model, shard)
    return frozen(block, shard) if shard.job.freezes_head(model) else block


def _stage_output(question: Question, shard: Shard, tensor_parallel: Group) -> tuple[Numbers, Numbers]:
    """Bytes that a rank sends to the next stage, and the time to gather them among tensor-parallel ranks there."""
    hidden = question.model.residual_size * shard.element
    output = shard.split_tokens * hidden
    if not question.job.software.split_transfers:
        return output, 0.0
    parts = shard.tokens / shard.columns * hidden
    gather = collective_time("all_gather", shard.tokens * hidden, tensor_parallel, question.network)
    return np.minimum(output, parts), where(shard.numbers.sequence_parallel, 0.0, gather)


def _tied(head: HeldStates, question: Question, numbers: PlanNumbers, pipeline: Group) -> HeldStates:
    """The head, and with it a table that the first stage holds as well."""
    model = question.model
    frozen_table = question.job.freezes_embedding(model)
    if frozen_table or not reads_table_last(model) or np.all(holds_both_ends(numbers)):
        return head
    table = where(holds_both_ends(numbers), 0.0, model.num_embedding_parameters / numbers.tp)
    ends = _neighbours(pipeline)
    return replace(head, traffic=with_tied_table(head.traffic, table, question.job, ends, question.network))


def _neighbours(pipeline: Group) -> Group:
    """The worst-placed pair of stages: inside one domain only where all stages are."""
    return _pair(pipeline, pipeline.size)


def _near_neighbours(pipeline: Group) -> Group:
    """A stage and the nearer of its neighbours: inside one domain where it holds two stages."""
    return _pair(pipeline, 2)


def _pair(pipeline: Group, least: Numbers) -> Group:
    """Two stages, inside one domain where it holds ``least`` stages or more."""
    together = tuple(np.where(np.asarray(m) >= np.minimum(least, pipeline.size), 2, 1) for m in pipeline.members)
    return Group(np.minimum(pipeline.size, 2), tuple(np.minimum(m, pipeline.size) for m in together))
