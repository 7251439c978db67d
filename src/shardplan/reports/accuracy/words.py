"""Figures of the accuracy report as text: shares, errors, factors, notes of runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

Record = Mapping[str, Any]
LONGEST_NOTE = 220


def as_percent(value: float | None, digits: int = 1) -> str:
    """A share in per cent; nothing where it is not known."""
    return "" if value is None else f"{100 * value:.{digits}f} %"


def as_errors(errors: Mapping[str, Any] | None) -> str:
    """Median and 90th percentile, in per cent."""
    if errors is None or not errors["n"]:
        return ""
    return f"{100 * errors['median']:.1f} / {100 * errors['p90']:.1f}"


def as_bias(errors: Mapping[str, Any] | None) -> str:
    """Median of predicted over measured, less one, in per cent."""
    return "" if errors is None or not errors["n"] else f"{100 * errors['bias']:+.1f}"


def as_factor(ratio: float) -> str:
    """Predicted over measured."""
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"


def as_gigabytes(value: float) -> str:
    """In GB of 10^9 bytes, without the unit."""
    return f"{value / 1e9:.1f}"


def error_columns(rows: Sequence[Record], first: str) -> list[tuple[str, Callable[[Any], str]]]:
    """Columns of rows of errors; without those of left-out errors where nothing is left out."""
    has_left_out = any(row["left_out"] is not None for row in rows)
    own = f"{'in-sample' if has_left_out else 'error'}, median / p90, %"
    columns: list[tuple[str, Callable[[Any], str]]]
    columns = [(first, itemgetter("name")), ("runs", lambda row: str(row["in_sample"]["n"]))]
    sides = [(own, "in_sample"), *([("left out, median / p90, %", "left_out")] if has_left_out else [])]
    for title, side in sides:
        columns += [(title, partial(_of_side, as_errors, side)), ("bias, %", partial(_of_side, as_bias, side))]
    return columns


def _of_side(text: Callable[[Any], str], side: str, row: Record) -> str:
    return text(row[side])


def as_note(row: Record) -> str:
    """What the notes say, and for rows that are not described in full what was assumed."""
    parts = [row["notes"]] if row["notes"] else []
    if (row["tier"] == "B" or row["left_out"] is None) and row["assumed"]:
        parts.append("assumed: " + "; ".join(row["assumed"]))
    if row["left_out"] is None and row["ignored"]:
        parts.append("ignored: " + "; ".join(row["ignored"]))
    text = ". ".join(parts)
    return text if len(text) <= LONGEST_NOTE else text[:LONGEST_NOTE].rsplit(" ", 1)[0] + " ..."
