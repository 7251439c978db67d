"""The fields that a grid may vary: their names and values.

A grid file writes them as one value, a list, a range or a logarithmic range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from shardplan.ask.forms import Replaced
from shardplan.ask.questions import CHOICES
from shardplan.base.errors import InputError, UnknownNameError, shown
from shardplan.base.fields import described, wrong
from shardplan.base.units import parse_quantity, parse_whole
from shardplan.inputs.counts import MAX_NUM_ACCELERATORS
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.software import Software
from shardplan.inputs.words import field_meant

NAMES: Final = ("model", "cluster", "accelerator", "stack", "profile")
"""Fields whose values are names or paths."""
REPLACED: Final = tuple(described(Replaced))
QUANTITIES: Final[Mapping[str, Any]] = {
    name: field.about.quantity for name, field in described(Replaced).items() if field.about.quantity
}
"""Fields of the cluster with a unit: kind of quantity, and ending of their columns."""
COUNTS: Final = ("num_accelerators", "nodes", "node_size")
WHICH_PLAN: Final = "plan"
"""The field that says which plan a row has."""
RECOMMENDED: Final = "recommended"
PLANS: Final = ("fastest", RECOMMENDED)
"""Its values: the fastest or the recommended plan."""


class GridField(NamedTuple):
    """A field of a grid."""

    name: str
    """Its own name: ``num_accelerators``, ``software.kernels``, ``limit.tp``."""
    column: str
    """Column of the results."""
    read: Callable[[object], Any]
    """Reads a text or number of the grid. Raises InputError."""

    @property
    def takes_lists(self) -> bool:
        """Whether one value is a list."""
        return self.name.startswith(("limit.", "exclude."))


def field_of(name: object) -> GridField:
    """The field that is called ``name``. Raises UnknownNameError, which suggests similar names."""
    text = str(name).strip()
    group, dot, rest = text.partition(".")
    if dot and group in CHOICES:
        field = _known(rest, tuple(described(Plan)), f"field of the plan after '{group}.'")
        return GridField(f"{group}.{field}", f"{group}_{field}", _listed if group != "fix" else lambda value: value)
    if dot and group == "software":
        field = _known(rest, tuple(described(Software)), "field of the software")
        return GridField(f"software.{field}", f"software_{field}", _reader_of(Software, field))
    own = text.removeprefix("--").replace("-", "_").lower()
    meant = field_meant(own)
    if meant and own not in _plain_fields():
        own = "stack" if meant == "framework" else meant
    if own in described(Plan) and own not in _plain_fields():
        raise InputError(
            f"the grid varies {shown(text)}, a field of the plan",
            rule="the search chooses the fields of the plan, within limits",
            hint=f"write fix.{own} for one value at a time, or limit.{own} for sets of values",
        )
    own = _known(own, _plain_fields(), "field of a grid")
    unit = f"_{QUANTITIES[own][1]}" if own in QUANTITIES else ""
    return GridField(own, own + unit, _reader(own))


def _plain_fields() -> tuple[str, ...]:
    """Fields that are written without a group before them."""
    of_job = (name for name in described(Job) if name != "software")
    return (*NAMES, "num_accelerators", "nodes", *REPLACED, WHICH_PLAN, *of_job)


def _known(name: str, known: tuple[str, ...], kind: str) -> str:
    own = name if name in known else (field_meant(name) or name)
    if own not in known:
        raise UnknownNameError(kind, name[:60], known, hint=f"known: {', '.join(known)}")
    return own


def _reader(name: str) -> Callable[[object], Any]:
    if name in NAMES:
        return lambda value: _name(name, value)
    if name == WHICH_PLAN:
        return _which_plan
    if name in QUANTITIES:
        return lambda value: _quantity(name, value)
    if name in COUNTS:
        return lambda value: _count(name, value)
    return _peaks if name == "peak_flops" else _reader_of(Job, name)


def _listed(value: object) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _name(name: str, value: object) -> str | None:
    if name == "stack" and value is None:
        return None
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise _refused(name, value, "a name or a path")


def _which_plan(value: object) -> str:
    text = str(value).strip().lower()
    if text not in PLANS:
        raise _refused(WHICH_PLAN, value, " or ".join(PLANS))
    return text


def _quantity(name: str, value: object) -> float:
    """The value in SI units; a number without a unit is read as on the command line: GB/s, GB."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _refused(name, value, "a number or a text with a unit")
    text = value if isinstance(value, str) else f"{value!r}"
    return parse_quantity(text, QUANTITIES[name][0], field=name)


