"""Activations that a stage keeps."""

from __future__ import annotations

import numpy as np

from shardplan.arrays import Numbers, scaled, where
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.profile import Profile, Table
from shardplan.inputs.software import Software

LOSS_KEPT = {
    "in_place": 4.0,
    "autograd": 4.0,
    "loss_parallel": 4.0,
    "compiled": 4.0,
    "gathered": 4.0,
    "single": 2.0,
    "fused": 0.0,
}
"""Bytes per logit that wait for the backward pass: the softmax or its logarithm in fp32, 16-bit logits, nothing."""

LOSS_ALONE = {"loss_parallel": "autograd", "compiled": "single"}
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
    """Micro-batches of kept activations on the device; of those that wait on the host the two layers on their way."""
    away = offloaded_share(num_layers, numbers)
    return in_flight * (1 - away) + np.minimum(2.0 / np.maximum(num_layers, 1), away)


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


def backward_set(kept_of_a_layer: Numbers, profile: Profile) -> Numbers:
    r"""Gradients of the tensors of one layer at their peak, in its MLP. [bytes]

    Of :math:`12 h + 3 f` elements per token that a gated layer keeps (:math:`6 h + 2 f` of a plain one) the gradients
    of the :math:`3 f` (:math:`2 f`) between the MLP's products exist while the weight gradients are computed; the
    profile's ``backward_gradients`` is a share that holds for both.
    """
    return profile.backward_gradients * kept_of_a_layer
