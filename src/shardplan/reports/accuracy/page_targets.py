"""Targets of the accuracy report as text and tables: floors, aims, what is reached, and where a floor is missed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shardplan.calibration.defaults import validation_only
from shardplan.reports.accuracy.words import Record, as_errors, as_percent
from shardplan.reports.sections import Section

SIDE_NAMES = {"in_sample": "in-sample", "left_out": "left out"}
SEE = {
    "time": "Known causes; Worst runs",
    "memory": "Known causes of memory errors; Worst peak memories",
    "regret": "Sweeps; Pairs in the wrong order",
    "order": "Sweeps; Pairs in the wrong order",
    "fits": "Fits",
    "false_fits": "Fits",
}
"""Sections that say why, and what to state."""


def target_sections(record: Record) -> Iterator[Section]:
    """Errors, shares and floors that are not reached; nothing where no family was left out."""
    found = record["targets"]
    if found is None:
        return
    yield Section(
        title="Targets and what is reached",
        text="Median / 90th percentile of the error in per cent, tiers A and A-. Targets: floor, then aim in brackets; "
        "'no' marks a floor that is not reached. Peak memory leaves out internevo, whose rows contradict themselves. "
        "Rows without a family's name leave out families with measurements that the constants are not fitted to: "
        f"{', '.join(validation_only())}.",
        columns=["", "in-sample: target", "reached", "left out: target", "reached"],
        rows=[_error_row(row) for row in found["errors"]],
    )
    yield Section(
        title="Shares",
        level=3,
        text="Targets are those of the in-sample figures; left out there is none.",
        columns=["", "floor", "aim", "in-sample", "left out"],
        rows=[_share_row(row) for row in found["shares"]],
    )
    yield _unmet(found["unmet"])


def _error_row(row: Record) -> list[str]:
    sides = (row[side] for side in SIDE_NAMES)
    return [row["label"], *(text for side in sides for text in (_target(side), _reached(side)))]


def _target(errors: Mapping[str, Any]) -> str:
    """Floor and aim."""
    parts = [errors[name] for name in ("floor", "aim") if errors[name]]
    texts = [f"{100 * median:g} / {100 * p90:g}" for median, p90 in parts]
    return texts[0] + (f" ({texts[1]})" if len(texts) > 1 else "") if texts else ""


def _reached(errors: Mapping[str, Any]) -> str:
    """What is reached, marked where it is above the floor; with more digits, so that a near miss reads as one."""
    if errors["meets_floor"] in (None, True) or not errors["n"]:
        return as_errors(errors)
    return f"{100 * errors['median']:.2f} / {100 * errors['p90']:.2f} no"


def _share_row(row: Record) -> list[str]:
    """A share, marked in-sample where it is on the wrong side of the floor."""
    reached = as_percent(row["in_sample"]) + (" no" if row["meets_floor"] is False else "")
    return [row["label"], as_percent(row["floor"]), as_percent(row["aim"]), reached, as_percent(row["left_out"])]


def _unmet(rows: list[Record]) -> Section:
    """Every floor that is missed: by whom, and where the reasons stand."""
    return Section(
        title="Floors that are not reached",
        level=3,
        text="Where they are missed: families above the floor with their median / 90th percentile and runs, or sweeps "
        "with their pairs in the wrong order; the most of them first. The sections named tell the causes that are "
        "known and what to state."
        if rows
        else "None.",
        columns=["floor", "side", "where it is missed", "see below"],
        rows=[[row["label"], SIDE_NAMES[row["side"]], "; ".join(row["where"]), SEE[row["quantity"]]] for row in rows],
    )
