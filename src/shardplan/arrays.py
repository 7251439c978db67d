"""Numbers that are either one plan's or an array over plans: the formulas do not care which.

A batch of plans keeps each of its fields along an axis of its own, so an expression costs only as much as the
product of the axes that it names; NumPy's broadcasting does the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass, replace
from functools import reduce
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = float | NDArray[Any]
"""A number, or an array with one element per plan (or per distinct value of what a formula names)."""

Flags: TypeAlias = bool | NDArray[Any]
"""A yes or no, or an array of them."""

Record = TypeVar("Record")


def all_hold(conditions: Iterable[Flags]) -> Flags:
    """Whether every condition holds, plan by plan; true where there is none."""
    held: Flags = True
    for condition in conditions:
        held = np.logical_and(held, condition)
    return held


def largest(values: Iterable[Numbers]) -> Numbers:
    """The largest of several values, plan by plan."""
    return reduce(np.maximum, values)


def any_holds(condition: Flags | Numbers) -> bool:
    """Whether a condition holds, or a number is not zero, for any plan."""
    return bool(condition.any() if isinstance(condition, np.ndarray) else condition)


def ceil_divide(numerator: Numbers, denominator: Numbers) -> Numbers:
    """Smallest whole number not below ``numerator / denominator``."""
    return np.ceil(np.asarray(numerator) / denominator)


def share(part: Numbers, whole: Numbers) -> Numbers:
    """``part / whole``, at least one: how many of ``part`` fall on each of ``whole`` ranks."""
    return np.maximum(np.asarray(part) / whole, 1)


def smooth_maximum(first: Numbers, second: Numbers) -> Numbers:
    r"""Maximum of two times that delay each other a little when they are close, :math:`(a^6 + b^6)^{1/6}`."""
    larger = np.maximum(np.maximum(first, second), 1e-30)
    ratio = np.minimum(first, second) / larger
    squared = ratio * ratio
    maximum: Numbers = larger * np.sqrt(np.cbrt(1 + squared * squared * squared))
    return maximum


def take(record: Record, index: tuple[slice, ...]) -> Record:
    """The part of every array inside ``record`` that lies at ``index``: one slice for each of the last axes.

    Where an array does not vary, being of length one or having no such axis, it stays whole.
    """
    taken: Any = record
    if isinstance(record, np.ndarray):
        inside = index[len(index) - record.ndim :] if record.ndim < len(index) else index
        whole = slice(None)
        taken = record[tuple(part if n > 1 else whole for part, n in zip(inside, record.shape, strict=True))]
    elif isinstance(record, tuple):
        taken = tuple(take(item, index) for item in record)
    elif isinstance(record, dict):
        taken = {key: take(value, index) for key, value in record.items()}
    elif is_dataclass(record) and not isinstance(record, type):
        changed = {field.name: take(getattr(record, field.name), index) for field in fields(record)}
        taken = replace(record, **changed)
    return cast("Record", taken)
