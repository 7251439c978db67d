"""A document as a record (JSON) and as rows (CSV, data frames)."""

from __future__ import annotations

from typing import Any

from shardplan.answers.document import AnswerDocument, RowTable


def document_record(document: AnswerDocument) -> dict[str, Any]:
    """The answer as a mapping for JSON; units are in the keys."""
    entries = {
        key: record_rows(value) if isinstance(value, RowTable) else value for key, value in document.record().items()
    }
    return {"schema": f"shardplan/{document.name}/1", **entries}


def record_rows(table: RowTable) -> list[dict[str, Any]]:
    """Its rows as mappings, with every column that has a key or its own entries."""
    return [_entries(table, row, is_frame=False) for row in table.rows]


def frame_rows(document: AnswerDocument) -> list[dict[str, Any]]:
    """The rows of CSV and data frames; all have the same columns."""
    table = document.table
    return [] if table is None else [_entries(table, row, is_frame=True) for row in table.rows]


def _entries(table: RowTable, row: Any, *, is_frame: bool) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for column in table.columns:
        several = column.frame if is_frame else column.record
        if several is not None:
            entries |= several(column.value(row))
        elif column.key:
            entries[column.key] = column.value(row)
    return entries
