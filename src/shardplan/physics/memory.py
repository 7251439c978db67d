"""Memory of one rank: activations that its stage keeps, and weights, gradients and optimizer states by sharding.

Also which knob makes each part smaller.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from shardplan.base.arrays import Flags, Numbers, any_holds, is_zero, scaled, where
from shardplan.base.fields import dataclass, replace
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.profile import Profile, Table
from shardplan.inputs.sharding import SHARDINGS, stays_whole
from shardplan.inputs.software import Software
from shardplan.physics.workload.layer import Parameters

LOSS_KEPT = {
    "in_place": 4.0,
    "native": 4.0,
    "autograd": 4.0,
    "loss_parallel": 4.0,
    "compiled": 4.0,
    "gathered": 4.0,
    "single": 2.0,
    "fused": 0.0,
}
"""Bytes per logit that wait for the backward pass: the softmax or its logarithm in fp32, 16-bit logits, nothing."""

LOSS_ALONE = {"loss_parallel": "autograd", "compiled": "single", "gathered": "gathered_alone"}
"""What the loss is where no tensor-parallel ranks share the vocabulary."""

LOSS_HELD = {"gathered": 4.0}
"""Bytes per logit that stay when layers run backward: 16-bit logits of two micro-batches in the pipeline's buffers."""


def applied_share(num_layers: Numbers, numbers: PlanNumbers) -> Numbers:
    """Share of a stage's layers to which recomputation applies."""
    if isinstance(numbers.recompute_num_layers, float) and np.isinf(numbers.recompute_num_layers):
        return 1.0
    return np.minimum(1.0, numbers.recompute_num_layers / np.maximum(num_layers, 1))


def kept_per_microbatch(kept: Numbers, freed: Numbers, share: Numbers) -> Numbers:
    """Activations of one micro-batch: all, less what recomputation frees on its share of the layers. [bytes]"""
    return kept - scaled(share, freed)


def working_set(freed_of_a_layer: Numbers, share: Numbers) -> Numbers:
    """What recomputation brings back for one layer at a time, at most what it freed. [bytes]"""
    return where(np.asarray(share) > 0, freed_of_a_layer, 0.0)


def offloaded_share(num_layers: Numbers, numbers: PlanNumbers) -> Numbers:
    """Share of a stage's layers whose kept activations wait on the host."""
    return where(
        numbers.offload_activations, np.minimum(1.0, numbers.offload_num_layers / np.maximum(num_layers, 1)), 0
    )


def on_device(in_flight: Numbers, num_layers: Numbers, numbers: PlanNumbers) -> Numbers:
    """Micro-batches of kept activations on the device: those of the layers that do not wait on the host.

    The first N of L layers travel while the device does not yet hold the L - N others, and come back as these go
    (Transformer Engine, pytorch/cpu_offload.py, ``_init_offload_synchronization_dicts``). At least two are on their way
    next to the last, whose backward pass comes first (Megatron Core,
    pipeline_parallel/fine_grained_activation_offload.py, ``_offload_margin``).
    """
    away = offloaded_share(num_layers, numbers)
    least = np.where(np.greater(away, 0), np.minimum(3.0 / np.maximum(num_layers, 1), 1.0), 0.0)
    return np.maximum(in_flight * (1 - away), least)


def mask_bytes(job: Job, numbers: PlanNumbers) -> Numbers:
    """Attention masks that the batches of all model chunks carry, a byte for each pair of tokens."""
    if not job.software.dense_masks:
        return 0.0
    return numbers.micro_batch_size * (job.sequence_length**2 / np.asarray(numbers.cp)) * numbers.vp


def loss_bytes(software: Software, per_logit: Table, logits: Numbers, heads: Numbers, tp: Numbers) -> Numbers:
    """Logits and loss of the last stage at their peak; each head of multi-token prediction keeps its own as well."""
    kind = _loss_kind(software)
    peak: Numbers = per_logit[kind]
    if kind in LOSS_ALONE:
        peak = where(np.asarray(tp) > 1, peak, per_logit[LOSS_ALONE[kind]])
    return logits * (peak + LOSS_KEPT[kind] * (heads - 1)) * (np.asarray(heads) > 0)


def held_logit_bytes(software: Software, logits: Numbers, heads: Numbers) -> Numbers:
    """Of that, what stays when layers run backward."""
    return LOSS_HELD.get(_loss_kind(software), 0.0) * logits * (np.asarray(heads) > 0)


