"""Columns and texts of the tables of accuracy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from shardplan.answers.document import Block, Column, Line, Part, RowTable, VectorFigure
from shardplan.calibrate.errors import Errors
from shardplan.reports.accuracy.record import Sides


def column(title: str, cell: Callable[[Any], Any]) -> Column:
    """A column of numbers."""
    return Column("", title, cell)


def words(title: str, cell: Callable[[Any], str]) -> Column:
    """A column of texts."""
    return Column("", title, cell, is_text=True, is_wide=True)


def table_parts(
    title: str,
    rows: Sequence[Any],
    columns: Sequence[Column],
    text: str = "",
    *,
    drawing: VectorFigure | None = None,
    is_under: bool = False,
) -> list[Part]:
    """A table with what is said of it; nothing without rows. ``is_under``: whether it belongs to the part before."""
    above: list[Block | None] = [Line(text) if text else None, drawing]
    blocks = [*(block for block in above if block is not None), RowTable(rows, columns)]
    return [Part(title, blocks, is_under=is_under)] if rows else []


def as_percent(value: float | None, digits: int = 1) -> str:
    """A share in per cent; nothing where it is not known."""
    return "" if value is None else f"{100 * value:.{digits}f} %"


def as_errors(errors: Errors) -> str:
    """Median and 90th percentile, in per cent."""
    return "" if errors.median is None or errors.p90 is None else f"{100 * errors.median:.1f} / {100 * errors.p90:.1f}"


def as_bias(errors: Errors) -> str:
    """Median of predicted over measured, less one, in per cent."""
    return "" if errors.bias is None else f"{100 * errors.bias:+.1f}"


def as_factor(ratio: float) -> str:
    """Predicted over measured."""
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"


def as_gigabytes(value: float) -> str:
    """In GB of 10^9 bytes, without the unit."""
    return f"{value / 1e9:.1f}"


def of_side(text: Callable[[Any], Any], side: str) -> Callable[[Sides[Any]], Any]:
    """A cell of what is in-sample or left out; empty where there is none."""
    return lambda row: "" if getattr(row, side) is None else text(getattr(row, side))


def error_columns(rows: Sequence[Sides[Errors]], first: str = "") -> list[Column]:
    """Columns of rows of errors; without those of left-out errors where nothing is left out."""
    has_left_out = any(row.left_out is not None for row in rows)
    sides = {"in_sample": "in-sample", "left_out": "left out"} if has_left_out else {"in_sample": "error"}
    columns = [words(first, attrgetter("name")), column("runs", attrgetter("in_sample.n"))]
    for side, name in sides.items():
        columns += [
            column(f"{name}, median / p90, %", of_side(as_errors, side)),
            column("bias, %", of_side(as_bias, side)),
        ]
    return columns
