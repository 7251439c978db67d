"""What limits the recommended plan, and what each obvious change of it costs or saves, in seconds and bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields, replace
from typing import Any, Final, Literal

from shardplan.base.errors import ShardplanError
from shardplan.base.fields import dataclass
from shardplan.estimation.estimate import Estimate, estimate_plans
from shardplan.estimation.parts.terms import keys_of
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan
from shardplan.physics.frameworks.runnable import refusals
from shardplan.physics.frameworks.stack import Stack
from shardplan.physics.frameworks.usual_stack import stack_of_label
from shardplan.physics.validity import check_plans
from shardplan.planner.result import SearchResult
from shardplan.reports.breakdown import Share, step_split
from shardplan.reports.plan_file import PlanFile, plan_file_record

Change = dict[str, Any]
Outcome = Literal["faster", "slower", "as fast", "does not fit", "breaks a rule", "not searched"]

USUAL: Final = Plan()
"""A plan of defaults: what a search takes of fields that are not in its space."""
COMPUTE: Final = keys_of("arithmetic")
"""Terms in which model FLOP are executed; all others are losses."""
MOST_LOSSES: Final = 3


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Another plan against the one to take."""

    estimate: Estimate
    time_lost: float
    """Step time beyond that of the recommended plan; negative where it would be faster. [s]"""
    memory_added: float
    """Peak memory beyond that of the recommended plan. [bytes]"""
    missing_bytes: float
    """What it needs beyond the usable memory; zero where it fits."""
    main_term: str | None
    """Term of the step that grew most."""
    main_term_time: float
    """By how much. [s]"""

    @classmethod
    def of(cls, other: Estimate, best: Estimate) -> Difference:
        """``other`` against ``best``."""
        grown = {term: time - best.breakdown.get(term, 0.0) for term, time in other.breakdown.items()}
        main = max(grown, key=lambda term: grown[term])
        return cls(
            estimate=other,
            time_lost=other.step_time - best.step_time,
            memory_added=other.peak_memory_bytes - best.peak_memory_bytes,
            missing_bytes=max(other.peak_memory_bytes - other.usable_memory_bytes, 0.0),
            main_term=main if grown[main] > 0 else None,
            main_term_time=max(grown[main], 0.0),
        )

    def also_changed(self, best: Plan, change: Change) -> Change:
        """Fields in which the plan differs from the one to take, besides ``change``."""
        plan = self.estimate.plan
        names = [field.name for field in fields(Plan) if field.name not in change]
        return {name: getattr(plan, name) for name in names if getattr(plan, name) != getattr(best, name)}


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """One obvious change of the recommended plan: alone, and with all other fields free to follow."""

    name: str
    """The change as text, such as ``tp 8 -> 4``."""
    change: Change
    """Fields of the plan that it fixes."""
    alone: Difference | None
    """The plan with that change and no other; None where that breaks a rule."""
    broken_rule: str | None
    """The rule, with its values."""
    best: Difference | None
    """The best plan of the space with that change; None where none fits."""
    is_searched: bool = True
    """Whether the space holds the values that the change fixes."""

    @property
    def outcome(self) -> Outcome:
        """Why it is not the answer."""
        if self.best is not None:
            lost = self.best.time_lost
            return "slower" if lost > 0 else "faster" if lost < 0 else "as fast"
        if self.alone is None:
            return "breaks a rule"
        return "does not fit" if self.alone.missing_bytes else "not searched"


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What limits a plan, and its alternatives."""

    best: Estimate
    """The recommended plan: the recommended one."""
    compute: Share
    """Matrix products and attention."""
    losses: tuple[Share, ...]
    """The largest other terms of the step."""
    memory_share: float
    """Of the usable memory, on the fullest stage."""
    alternatives: tuple[Alternative, ...]

    @property
    def blocked(self) -> tuple[Alternative, ...]:
        """Changes that would be faster if they fitted, nearest to fitting first: where there are any, memory limits."""
        faster = [
            each for each in self.alternatives if each.alone and each.alone.time_lost < 0 < each.alone.missing_bytes
        ]
        return tuple(sorted(faster, key=lambda each: each.alone.missing_bytes if each.alone else 0.0))


def explain(result: SearchResult) -> Explanation | None:
    """What limits the plan that a search recommends, and what comes of each change; None where nothing fits."""
    best = result.recommended
    if best is None:
        return None
    split = step_split(best)
    compute = [share for share in split if share.name in COMPUTE]
    return Explanation(
        best=best,
        compute=Share(
            name="compute", value=sum(share.value for share in compute), share=sum(share.share for share in compute)
        ),
        losses=tuple(share for share in split if share.name not in COMPUTE)[:MOST_LOSSES],
        memory_share=best.peak_memory_bytes / best.usable_memory_bytes,
        alternatives=_alternatives(result, best),
    )


def _changes(result: SearchResult, best: Estimate) -> Iterator[tuple[str, Change]]:
    """The alternatives that a person would ask for."""
    plan = best.plan
    scaled = ["tp", "pp", *(["cp"] if plan.cp > 1 or len(result.space.get("cp", ())) > 1 else [])]
    scaled += ["ep"] if result.question.model.is_moe else []
    for field in (*scaled, "micro_batch_size"):
        yield from _scaled(field, getattr(plan, field), result.space.get(field, ()))
    if plan.recompute != "none":
        yield "no recomputation", {"recompute": "none", "recompute_num_layers": None}
    if plan.recompute != "full":
        yield "full recomputation", {"recompute": "full", "recompute_num_layers": None}
    everywhere = {"sharding_degree": None}
    if plan.pp > 1:
        yield "ZeRO-3, no pipeline", {"pp": 1, "sharding": "zero3", **everywhere}
    elif plan.sharding != "zero3" and _has_replicas(result.question, plan):
        yield "ZeRO-3", {"sharding": "zero3", **everywhere}
    if plan.sharding != "zero1" and _has_replicas(result.question, plan):
        yield "ZeRO-1", {"sharding": "zero1", **everywhere}


def _has_replicas(question: Question, plan: Plan) -> bool:
    """Whether several ranks hold the same weights: without, every kind of sharding is the same plan."""
    n = question.num_accelerators
    return n > plan.tp * plan.pp or (question.model.is_moe and n > plan.ep * plan.etp * plan.pp)


def _scaled(field: str, degree: int, candidates: Sequence[object]) -> Iterator[tuple[str, Change]]:
    """Half the degree and twice the degree, or what the space has next to these."""
    words = "micro-batch" if field == "micro_batch_size" else field
    known = [value for value in candidates if isinstance(value, int)]
    if degree > 1:
        below = max((value for value in known if 2 * value <= degree), default=degree // 2)
        yield f"{words} {degree} -> {below}", {field: below}
    above = min((value for value in known if value >= 2 * degree), default=2 * degree)
    yield f"{words} {degree} -> {above}", {field: above}


def _alternatives(result: SearchResult, best: Estimate) -> tuple[Alternative, ...]:
    """What comes of every change; all plans that it takes are priced together."""
    stack = stack_of_label(best.framework)
    changes = [*_changes(result, best)]
    found = result.best_of_each([change for _, change in changes])
    plans = [_runnable(result.question, stack, *_alone(result.question, best.plan, change)) for _, change in changes]
    valid = dict.fromkeys(plan for plan, _ in plans if plan is not None)
    answers = dict(zip(valid, estimate_plans(result.question, [*valid]), strict=True))
    return tuple(
        Alternative(
            name=name,
            change=change,
            alone=None if plan is None else Difference.of(answers[plan], best),
            broken_rule=broken_rule,
            best=None if other is None else Difference.of(other, best),
            is_searched=all(value in result.space.get(f, (getattr(USUAL, f),)) for f, value in change.items()),
        )
        for (name, change), other, (plan, broken_rule) in zip(changes, found, plans, strict=True)
    )


def _alone(asked: Question, plan: Plan, change: Change) -> tuple[Plan | None, str | None]:
    """``plan`` with the change made, or the rule that it breaks. Chunks per rank follow the number of stages."""
    chunks = plan.vp * plan.pp // change.get("pp", plan.pp)
    broken = None
    for vp in dict.fromkeys((plan.vp, chunks, 1) if "pp" in change else (plan.vp,)):
        follows = {"vp": max(vp, 1), "schedule": None, "stage_layers": None} if "pp" in change else {}
        try:
            changed = replace(plan, **{**follows, **change})
            check_plans((changed,), asked.setting)
        except ShardplanError as error:
            broken = broken or f"{error.rule}: {error.message}"
        else:
            return changed, None
    return None, broken


def _runnable(
    asked: Question, stack: Stack | None, plan: Plan | None, broken: str | None
) -> tuple[Plan | None, str | None]:
    """The plan, or the rule of the framework that it breaks."""
    if plan is None or stack is None:
        return plan, broken
    setting = asked.setting
    refused = refusals(stack, plan, setting)
    return (None, f"{refused[0].rule}: {refused[0].message}") if refused else (plan, broken)


def explained_record(result: SearchResult, explanation: Explanation | None) -> dict[str, Any]:
    """The plan file of a search with its explanation: what ``plan --json`` writes."""
    record = plan_file_record(PlanFile.of(result))
    return record if explanation is None else {**record, "explanation": explanation_record(explanation)}


def explanation_record(explanation: Explanation) -> dict[str, Any]:
    """The explanation as it is in a plan file; units in the keys."""
    best = explanation.best.plan
    return {
        "compute_share": explanation.compute.share,
        "losses_s": {share.name: share.value for share in explanation.losses},
        "memory_share": explanation.memory_share,
        "memory_limits": bool(explanation.blocked),
        "alternatives": [
            {
                "name": each.name,
                "change": each.change,
                "outcome": each.outcome,
                "alone": _difference_record(each.alone, best, each.change),
                "broken_rule": each.broken_rule,
                "best": _difference_record(each.best, best, each.change),
            }
            for each in explanation.alternatives
        ],
    }


def _difference_record(difference: Difference | None, best: Plan, change: Change) -> dict[str, Any] | None:
    if difference is None:
        return None
    return {
        "plan": asdict(difference.estimate.plan),
        "also_changed": difference.also_changed(best, change),
        "step_time_s": difference.estimate.step_time,
        "peak_memory_bytes": difference.estimate.peak_memory_bytes,
        "time_lost_s": difference.time_lost,
        "memory_added_bytes": difference.memory_added,
        "missing_bytes": difference.missing_bytes,
        "main_term": difference.main_term,
        "main_term_s": difference.main_term_time,
    }
