"""Why the best plan is the best: what limits it, and what each obvious alternative loses, in seconds and bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

from shardplan.errors import ShardplanError
from shardplan.estimation.estimate import Estimate, estimate_plan
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan
from shardplan.planner.result import SearchResult
from shardplan.reports.breakdown import Share, step_split

__all__ = ["Alternative", "Explanation", "explain", "explanation_record"]

Change = dict[str, Any]
Outcome = Literal["slower", "does not fit", "breaks a rule", "not searched"]

COMPUTE: Final = ("matmul", "attention")
"""Terms that model FLOP are spent in; all others are losses."""
MOST_LOSSES: Final = 3
LEANEST: Final = {"micro_batch_size": 1, "recompute": "full", "recompute_num_layers": None}
"""Settings that need least memory, whatever the degrees."""


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """One obvious change of the best plan, with all else free to follow, and what comes of it."""

    name: str
    """The change in words, such as ``tp 8 -> 4``."""
    change: Change
    """Fields of the plan that it fixes."""
    outcome: Outcome
    estimate: Estimate | None = None
    """The best plan with that change; where none fits, the one that needs little memory."""
    time_lost: float | None = None
    """Step time beyond the best plan's; negative where it would be faster but does not fit. [s]"""
    memory_added: float | None = None
    """Peak memory beyond the best plan's. [bytes]"""
    missing_bytes: float | None = None
    """What it needs beyond the usable memory."""
    main_term: str | None = None
    """Term of the step that grew most."""
    main_term_time: float | None = None
    """By how much. [s]"""
    reason: str | None = None
    """The broken rule with its values."""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What limits a plan, and its alternatives."""

    compute: Share
    """Matrix products and attention."""
    losses: tuple[Share, ...]
    """The largest other terms of the step."""
    memory_share: float
    """Of the usable memory, on the fullest stage."""
    blocked: tuple[Alternative, ...]
    """Alternatives that would be faster if they fitted: where there are any, memory limits."""
    alternatives: tuple[Alternative, ...]


def explain(result: SearchResult) -> Explanation | None:
    """What limits the best plan of a search, and why each alternative loses; None where nothing fits."""
    if not result.estimates:
        return None
    best = result.estimates[0]
    split = step_split(best)
    compute = [share for share in split if share.name in COMPUTE]
    alternatives = tuple(_judged(result, best, name, change) for name, change in _changes(result, best.plan))
    return Explanation(
        compute=Share(
            name="compute", value=sum(share.value for share in compute), share=sum(share.share for share in compute)
        ),
        losses=tuple(share for share in split if share.name not in COMPUTE)[:MOST_LOSSES],
        memory_share=best.peak_memory_bytes / best.usable_memory_bytes,
        blocked=tuple(each for each in alternatives if each.outcome == "does not fit" and (each.time_lost or 0.0) < 0),
        alternatives=alternatives,
    )


def _changes(result: SearchResult, plan: Plan) -> Iterator[tuple[str, Change]]:
    """The alternatives that a person would ask for."""
    yield from _scaled("tp", plan.tp)
    yield from _scaled("pp", plan.pp)
    if plan.cp > 1 or len(result.space.get("cp", ())) > 1:
        yield from _scaled("cp", plan.cp)
    if result.question.model.is_moe:
        yield from _scaled("ep", plan.ep)
    yield from _scaled("micro_batch_size", plan.micro_batch_size)
    if plan.recompute != "none":
        yield "no recomputation", {"recompute": "none"}
    if plan.recompute != "full":
        yield "full recomputation", {"recompute": "full"}
    if plan.pp > 1:
        yield "ZeRO-3, no pipeline", {"pp": 1, "sharding": "zero3"}
    elif plan.sharding != "zero3":
        yield "ZeRO-3", {"sharding": "zero3"}
    if plan.sharding != "zero1":
        yield f"zero1 for {plan.sharding}", {"sharding": "zero1"}


def _scaled(field: str, degree: int) -> Iterator[tuple[str, Change]]:
    """Half the degree and twice the degree."""
    words = "micro-batch" if field == "micro_batch_size" else field
    if degree > 1:
        yield f"{words} {degree} -> {degree // 2}", {field: degree // 2}
    yield f"{words} {degree} -> {2 * degree}", {field: 2 * degree}


def _judged(result: SearchResult, best: Estimate, name: str, change: Change) -> Alternative:
    """What comes of a change: its best plan, or why there is none."""
    found = result.best_where(**change)
    if found is not None:
        return _compared("slower", best, found, name, change)
    plan, why = _nearest(result.question, best.plan, change)
    if plan is None:
        return Alternative(name=name, change=change, outcome="breaks a rule", reason=why)
    return _compared("not searched" if plan.feasible else "does not fit", best, plan, name, change)


def _nearest(question: Question, plan: Plan, change: Change) -> tuple[Estimate | None, str | None]:
    """The valid plan nearest to ``plan`` with the change made and little memory; or the rule in the way."""
    reason = None
    changed = {**change, **({"vp": 1, "schedule": None} if change.get("pp") == 1 else {}), "stage_layers": None}
    for settings in (changed, {**LEANEST, **changed}, {**LEANEST, **changed, "vp": 1, "schedule": None}):
        try:
            found = estimate_plan(question, replace(plan, **settings))
        except ShardplanError as error:
            reason = reason or f"{error.rule}: {error.message}"
        else:
            return found, None
    return None, reason


def _compared(outcome: Outcome, best: Estimate, other: Estimate, name: str, change: Change) -> Alternative:
    grown = {term: time - best.breakdown.get(term, 0.0) for term, time in other.breakdown.items()}
    main = max(grown, key=lambda term: grown[term])
    return Alternative(
        name=name,
        change=change,
        outcome=outcome,
        estimate=other,
        time_lost=other.step_time - best.step_time,
        memory_added=other.peak_memory_bytes - best.peak_memory_bytes,
        missing_bytes=max(other.peak_memory_bytes - other.usable_memory_bytes, 0.0),
        main_term=main if grown[main] > 0 else None,
        main_term_time=grown[main] if grown[main] > 0 else None,
    )


def explanation_record(explanation: Explanation) -> dict[str, Any]:
    """The explanation as it stands in a plan file; units in the keys."""
    return {
        "compute_share": explanation.compute.share,
        "losses_s": {share.name: share.value for share in explanation.losses},
        "memory_share": explanation.memory_share,
        "memory_limits": bool(explanation.blocked),
        "alternatives": [_alternative_record(each) for each in explanation.alternatives],
    }


def _alternative_record(alternative: Alternative) -> dict[str, Any]:
    estimate = alternative.estimate
    return {
        "name": alternative.name,
        "change": alternative.change,
        "outcome": alternative.outcome,
        "plan": None if estimate is None else asdict(estimate.plan),
        "step_time_s": None if estimate is None else estimate.step_time,
        "peak_memory_bytes": None if estimate is None else estimate.peak_memory_bytes,
        "time_lost_s": alternative.time_lost,
        "memory_added_bytes": alternative.memory_added,
        "missing_bytes": alternative.missing_bytes,
        "main_term": alternative.main_term,
        "main_term_s": alternative.main_term_time,
        "reason": alternative.reason,
    }
