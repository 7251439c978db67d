"""Plans as rows of a table: one column for each quantity, SI units in the names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from shardplan.base.records import keys, plain
from shardplan.estimation.estimate import Estimate
from shardplan.planner.robustness import Ties
from shardplan.reports.recommendation import simulated_record

LEFT_OUT: Final = ("memory_bytes", "assumptions", "evidence", "refusals", "flops_convention")
"""Keys whose values are no single number or text."""


def plan_rows(estimates: Sequence[Estimate], ties: Ties | None = None) -> list[dict[str, Any]]:
    """A row for each plan, all with the same columns; that recommended is marked and, if it is not listed, added."""
    recommended = None if ties is None else ties.recommended
    listed = [*estimates]
    if recommended is not None and recommended.plan not in [each.plan for each in listed]:
        listed.append(recommended)
    rows = [_row(each) | _mark(each, ties) for each in listed]
    columns = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name, 0.0) for name in columns} for row in rows]


def _mark(estimate: Estimate, ties: Ties | None) -> dict[str, Any]:
    if ties is None:
        return {}
    simulated = simulated_record(ties, estimate)
    simulated.pop("not_simulated", None)
    return {"recommended": estimate.plan == ties.recommended.plan} | simulated


def _row(estimate: Estimate) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for field in fields(Estimate):
        key, value = keys(Estimate)[field.name], getattr(estimate, field.name)
        if key == "plan":
            row |= {each.name: _cell(getattr(value, each.name)) for each in fields(value)}
        elif key == "breakdown_s":
            row |= {f"{name}_s": float(time) for name, time in value.items()}
        elif key == "communication_bytes":
            row |= _sent(value)
        elif key not in LEFT_OUT:
            row[key] = _cell(value)
    return row


def _sent(communication: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Bytes that an accelerator sends, by dimension and tier."""
    return {f"{dim}_{tier}_bytes": float(sent) for dim, tiers in communication.items() for tier, sent in tiers.items()}


def _cell(value: object) -> Any:
    """A number, a text or None; lists as text."""
    value = plain(value)
    return ",".join(str(part) for part in value) if isinstance(value, list) else value