def _loss_kind(software: Software) -> str:
    if software.fused_loss:
        return "fused"
    is_eager = software.loss_kernel == "compiled" and software.kernels == "eager"
    return "loss_parallel" if is_eager else software.loss_kernel


def backward_set(kept_of_a_layer: Numbers, gradients_of_core: Numbers, profile: Profile) -> Numbers:
    r"""Gradients of the tensors of one layer at their peak, in its MLP or in the core of unfused attention. [bytes]

    Of :math:`12 h + 3 f` elements per token that a gated layer keeps (:math:`6 h + 2 f` of a plain one) the gradients
    of the :math:`3 f` (:math:`2 f`) between the MLP's products exist while the weight gradients are computed; the
    profile's ``backward_gradients`` is a share that holds for both.
    """
    in_mlp = profile.backward_gradients * kept_of_a_layer
    return in_mlp if is_zero(gradients_of_core) else np.maximum(in_mlp, gradients_of_core)


FP32_BYTES = 4.0
BUCKET_ELEMENTS = 5e8
"""Default of DeepSpeed's ``reduce_bucket_size``."""


@dataclass(frozen=True)
class States:
    """Bytes of one rank."""

    weights: Numbers
    gradients: Numbers
    optimizer: Numbers


def model_states(held: Parameters, job: Job, numbers: PlanNumbers) -> States:
    r"""States of ``held`` parameters (ZeRO, arXiv 1910.02054, section 3).

    For Adam in mixed precision weights, gradients and optimizer take 2, 4 and 12 bytes per parameter. zero1 shards the
    optimizer's, zero2 the gradients' too, zero3 and hsdp the weights' too, over ``sharding_degree`` ranks. Where the
    software keeps gathered weights, or gradients till the last micro-batch, these are whole at the peak and the shard
    of the weights comes on top. Weights that are kept in fp32 alone are the master copy; frozen ones are kept alike,
    unless in few bits. hpz adds a second 16-bit copy, shared by the ranks of a node. What one rank alone holds is
    whole. Frozen parameters have weights alone, unless they make one flat parameter with trained ones
    (:func:`flat_gradient_bytes`).
    """
    master = job.recipe.master_bytes if job.software.fp32_weights else 0.0
    classes = [_states(each, job, numbers, master) for each in _shares(held.trained, numbers)]
    frozen = held.as_kept(job).frozen
    if any_holds(frozen.dense) or any_holds(frozen.experts):
        whole = master if job.packed_weights is None else 0.0
        kept = (_weights(each, job, numbers, whole) for each in _shares(frozen, numbers))
        classes += [States(weights, 0.0, 0.0) for weights in kept]
        classes.append(States(0.0, flat_gradient_bytes(held, job, numbers), 0.0))
    if any_holds(held.by_adam):
        classes.append(States(0.0, 0.0, where(numbers.offload_optimizer, 0.0, _second_moments(held, job, numbers))))
    return States(*(sum(getattr(each, name) for each in classes) for name in ("weights", "gradients", "optimizer")))


def companion_bytes(held: Parameters, job: Job, numbers: PlanNumbers) -> Numbers:
    """Weights of frozen companions, sharded where the plan shards weights; no backward pass needs a second copy."""
    kept = Parameters(held.companion_dense, held.companion_experts)
    if not (any_holds(kept.dense) or any_holds(kept.experts)):
        return 0.0
    alone = replace(numbers, second_degree=None)
    return sum((_weights(each, job, alone, 0.0) for each in _shares(kept, alone)), start=0.0)


def flat_gradient_bytes(held: Parameters, job: Job, numbers: PlanNumbers) -> Numbers:
    """Gradients of frozen parameters, where sharded weights of a layer are one flat parameter with its trained ones."""
    if not any_holds(held.flat):
        return 0.0
    kept = where(numbers.shards_gradients, held.flat / numbers.sharding_degree, held.flat)
    return where(numbers.shards_weights & np.greater(numbers.sharding_degree, 1), job.grad_bytes * kept, 0.0)


def _second_moments(held: Parameters, job: Job, numbers: PlanNumbers) -> Numbers:
    """Second moments of tables and norms where matrices have one moment (Muon). [bytes]"""
    return job.moment_bytes * where(numbers.shards_optimizer, held.by_adam / numbers.sharding_degree, held.by_adam)


