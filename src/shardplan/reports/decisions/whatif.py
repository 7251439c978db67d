"""What becomes of a plan, as a record and as rows."""

from __future__ import annotations

from typing import Any, Final

from shardplan.decisions.whatif import ChangeStep, WhatIf
from shardplan.estimation.parts.terms import term_label
from shardplan.reports.decisions.shared import asked_record, plan_record, with_plans
from shardplan.reports.plan_file import estimate_record

SCHEMA: Final = "shardplan/whatif/1"


def whatif_record(found: WhatIf) -> dict[str, Any]:
    """The answer as a mapping that JSON can hold; units are in the keys."""
    return {
        "schema": SCHEMA,
        **asked_record(found.before.question, found.assumptions),
        "plan": estimate_record(found.plan),
        "steps": [{**_own(step), **plan_record(step.answered.estimate)} for step in found.steps],
        "terms": [
            {
                "name": each.name,
                "label": term_label(each.name),
                "before_s": each.before,
                "after_s": each.after,
                "change_s": each.change,
            }
            for each in found.terms
        ],
    }


def _own(step: ChangeStep) -> dict[str, Any]:
    """What a step has of its own."""
    estimate, same = step.answered.estimate, step.same_plan
    fastest = step.answered.fastest
    return {
        "change": step.label,
        "step_time_s": None if estimate is None else estimate.step_time,
        "step_time_p10_s": None if estimate is None else estimate.step_time_p10,
        "step_time_p90_s": None if estimate is None else estimate.step_time_p90,
        "fastest_step_time_s": None if fastest is None else fastest.step_time,
        "same_plan_step_time_s": None if same is None else same.step_time,
        "same_plan_fits": same is not None and same.feasible,
        "same_plan_reason": step.same_plan_reason,
        "reason": step.answered.reason,
    }


def whatif_rows(found: WhatIf) -> list[dict[str, Any]]:
    """A row for the question as it was, and one after each change."""
    return with_plans([_own(each) for each in found.steps], [each.answered.estimate for each in found.steps])
