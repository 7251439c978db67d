"""The best different plans as a table, plans side by side, and why a plan that was asked for is not recommended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from shardplan.base.errors import ShardplanError
from shardplan.base.units import format_bytes, format_time
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.parts.terms import term_label
from shardplan.planner.result import SearchResult
from shardplan.planner.robustness import Ties
from shardplan.reports.explanation import Difference
from shardplan.reports.recommendation import listed_plans, lost_text, num_that_fit
from shardplan.reports.texts.answer import percent, signed_time
from shardplan.reports.texts.plan import field_text, plan_words, short_recompute, short_sharding
from shardplan.web.figures.panels import step_parts
from shardplan.web.planning.answered import PageAnswer
from shardplan.web.planning.verdict import memory
from shardplan.web.state import PageQuestion, plan_code

MOST_TERMS = 4
WORTH_A_WORD = 0.002
"""Share of the step below which a term is as long."""


def side(found: PageAnswer, code: str, whole: float | None = None) -> dict[str, Any]:
    """One plan with its numbers, or the rule that it breaks."""
    try:
        estimate = found.estimate(code)
    except ShardplanError as error:
        return {"code": code, "error": error, "words": code.replace(";", ", ").replace("=", " ")}
    return {
        "code": code,
        "error": None,
        "estimate": estimate,
        "words": " \u00b7 ".join(plan_words(estimate)),
        "step": format_time(estimate.step_time),
        "mfu": percent(estimate.mfu),
        "peak": format_bytes(estimate.peak_memory_bytes),
        "memory": memory(estimate),
        "split": step_parts(estimate, whole),
        "is_best": found.best is not None and estimate.plan == found.best.plan,
    }


def sides(question: PageQuestion, found: PageAnswer) -> list[dict[str, Any]]:
    """The plan to take and the pinned ones, their times on one scale."""
    from shardplan.web.state import plan_code

    codes = [*([] if found.best is None else [plan_code(found.best.plan)]), *question.pins]
    each = [side(found, code) for code in dict.fromkeys(codes)]
    whole = max((one["estimate"].step_time for one in each if one["error"] is None), default=1.0)
    return [side(found, one["code"], whole) for one in each]


def why_not(found: PageAnswer, estimate: Estimate) -> list[str]:
    """What speaks for and against a plan next to the one to take, a sentence each."""
    refused = [f"{estimate.framework} does not run it: {each.rule}." for each in estimate.refusals]
    best = found.best
    if best is None:
        return [*refused, *([] if estimate.reason is None else [f"It does not fit: {estimate.reason}."])]
    if estimate.plan == best.plan:
        return ["This is the plan to take."]
    other = Difference.of(estimate, best)
    return [*refused, *_memory_sentences(other), *_time_sentences(estimate, best, other)]


def _memory_sentences(other: Difference) -> list[str]:
    if other.missing_bytes:
        return [f"It does not fit: it needs {format_bytes(other.missing_bytes)} more than an accelerator has."]
    more = other.memory_added
    if abs(more) < 5e6:  # bytes that read the same
        return []
    return [f"It needs {format_bytes(abs(more))} {'more' if more > 0 else 'less'} memory than the plan to take."]


def _time_sentences(estimate: Estimate, best: Estimate, other: Difference) -> list[str]:
    lost = other.time_lost
    if abs(lost) < WORTH_A_WORD * best.step_time:
        return ["Its step takes as long as that of the plan to take, within what can be told apart."]
    terms = {name: time - best.breakdown.get(name, 0.0) for name, time in estimate.breakdown.items()}
    for name, time in best.breakdown.items():
        terms.setdefault(name, -time)
    largest = sorted(terms, key=lambda name: -abs(terms[name]))[:MOST_TERMS]
    least = WORTH_A_WORD * best.step_time
    told = [f"{term_label(name)} {signed_time(terms[name])}" for name in largest if abs(terms[name]) > least]
    word = "longer" if lost > 0 else "shorter"
    share = percent(abs(lost) / best.step_time)
    return [f"Its step takes {format_time(abs(lost))} ({share}) {word}: {', '.join(told)}."]


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
