"""A capability record as rows for people and as a plain record for programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shardplan.base.fields import dataclass
from shardplan.base.records import Record, plain
from shardplan.base.words import switch_word
from shardplan.physics.frameworks.capabilities import Capabilities
from shardplan.physics.frameworks.option_entries import OptionEntry
from shardplan.physics.frameworks.shown import ShownPlans, shown_record

TITLES: Final[Mapping[str, str]] = {
    "layer_kinds": "kinds of layers",
    "lora": "low-rank adapters",
    "base_weights": "weights next to adapters",
    "group_sizes": "micro-batches in a row",
    "shardings": "sharding, pp 1",
    "pipelined_shardings": "sharding, pp > 1",
    "partial_shardings": "sharding over a part",
    "recompute_layers": "recompute by layers",
    "tp_kinds": "tensor parallelism",
    "offload_layers": "offload by layers",
}
"""What an entry is called where its name does not say it."""
NOTHING: Final = "nothing"
"""What is shown of an aspect without a source."""


@dataclass(frozen=True, kw_only=True)
class CapabilityRow:
    """One entry, one rule or one option of a record."""

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
        if name != "options"
    )


def option_rows(can: Capabilities) -> tuple[CapabilityRow, ...]:
    """Every option of a plan, and which plans need it."""
    return tuple(
        CapabilityRow(
            title=each.text,
            value="" if each.when is None else each.when.text,
            source=can.sources["options"],
            from_memory="options" in can.from_memory,
        )
        for each in _options(can)
        if each.text
    )


def refusal_rows(can: Capabilities) -> tuple[CapabilityRow, ...]:
    """Every combination that it refuses: the rule, what to do instead, and where it is stated."""
    return tuple(
        CapabilityRow(title=each.rule, value=each.instead, source=each.source, from_memory=each.from_memory)
        for each in can.refuses
    )


def shown_rows(can: Capabilities) -> tuple[CapabilityRow, ...]:
    """What is shown to work: the plans that an aspect concerns, those of each source, and those that none covers."""
    rows = []
    for aspect in can.shown or ():
        concerns = f"{aspect.name}, where {aspect.concerns.text}"
        rows += [_evidence_row(concerns, each) for each in aspect.evidence]
        rows += [] if aspect.evidence else [CapabilityRow(title=concerns, value=NOTHING, source="", from_memory=False)]
    return tuple(rows)


def _evidence_row(title: str, each: ShownPlans) -> CapabilityRow:
    return CapabilityRow(title=title, value=each.when.text, source=each.source, from_memory=each.from_memory)


def library_rows(can: Capabilities) -> tuple[CapabilityRow, ...]:
    """Every library beside the framework, and which plans need it."""
    return tuple(
        CapabilityRow(title=name, value=each.when.text, source=each.source, from_memory=each.from_memory)
        for name, each in (can.libraries or {}).items()
    )


def capability_record(can: Capabilities) -> dict[str, Any]:
    """A record with the source of every entry."""
    entries = {
        name: {"value": _plain(can, name), "source": can.sources[name], "from_memory": name in can.from_memory}
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
            "own_script": each.own_script,
        }
        for each in can.refuses
    ]
    head = {name: getattr(can, name) for name in ("version", "date", "repository", "commit")}
    libraries = {
        name: {"when": each.when.text, "field": each.field, "source": each.source, "from_memory": each.from_memory}
        for name, each in (can.libraries or {}).items()
    }
    shown = None if can.shown is None else shown_record(can.shown)
    return {**head, "entries": entries, "refuses": refuses, "libraries": libraries, "shown": shown}


def _options(can: Capabilities) -> tuple[OptionEntry, ...]:
    return () if can.options is None else can.options.entries


def _plain(can: Capabilities, name: str) -> Any:
    """The value of an entry as a file writes it."""
    return [_option(each) for each in _options(can)] if name == "options" else plain(getattr(can, name))


def _option(entry: OptionEntry) -> Record:
    """An option as a file writes it, with every field that it expresses."""
    when = None if entry.when is None else entry.when.text
    if not entry.text:
        return {"default": when, "says": list(entry.says)}
    return {"option": entry.text, "when": when, "says": list(entry.says), "words": dict(entry.words)}


def _words(value: object) -> str:
    """A value as a person reads it."""
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_words(each)}" for name, each in value.items()) or "none"
    if isinstance(value, tuple):
        return ", ".join(map(switch_word, value)) or "none"
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)
