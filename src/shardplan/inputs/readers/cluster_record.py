"""Clusters as plain records, so that a plan file holds all that it was computed from.

Every key that carries a quantity ends in its SI unit. ``cluster_from_record(cluster_record(cluster)) == cluster``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any, Final, NamedTuple, TypeVar

from shardplan.errors import InputError, nearest_names
from shardplan.inputs.cluster import Accelerator, Cluster, NetworkTier

Record = dict[str, Any]
T = TypeVar("T")


def accelerator_record(accelerator: Accelerator) -> Record:
    """``accelerator`` as a mapping of numbers, texts and lists, units in the keys."""
    return _record(accelerator, _ACCELERATOR)


def cluster_record(cluster: Cluster) -> Record:
    """``cluster`` as a mapping of numbers, texts and lists, units in the keys; its accelerator and tiers inside."""
    return _record(cluster, _CLUSTER)


def cluster_from_record(record: object) -> Cluster:
    """The cluster that :func:`cluster_record` wrote. Raises InputError on a record that is none."""
    return _read(record, Cluster, _CLUSTER, "cluster")


class _Entry(NamedTuple):
    """How one field stands in a record."""

    field: str
    what: str
    """What a value must be, in words."""
    read: Callable[[object, str], Any]
    """Value of a record as that of the field, None when it is none; the second argument is where it stands."""


def _text(value: object, _where: str) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: object, _where: str) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**18 else None


def _number(value: object, _where: str) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if abs(value) < 1e30 else None  # neither NaN nor infinite nor a huge integer


def _numbers(value: object, where: str) -> dict[str, float] | None:
    return _mapping(value, where, _number)


def _texts(value: object, where: str) -> dict[str, str] | None:
    return _mapping(value, where, _text)


def _list_of_whole(value: object, where: str) -> tuple[int, ...] | None:
    return _sequence(value, where, _whole)


def _list_of_text(value: object, where: str) -> tuple[str, ...] | None:
    return _sequence(value, where, _text)


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
    return _read(value, Accelerator, _ACCELERATOR, where)


def _tiers(value: object, where: str) -> tuple[NetworkTier, ...] | None:
    if not isinstance(value, list | tuple):
        return None
    return tuple(_read(item, NetworkTier, _TIER, f"{where}[{index}]") for index, item in enumerate(value))


def _entries(**kinds: str) -> dict[str, _Entry]:
    """Entries by key from ``key="field kind"``, or ``key="kind"`` where the field is called like the key."""
    readers: dict[str, tuple[str, Callable[[object, str], Any]]] = {
        "text": ("text", _text),
        "whole": ("a whole number", _whole),
        "number": ("a finite number", _number),
        "numbers": ("numbers by name", _numbers),
        "texts": ("texts by name", _texts),
        "wholes": ("a list of whole numbers", _list_of_whole),
        "lines": ("a list of texts", _list_of_text),
        "accelerator": ("an accelerator", _accelerator),
        "tiers": ("a list of network tiers", _tiers),
    }
    return {
        key: _Entry((kind.split()[0] if " " in kind else key), *readers[kind.split()[-1]])
        for key, kind in kinds.items()
    }


_ORIGIN: Final = {"sources": "texts", "marks": "texts", "notes": "text"}
_ACCELERATOR: Final = _entries(
    name="text",
    full_name="text",
    vendor="text",
    generation="text",
    memory_bytes="number",
    memory_bandwidth_bytes_per_s="memory_bandwidth number",
    peak_flops_per_s="peak_flops numbers",
    vector_flops_per_s="vector_flops number",
    num_cores="whole",
    host_link_bandwidth_bytes_per_s="host_link_bandwidth number",
    power_w="power number",
    price_usd_per_hour="price_per_hour number",
    gemm_efficiency="numbers",
    memory_efficiency="number",
    release_year="whole",
    **_ORIGIN,
)
_TIER: Final = _entries(
    name="text",
    size="whole",
    bandwidth_bytes_per_s="bandwidth number",
    latency_s="latency number",
    kind="text",
    topology="text",
    torus_shape="wholes",
    link_type="text",
)
_CLUSTER: Final = _entries(
    name="text",
    full_name="text",
    accelerator="accelerator",
    tiers="tiers",
    accelerators_per_node="whole",
    max_num_accelerators="whole",
    host_memory_bytes="number",
    host_memory_bandwidth_bytes_per_s="host_memory_bandwidth number",
    price_usd_per_hour="price_per_hour number",
    **_ORIGIN,
    assumptions="lines",
)


def _record(described: object, entries: Mapping[str, _Entry]) -> Record:
    return {key: _plain(getattr(described, entry.field)) for key, entry in entries.items()}


def _plain(value: object) -> object:
    if isinstance(value, Accelerator):
        return accelerator_record(value)
    if isinstance(value, NetworkTier):
        return _record(value, _TIER)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return dict(value) if isinstance(value, Mapping) else value


def _read(record: object, kind: type[T], entries: Mapping[str, _Entry], where: str) -> T:
    """An object of ``kind`` from its record; ``where`` names the place in errors."""
    if not isinstance(record, Mapping):
        raise _wrong(where, f"is a {type(record).__name__}", "a record with named fields")
    for key in record:
        if key not in entries:
            guess = nearest_names(str(key), entries)
            did_you_mean = f"did you mean {' or '.join(guess)}?" if guess else ""
            raise _wrong(f"{where}.{key}", "is not a field", did_you_mean or "the fields that shardplan writes")
    described = fields(kind)  # type: ignore[arg-type]  # every kind read here is a dataclass
    required = {f.name for f in described if f.default is MISSING and f.default_factory is MISSING}
    may_be_none = {f.name for f in described if f.default is None} | {"size"}
    given: dict[str, Any] = {}
    for key, entry in entries.items():
        value, place = record.get(key), f"{where}.{key}"
        if value is None and entry.field in may_be_none:
            given[entry.field] = None
        elif key in record:
            given[entry.field] = entry.read(value, place)
            if given[entry.field] is None:
                raise _wrong(place, f"is {_shown(value)}", entry.what)
        elif entry.field in required:
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
