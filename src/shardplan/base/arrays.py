"""Numbers that belong to one plan or are arrays over plans: the formulas work for both.

A batch of plans keeps each of its fields along an axis of its own, so an expression costs only as much as the
product of the axes that it uses; NumPy's broadcasting does the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import is_dataclass
from functools import cache, reduce
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from shardplan.base.fields import given_fields, made

Numbers: TypeAlias = float | NDArray[Any]
"""A number, or an array with one element per plan (or per distinct value of the inputs of a formula)."""

Flags: TypeAlias = bool | NDArray[Any]
"""A truth value, or an array of them."""

Record = TypeVar("Record")


def all_hold(conditions: Iterable[Flags]) -> Flags:
    """Whether every condition holds, plan by plan; true if there are none."""
    held: Flags = True
    for condition in conditions:
        if condition is not True:
            held = condition if held is True else np.logical_and(held, condition)
    return held


def largest(values: Iterable[Numbers]) -> Numbers:
    """The largest of several values, plan by plan."""
    return reduce(np.maximum, values)


def any_holds(condition: Flags | Numbers) -> bool:
    """Whether a condition holds, or a number is not zero, for any plan."""
    if isinstance(condition, np.ndarray):
        return condition.size > 0 and (bool(condition.item(-1)) or bool(condition.any()))  # most hold at their end
    return bool(condition)


def ceil_divide(numerator: Numbers, denominator: Numbers) -> Numbers:
    """Smallest whole number not below ``numerator / denominator``."""
    return np.ceil(np.asarray(numerator) / denominator)


def share(part: Numbers, whole: Numbers) -> Numbers:
    """``part / whole``, at least one: how many of ``part`` fall on each of ``whole`` ranks."""
    return np.maximum(np.asarray(part) / whole, 1)


def smooth_maximum(first: Numbers, second: Numbers) -> Numbers:
    r"""Maximum of two times that delay each other a little when they are close, :math:`(a^6 + b^6)^{1/6}`.

    The maximum of no times is zero.
    """
    larger = np.maximum(first, second)
    ratio = np.minimum(first, second) / np.maximum(larger, 1e-30)
    squared = ratio * ratio
    maximum: Numbers = larger * np.sqrt(np.cbrt(1 + squared * squared * squared))
    return maximum


def where(condition: Flags, yes: Numbers, no: Numbers) -> Numbers:
    """``yes`` where a condition holds, ``no`` elsewhere; a single truth value costs nothing."""
    if isinstance(condition, (bool, np.bool_)):
        return yes if condition else no
    return np.where(condition, yes, no)


def one_number(values: Numbers) -> Numbers:
    """The one number that all values equal, or the values if they differ."""
    array = np.asarray(values)
    if not array.size or (first := array.item(0)) != array.item(-1):  # most that differ, seen at their ends
        return values
    return float(first) if array.size == 1 or bool((array == first).all()) else values


def divisors(number: int) -> tuple[int, ...]:
    """All divisors, ascending."""
    low = np.arange(1, math.isqrt(number) + 1)
    low = low[number % low == 0]
    return tuple(np.unique(np.concatenate((low, number // low))).tolist())


def first_number(value: Numbers) -> float:
    """The number of a single plan."""
    return float(np.asarray(value, dtype=np.float64).reshape(-1)[0])


def is_number(value: Numbers, number: float) -> bool:
    """Whether a value is this one number, rather than an array, so that its part of a formula can be skipped."""
    return not isinstance(value, np.ndarray) and value == number


def is_zero(value: Numbers) -> bool:
    """Whether a term is the number zero."""
    return not isinstance(value, np.ndarray) and value == 0


def plus(value: Numbers, other: Numbers) -> Numbers:
    """The sum; a term that is the number zero costs nothing."""
    if is_zero(other):
        return value
    return other if is_zero(value) else value + other


def scaled(factor: Numbers, value: Numbers) -> Numbers:
    """The product; a factor that is the number one costs nothing."""
    return value if is_number(factor, 1) else factor * value


def without_zeros(record: Record) -> Record:
    """``record`` with the number zero in place of every array that is zero everywhere."""
    return mapped(record, lambda array: array if array.any() else 0.0)


def column(values: Sequence[Any]) -> Any:
    """Values as an array, or as one number if all are equal. For mappings, a column for every key."""
    first = values[0]
    if isinstance(first, dict):
        return {key: column([each[key] for each in values]) for key in first}
    return first if all(each == first for each in values) else np.asarray(values)


def first_axis(values: Sequence[Numbers], num_axes: int) -> Numbers:
    """Values along a first axis, followed by ``num_axes`` others; one number if all are equal."""
    if len(set(values)) == 1:
        return values[0]
    return np.asarray(values, dtype=np.float64).reshape(-1, *[1] * num_axes)


def gather(record: Record, index: NDArray[np.intp]) -> Record:
    """``record`` with every array inside it taken at ``index`` along its last axis; numbers stay numbers."""
    return mapped(record, lambda array: array if array.shape[-1:] in {(), (1,)} else array.take(index, axis=-1))


def mapped(record: Record, change: Callable[[NDArray[Any]], Numbers]) -> Record:
    """The same record with every array inside it changed."""
    changed: Any = record
    kind: Any = type(record)
    if isinstance(record, np.ndarray):
        changed = change(record)
    elif (names := _given_fields(kind)) is not None:
        values = record.__dict__
        changed = made(kind, {name: _mapped(values[name], change) for name in names})
    elif isinstance(record, tuple):
        changed = tuple(_mapped(item, change) for item in record)
    elif isinstance(record, dict):
        changed = {key: _mapped(value, change) for key, value in record.items()}
    return cast("Record", changed)


def _mapped(value: Any, change: Callable[[NDArray[Any]], Numbers]) -> Any:
    """Like ``mapped``, for one item: a number, as most items of a record other than arrays, or a record."""
    return value if type(value) is float else mapped(value, change)


@cache
def _given_fields(kind: type) -> tuple[str, ...] | None:
    """Names of the fields with which a record of this kind is made; None for other kinds."""
    return given_fields(kind) if is_dataclass(kind) else None


def concatenated(records: Sequence[Record], lengths: Sequence[int]) -> Record:
    """Records whose arrays have these lengths joined into one; a number that is the same in all stays a number."""
    first: Any = records[0]
    kind: Any = type(first)
    joined: Any
    if isinstance(first, tuple):
        joined = tuple(concatenated(items, lengths) for items in zip(*records, strict=True))
    elif isinstance(first, dict):
        joined = {key: concatenated([record[key] for record in records], lengths) for key in first}  # type: ignore[index]
    elif (names := _given_fields(kind)) is not None:
        joined = made(kind, {n: concatenated([each.__dict__[n] for each in records], lengths) for n in names})
    elif not any(isinstance(each, np.ndarray) for each in records) and len(set(records)) == 1:
        joined = first
    else:
        arrays = [np.asarray(each) for each in records]
        front = np.broadcast_shapes(*(array.shape[:-1] for array in arrays))
        shapes = [(*front, length) for length in lengths]
        parts = [
            array if array.shape == shape else np.broadcast_to(array, shape)
            for array, shape in zip(arrays, shapes, strict=True)
        ]
        joined = np.concatenate(parts, axis=-1)
    return cast("Record", joined)


KEPT_BYTES = 30 * 2**20
"""Arrays up to this size are made of freed memory."""


def keep_freed_memory() -> None:
    """Makes the allocator of glibc reuse freed memory of arrays rather than return it to the kernel.

    Freeing a large block once raises the size up to which it does so (``mallopt(3)``, dynamic ``M_MMAP_THRESHOLD``);
    otherwise a search would cost thousands of page faults. The block itself is never touched. No effect on other
    systems.
    """
    np.empty(KEPT_BYTES, dtype=np.uint8)


def different(values: NDArray[Any]) -> NDArray[Any]:
    """The distinct values, ascending. ``np.unique`` imports ``numpy.ma`` for this, which takes 35 ms."""
    ordered = np.sort(values, axis=None)
    is_first = np.ones(len(ordered), dtype=bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_first]


def distinct(codes: NDArray[np.intp], limit: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The distinct numbers below ``limit`` among ``codes``, ascending, and the index of each code among them."""
    present = np.zeros(limit, dtype=bool)
    present[codes] = True
    values = np.flatnonzero(present)
    position = np.empty(limit, dtype=np.intp)
    position[values] = np.arange(len(values))
    return values, position[codes]


