"""What ``--software`` sets: every field of :class:`Software`."""

from __future__ import annotations

from shardplan.fields import dataclass, described
from shardplan.inputs.software import Software


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
        default = ("off", "on")[field.default] if isinstance(field.default, bool) else str(field.default)
        names = field.kind.choices or ("off", "on")
        values = (default, *(name for name in names if name != default))
        rows.append(FieldRow(name=field.name, values=values, help=f"{field.about.help.rstrip(':.')}."))
    return tuple(rows)
