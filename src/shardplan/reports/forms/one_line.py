"""An answer in one line."""

from __future__ import annotations

from shardplan.base.units import format_bytes, format_time
from shardplan.estimation.estimate import Estimate
from shardplan.planner.result import SearchResult
from shardplan.reports.recommendation import num_that_fit
from shardplan.reports.texts.plan import plan_words


def estimate_line(estimate: Estimate) -> str:
    """Plan, step time, MFU and memory, and whether it fits."""
    memory = f"{format_bytes(estimate.peak_memory_bytes)} of {format_bytes(estimate.usable_memory_bytes)}"
    fits = "fits" if estimate.feasible else "does not fit"
    numbers = f"{format_time(estimate.step_time)} a step, MFU {100 * estimate.mfu:.1f} %, {memory}, {fits}"
    return f"{', '.join(plan_words(estimate))}: {numbers}"


def search_line(result: SearchResult) -> str:
    """How many plans fit, and the one to take."""
    question = result.question
    asked = f"{question.model.name} on {question.num_given:,} x {question.cluster.accelerator.name}"
    asked += f" ({question.uses})" if question.uses else ""
    counts = f"{num_that_fit(result)} of {result.num_plans_valid:,} plans fit"
    if result.recommended is None:
        return f"{asked}: {counts}"
    return f"{asked}: {counts}; take {estimate_line(result.recommended)}"