def first_of(positions: NDArray[np.intp], number: int) -> NDArray[np.intp]:
    """The first occurrence of each of ``number`` positions."""
    first = np.empty(number, dtype=np.intp)
    first[positions[::-1]] = np.arange(len(positions) - 1, -1, -1)
    return first


def columns_coded(flags: NDArray[np.bool_]) -> NDArray[np.intp]:
    """A whole number for every column of a table of flags, the same for equal columns; counted from zero."""
    code = np.zeros(flags.shape[1], dtype=np.intp)
    for byte in np.packbits(flags, axis=0):
        _, code = distinct(code * 256 + byte, 256 * (int(code.max(initial=0)) + 1))
    return code


def _ranked(column: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The distinct values of a column, and the index of each of its values among them."""
    if column.dtype.kind == "i" and len(column):
        least, limit = int(column.min()), int(column.max()) - int(column.min()) + 1
        if limit <= MOST_PER_ROW * len(column):
            return distinct(column - least, limit)  # in a fifth of the time of sorting
    return np.unique(column, return_inverse=True)


MOST_PER_ROW = 8
"""Codes beyond this number for each row are renumbered, so that tables of all codes stay small."""


def coded(*columns: NDArray[Any]) -> tuple[NDArray[np.intp], int]:
    """One whole number for each row of some columns, equal for equal rows; and a number above all of them."""
    code, limit = np.zeros(len(columns[0]), dtype=np.intp), 1
    for column in columns:
        if not isinstance(one_number(column), np.ndarray):
            continue
        values, position = _ranked(column)
        code = code * len(values) + position
        limit *= len(values)
        if limit > MOST_PER_ROW * len(code):  # no more numbers than there are rows
            values, code = np.unique(code, return_inverse=True)
            limit = len(values)
    return code, limit
