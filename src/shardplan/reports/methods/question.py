"""A question of ours as another method answers it, and our own estimate of the same degrees next to every row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final

from shardplan.errors import ShardplanError
from shardplan.estimation.estimate import Estimate, estimate_plan
from shardplan.estimation.question import Question
from shardplan.fields import dataclass
from shardplan.inputs.plan import Plan
from shardplan.published.base import Method, MethodAnswer, MethodRow
from shardplan.published.catalogue import asked_of
from shardplan.records import plain
from shardplan.reports.methods.catalogue import MethodEntry
from shardplan.reports.model_record import model_record
from shardplan.reports.texts.answer import percent
from shardplan.units import format_bytes, format_count, format_time
from shardplan.version import VERSION

DEGREES: Final = ("tp", "cp", "pp")
"""Degrees that, with dp, multiply to the accelerators."""
TIMES: Final = {
    "compute_s": ("matmul", "attention", "memory_bound", "host"),
    "tp_communication_s": ("tp_communication", "cp_communication"),
    "pp_communication_s": ("pp_communication",),
    "dp_communication_s": ("dp_communication",),
    "tp_s": ("tp_communication",),
    "pp_s": ("pp_communication",),
    "dp_s": ("dp_communication",),
    "gradients_s": ("dp_communication",),
    "bubble_s": ("bubble",),
}
"""Terms of other methods and those of our step that cover the same."""
SHARES: Final = ("fraction", "utilisation", "efficiency")
"""Ends of names of terms that are shares of a whole."""


@dataclass(frozen=True, kw_only=True)
class Beside:
    """Our own estimate of what another method considers."""

    plan: Plan | None = None
    estimate: Estimate | None = None
    """None where a rule forbids the plan."""
    broken_rule: str = ""
    """The rule, with its values."""


@dataclass(frozen=True, kw_only=True)
class MethodReport:
    """A method's answer with ours next to it."""

    question: Question
    entry: MethodEntry
    answer: MethodAnswer
    ours: tuple[Beside, ...]
    """One for every row of the answer."""
    assumptions: tuple[str, ...]
    """What our estimates took for granted beyond the rows."""

    @property
    def is_yes(self) -> bool:
        """Whether something fits by the method's own rule, or it has none."""
        return bool(self.answer.rows) and self.answer.rows[0].fits is not False


def ask_method(method: Method, question: Question, *, top: int) -> MethodReport:
    """Puts a question of ours to a method. Raises ``MethodError`` where it cannot speak of it."""
    q = question
    answer = asked_of(method, lambda: method.plan(q.model, q.cluster, q.num_accelerators, q.job, top=top))
    return MethodReport(
        question=question,
        entry=MethodEntry.of(method),
        answer=answer,
        ours=tuple(beside(question, row) for row in answer.rows),
        assumptions=_assumptions(answer),
    )


def with_assumptions(report: MethodReport, assumptions: tuple[str, ...]) -> MethodReport:
    """``report`` with what was assumed in putting the question, first."""
    return replace(report, assumptions=(*assumptions, *report.assumptions))


def beside(question: Question, row: MethodRow) -> Beside:
    """Our estimate of the degrees of ``row``, on as many accelerators as these use."""
    try:
        plan = our_plan(row.degrees)
        used = math.prod(row.degrees.get(name, 1) for name in ("dp", *DEGREES))
        estimate = estimate_plan(replace(question, num_accelerators=used), plan)
    except ShardplanError as error:
        return Beside(broken_rule=error.message)
    return Beside(plan=plan, estimate=estimate)


def our_plan(degrees: Mapping[str, int]) -> Plan:
    """The plan with these degrees; all else has its default. Raises ``InputError``."""
    known = {field.name for field in fields(Plan)}
    taken: dict[str, Any] = {name: degree for name, degree in degrees.items() if name in known}
    if degrees.get("tp_rows", 1) > 1:
        taken["tp_kind"] = "summa"
    return Plan(**taken)


def our_part(name: str, estimate: Estimate) -> float | None:
    """Our figure for the term of another method with that name; None where we have none."""
    if name in TIMES:
        return sum(estimate.breakdown.get(term, 0.0) for term in TIMES[name])
    dimension, _, rest = name.partition("_")
    if rest == "communication_bytes":
        return sum(estimate.communication.get(dimension, {}).values())
    others = {
        "bubble_fraction": estimate.breakdown.get("bubble", 0.0) / estimate.step_time,
        "num_microbatches": float(estimate.num_microbatches),
        "utilisation": estimate.mfu,
    }
    return others.get(name)


def _assumptions(answer: MethodAnswer) -> tuple[str, ...]:
    """What our estimate takes where the method says nothing."""
    degrees = {name for row in answer.rows for name in row.degrees}
    open_degrees = [] if "micro_batch_size" in degrees else ["micro-batches of one sequence"]
    others = (*open_degrees, "ZeRO-1", "sequence parallelism", "no recomputation", "Megatron's placement")
    text = f"our estimates take the row's degrees with {', '.join(others)}"
    if any(row.degrees.get("tp_rows") == 1 for row in answer.rows):
        text += "; a grid of one row (tp_rows 1) as one-dimensional tensor parallelism"
    return (text,)


def method_report_record(report: MethodReport) -> dict[str, Any]:
    """The report as a mapping that JSON can hold; units are in the keys."""
    question, answer = report.question, report.answer
    pairs = zip(answer.rows, report.ours, strict=True)
    return {
        "schema": "shardplan/method-answer/1",
        "shardplan_version": VERSION,
        "method": answer.method,
        "title": report.entry.title,
        "source": report.entry.source,
        "model": model_record(question.model),
        "cluster": plain(question.cluster),
        "num_accelerators": question.num_accelerators,
        "job": plain(question.job),
        **{name: list(getattr(answer, name)) for name in ("mapped", "ignored", "notes")},
        "rows": [{**plain(row), "ours": beside_record(ours)} for row, ours in pairs],
        "assumptions": list(report.assumptions),
    }


def part_label(name: str) -> str:
    """A term of a method as text, without its unit."""
    return name.removesuffix("_s").removesuffix("_bytes").replace("_", " ")


def part_text(name: str, value: float | None) -> str:
    """A term with the unit that ends its name; ``-`` where there is none."""
    if value is None:
        return "-"
    if name.endswith("_s"):
        return format_time(value)
    if name.endswith("_bytes"):
        return format_bytes(value)
    return percent(value) if name.endswith(SHARES) else format_count(value)


def beside_record(ours: Beside) -> dict[str, Any]:
    """Our estimate as an element of ``plans`` in a plan file, or the rule that forbids it."""
    if ours.estimate is None:
        return {"broken_rule": ours.broken_rule}
    return plain(ours.estimate)
