"""The fields that a grid may vary: their names, and what their values may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from shardplan.ask.forms import Replaced
from shardplan.ask.questions import CHOICES
from shardplan.errors import InputError, UnknownNameError, shown
from shardplan.fields import described, wrong
from shardplan.inputs.counts import MAX_NUM_ACCELERATORS
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.software import Software
from shardplan.inputs.words import field_meant
from shardplan.units import parse_quantity, parse_whole

NAMES: Final = ("model", "cluster", "accelerator", "stack", "profile")
"""Fields whose values are names or paths."""
REPLACED: Final = tuple(described(Replaced))
QUANTITIES: Final[Mapping[str, Any]] = {
    name: field.about.quantity for name, field in described(Replaced).items() if field.about.quantity
}
"""Fields of the cluster with a unit: its kind, and how their columns end."""
COUNTS: Final = ("num_accelerators", "nodes", "node_size")
WHICH_PLAN: Final = "plan"
"""The field that says which plan a row has."""
RECOMMENDED: Final = "recommended"
PLANS: Final = ("fastest", RECOMMENDED)
"""Its values: the fastest plan, or the plan to take."""


class GridField(NamedTuple):
    """A field of a grid."""

    name: str
    """Its own name: ``num_accelerators``, ``software.kernels``, ``limit.tp``."""
    column: str
    """Column of the results."""
    read: Callable[[object], Any]
    """The value that a text or number of the grid means. Raises InputError."""

    @property
    def takes_lists(self) -> bool:
        """Whether one value is a list."""
        return self.name.startswith(("limit.", "exclude."))


def field_of(name: object) -> GridField:
    """The field that is called ``name``. Raises UnknownNameError, which says what is near."""
    text = str(name).strip()
    group, dot, rest = text.partition(".")
    if dot and group in CHOICES:
        field = _known(rest, tuple(described(Plan)), f"field of the plan after '{group}.'")
        return GridField(f"{group}.{field}", f"{group}_{field}", _listed if group != "fix" else _same)
    if dot and group == "software":
        field = _known(rest, tuple(described(Software)), "field of the software")
        return GridField(f"software.{field}", f"software_{field}", _reader_of(Software, field))
    own = _own_name(text)
    if own in described(Plan) and own not in _all():
        raise InputError(
            f"the grid varies {shown(text)}, a field of the plan",
            rule="the search chooses the fields of the plan, within limits",
            hint=f"write fix.{own} for one value at a time, or limit.{own} for sets of values",
        )
    own = _known(own, _all(), "field of a grid")
    unit = f"_{QUANTITIES[own][1]}" if own in QUANTITIES else ""
    return GridField(own, own + unit, _reader(own))


def _all() -> tuple[str, ...]:
    """Fields that are written without a group before them."""
    return (
        *NAMES,
        "num_accelerators",
        "nodes",
        *REPLACED,
        WHICH_PLAN,
        *(name for name in described(Job) if name != "software"),
    )


def _own_name(text: str) -> str:
    name = text.removeprefix("--").replace("-", "_").lower()
    meant = field_meant(name)
    return {"framework": "stack"}.get(meant or "", meant or "") if meant and name not in _all() else name


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


def _same(value: object) -> Any:
    return value


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
    """In SI units; a number without a unit is read as the command line does: GB/s, GB."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _refused(name, value, "a number or a text with a unit")
    text = value if isinstance(value, str) else f"{value!r}"
    return parse_quantity(text, QUANTITIES[name][0], field=name)


def _peaks(value: object) -> dict[str, float]:
    """Rates by number format, in FLOP/s; a number without a unit is read as the command line does: TFLOP/s."""
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
