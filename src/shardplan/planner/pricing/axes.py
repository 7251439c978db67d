"""Axes of tables: what is priced lies along the last one, kinds of sharding or slots of recomputation before it."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from shardplan.arrays import Numbers, mapped
from shardplan.planner.family import Family

Made = TypeVar("Made")


def of_sharding(charge: Made, number: int) -> Made:
    """What the states cost under one of the shardings, which lie on the last axis but one."""

    def own(array: NDArray[Any]) -> NDArray[Any]:
        if array.ndim < 2:
            return array
        chosen = array[..., number if array.shape[-2] > 1 else 0, :]
        return chosen if array.ndim == 2 else chosen[..., None, :]  # networks side by side keep the axis of slots

    return mapped(charge, own)


def as_row(values: Numbers, like: NDArray[Any]) -> NDArray[np.float64]:
    """Values along a last axis as long as ``like``; networks side by side keep theirs in front."""
    array = np.asarray(values, dtype=np.float64)
    return np.broadcast_to(array, (*array.shape[:-1], *like.shape))


def of_slots(values: Numbers, slots: NDArray[np.intp], family: Family) -> Numbers:
    """Values of some slots of recomputation, which lie on the last axis but one."""
    array = np.asarray(values)
    if array.ndim < 2 or array.shape[-2] != len(family.policies) or len(slots) == len(family.policies):
        return values
    return array.take(slots, axis=-2)
