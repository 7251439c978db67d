"""A capability record as rows for people and as a plain record for programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shardplan.fields import dataclass
from shardplan.frameworks.capabilities import Capabilities
from shardplan.records import plain

TITLES: Final[Mapping[str, str]] = {
    "group_sizes": "micro-batches in a row",
    "shardings": "sharding, pp 1",
    "pipelined_shardings": "sharding, pp > 1",
    "partial_shardings": "sharding over a part",
    "recompute_layers": "recompute by layers",
    "tp_kinds": "tensor parallelism",
    "offload_layers": "offload by layers",
}
"""What an entry is called where its name does not say it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CapabilityRow:
    """One entry, or one rule of a record."""

    title: str
    value: str
    source: str
    from_memory: bool


def capability_rows(can: Capabilities) -> tuple[CapabilityRow, ...]:
    """Every entry of a record."""
    return tuple(
        CapabilityRow(
            title=TITLES.get(name, name.replace("_", " ")),
            value=_words(getattr(can, name)),
            source=can.sources[name],
            from_memory=name in can.from_memory,
        )
        for name in can.stated
    )


def refusal_rows(can: Capabilities) -> tuple[CapabilityRow, ...]:
    """Every combination that it refuses: the rule, what to do instead, and where it is stated."""
    return tuple(
        CapabilityRow(title=each.rule, value=each.instead, source=each.source, from_memory=each.from_memory)
        for each in can.refuses
    )


def capability_record(can: Capabilities) -> dict[str, Any]:
    """A record with the source of every entry."""
    entries = {
        name: {"value": plain(getattr(can, name)), "source": can.sources[name], "from_memory": name in can.from_memory}
        for name in can.stated
    }
    refuses = [
        {
            "rule": each.rule,
            "when": each.when.text,
            "field": each.field,
            "instead": each.instead,
            "source": each.source,
            "from_memory": each.from_memory,
        }
        for each in can.refuses
    ]
    head = {name: getattr(can, name) for name in ("version", "date", "repository", "commit")}
    return {**head, "entries": entries, "refuses": refuses}


def _words(value: object) -> str:
    """A value as a person reads it."""
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {each}" for name, each in value.items()) or "none"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)
