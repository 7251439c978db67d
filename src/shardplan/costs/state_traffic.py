"""Communication of parameters and gradients among the ranks that hold the same weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shardplan.arrays import Numbers
from shardplan.costs.collectives import Group, Network, collective_bytes, collective_time
from shardplan.inputs.batch import Batch
from shardplan.inputs.job import Job
from shardplan.workload.layer import Parameters
from shardplan.workload.ops import CollectiveKind

__all__ = ["StateTraffic", "state_traffic"]
LEAST_BUCKET, BUCKET_PER_RANK = 40e6, 1e6
"""Parameters that are reduced or gathered together once per step: at least the one, and the other for every replica, so
that latencies do not grow with the replicas (Megatron Core, distributed_data_parallel.py). Fully sharded weights and
gradients travel layer by layer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StateTraffic:
    """What a part's parameters and gradients cost the network."""

    reduce_time: Numbers
    """Gradients reduced once per step. [s]"""
    gather_time: Numbers
    """Updated parameters gathered once per step. [s]"""
    microbatch_time: Numbers
    """Weights gathered and gradients reduced in every micro-batch. [s]"""
    step_bytes: tuple[Numbers, ...]
    """Bytes sent per tier once per step."""
    microbatch_bytes: tuple[Numbers, ...]
    """Bytes sent per tier in every micro-batch."""


def state_traffic(held: Parameters, job: Job, batch: Batch, network: Network, groups: dict[str, Group]) -> StateTraffic:
    """Traffic of ``held`` under each sharding (ZeRO, arXiv 1910.02054, section 7; hsdp: FSDP, arXiv 2304.11277).

    ddp: gradients all-reduced. zero1: reduce-scattered, updated weights gathered. zero2: reduce-scattered in every
    micro-batch. zero3: weights gathered for the forward and again for the backward pass of every micro-batch. hsdp: as
    zero3 within the shard group; shards are all-reduced once per step across groups.
    """
    dense = _traffic(held.dense, job, batch, network, shard=groups["shard"], replica=groups["replica"])
    experts = _traffic(
        held.experts, job, batch, network, shard=groups["expert_shard"], replica=groups["expert_replica"]
    )
    return StateTraffic(
        reduce_time=dense.reduce_time + experts.reduce_time,
        gather_time=dense.gather_time + experts.gather_time,
        microbatch_time=dense.microbatch_time + experts.microbatch_time,
        step_bytes=_sum(dense.step_bytes, experts.step_bytes),
        microbatch_bytes=_sum(dense.microbatch_bytes, experts.microbatch_bytes),
    )


def _traffic(
    parameters: Numbers, job: Job, batch: Batch, network: Network, *, shard: Group, replica: Group
) -> StateTraffic:
    if isinstance(parameters, float) and parameters == 0:
        nothing = (0.0,) * len(network.tiers)
        return StateTraffic(
            reduce_time=0.0, gather_time=0.0, microbatch_time=0.0, step_bytes=nothing, microbatch_bytes=nothing
        )
    gradients = parameters * job.grad_bytes
    weights = parameters * job.gathered_weight_bytes
    gathered = np.where(batch.shards_optimizer, weights, gradients)
    often = np.where(batch.shards_gradients, 1.0, 0.0)
    twice = np.where(batch.shards_weights, 2.0, 0.0)
    once = np.where(batch.shards_weights, 0.0, 1.0)

    def both(kind: CollectiveKind, size: Numbers, group: Group, calls: Numbers) -> tuple[Numbers, tuple[Numbers, ...]]:
        return collective_time(kind, size, group, network, calls=calls), collective_bytes(kind, size, group)

    buckets = parameters / np.maximum(LEAST_BUCKET, BUCKET_PER_RANK * np.asarray(shard.size * replica.size))
    scatter_time, scatter_bytes = both("reduce_scatter", gradients, shard, np.where(often > 0, 1.0, buckets))
    across_time, across_bytes = both("all_reduce", gradients / shard.size, replica, np.where(often > 0, 1.0, buckets))
    gather_time, gather_bytes = both("all_gather", gathered, shard, np.where(twice > 0, 1.0, buckets))
    step_bytes = tuple(
        (1 - often) * s + a + once * g for s, a, g in zip(scatter_bytes, across_bytes, gather_bytes, strict=True)
    )
    return StateTraffic(
        reduce_time=(1 - often) * scatter_time + across_time,
        gather_time=once * gather_time,
        microbatch_time=often * scatter_time + twice * gather_time,
        step_bytes=step_bytes,
        microbatch_bytes=tuple(often * s + twice * g for s, g in zip(scatter_bytes, gather_bytes, strict=True)),
    )


def _sum(first: tuple[Numbers, ...], second: tuple[Numbers, ...]) -> tuple[Numbers, ...]:
    return tuple(a + b for a, b in zip(first, second, strict=True))
