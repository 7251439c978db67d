"""What records and tables of several decisions have in common: what was asked, and the plan of a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from shardplan.estimation.estimate import Estimate
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan
from shardplan.records import keys, plain
from shardplan.reports.plan_file import estimate_record
from shardplan.reports.texts.plan import field_text, plan_words
from shardplan.version import VERSION

OF_PLANS: Final = ("dp", "num_microbatches", "mfu", "peak_memory_bytes", "peak_memory_p90_bytes", "usable_memory_bytes")
"""What every table has of its plans besides their fields."""


def asked_record(question: Question, assumptions: Sequence[str]) -> dict[str, Any]:
    """Version, model, cluster, size and job, and what was assumed in putting the question."""
    return {
        "shardplan_version": VERSION,
        "model": question.model.name,
        "cluster": question.cluster.name,
        "accelerator": question.cluster.accelerator.name,
        "num_accelerators": question.num_accelerators,
        "job": plain(question.job),
        "assumptions": list(assumptions),
    }


def plan_record(estimate: Estimate | None) -> dict[str, Any]:
    """The plan to take as text and in full; None where there is none."""
    if estimate is None:
        return {"plan_text": None, "plan": None}
    return {"plan_text": ", ".join(plan_words(estimate)), "plan": estimate_record(estimate)}


def with_plans(own: Sequence[Mapping[str, Any]], estimates: Sequence[Estimate | None]) -> list[dict[str, Any]]:
    """``own`` columns, then those of the plan; empty cells where there is none. All rows have the same columns."""
    return [{**row, **plan_cells(estimate)} for row, estimate in zip(own, estimates, strict=True)]


def plan_cells(estimate: Estimate | None) -> dict[str, Any]:
    """The fields of a plan and its main numbers; None in all of them where there is no plan."""
    names = [each.name for each in fields(Plan)]
    if estimate is None:
        return dict.fromkeys((*names, *(keys(Estimate)[name] for name in OF_PLANS)))
    cells: dict[str, Any] = {name: _cell(getattr(estimate.plan, name)) for name in names}
    return cells | {keys(Estimate)[name]: getattr(estimate, name) for name in OF_PLANS}


def _cell(value: object) -> Any:
    """A number or a switch as it is, a list as text."""
    return field_text(value) if isinstance(value, tuple) else value
