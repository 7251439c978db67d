"""Values of a field as a grid file writes them: one value, a list, a range or a logarithmic range."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from shardplan.errors import InputError, UnknownNameError, shown

KEYS: Final = ("from", "to", "step", "factor", "points", "scale", "unit")
STEPS: Final = ("step", "factor", "points")
MOST_VALUES: Final = 100_000
"""Values of one field."""


def values_of(name: str, given: object, *, takes_lists: bool = False) -> tuple[Any, ...]:
    """The values in their order. Raises InputError.

    >>> values_of("gpus", {"from": 64, "to": 512, "factor": 2})
    (64, 128, 256, 512)
    """
    if isinstance(given, Mapping) and "from" in given:
        return _range(name, given)
    if not isinstance(given, Sequence) or isinstance(given, str):
        return (given,)
    if takes_lists and not any(isinstance(each, list | tuple) for each in given):
        return (given,)
    if not given:
        raise InputError(f"{name} has no values", rule="a field of a grid has a value", hint=f"give {name} a value")
    return tuple(given)


def _range(name: str, given: Mapping[str, Any]) -> tuple[Any, ...]:
    for key in given:
        if key not in KEYS:
            raise UnknownNameError(f"key of the range of {name}", str(key)[:40], KEYS, hint=f"one of {', '.join(KEYS)}")
    first, last = (_number(name, key, given.get(key)) for key in ("from", "to"))
    chosen = [key for key in STEPS if key in given]
    if len(chosen) != 1:
        raise _wrong(name, f"a range has one of {', '.join(STEPS)}", f"write {name}: {{from: 64, to: 4096, factor: 2}}")
    if first > last:
        raise _wrong(name, f"it runs from {first:g} to {last:g}: 'from' is at most 'to'", "swap from and to")
    numbers = _numbers(name, chosen[0], first, last, given)
    unit = str(given.get("unit", ""))
    return tuple(f"{number!r} {unit}" if unit else number for number in map(_plain, numbers))


def _numbers(name: str, key: str, first: float, last: float, given: Mapping[str, Any]) -> list[float]:
    """The numbers of a range by step, by factor or by the number of points."""
    value = _number(name, key, given[key])
    scale = given.get("scale", "linear")
    if scale not in ("linear", "log"):
        raise _wrong(name, f"scale is {shown(scale)}", "set scale to linear or log")
    if key == "points":
        return _points(name, value, first, last, is_log=scale == "log")
    if key == "step":
        _check(name, value > 0, "step is above 0")
        return [first + value * place for place in range(_bounded(name, (last - first) / value))]
    _check(name, value > 1 and first > 0, "factor is above 1 and 'from' above 0")
    return [first * value**place for place in range(_bounded(name, math.log(last / first) / math.log(value)))]


def _points(name: str, points: float, first: float, last: float, *, is_log: bool) -> list[float]:
    _check(
        name,
        2 <= points <= MOST_VALUES and points == int(points),
        f"points is a whole number from 2 to {MOST_VALUES:,}",
    )
    shares = [place / (int(points) - 1) for place in range(int(points))]
    if not is_log:
        return [first + share * (last - first) for share in shares]
    _check(name, first > 0, "a logarithmic range begins above 0")
    return [first * (last / first) ** share for share in shares[:-1]] + [last]


def _bounded(name: str, steps: float) -> int:
    """Number of values of a range; the last one may miss its end by rounding."""
    number = math.floor(steps + 1e-9) + 1
    _check(name, number <= MOST_VALUES, f"a range has at most {MOST_VALUES:,} values")
    return number


def _plain(number: float) -> float:
    """A whole number as such, and rounding noise removed: 1000 rather than 1000.0000000000001."""
    rounded = float(f"{number:.12g}")
    return int(rounded) if rounded.is_integer() else rounded


def _number(name: str, key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _wrong(
            name, f"'{key}' of its range is {shown(value)}", f"set {key} to a number; its unit goes into 'unit'"
        )
    return float(value)


def _check(name: str, holds: bool, rule: str) -> None:  # noqa: FBT001  # reads as the rule it checks
    if not holds:
        raise _wrong(name, f"its range breaks a rule: {rule}", "correct the range")


def _wrong(name: str, why: str, hint: str) -> InputError:
    return InputError(f"{name}: {why}", rule="a range of a grid is well formed", hint=hint)
