"""What is furthest off, as text and tables: known causes, worst runs, runs predicted not to fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardplan.reports.accuracy.words import Record, as_errors, as_factor, as_gigabytes, as_note
from shardplan.reports.sections import Section

CAUSE_COLUMNS = ["cause", "runs", "in-sample, median / p90, %", "left out, median / p90, %", "what to state"]


def shortfall_sections(record: Record) -> Iterator[Section]:
    """All of it; sections without rows have no text either."""
    yield from _causes(record)
    yield _worst(
        record["worst"],
        Section(
            title="Worst runs",
            text="Largest errors of step times, few of any one family, with what the run's notes say and what is not "
            "stated.",
        ),
    )
    yield _worst(
        record["worst_memory"],
        Section(
            title="Worst peak memories",
            level=3,
            text="Errors of more than 5 %, few of any one family, with what is known of the cause.",
        ),
        is_memory=True,
    )
    yield from _not_fitting(record["not_fitting"])


def _causes(record: Record) -> Iterator[Section]:
    yield _cause_table(
        record["causes"],
        Section(
            title="Known causes, and what to state",
            text="Runs whose step times are off for a reason that is known, and the input that would have shown it. "
            "The rest: runs of tiers A and A- with no such reason.",
        ),
    )
    yield _cause_table(
        record["memory_causes"],
        Section(
            title="Known causes of memory errors",
            level=3,
            text="The same of the peak memory, all tiers. Where a cause is not known, the runs are named "
            "together for what they share.",
        ),
    )


def _cause_table(rows: Sequence[Record], heading: Section) -> Section:
    return Section(
        title=heading.title,
        level=heading.level,
        text=heading.text if rows else "",
        columns=CAUSE_COLUMNS,
        rows=[
            [
                row["cause"] or "the rest",
                str(row["in_sample"]["n"]),
                as_errors(row["in_sample"]),
                as_errors(row["left_out"]),
                row["state"] or "",
            ]
            for row in rows
        ],
    )


def _worst(rows: Sequence[Record], heading: Section, *, is_memory: bool = False) -> Section:
    has_left_out = any(row["left_out"] is not None for row in rows)
    columns, middle = ["run", "tier"], ["left out"] if has_left_out else []
    columns += ["meter"] if is_memory else []
    return Section(
        title=heading.title,
        level=heading.level,
        text=heading.text if rows else "",
        columns=[*columns, "predicted / measured", *middle, "cause, or notes" if is_memory else "notes"],
        rows=[
            [
                row["id"],
                row["tier"],
                *([row["meter"]] if is_memory else []),
                as_factor(row["in_sample"]),
                *([as_factor(row["left_out"]) if row["left_out"] else ""] if has_left_out else []),
                (row["cause"] or f"not known. {as_note(row)}".strip()) if is_memory else as_note(row),
            ]
            for row in rows
        ],
    )


def _not_fitting(rows: Sequence[Record]) -> Iterator[Section]:
    if not rows:
        return
    yield Section(
        title="Runs predicted not to fit",
        text="They ran. Needed: tensors of the fullest accelerator as predicted, in GB of 10^9 bytes; lower end: of "
        "the band of that, below which a tenth of comparable runs lie; usable: the device's memory less context and "
        "fragmentation. Where the lower end fits, the error is of ordinary size, and decides because the run fills its "
        "memory.",
        columns=["run", "tier", "needed", "lower end", "usable", "needed / usable", "cause"],
        rows=[_not_fitting_row(row) for row in rows],
    )
    stated = dict.fromkeys((row["cause"], row["state"]) for row in rows if row["cause"])
    yield Section(
        title="What to state where a plan is predicted not to fit",
        level=3,
        columns=["cause", "runs", "what to state"],
        rows=[[cause, str(sum(row["cause"] == cause for row in rows)), state] for cause, state in stated],
    )


def _not_fitting_row(row: Record) -> list[str]:
    needed, low, usable = (row[f"{name}_bytes"] for name in ("needed_memory", "needed_memory_p10", "usable_memory"))
    sizes = [as_gigabytes(size) for size in (needed, low, usable)]
    return [row["id"], row["tier"], *sizes, f"{needed / usable:.2f}", _why(row)]


def _why(row: Record) -> str:
    """The known cause; main memory or an ordinary error where there is none, or next to it."""
    if row["is_on_host"]:
        where = "what moves to the host exceeds its share of main memory"
        return f"{row['cause']}; {where}" if row["cause"] else where
    if row["cause"]:
        return str(row["cause"])
    is_close = row["needed_memory_p10_bytes"] <= row["usable_memory_bytes"]
    return "not known; the lower end fits" if is_close else "not known"
