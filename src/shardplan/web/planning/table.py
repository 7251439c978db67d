"""The best different plans as rows of the page's table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from shardplan.estimation.estimate import Estimate
from shardplan.planner.result import SearchResult
from shardplan.planner.robustness import Ties
from shardplan.reports.recommendation import listed_plans, lost_text
from shardplan.reports.texts.answer import num_that_fit, percent
from shardplan.reports.texts.plan import field_text, plan_words, short_recompute, short_sharding
from shardplan.units import format_bytes, format_time
from shardplan.web.state import plan_code

MEMORY: Final = "memory"


class PlanColumn(NamedTuple):
    """A column of the table."""

    title: str
    is_text: bool = False
    about: str = ""
    """What a pointer that rests on the title shows."""


class TableCell(NamedTuple):
    """A cell, and the number or text that it is sorted by."""

    text: str
    value: float | str


class PlanRow(NamedTuple):
    """A plan."""

    place: str
    """Number by which reasons name it; empty where it is not among the best."""
    code: str
    words: str
    cells: tuple[TableCell, ...]
    is_recommended: bool
    is_tie: bool
    is_tight: bool


def plan_table(result: SearchResult) -> dict[str, Any]:
    """Columns and rows: the plans of a search, best first, the recommended one among them.

    Step, degrees and memory come first: a narrow screen shows no more of a row.
    """
    assert result.ties is not None
    ties, best = result.ties, result.estimates[0]
    listed, places, degrees, switches = listed_plans(result)
    columns = [
        PlanColumn("step", about="predicted time of one optimizer step"),
        *(PlanColumn(name.replace("_", " ")) for name in degrees),
        PlanColumn("dp"),
        PlanColumn(MEMORY, about="peak of the fullest stage"),
        PlanColumn("lost", about="time lost against the fastest"),
        PlanColumn("MFU"),
        PlanColumn("mb", about="micro-batch size"),
        PlanColumn("sharding", is_text=True),
        PlanColumn("recompute", is_text=True),
        *(PlanColumn(name.replace("_", " "), is_text=True) for name in switches),
    ]
    rows = [_row(places.get(each.plan, ""), each, ties, best, (degrees, switches)) for each in listed]
    return {"columns": columns, "rows": rows, "feasible": num_that_fit(result), "factor": ties.factor - 1}


def _row(
    place: str, estimate: Estimate, ties: Ties, best: Estimate, shown: tuple[Sequence[str], Sequence[str]]
) -> PlanRow:
    plan, time, (degrees, switches) = estimate.plan, ties.time_of(estimate), shown
    cells = (
        TableCell(format_time(time), time),
        *(TableCell(str(getattr(plan, name)), getattr(plan, name)) for name in degrees),
        TableCell(str(estimate.dp), estimate.dp),
        TableCell(format_bytes(estimate.peak_memory_bytes), estimate.peak_memory_bytes),
        TableCell(lost_text(estimate, best, ties), time - ties.time_of(best)),
        TableCell(percent(estimate.mfu), estimate.mfu),
        TableCell(str(plan.micro_batch_size), plan.micro_batch_size),
        TableCell(short_sharding(plan), short_sharding(plan)),
        TableCell(short_recompute(plan), short_recompute(plan)),
        *(TableCell(field_text(getattr(plan, name)), field_text(getattr(plan, name))) for name in switches),
    )
    return PlanRow(
        place=place,
        code=plan_code(plan),
        words=" ".join(plan_words(estimate)).lower(),
        cells=cells,
        is_recommended=plan == ties.recommended.plan,
        is_tie=plan in ties.robustness,
        is_tight=not estimate.has_headroom,
    )
