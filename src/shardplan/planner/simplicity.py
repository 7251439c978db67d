"""How simple a plan is: of plans that are alike otherwise the one to set up and to reason about."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from shardplan.inputs.plan import Plan

DIMENSIONS: Final = ("tp", "cp", "pp", "vp", "ep", "etp")
"""Degrees that split a model or its work, each a dimension where it is more than one."""
SIZES: Final = ("micro_batch_size", "sharding_degree", "stage_layers", "microbatch_group_size", "tp_rows")
"""Other fields that are no switches."""

Complexity = tuple[bool, int, int]


def complexity_of(plan: Plan, num_layers: int) -> Complexity:
    """Whether stages have unlike numbers of layers, then dimensions, then switches that differ from their defaults."""
    is_uneven = plan.stage_layers is not None or num_layers % (plan.pp * plan.vp) != 0
    dimensions = sum(getattr(plan, name) > 1 for name in DIMENSIONS)
    others = (field for field in fields(Plan) if field.name not in (*DIMENSIONS, *SIZES))
    return is_uneven, dimensions, sum(getattr(plan, field.name) != field.default for field in others)
