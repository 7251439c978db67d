"""What is recorded of an answer, read from the public search and its public attributes only."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from tests.planner.answers.questions import Asked

from shardplan.estimation.estimate import Estimate
from shardplan.inputs.plan import Plan
from shardplan.planner.result import SearchResult
from shardplan.planner.search import search_question

RECORDS = Path(__file__).parent / "records"
NUM_DIGITS = 12
TOP = 10


def record_of(asked: Asked) -> dict[str, Any]:
    """The answer to a question."""
    fix, limit, exclude = asked.fix, asked.limit, asked.exclude
    result = search_question(asked.question(), top=TOP, fix=fix, limit=limit, exclude=exclude, use_all=asked.use_all)
    return {
        "num_plans_evaluated": result.num_plans_evaluated,
        "num_plans_feasible": result.num_plans_feasible,
        "rejected": dict(sorted(result.rejected.items())),
        "plans": [_estimate(each) for each in result.estimates],
        "ties": _ties(result),
        "smallest": None if result.smallest is None else _estimate(result.smallest),
        "suggestions": [
            {"change": each.change, "num_accelerators": each.num_accelerators, **_estimate(each.estimate)}
            for each in result.suggestions
        ],
    }


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {
        "plan": _plan(estimate.plan),
        "step_time_s": _rounded(estimate.step_time),
        "peak_memory_bytes": _rounded(estimate.peak_memory_bytes),
    }


def _plan(plan: Plan) -> dict[str, Any]:
    """Fields that differ from their default."""
    values = asdict(plan)
    return {each.name: values[each.name] for each in fields(Plan) if values[each.name] != each.default}


def _ties(result: SearchResult) -> dict[str, Any] | None:
    if result.ties is None:
        return None
    return {
        "num_plans": result.ties.num_plans,
        "num_with_headroom": result.ties.num_with_headroom,
        "recommended": _estimate(result.ties.recommended),
    }


def _rounded(value: float) -> float:
    return float(f"{float(value):.{NUM_DIGITS}g}")
