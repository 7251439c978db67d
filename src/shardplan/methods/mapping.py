"""A question of ours in the terms of simpler models: one node size, whole-batch work of each layer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass
from shardplan.inputs.cluster import Cluster, NetworkTier
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.methods.base import MethodError
from shardplan.methods.fields import StrictFields, read_fields
from shardplan.physics.costs import network
from shardplan.physics.workload.communication import Shard
from shardplan.physics.workload.embedding import embedding, head, mtp_projection
from shardplan.physics.workload.layer import layer_block

Terms = TypeVar("Terms", bound=StrictFields)


ASK_ANOTHER: Final = "ask another method (`shardplan published methods`)"


@contextmanager
def as_refusal(hint: str = "") -> Iterator[None]:
    """Turns an ``InputError`` about a question of ours into a ``MethodError``; ``hint`` replaces its own."""
    try:
        yield
    except MethodError:
        raise
    except InputError as error:
        raise MethodError(error.message, rule=error.rule, hint=hint or error.hint) from None


def case_of(kind: type[Terms], terms: Mapping[str, Any], *, owner: str) -> Terms:
    """A question of ours as a case of a method. Raises ``MethodError`` if it is outside the method's range."""
    with as_refusal(ASK_ANOTHER):
        return read_fields(kind, terms, owner=owner)


def domain_size(cluster: Cluster) -> int:
    """Accelerators of the innermost domain, or of a node if that has no bound."""
    return cluster.innermost.size or cluster.accelerators_per_node


def even_nodes(cluster: Cluster, num_accelerators: int) -> tuple[int, int]:
    """Number of scale-up domains and accelerators used of each: as in our estimate, or fewer to divide the job."""
    inner = cluster.innermost
    used = domain_size(cluster) if inner.size is None else network.domain_size(inner, num_accelerators)
    used = math.gcd(used, num_accelerators)
    return num_accelerators // used, used


def spanned_tiers(cluster: Cluster, num_accelerators: int) -> list[NetworkTier]:
    """Tiers that the job's traffic crosses."""
    inner = [tier.size is not None and tier.size < num_accelerators for tier in cluster.tiers]
    return [tier for number, tier in enumerate(cluster.tiers) if number == 0 or inner[number - 1]]


@dataclass(frozen=True, kw_only=True)
class LayerWork:
    """Forward cost of the global batch in one layer, on a single accelerator."""

    flops: float
    """Forward FLOP."""
    all_reduced_bytes: float
    """Messages that tensor parallelism all-reduces, forward and backward. [bytes]"""
    output_bytes: float
    """Activations that leave the layer. [bytes]"""


def one_sequence(model: ModelConfig, job: Job) -> Shard:
    """The share of a rank that holds the whole model and one sequence."""
    return Shard.of(model.hidden_size, job, PlanNumbers.of(Plan(sequence_parallel=False), 1, job))


def layer_work(model: ModelConfig, job: Job) -> tuple[LayerWork, ...]:
    """Work of every layer, in order; that of embedding and head is added to the first and the last."""
    shard = one_sequence(model, job)
    kinds = [layer_block(kind, shard) for kind in model.layer_kinds]
    blocks = [kinds[index] for index in model.layer_pattern]
    blocks[0] = embedding(model, shard) + blocks[0]
    blocks[-1] = blocks[-1] + head(model, shard)
    for _ in range(model.num_mtp_layers):
        blocks[-1] += layer_block(model.mtp_layer, shard) + mtp_projection(shard) + head(model, shard)
    sequences, output = job.global_batch_size, float(shard.tokens * shard.hidden_size * shard.element)
    exchanged = [[item.bytes * item.count for item in block.collectives if item.dimension == "tp"] for block in blocks]
    return tuple(
        LayerWork(
            flops=float(sum(float(operator.flops) for operator in block.operators)) * sequences,
            all_reduced_bytes=float(sum(map(float, sizes))) / 2 * sequences,  # gather and scatter: one all-reduce
            output_bytes=output * sequences,
        )
        for block, sizes in zip(blocks, exchanged, strict=True)
    )
