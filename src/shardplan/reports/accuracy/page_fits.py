"""Verdicts "fits" of the accuracy report as text and tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shardplan.reports.accuracy.words import Record, as_gigabytes, as_percent
from shardplan.reports.sections import Section

COLUMNS = ["right", 'false "fits"', "beyond 3 %", "beyond 10 %", 'false "does not fit"']


def fits_sections(record: Record) -> Iterator[Section]:
    """The table by family, and the runs that are furthest off; nothing where no run says how it ended but by a time."""
    if record["fits"][-1]["in_sample"]["n"]:
        yield _by_family(record["fits"])
        yield _out_of_memory(record["false_fits"])


def _by_family(rows: Sequence[Record]) -> Section:
    has_left_out = rows[-1]["left_out"] is not None
    return Section(
        title="Fits",
        text='The verdict "fits" against how runs ended. False "fits": the run ran out of memory; beyond 3 % and 10 %: '
        "and is predicted to leave more than that of the usable memory free. "
        'False "does not fit": the run ran. Families without a run that ran out of memory and without a wrong verdict '
        "are in the last row alone.",
        columns=[
            "",
            "runs",
            "out of memory",
            *COLUMNS,
            *([f"left out: {COLUMNS[0]}", *COLUMNS[1:]] if has_left_out else []),
        ],
        rows=[
            [
                row["name"],
                str(row["in_sample"]["n"]),
                str(row["in_sample"]["out_of_memory"]),
                *_cells(row["in_sample"]),
                *(_cells(row["left_out"]) if has_left_out else []),
            ]
            for row in rows
        ],
    )


def _out_of_memory(runs: Sequence[Record]) -> Section:
    return Section(
        title="Runs out of memory that are predicted to fit",
        level=3,
        text="Those predicted to leave more than 3 % of the usable memory free. Needed and usable in GB of 10^9 bytes."
        if runs
        else "",
        columns=["run", "tier", "needed", "usable", "needed / usable", "cause"],
        rows=[
            [
                row["id"],
                row["tier"],
                as_gigabytes(row["needed_memory_bytes"]),
                as_gigabytes(row["usable_memory_bytes"]),
                f"{row['needed_memory_bytes'] / row['usable_memory_bytes']:.2f}",
                row["cause"] or "not known",
            ]
            for row in runs
        ],
    )


def _cells(found: Mapping[str, Any] | None) -> list[str]:
    if found is None:
        return [""] * len(COLUMNS)
    counts = ("false_fits", "false_fits_beyond_3_percent", "false_fits_beyond_10_percent", "false_misfits")
    return [as_percent(found["right"]), *(str(found[name]) for name in counts)]
