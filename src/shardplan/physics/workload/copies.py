"""Copies between tensors and the contiguous buffers that PyTorch's collectives read and write.

FSDP2 gathers the weights of a layer in one buffer, rank after rank, and copies each of them out of it
(``foreach_all_gather_copy_out``, torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py); gradients are copied into
another (:mod:`.roofline`, sums of gradients). DTensor shares sequences along the second dimension, behind the samples
of a micro-batch: what is gathered comes rank after rank and is joined along it, and what is to be scattered is cut and
joined before (``all_gather_tensor``, ``reduce_scatter_tensor``, torch/distributed/_functional_collectives.py). Megatron
keeps sequences in front and copies neither.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shardplan.base.arrays import Numbers, any_holds
from shardplan.base.fields import replace
from shardplan.inputs.job import Recipe, gathered_weight_bytes
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.software import Software
from shardplan.physics.workload.ops import OUTSIDE, Block, Collective, Matmul, StreamPass
from shardplan.physics.workload.passes import TRAFFIC


def with_copies(block: Block, recipe: Recipe, software: Software, numbers: PlanNumbers) -> Block:
    """The block with the copies that the software makes around the exchanges of its weights and tokens."""
    copies = (*_of_weights(block, recipe, software, numbers), *_of_tokens(block, recipe, software, numbers))
    return replace(block, operators=(*block.operators, *copies)) if copies else block


def _of_weights(block: Block, recipe: Recipe, software: Software, numbers: PlanNumbers) -> Iterator[StreamPass]:
    """Weights copied out of the buffers that they are gathered in, for each pass that gathers them."""
    if not (software.sharded_accumulation and any_holds(numbers.shards_weights)):
        return
    size = gathered_weight_bytes(recipe, software) * _shared_weights(block, numbers)
    copied = TRAFFIC["gathered"].at("copied_weights", OUTSIDE, size, 1.0)
    gathers = np.asarray(numbers.weight_gathers)
    yield replace(
        copied,
        forward_bytes=copied.forward_bytes * np.minimum(gathers, 1),
        backward_bytes=copied.backward_bytes * np.maximum(gathers - 1, 0),
    )


def _shared_weights(block: Block, numbers: PlanNumbers) -> Numbers:
    """Elements of the matrices of a block that several ranks share."""
    products = [each for each in block.operators if isinstance(each, Matmul) and each.weight]
    dense = sum((each.k * each.n * each.count for each in products if not each.grouped), start=0.0)
    experts = sum((each.k * each.n * each.count for each in products if each.grouped), start=0.0)
    return dense * np.greater(numbers.sharding_degree, 1) + experts * np.greater(numbers.expert_sharding_degree, 1)


def _of_tokens(block: Block, recipe: Recipe, software: Software, numbers: PlanNumbers) -> Iterator[StreamPass]:
    """Tokens joined along the sequence, behind gathers and before scatterings of tensor-parallel ranks."""
    shared = np.greater(numbers.tp, 1) & np.asarray(numbers.sequence_parallel)
    if software.tp_overlaps != "one_product" or not any_holds(shared):
        return
    turned = 1.0 if recipe.matmul == recipe.dense_math else 0.0
    for item in block.collectives:
        if item.dimension == "tp" and item.kind in ("all_gather", "reduce_scatter"):
            yield _of_exchange(item, numbers, item.bytes * item.count * shared, turned)


def _of_exchange(item: Collective, numbers: PlanNumbers, size: Numbers, turned: float) -> StreamPass:
    """Of exchanges in panels, the sum of what every rank sent, which is read once, and what was gathered.

    This comes in the order of the sequence (``_fused_all_gather_matmul`` of torch/distributed/_symmetric_memory). The
    product for a weight's gradient reads it in the other factor's, so that it is ``turned`` once, unless casts to 8
    bits write it anew anyway.
    """
    panels = np.where(np.logical_and(numbers.overlap_tp, item.pipelined), size, 0.0)
    sums = 0.5 * panels if item.kind == "reduce_scatter" else 0.0
    late = turned * panels if item.kind == "all_gather" else 0.0
    now = size - panels + sums
    copied = TRAFFIC["gathered"].at(f"{item.name}_copy", item.modules, 1.0, 1.0)
    forward, backward = (now, late) if item.direction == "forward" else (0.0, now + late)
    return replace(
        copied,
        op_sac=item.op_sac,
        forward_bytes=copied.forward_bytes * forward,
        backward_bytes=copied.backward_bytes * backward,
    )
