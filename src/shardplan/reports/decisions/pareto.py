"""The plans that no other is better than in every respect, as a record and as rows."""

from __future__ import annotations

from typing import Any, Final

from shardplan.decisions.pareto import ParetoFront, ParetoPoint
from shardplan.reports.decisions.shared import asked_record, plan_record, with_plans
from shardplan.reports.plan_file import estimate_record

SCHEMA: Final = "shardplan/pareto/1"


def pareto_record(front: ParetoFront) -> dict[str, Any]:
    """The answer as a mapping that JSON can hold; units are in the keys."""
    return {
        "schema": SCHEMA,
        **asked_record(front.question, front.assumptions),
        "num_plans_evaluated": front.num_plans_evaluated,
        "num_plans_feasible": front.num_plans_feasible,
        "num_plans_priced": front.num_plans_priced,
        "recommended": None if front.recommended is None else estimate_record(front.recommended),
        "points": [{**_own(front, point), **plan_record(point.estimate)} for point in front.points],
    }


def _own(front: ParetoFront, point: ParetoPoint) -> dict[str, Any]:
    """What a plan of the front has of its own."""
    return {
        "step_time_s": point.estimate.step_time,
        "headroom_bytes": point.headroom_bytes,
        "pessimistic_time_s": point.pessimistic_time,
        "recommended": front.recommended is not None and point.estimate.plan == front.recommended.plan,
    }


def pareto_rows(front: ParetoFront) -> list[dict[str, Any]]:
    """A row for each plan of the front, the fastest first."""
    return with_plans([_own(front, each) for each in front.points], [each.estimate for each in front.points])
