"""Prices of everything that a stage can hold, each on the axes that it names and no others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from shardplan.arrays import Numbers
from shardplan.costs.block import BlockCost, price_block
from shardplan.costs.collectives import Group, collective_bytes, collective_time, groups_of, sharding_groups
from shardplan.costs.state_traffic import StateTraffic, state_traffic, with_tied_table
from shardplan.estimation.question import Question
from shardplan.inputs.batch import Batch
from shardplan.inputs.layers import MLP, MixtureOfExperts
from shardplan.inputs.model import ModelConfig
from shardplan.workload.embedding import embedding, head, logits, mtp_projection
from shardplan.workload.layer import (
    Parameters,
    embedding_parameters,
    head_parameters,
    layer_block,
    layer_parameters,
    mtp_parameters,
    reads_table_last,
)
from shardplan.workload.ops import Block
from shardplan.workload.shard import Shard
from shardplan.workload.stage import Stage

Mlp: TypeAlias = MLP | MixtureOfExperts | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Something of which a stage holds a number: a kind of layer, the embedding, the head, a prediction block."""

    cost: BlockCost
    parameters: Parameters
    traffic: StateTraffic


@dataclass(frozen=True, kw_only=True, slots=True)
class Prices:
    """All parts, and what a stage boundary costs."""

    layers: tuple[Part, ...]
    """One for every kind of layer."""
    embedding: Part
    head: Part
    mtp: Part
    transfer_time: Numbers
    """One micro-batch from one stage to the next, one way. [s]"""
    transfer_bytes: tuple[Numbers, ...]
    """Bytes of that on each tier."""
    logits: Numbers
    """Logits of one micro-batch on the last stage."""
    output_bytes: Numbers
    """Output of a stage for one micro-batch. [bytes]"""

    def total_over(self, stage: Stage, value: Callable[[Part], Numbers]) -> Numbers:
        """Sum of ``value`` over everything that a stage holds."""
        total: Numbers = 0.0
        for count, part in stage.holds(self.layers, self.embedding, self.head, self.mtp):
            total = total + count * value(part)
        return total


def price(question: Question, batch: Batch) -> Prices:
    """Prices under ``batch``: for one plan or for an array of them."""
    model, network = question.model, question.network
    groups = groups_of(batch, network)
    shard = Shard.of(model.hidden_size, question.job, batch)
    part = _pricer(question, batch, groups)
    pair = _neighbours(groups["pp"])
    output, gathered = _stage_output(question, shard, groups)
    return Prices(
        layers=tuple(
            part(layer_block(kind, shard), layer_parameters(model, kind, batch), kind.mlp) for kind in model.layer_kinds
        ),
        embedding=part(embedding(model, shard), embedding_parameters(model, batch), None),
        head=_tied(
            part(head(model, shard), head_parameters(model, batch, holds_table=batch.pp == 1), None),
            question,
            batch,
            pair,
        ),
        mtp=(
            part(_mtp_block(model, shard), mtp_parameters(model, batch), model.mtp_layer.mlp)
            if model.num_mtp_layers
            else part(Block(), Parameters(), None)
        ),
        transfer_time=collective_time("p2p", output, pair, network) + gathered,
        transfer_bytes=collective_bytes("p2p", output, pair),
        logits=logits(model, shard),
        output_bytes=shard.split_tokens * (model.hidden_size * shard.element),
    )


def _mtp_block(model: ModelConfig, shard: Shard) -> Block:
    """One multi-token-prediction block with its head."""
    return layer_block(model.mtp_layer, shard) + mtp_projection(shard) + head(model, shard)


def _stage_output(question: Question, shard: Shard, groups: dict[str, Group]) -> tuple[Numbers, Numbers]:
    """Bytes that a rank sends to the next stage, and the time to gather them among tensor-parallel ranks there."""
    hidden = question.model.hidden_size * shard.element
    output = shard.split_tokens * hidden
    if not question.job.software.split_transfers:
        return output, 0.0
    parts = shard.tokens / shard.columns * hidden
    gather = collective_time("all_gather", shard.tokens * hidden, groups["tp"], question.network)
    return np.minimum(output, parts), np.where(shard.batch.sequence_parallel, 0.0, gather)


def _pricer(question: Question, batch: Batch, groups: dict[str, Group]) -> Callable[[Block, Parameters, Mlp], Part]:
    machine, network = question.machine, question.network
    state_groups = sharding_groups(batch, network)

    def part(block: Block, held: Parameters, mlp: Mlp) -> Part:
        routed = isinstance(mlp, MixtureOfExperts)
        return Part(
            cost=price_block(block, machine, network, groups, batch, routed=routed),
            parameters=held,
            traffic=state_traffic(held, question.job, batch, network, state_groups),
        )

    return part


def _tied(head: Part, question: Question, batch: Batch, ends: Group) -> Part:
    """The head, and with it a table that the first stage holds as well."""
    model = question.model
    if batch.pp == 1 or not reads_table_last(model):
        return head
    table = model.num_embedding_parameters / batch.tp
    return replace(head, traffic=with_tied_table(head.traffic, table, question.job, ends, question.network))


def _neighbours(pipeline: Group) -> Group:
    """The worst-placed pair of stages: inside one domain only where all stages are."""
    together = tuple(np.where(np.asarray(m) >= pipeline.size, 2, 1) for m in pipeline.members)
    return Group(np.minimum(pipeline.size, 2), tuple(np.minimum(m, pipeline.size) for m in together))
