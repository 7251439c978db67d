"""What the studies share: rows of a sweep by their question, pictures, and tables in a page between marks."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shardplan.plotting.chart import Chart
from shardplan.plotting.picture import svg_picture
from shardplan.plotting.sweeps import read_results

HERE = Path(__file__).parent
Row = Mapping[str, Any]


def rows_of(folder: str) -> list[Row]:
    """Rows of a finished sweep that have a plan."""
    rows, _ = read_results(Path(folder))
    return [row for row in rows if row["outcome"] == "fits"]


def write_picture(chart: Chart) -> None:
    """The chart as an SVG file of its name."""
    text = re.sub(r"(\d+\.\d\d)\d+", r"\1", svg_picture(chart))  # two decimals of a point are enough
    (HERE / f"{chart.name}.svg").write_text(text)


def write_tables(page: str, tables: Mapping[str, str]) -> None:
    """Puts tables into a page, each between ``<!-- table: NAME -->`` and ``<!-- end -->``."""
    path = HERE / page
    text = path.read_text()
    for name, table in tables.items():
        marks = rf"(<!-- table: {re.escape(name)} -->\n).*?(<!-- end -->)"
        put = table.replace("\\", r"\\")
        text, found = re.subn(marks, rf"\g<1>\n{put}\n\n\g<2>", text, flags=re.DOTALL)
        if not found:
            sys.exit(f"{page} has no place for the table {name}")
    path.write_text(text)


def table_of(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; all but the first column to the right."""
    rule = ["---", *["--:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(each)} |" for each in (header, rule, *rows))


def plan_of(row: Row) -> str:
    """The degrees of a plan that are not one, and what it recomputes."""
    degrees = " ".join(f"{name} {row[name]}" for name in ("tp", "cp", "pp", "ep") if row[name] > 1)
    again = "" if row["recompute"] == "none" else f", recompute {row['recompute']}"
    return f"{degrees or 'dp alone'}, micro-batch {row['micro_batch_size']}, {row['sharding']}{again}"
