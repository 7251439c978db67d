"""A job on several sizes, as a record and as rows."""

from __future__ import annotations

from typing import Any, Final

from shardplan.decisions.scale import ScalePoint, Scaling
from shardplan.reports.decisions.shared import asked_record, plan_record, with_plans

SCHEMA: Final = "shardplan/scale/1"


def scale_record(scaling: Scaling) -> dict[str, Any]:
    """The answer as a mapping that JSON can hold; units are in the keys."""
    return {
        "schema": SCHEMA,
        **asked_record(scaling.question, scaling.assumptions),
        "least_gain": scaling.least_gain,
        "pays_up_to": scaling.pays_up_to,
        "stops_paying": scaling.stops,
        "points": [{**_own(point), **plan_record(point.answered.estimate)} for point in scaling.points],
    }


def _own(point: ScalePoint) -> dict[str, Any]:
    """What a size has of its own."""
    estimate = point.answered.estimate
    return {
        "num_accelerators": point.num_accelerators,
        "num_accelerators_used": None if estimate is None else estimate.num_accelerators_used,
        "step_time_s": None if estimate is None else estimate.step_time,
        "step_time_p10_s": None if estimate is None else estimate.step_time_p10,
        "step_time_p90_s": None if estimate is None else estimate.step_time_p90,
        "tokens_per_s": point.answered.tokens_per_second,
        "efficiency": point.efficiency,
        "marginal_efficiency": point.marginal_efficiency,
        "reason": point.answered.reason,
    }


def scale_rows(scaling: Scaling) -> list[dict[str, Any]]:
    """A row for each size."""
    return with_plans([_own(each) for each in scaling.points], [each.answered.estimate for each in scaling.points])
