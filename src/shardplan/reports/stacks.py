"""Training frameworks as records: the list, every default of one with its source, and what ``--software`` sets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from shardplan.fields import dataclass, described
from shardplan.frameworks.capability_rows import capability_record
from shardplan.frameworks.stack import Stack
from shardplan.inputs.software import Software
from shardplan.records import Record, plain
from shardplan.words import switch_word


def stacks_record(stacks: Iterable[Stack]) -> Record:
    """The list of ``stacks --json``."""
    rows = [{"name": stack.name, "title": stack.full_name} for stack in stacks]
    return {"schema": "shardplan/stacks/1", "stacks": rows}


def stack_record(stack: Stack) -> Record:
    """Every default of a stack with its source, and what the framework can run: ``stacks NAME --json``."""
    return {
        "schema": "shardplan/stack/1",
        **plain(replace(stack, can_run=None, can_run_before=())),
        "can_run": None if stack.can_run is None else capability_record(stack.can_run),
        "can_run_before": [capability_record(each) for each in stack.can_run_before],
    }


@dataclass(frozen=True, kw_only=True)
class FieldRow:
    """One field."""

    name: str
    values: tuple[str, ...]
    """What it can be, its default first."""
    help: str


def field_rows() -> tuple[FieldRow, ...]:
    """All fields in the order in which they are declared."""
    rows = []
    for field in described(Software).values():
        default = switch_word(field.default)
        names = field.kind.choices or ("off", "on")
        values = (default, *(name for name in names if name != default))
        rows.append(FieldRow(name=field.name, values=values, help=f"{field.about.help.rstrip(':.')}."))
    return tuple(rows)