class _Share(NamedTuple):
    """Parameters with the ranks that share them."""

    parameters: Numbers
    ranks: Numbers
    """Ranks that share their states."""
    second: Numbers | None
    """Ranks that share a second copy of the weights; None where there is none."""


def _shares(held: Parameters, numbers: PlanNumbers) -> Iterator[_Share]:
    """Dense parameters, then those of experts."""
    copied = numbers.second_degree is not None
    yield _Share(held.dense, numbers.sharding_degree, numbers.second_degree)
    if any_holds(held.experts):
        second = numbers.expert_second_degree if copied else None
        yield _Share(held.experts, numbers.expert_sharding_degree, second)


def _states(held: _Share, job: Job, numbers: PlanNumbers, master: float) -> States:
    """States of trained parameters; ``master``: bytes of a master copy that is the weight's shard."""
    own, shard = job.recipe.weight_bytes, held.parameters / held.ranks
    copy = own if job.software.gradient_copy and job.grad_bytes > own else 0.0
    gradients = (job.grad_bytes + copy) * where(numbers.shards_gradients, shard, held.parameters)
    is_weight = numbers.shards_weights | _is_whole(held, numbers)
    states = job.optimizer_bytes - where(is_weight, master, 0.0)
    optimizer = states * where(numbers.shards_optimizer, shard, held.parameters)
    return States(_weights(held, job, numbers, master), gradients, where(numbers.offload_optimizer, 0.0, optimizer))


def _is_whole(held: _Share, numbers: PlanNumbers) -> Flags:
    """Whether a rank updates all that it holds, so that weights in fp32 alone are cast where they are used."""
    return np.less_equal(held.ranks, 1) | np.logical_not(numbers.shards_optimizer)


def _weights(held: _Share, job: Job, numbers: PlanNumbers, master: float) -> Numbers:
    """Weights that a rank holds all the time, or from their first use in a step to the last. [bytes]"""
    shared, shard = np.greater(held.ranks, 1), held.parameters / held.ranks
    whole, own = weight_bytes(job), job.recipe.weight_bytes
    freed = (whole - own + master if master else whole) * shard
    gathered: Numbers = whole
    if job.software.quantised_gathers:
        gathered = where(numbers.shards_weights & shared, job.gathered_weight_bytes, whole)
    kept = gathered * held.parameters + where(numbers.shards_weights & shared, (master or own) * shard, 0.0)
    weights = where(numbers.frees_weights & shared, freed, kept)
    if master:
        weights = where(_is_whole(held, numbers), (whole - own + master) * held.parameters, weights)
    if held.second is None:
        return weights
    has_one = numbers.frees_weights & np.less(held.second, held.ranks)
    return weights + where(has_one, own * held.parameters / held.second, 0.0)


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
    held = held.trained
    return where(numbers.shards_optimizer, _shard(held, numbers), _whole(held))


def gathered_bytes(part: Parameters, layer: Parameters, job: Job, numbers: PlanNumbers) -> Numbers:
    """Whole weights that fully sharded training holds at most. [bytes]

    Those of the largest part of a stage and, gathered ahead, of its largest layer; where each weight is gathered by
    itself, one in use and one on its way. Those of layers are held in the format in which they are gathered, embedding
    and head in 16 bits.
    """
    part, layer = _shared(part.as_kept(job), numbers), _shared(layer.as_kept(job), numbers)
    own, low = job.recipe.weight_bytes, job.gathered_weight_bytes
    each = own if own == low else where(_whole(part) > _whole(layer), own, low)
    held = each * _at_once(part, layer, job)
    return where(numbers.frees_weights, held + low * _whole(layer) if job.software.gathers_ahead else held, 0.0)


def unsharded_gradient_bytes(part: Parameters, layer: Parameters, job: Job, numbers: PlanNumbers) -> Numbers:
    """Whole gradients before they are reduced, as the backward pass of a layer writes them. [bytes]

    Those of a head take no more than its logits did, unless a loss in pieces makes them in the forward pass (Liger).
    """
    part, layer = part.trained, layer.trained
    part = _shared(part if job.software.fused_loss else layer, numbers)
    each = job.grad_bytes if job.software.fused_accumulation else job.recipe.weight_bytes
    return where(numbers.shards_gradients, each * _at_once(part, _shared(layer, numbers), job), 0.0)


