"""Plans in the words that flags take."""

from __future__ import annotations

from dataclasses import MISSING, fields

from shardplan.inputs.plan import Plan

__all__ = ["changed_fields", "field_text"]


def field_text(value: object) -> str:
    """A field of a plan as text: numbers and names as they are, flags as on and off, ``-`` where left open."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "on" if value else "off"
    return ",".join(str(part) for part in value) if isinstance(value, tuple) else str(value)


def changed_fields(plan: Plan) -> dict[str, object]:
    """Fields of a plan that differ from their defaults."""
    return {
        field.name: getattr(plan, field.name)
        for field in fields(plan)
        if field.default is MISSING or getattr(plan, field.name) != field.default
    }
