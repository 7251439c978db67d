"""The answer of a method of another package: whatever it says, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from shardplan.cli.layout import Column, Page

MOST_ROWS: Final = 20
LONGEST: Final = 60


def show(page: Page, record: Mapping[str, Any]) -> None:
    """Single values first, then every list of records as a table."""
    page.line(str(record["method"]), style="bold", indent=0)
    answer = {name: value for name, value in record.items() if name not in ("schema", "method", "case")}
    single = {name: value for name, value in _flat(answer).items() if not _is_table(value)}
    if single:
        page.table(
            [
                Column(title="figure", cells=list(single), is_text=True),
                Column(title="value", cells=[_text(value) for value in single.values()], is_text=True),
            ]
        )
    for name, value in _flat(answer).items():
        if _is_table(value):
            page.heading(name, f"{min(len(value), MOST_ROWS)} of {len(value):,}")
            _table(page, value[:MOST_ROWS])


def _flat(record: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)


def _table(page: Page, rows: Sequence[Mapping[str, Any]]) -> None:
    flat = [_flat(row) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    page.table(
        [
            Column(title=name, cells=[_text(row.get(name, "-")) for row in flat], rank=min(number, 1) * number)
            for number, name in enumerate(names)
        ]
    )


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = "-" if value is None else str(value)
    text = text if text.isprintable() else repr(text)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