def reduction_bytes(part: Parameters, layer: Parameters, job: Job, numbers: PlanNumbers) -> Numbers:
    """Where they are reduced: a bucket of fixed size, or their copy in a wider format. [bytes]

    The copy belongs to the stream of the reduction, so that the allocator keeps its place when it is gone (FSDP2).
    """
    part, layer = _shared(part.trained, numbers), _shared(layer.trained, numbers)
    if job.software.fixed_bucket:
        return where(numbers.shards_gradients & np.greater(_whole(part), 0), job.grad_bytes * BUCKET_ELEMENTS, 0.0)
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


def _shared(held: Parameters, numbers: PlanNumbers) -> Parameters:
    """What several ranks share, and so is gathered and reduced."""
    dense = np.greater(numbers.sharding_degree, 1)
    return Parameters(
        where(dense, held.dense, 0.0),
        where(np.greater(numbers.expert_sharding_degree, 1), held.experts, 0.0) if any_holds(held.experts) else 0.0,
    )


def _whole(held: Parameters) -> Numbers:
    return held.dense + held.experts


def _shard(held: Parameters, numbers: PlanNumbers) -> Numbers:
    return held.dense / numbers.sharding_degree + held.experts / numbers.expert_sharding_degree


def host_state_bytes(held: Parameters, job: Job, numbers: PlanNumbers) -> Numbers:
    """States that the host keeps and updates, with the gradients that it is sent (ZeRO-Offload, arXiv 2101.06840)."""
    both = (job.optimizer_bytes + job.grad_bytes) * local_parameters(held, numbers)
    both = both + _second_moments(held, job, numbers) if any_holds(held.by_adam) else both
    return where(numbers.offload_optimizer, both, 0.0)


def knobs(part: str, plan: Plan, job: Job, *, has_replicas: bool) -> str:
    """What makes a part of the memory smaller, of that which the plan does not do already.

    States that all replicas share take :math:`b P / N` bytes whatever tp and pp; a pipeline keeps as many micro-batches
    in flight as it has stages, so that depth frees no activations. ``has_replicas``: whether several ranks hold the
    same weights, so that there is something to shard.
    """
    whole = plan.sharding_degree is None and has_replicas
    kind = SHARDINGS[plan.sharding]
    whole_weights = bool(stays_whole(job.software.keeps_weights, plan.pp))
    whole_gradients = bool(stays_whole(job.software.keeps_gradients, plan.pp))
    shards_weights, shards_gradients = kind.weights and not whole_weights, kind.gradients and not whole_gradients
    ways = {
        "weights": (
            ("raise tp or pp", not (shards_weights and whole)),
            ("shard them (zero3)", has_replicas and not kind.weights and not whole_weights),
            ("use more accelerators", shards_weights and has_replicas),
        ),
        "gradients": (
            ("raise tp or pp", not (shards_gradients and whole)),
            ("shard them (zero2, zero3)", has_replicas and not kind.gradients and not whole_gradients),
            ("accumulate them in bf16 (--grad-dtype bf16)", job.grad_dtype == "fp32"),
            ("use more accelerators", shards_gradients and has_replicas),
        ),
        "optimizer": (
            ("shard it (zero1)", has_replicas and plan.sharding == "ddp"),
            ("shard it over more ranks", has_replicas and plan.sharding != "ddp" and not whole),
            ("move it to the host (--offload optimizer)", plan.offload != "optimizer"),
            ("keep moments in bf16 (--moment-dtype bf16)", job.moment_dtype == "fp32"),
            ("use more accelerators", True),
        ),
        "companion": (
            ("raise tp or pp", not (shards_weights and whole)),
            ("shard its weights (zero3)", has_replicas and not kind.weights and not whole_weights),
            ("choose a smaller companion", True),
        ),
        "activations": (
            ("recompute more (--recompute full)", plan.recompute != "full" or plan.recompute_num_layers is not None),
            ("lower the micro-batch size", plan.micro_batch_size > 1),
            ("raise tp or cp", True),
            ("move them to the host (--offload activations)", plan.offload != "activations"),
            ("move those of more layers there (--offload-num-layers)", plan.offload_num_layers is not None),
        ),
        "logits": (("lower the micro-batch size", plan.micro_batch_size > 1), ("raise tp or cp", True)),
        "buffers": (("raise tp", True), ("shard less (zero1)", plan.sharding != "zero1")),
        "framework": (("use an accelerator with more memory", True),),
    }
    useful = [words for words, helps in ways[part] if helps]
    return useful[0] if len(useful) == 1 else f"{', '.join(useful[:-1])}, or {useful[-1]}"
