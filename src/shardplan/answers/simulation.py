"""The answer of ``simulate``: how long a simulated step takes, and what every rank does."""

from __future__ import annotations

from typing import Any, Final

from shardplan.answers.document import AnswerDocument, Block, Column, Line, Part, RowTable
from shardplan.records import plain
from shardplan.reports.texts.answer import more_or_less, percent
from shardplan.schedules.base import Schedule
from shardplan.simulation.plan import SimulatedPlan
from shardplan.simulation.replicas import ReplicaSteps
from shardplan.simulation.step import SimulatedStep
from shardplan.units import format_time

MOST_RANKS: Final = 64
"""Rows of the table; the record has all ranks."""


def simulated_plan_document(simulated: SimulatedPlan) -> AnswerDocument:
    """Of a plan, whose step time includes what comes once a step."""
    steps, step_time = simulated.replicas, simulated.step_time

    def record() -> dict[str, Any]:
        entries = _record(simulated.step, simulated.closed_form_time)
        whole = {"step_time_s": step_time, "pipeline_time_s": simulated.step.step_time}
        named = {"schedule": simulated.schedule.name, **entries, **whole}
        return {**named, **_replicas(steps), "plan": plain(simulated.plan)}

    return AnswerDocument(
        name="simulation",
        verdict=_verdict(simulated.schedule, steps, step_time, simulated.closed_form_time),
        parts=[_ranks(steps.step)],
        record=record,
    )


def simulated_case_document(
    schedule: Schedule, steps: ReplicaSteps, closed_form_time: float | None, *, has_transfers: bool
) -> AnswerDocument:
    """Of a case with times of its own; the closed form leaves out transfers."""
    return AnswerDocument(
        name="simulation",
        verdict=_verdict(
            schedule, steps, steps.step.step_time, closed_form_time, leaves_out=", without transfers," * has_transfers
        ),
        parts=[_ranks(steps.step)],
        record=lambda: _record(steps.step, closed_form_time) | _replicas(steps),
    )


def _verdict(
    schedule: Schedule, steps: ReplicaSteps, step_time: float, closed_form_time: float | None, *, leaves_out: str = ""
) -> list[Block]:
    """Step time next to the closed form."""
    step = steps.step
    texts = []
    if step_time > step.step_time:
        texts.append(
            f"{format_time(step.step_time)} from the first pass of a rank to its last; the rest comes once a step."
        )
    if steps.count > 1:
        texts.append(
            f"Replica {steps.slowest} of {steps.count} (from 0) takes longest; "
            f"others wait for it up to {format_time(steps.longest_wait)} at the reduction of gradients."
        )
    texts.append(f"{percent(step.bubble_rate)} of that time is bubble, on the rank that takes longest.")
    if closed_form_time is not None:
        texts.append(
            f"The closed form{leaves_out} says {format_time(closed_form_time)}, "
            f"{more_or_less(closed_form_time / step_time - 1)}."
        )
    headline = Line(f"{schedule.title}: {format_time(step_time)} a step", tone="good")
    return [headline, *(Line(text, indent=2) for text in texts)]


def _ranks(step: SimulatedStep) -> Part:
    """A row for every rank."""
    columns = (
        Column("", "rank", lambda row: row[0]),
        Column("", "busy", lambda row: row[1].busy_time, format_time),
        Column("", "idle", lambda row: row[1].idle_time, format_time),
        Column(
            "",
            "idle share",
            lambda row: row[1].idle_time / step.step_time if step.step_time else 0.0,
            percent,
            rank=1,
        ),
        Column("", "in flight", lambda row: row[1].peak_in_flight),
    )
    table = RowTable([*enumerate(step.ranks[:MOST_RANKS])], columns)
    note = "in flight: passes through a chunk whose activations are kept"
    return Part("Ranks", [table, *more_ranks(len(step.ranks), MOST_RANKS)], note)


def more_ranks(number: int, shown: int) -> list[Line]:
    """How many of the ranks are not in the table."""
    return [Line(f"{number - shown} more ranks: --json - lists all.", tone="quiet")] if number > shown else []


def _record(step: SimulatedStep, closed_form_time: float | None) -> dict[str, Any]:
    """``ranks``: busy and idle seconds of the step, and chunk passes in flight, of every rank."""
    return {
        "step_time_s": step.step_time,
        "bubble_rate": step.bubble_rate,
        "ranks": [
            {"busy_s": rank.busy_time, "idle_s": rank.idle_time, "peak_in_flight": rank.peak_in_flight}
            for rank in step.ranks
        ],
        "closed_form_step_time_s": closed_form_time,
    }


def _replicas(steps: ReplicaSteps) -> dict[str, Any]:
    """Which of several replicas is slowest, and how long others wait for it; nothing of a single one."""
    if steps.count == 1:
        return {}
    return {"replicas": {"number": steps.count, "slowest": steps.slowest, "longest_wait_s": steps.longest_wait}}
