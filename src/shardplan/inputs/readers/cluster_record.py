"""Clusters as plain records, so that a plan file holds all that it was computed from.

Every key that carries a quantity ends in its SI unit. ``cluster_from_record(plain(cluster)) == cluster``.
Keys of a later version are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import partial
from types import NoneType
from typing import Any, Final, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from shardplan.base.errors import InputError
from shardplan.base.records import keys
from shardplan.inputs.cluster import Accelerator, Cluster, NetworkTier

T = TypeVar("T")


def cluster_from_record(record: object) -> Cluster:
    """The cluster that :func:`shardplan.base.records.plain` made of it. Raises InputError on a record that is none."""
    return _read(record, Cluster, "cluster")


class _Entry(NamedTuple):
    """How one field is written in a record."""

    field: str
    what: str
    """What a value must be as text."""
    read: Callable[[object, str], Any]
    """Value of a record as that of the field, None when it is none; the second argument is where it stands."""
    is_required: bool
    may_be_none: bool


def _text(value: object, _where: str) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: object, _where: str) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**18 else None


def _number(value: object, _where: str) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if abs(value) < 1e30 else None  # neither NaN nor infinite nor a huge integer


def _mapping(value: object, where: str, each: Callable[[object, str], T | None]) -> dict[str, T] | None:
    if not isinstance(value, Mapping):
        return None
    kept = {str(name): read for name, item in value.items() if (read := each(item, where)) is not None}
    return kept if len(kept) == len(value) else None


def _sequence(value: object, where: str, each: Callable[[object, str], T | None]) -> tuple[T, ...] | None:
    if not isinstance(value, list | tuple):
        return None
    kept = tuple(read for item in value if (read := each(item, where)) is not None)
    return kept if len(kept) == len(value) else None


def _accelerator(value: object, where: str) -> Accelerator:
    return _read(value, Accelerator, where)


def _tiers(value: object, where: str) -> tuple[NetworkTier, ...] | None:
    if not isinstance(value, list | tuple):
        return None
    return tuple(_read(item, NetworkTier, f"{where}[{index}]") for index, item in enumerate(value))


_KINDS: Final[Mapping[Any, tuple[str, Callable[[object, str], Any]]]] = {
    str: ("text", _text),
    int: ("a whole number", _whole),
    float: ("a finite number", _number),
    Mapping[str, float]: ("numbers by name", partial(_mapping, each=_number)),
    Mapping[str, str]: ("texts by name", partial(_mapping, each=_text)),
    tuple[int, ...]: ("a list of whole numbers", partial(_sequence, each=_whole)),
    tuple[str, ...]: ("a list of texts", partial(_sequence, each=_text)),
    Accelerator: ("an accelerator", _accelerator),
    tuple[NetworkTier, ...]: ("a list of network tiers", _tiers),
}
"""What a value must be as text, and what reads it, by the type of its field."""


def _entries(kind: Any) -> Mapping[str, _Entry]:
    """Entries of a record by key."""
    hints, entries = get_type_hints(kind), {}
    for field in fields(kind):
        inner, *rest = get_args(hints[field.name]) if NoneType in get_args(hints[field.name]) else (hints[field.name],)
        is_required = field.default is MISSING and field.default_factory is MISSING
        what, read = _KINDS[str if get_origin(inner) is Literal else inner]
        entries[keys(kind)[field.name]] = _Entry(field.name, what, read, is_required, NoneType in rest)
    return entries


def _read(record: object, kind: type[T], where: str) -> T:
    """An object of ``kind`` from its record; ``where`` names the place in errors."""
    if not isinstance(record, Mapping):
        raise _wrong(where, f"is a {type(record).__name__}", "a record with named fields")
    entries = _entries(kind)
    given: dict[str, Any] = {}
    for key, entry in entries.items():
        value, place = record.get(key), f"{where}.{key}"
        if value is None and entry.may_be_none:
            given[entry.field] = None
        elif key in record:
            given[entry.field] = entry.read(value, place)
            if given[entry.field] is None:
                raise _wrong(place, f"is {_shown(value)}", entry.what)
        elif entry.is_required:
            raise _wrong(place, "is missing", entry.what)
    return kind(**given)


def _shown(value: object) -> str:
    if isinstance(value, int) and abs(value) > 1e30:
        return "too large"
    return f"{value!r:.60}" if value is None or isinstance(value, str | float | int) else f"a {type(value).__name__}"


def _wrong(place: str, why: str, expected: str) -> InputError:
    return InputError(
        f"{place} {why}; expected: {expected}",
        rule="a cluster in a plan file is as shardplan writes it",
        hint=f"correct {place}, or make the plan file again with `shardplan plan --json`",
    )
