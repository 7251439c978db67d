"""How the best step time follows the hardware, as a record and as rows."""

from __future__ import annotations

from typing import Any, Final

from shardplan.decisions.searching import Answered
from shardplan.decisions.sensitivity import Sensitivity, SensitivityPoint
from shardplan.reports.decisions.shared import asked_record
from shardplan.reports.plan_file import estimate_record
from shardplan.reports.texts.plan import plan_words

SCHEMA: Final = "shardplan/sensitivity/1"


def sensitivity_record(found: Sensitivity) -> dict[str, Any]:
    """The answer as a mapping that JSON can hold; units are in the keys, or next to the values."""
    plan = found.base.estimate
    return {
        "schema": SCHEMA,
        **asked_record(found.base.question, found.assumptions),
        "factor": found.factor,
        "best_step_time_s": _best(found.base),
        "sum_of_rates": found.sum_of_rates,
        "reason": found.base.reason,
        "parameters": sensitivity_rows(found),
        "plan": None if plan is None else estimate_record(plan),
    }


def sensitivity_rows(found: Sensitivity) -> list[dict[str, Any]]:
    """A row for each parameter."""
    return [_row(found.base, each) for each in found.points]


def _row(base: Answered, point: SensitivityPoint) -> dict[str, Any]:
    parameter = point.parameter
    return {
        "name": parameter.name,
        "label": parameter.label,
        "unit": parameter.unit,
        "value": parameter.value,
        "elasticity": point.elasticity,
        "best_step_time_s": _best(base),
        "lower_best_step_time_s": _best(point.lower),
        "upper_best_step_time_s": _best(point.upper),
        "lower_reason": point.lower.reason,
        "lower_plan": _text(point.lower),
        "plan": _text(base),
        "upper_plan": _text(point.upper),
    }


def _best(answered: Answered) -> float | None:
    return None if answered.fastest is None else answered.fastest.step_time


def _text(answered: Answered) -> str | None:
    """The plan to take as text."""
    return None if answered.estimate is None else ", ".join(plan_words(answered.estimate))