def _peaks(value: object) -> dict[str, float]:
    """Rates by number format, in FLOP/s; a number without a unit is read as on the command line: TFLOP/s."""
    given = value if isinstance(value, Mapping) else dict(part.partition("=")[::2] for part in str(value).split(","))
    found = {str(name).strip(): str(rate).strip() for name, rate in given.items()}
    if not all(name and rate for name, rate in found.items()):
        raise _refused("peak_flops", value, "peaks by number format, such as bf16=989 or {bf16: 989, fp8: 1979}")
    return {name: parse_quantity(rate, "flop rate", field=f"peak_flops.{name}") for name, rate in found.items()}


def _count(name: str, value: object) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        number = parse_whole(value) if isinstance(value, str) else value
    except ValueError:
        number = value
    if isinstance(number, int) and not isinstance(number, bool) and 1 <= number <= MAX_NUM_ACCELERATORS:
        return number
    raise _refused(name, value, f"a whole number from 1 to {MAX_NUM_ACCELERATORS:,}")


def _reader_of(record: type[Any], name: str) -> Callable[[object], Any]:
    field = described(record)[name]

    def read(value: object) -> Any:
        if isinstance(value, float) and field.kind.base is int and value.is_integer():
            value = int(value)
        if isinstance(value, str) and field.kind.base is int:
            try:
                value = parse_whole(value, is_length=field.about.is_length)
            except ValueError:
                raise wrong(field, value) from None
        if isinstance(value, str) and field.kind.base is float:
            value = parse_quantity(value, "count", field=name)
        if isinstance(value, str) and field.kind.base is tuple:
            value = tuple(int(part) if part.strip().isdecimal() else part for part in value.split(","))
        value = tuple(value) if isinstance(value, list) else field.meant(value)
        if not field.allows(value):
            raise wrong(field, value)
        return value

    return read


def _refused(name: str, value: object, wanted: str) -> InputError:
    return InputError(
        f"{name} is {shown(value)}; it must be {wanted}", rule=f"{name} is {wanted}", hint=f"correct {name}"
    )


KEYS: Final = ("from", "to", "step", "factor", "points", "scale", "unit")
STEPS: Final = ("step", "factor", "points")
MOST_VALUES: Final = 100_000
"""Most values of one field."""


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
    is_count = 2 <= points <= MOST_VALUES and points == int(points)
    _check(name, is_count, f"points is a whole number from 2 to {MOST_VALUES:,}")
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
    """A whole number as an integer, and rounding noise removed: 1000 rather than 1000.0000000000001."""
    rounded = float(f"{number:.12g}")
    return int(rounded) if rounded.is_integer() else rounded


def _number(name: str, key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        hint = f"set {key} to a number; its unit goes into 'unit'"
        raise _wrong(name, f"'{key}' of its range is {shown(value)}", hint)
    return float(value)


def _check(name: str, holds: bool, rule: str) -> None:  # noqa: FBT001  # reads as the rule it checks
    if not holds:
        raise _wrong(name, f"its range breaks a rule: {rule}", "correct the range")


def _wrong(name: str, why: str, hint: str) -> InputError:
    return InputError(f"{name}: {why}", rule="a range of a grid is well formed", hint=hint)
