"""Copies between the tokens of tensor-parallel ranks and the contiguous buffers that PyTorch's collectives work on.

DTensor shares sequences along the second dimension, behind the samples of a micro-batch: what is gathered comes rank
after rank and is joined along it, and what is to be scattered is cut and joined before (``all_gather_tensor``,
``reduce_scatter_tensor``, torch/distributed/_functional_collectives.py). Megatron keeps sequences in front and copies
neither.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shardplan.base.arrays import Numbers
from shardplan.inputs.job import Recipe
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.software import Software
from shardplan.physics.workload.ops import Collective

READ_AND_WRITTEN, READ = 2.0, 1.0
"""How often a byte that is copied, or only summed up, crosses the memory."""
LEAST_IN_PANELS = 0.25
"""Least share of the copies of a pass that exchanges in panels leave: sums read, of gathers and sums copied."""


class CopiedBytes(NamedTuple):
    """What the copies around an exchange move in a micro-batch. [bytes]"""

    now: Numbers = 0.0
    """In the pass of the exchange."""
    late: Numbers = 0.0
    """In the backward pass, where that is another."""


NONE = CopiedBytes()


def copied_bytes(item: Collective, recipe: Recipe, software: Software, numbers: PlanNumbers) -> CopiedBytes:
    """Traffic of the copies around an exchange of tokens.

    Exchanges in panels (``overlap_tp``) copy less. They read the sums that every rank sent once. What they gather comes
    in the order of the sequence (``_fused_all_gather_matmul``, torch/distributed/_symmetric_memory), and a product for
    a weight's gradient reads it in that of its other factor: it is copied once in the backward pass, unless casts to 8
    bits write it anew anyway.
    """
    if software.tp_overlaps != "one_product" or item.dimension != "tp":
        return NONE
    if item.kind not in ("all_gather", "reduce_scatter"):
        return NONE
    size = item.bytes * item.count * np.logical_and(numbers.sequence_parallel, np.greater(numbers.tp, 1))
    panels = np.where(np.logical_and(numbers.overlap_tp, item.pipelined), size, 0.0)
    now, late = READ_AND_WRITTEN * (size - panels), np.zeros(())
    if item.kind == "reduce_scatter":
        return CopiedBytes(now + READ * panels)
    if recipe.matmul == recipe.dense_math:
        late = READ_AND_WRITTEN * panels
    return CopiedBytes(now, late) if item.direction == "forward" else CopiedBytes(now + late)
