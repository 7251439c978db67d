"""Weights, gradients and optimizer states of one rank under each sharding."""

from __future__ import annotations

from shardplan.arrays import Numbers, where
from shardplan.fields import dataclass
from shardplan.inputs.job import Job
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.workload.layer import Parameters

FP32_BYTES = 4.0
BUCKET_ELEMENTS = 5e8
"""Default of DeepSpeed's ``reduce_bucket_size``."""


@dataclass(frozen=True, slots=True)
class States:
    """Bytes of one rank."""

    weights: Numbers
    gradients: Numbers
    optimizer: Numbers


def model_states(held: Parameters, job: Job, numbers: PlanNumbers) -> States:
    r"""States of ``held`` parameters (ZeRO, arXiv 1910.02054, section 3).

    For Adam in mixed precision weights, gradients and optimizer take 2, 4 and 12 bytes per parameter. zero1 shards the
    optimizer's, zero2 the gradients' too, zero3 and hsdp the weights' too, over ``sharding_degree`` ranks. Where shards
    of the weights are kept in fp32 alone, these are the master copy.
    """
    whole = held.dense + held.experts
    sharded = held.dense / numbers.sharding_degree + held.experts / numbers.expert_sharding_degree
    recipe = job.recipe
    weight = weight_bytes(job)
    master = recipe.master_bytes if job.software.fp32_weights else 0.0
    shard = weight - recipe.weight_bytes + master if master else weight
    weights = where(numbers.shards_weights, shard * sharded, weight * whole)
    copy = recipe.weight_bytes if job.software.gradient_copy and job.grad_bytes > recipe.weight_bytes else 0.0
    gradients = (job.grad_bytes + copy) * where(numbers.shards_gradients, sharded, whole)
    updated = where(numbers.shards_optimizer, sharded, whole)
    states = job.optimizer_bytes - where(numbers.shards_weights, master, 0.0)
    optimizer = states * where(numbers.offload_optimizer, 0.0, updated)
    return States(weights, gradients, optimizer)


def update_bytes(held: Parameters, job: Job, numbers: PlanNumbers) -> Numbers:
    """What the update needs besides the states: 16-bit gradients of its share in fp32 (Megatron's main gradients).

    Optimizers with 16-bit moments need as much: peaks of Moonlight that recomputation does not lower (Megatron-Bridge).
    """
    if job.grad_bytes >= FP32_BYTES:
        return 0.0
    return where(numbers.offload_optimizer, 0.0, FP32_BYTES * local_parameters(held, numbers))


def weight_bytes(job: Job) -> float:
    """Bytes of one weight: the 16-bit one and its low-precision copies, or these alone."""
    recipe = job.recipe
    alone = job.software.quantised_weights and recipe.quantised_weight_bytes
    copies = recipe.quantised_weight_bytes if job.software.quantised_copies else 0.0
    return recipe.quantised_weight_bytes if alone else recipe.weight_bytes + copies


def local_parameters(held: Parameters, numbers: PlanNumbers) -> Numbers:
    """Parameters that this rank's optimizer updates."""
    sharded = held.dense / numbers.sharding_degree + held.experts / numbers.expert_sharding_degree
    return where(numbers.shards_optimizer, sharded, held.dense + held.experts)


def gathered_bytes(part: Parameters, layer: Parameters, job: Job, numbers: PlanNumbers) -> Numbers:
    """Whole weights that fully sharded training holds at most. [bytes]

    Those of the largest part of a stage and, gathered ahead, of its largest layer; where each weight is gathered by
    itself, one in use and one on its way.
    """
    held = _whole(part) + _whole(layer) if job.software.gathers_ahead else _at_once(part, layer, job)
    return where(numbers.shards_weights, job.recipe.weight_bytes * held, 0.0)


def unsharded_gradient_bytes(part: Parameters, layer: Parameters, job: Job, numbers: PlanNumbers) -> Numbers:
    """Whole gradients before they are reduced, as the backward pass of a layer writes them. [bytes]

    Those of a head take no more than its logits did, unless a loss in pieces makes them in the forward pass (Liger).
    """
    part = part if job.software.fused_loss else layer
    each = job.grad_bytes if job.software.fused_accumulation else job.recipe.weight_bytes
    return where(numbers.shards_gradients, each * _at_once(part, layer, job), 0.0)


def reduction_bytes(part: Parameters, layer: Parameters, job: Job, numbers: PlanNumbers) -> Numbers:
    """Where they are reduced: a bucket of fixed size, or their copy in a wider format. [bytes]

    The copy belongs to the stream of the reduction, so that the allocator keeps its place when it is gone (FSDP2).
    """
    if job.software.fixed_bucket:
        return where(numbers.shards_gradients, job.grad_bytes * BUCKET_ELEMENTS, 0.0)
    wider = job.grad_bytes > job.recipe.weight_bytes and not job.software.fused_accumulation
    each = job.grad_bytes if wider else 0.0
    return where(numbers.shards_gradients, each * _at_once(part, layer, job), 0.0)


WEIGHTS_AT_ONCE = 0.5
"""Share of a layer that two of its matrices are, in a gated MLP as in a mixture of gated experts (2 of 3) or less."""


def _at_once(part: Parameters, layer: Parameters, job: Job) -> Numbers:
    """Parameters whose gradients, or gathered weights, exist whole at one time: a part's, or two matrices'."""
    if job.software.gathers_ahead:
        return _whole(part)
    return where(_whole(part) > _whole(layer), _whole(part), WEIGHTS_AT_ONCE * _whole(layer))


def _whole(held: Parameters) -> Numbers:
    return held.dense + held.experts


def host_state_bytes(held: Parameters, job: Job, numbers: PlanNumbers) -> Numbers:
    """States that the host keeps and updates, with the gradients that it is sent (ZeRO-Offload, arXiv 2101.06840)."""
    both = job.optimizer_bytes + job.grad_bytes
    return where(numbers.offload_optimizer, both * local_parameters(held, numbers), 0.0)
