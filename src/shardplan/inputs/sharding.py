"""What data parallelism shards, as answers to four questions, so that every kind of sharding is a point of one space.

For weights, gradients and optimizer states: over which ranks is each sharded, when are weights gathered and how
long do they stay, when are gradients reduced, and what is whole meanwhile. The plan's word answers what is sharded;
the software answers how long gathered weights and whole gradients stay (``keeps_weights``, ``keeps_gradients``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import Flags, Numbers, any_holds, where
from shardplan.base.fields import dataclass
from shardplan.inputs.plan import Sharding
from shardplan.inputs.software import KeepsWhole, Software

Kinds = str | NDArray[np.str_]
"""The word of one plan, or an array of words."""


@dataclass(frozen=True, kw_only=True)
class ShardingKind:
    """What one kind of sharding shards, and over which ranks."""

    optimizer: bool = False
    """Whether each rank keeps and updates a shard of the optimizer states."""
    gradients: bool = False
    """Whether gradients are reduced to shards in every micro-batch, unless the software keeps them whole."""
    weights: bool = False
    """Whether weights are shards between steps, gathered for each pass unless the software keeps them."""
    in_groups: bool = False
    """Whether it needs a ``sharding_degree`` below the number of replicas."""
    second_copy: bool = False
    """Whether that degree is of a second copy of the weights, while all replicas share the states."""


SHARDINGS: Final[Mapping[Sharding, ShardingKind]] = {
    "ddp": ShardingKind(),
    "zero1": ShardingKind(optimizer=True),
    "zero2": ShardingKind(optimizer=True, gradients=True),
    "zero3": ShardingKind(optimizer=True, gradients=True, weights=True),
    "hsdp": ShardingKind(optimizer=True, gradients=True, weights=True, in_groups=True),
    "hpz": ShardingKind(optimizer=True, gradients=True, weights=True, in_groups=True, second_copy=True),
}
"""Stages of ZeRO (arXiv 1910.02054); zero3 within groups of ranks (FSDP's hybrid sharding, arXiv 2304.11277; MiCS,
arXiv 2205.00119); zero3 with a second copy within a node (hpZ of ZeRO++, arXiv 2306.10209)."""

EACH_PASS = 2.0
"""Gathers of a micro-batch if weights are freed after each pass: for the forward and for the backward pass."""


@cache
def kinds_that(answer: str) -> tuple[Sharding, ...]:
    """Words of the kinds with a certain property."""
    return tuple(word for word, kind in SHARDINGS.items() if getattr(kind, answer))


def sharding_fields(
    kinds: Kinds, degrees: Numbers, software: Software, *, replicas: Numbers, pp: Numbers
) -> dict[str, Any]:
    """Fields of ``PlanNumbers`` for plans with these kinds of sharding over a number of ranks (0: all ``replicas``)."""
    given = where(np.greater(degrees, 0), degrees, replicas)
    second = _have_property(kinds, "second_copy")
    whole = where(second, replicas, given)
    weights, gradients = _have_property(kinds, "weights"), _have_property(kinds, "gradients")
    freed = _without(weights, stays_whole(software.keeps_weights, pp))
    reduced = _without(gradients, stays_whole(software.keeps_gradients, pp))
    gathers = where(freed, EACH_PASS, 0.0)
    if software.zero2_gathers == "microbatch":
        passing = _without(_without(gradients, weights), stays_whole(software.keeps_weights, pp))
        gathers = gathers + where(passing, 1.0, 0.0)
    return {
        "shards_optimizer": _have_property(kinds, "optimizer"),
        "shards_gradients": reduced,
        "scatters_gradients": gradients,
        "shards_weights": weights,
        "weight_gathers": gathers,
        "sharding_degree": whole,
        "second_degree": given if any_holds(second) else None,
    }


def stays_whole(when: KeepsWhole, pp: Numbers) -> Flags:
    """Whether software keeps a tensor whole through the micro-batches of a step."""
    return np.greater(pp, 1) if when == "pipelines" else when == "always"


def expert_ranks(degree: Numbers, replicas: Numbers, edp: Numbers) -> Numbers:
    """Ranks over which expert states are sharded: the same share of their ``edp`` replicas as for dense ones."""
    share = np.maximum(np.floor(degree * edp / replicas), 1)
    return np.gcd(np.asarray(share, dtype=np.int64), np.asarray(edp, dtype=np.int64))


def _have_property(kinds: Kinds, answer: str) -> Flags:
    """Whether each kind has a property."""
    words = kinds_that(answer)
    return kinds in words if isinstance(kinds, str) else np.isin(kinds, words)


def _without(one: Flags, other: Flags) -> Flags:
    """One flag without the other; a flag that never holds adds no axis."""
    return np.logical_and(one, np.logical_not(other)) if np.any(other) else one
