"""The answer of ``pareto``: the plans that no other is better than, as points, and a few of them as a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

from shardplan.answers.document import AnswerDocument, Column, Dot, Line, Part, Plot, RowTable, Tone
from shardplan.answers.plans import (
    EstimateOf,
    asked_record,
    doubt_lines,
    of_plan,
    plan_columns,
    plan_line,
    plan_text,
    question_lines,
    whole_plan,
)
from shardplan.base.units import format_bytes, format_time
from shardplan.decide.pareto import ParetoFront, ParetoPoint
from shardplan.plotting.chart import PALETTE, Axis, Chart, Panel, Series
from shardplan.reports.plan_file import estimate_record

LISTED: Final = 8
"""Steps of headroom at which plans are listed."""
SLOWEST: Final = 3.0
"""Plans slower than the fastest by more than this are not drawn."""


estimate: Final[EstimateOf] = attrgetter("estimate")
"""The plan of a point."""


def columns(front: ParetoFront) -> list[Column]:
    """Columns of the points in records."""
    return [
        Column("step_time_s", None, of_plan(estimate, "step_time")),
        Column("headroom_bytes", None, lambda point: point.headroom_bytes),
        Column("pessimistic_time_s", None, lambda point: point.pessimistic_time),
        Column("recommended", None, lambda point: is_taken(front, point)),
        whole_plan(estimate),
    ]


def shown_columns(front: ParetoFront, points: Sequence[ParetoPoint]) -> list[Column]:
    """Columns of the points that are listed."""
    return [
        Column("", "", lambda point: "*" if is_taken(front, point) else " ", is_text=True),
        Column("", "step", of_plan(estimate, "step_time"), format_time),
        Column("", "worse", lambda point: point.pessimistic_time, format_time),
        Column("", "headroom", lambda point: point.headroom_bytes, format_bytes),
        *plan_columns(points, estimate),
        whole_plan(estimate),
    ]


def pareto_document(front: ParetoFront, given: Sequence[str] = (), *, listed: int = LISTED) -> AnswerDocument:
    """The whole answer. ``given``: what the user set in place of usual values; ``listed``: about how many plans."""
    table = RowTable(front.points, columns(front))
    verdict, parts = [Line(f"None of {front.num_plans_evaluated:,} valid plans fits.", "Too big", "bad")], []
    if front.points and front.recommended is not None:
        count, others = f"{len(front.points):,} plans", f"none of the {front.num_plans_feasible:,} that fit"
        verdict = [
            Line(f"{count}; {others} is better in every respect than one of these.", "Front", "good"),
            plan_line(front.recommended),
            *doubt_lines(front.recommended),
        ]
        parts = [
            Part("Memory headroom over step time", [plot(front)], "both better to the upper left; *: recommended"),
            Part(
                "Plans of the front",
                _list(front, chosen(front, listed)),
                "worse: step time if conditions are worse; mb: micro-batch size",
            ),
        ]
    return AnswerDocument(
        name="pareto",
        head=question_lines(front.question, given),
        verdict=verdict,
        parts=parts,
        assumptions=front.assumptions,
        table=table,
        record=lambda: {
            **asked_record(front.question, front.assumptions),
            "num_plans_evaluated": front.num_plans_evaluated,
            "num_plans_feasible": front.num_plans_feasible,
            "num_plans_priced": front.num_plans_priced,
            "recommended": None if front.recommended is None else estimate_record(front.recommended),
            "points": table,
        },
        chart=lambda: pareto_chart(front),
        is_yes=bool(front.points),
    )


def is_taken(front: ParetoFront, point: ParetoPoint) -> bool:
    """Whether it is the plan to take."""
    return front.recommended is not None and point.estimate.plan == front.recommended.plan


def chosen(front: ParetoFront, listed: int) -> list[ParetoPoint]:
    """The fastest, the plan to take, the one with most headroom, and others at even steps of headroom."""
    points = front.points
    roomy = sorted(points, key=lambda each: each.headroom_bytes)
    low, high = roomy[0].headroom_bytes, roomy[-1].headroom_bytes
    wanted = [points[0], *(each for each in points if is_taken(front, each))]
    for number in range(1, listed + 1):
        least = low + (high - low) * number / listed
        wanted.append(next((each for each in points if each.headroom_bytes >= least * (1 - 1e-12)), roomy[-1]))
    kept = {id(each): each for each in wanted}
    return sorted(kept.values(), key=lambda each: each.estimate.step_time)


def _list(front: ParetoFront, points: Sequence[ParetoPoint]) -> list[RowTable | Line]:
    """A table of some points, and how many there are."""

    def tone(point: ParetoPoint) -> Tone:
        return "good" if is_taken(front, point) else ""

    table = RowTable(points, shown_columns(front, points), tone)
    more = Line(f"{len(points)} of {len(front.points)}; --csv and --json have all.", tone="quiet", only="terminal")
    return [table] if len(points) == len(front.points) else [table, more]


def drawn(front: ParetoFront) -> list[ParetoPoint]:
    """The points that are not too slow to be drawn."""
    longest = SLOWEST * min((each.estimate.step_time for each in front.points), default=0.0)
    return [each for each in front.points if each.estimate.step_time <= longest]


def plot(front: ParetoFront) -> Plot:
    """Headroom over the logarithm of the step time."""
    points = drawn(front)
    dots = [
        Dot(math.log(each.estimate.step_time), each.headroom_bytes, "*" if is_taken(front, each) else "o")
        for each in points
    ]
    times, rooms = [each.estimate.step_time for each in points], [each.headroom_bytes for each in points]
    x_ends = format_time(min(times)), format_time(max(times))
    return Plot(dots, x_ends, (format_bytes(min(rooms)), format_bytes(max(rooms))))


def pareto_chart(front: ParetoFront) -> Chart:
    """Step time against memory headroom, and against the step time if conditions are worse."""
    question, points = front.question, drawn(front)
    hidden = len(front.points) - len(points)
    left_out = f"{hidden:,} plans that take more than {SLOWEST:g} times as long are not drawn. " if hidden else ""
    marked = [each for each in points if is_taken(front, each)]
    return Chart(
        name="pareto",
        title=f"{question.model.name} on {question.num_accelerators:,} accelerators ({question.cluster.name}): "
        f"{len(front.points):,} plans of the front",
        panels=(
            _panel(points, marked, "memory headroom [GB]", lambda point: point.headroom_bytes / 1e9, has_labels=True),
            _panel(points, marked, "longer where things are worse [%]", longer, has_labels=False),
        ),
        num_columns=2,
        note=f"No plan of {front.num_plans_feasible:,} that fit is better than one of these in step time, memory "
        "and step time where network, overlap and host are worse and plans that nobody measured are slower. "
        f"{left_out}Predicted by shardplan.",
        panel_size=(560, 400),
    )


def longer(point: ParetoPoint) -> float:
    """How much longer the step is where things are worse. [%]"""
    return 100 * (point.pessimistic_time / point.estimate.step_time - 1)


def _panel(
    points: Sequence[ParetoPoint],
    marked: Sequence[ParetoPoint],
    title: str,
    height: Callable[[ParetoPoint], float],
    *,
    has_labels: bool,
) -> Panel:
    plans = [each.estimate.plan for each in marked]
    labels = [f"tp {plan.tp}, cp {plan.cp}, pp {plan.pp}" for plan in plans] if has_labels else []
    series = (
        Series(name="front", **_at(points, height), colour=PALETTE[0], marker="circle"),
        Series(name="recommended plan", **_at(marked, height), colour=PALETTE[3], marker="square", labels=labels),
    )
    shown = tuple(each for each in series if each.x)
    return Panel(title=title.partition(" [")[0], x=Axis(title="step time [s]"), y=Axis(title=title), series=shown)


def _at(points: Sequence[ParetoPoint], height: Callable[[ParetoPoint], float]) -> Mapping[str, Any]:
    """Where points are, and what each is."""
    return {
        "x": [each.estimate.step_time for each in points],
        "y": [height(each) for each in points],
        "kind": "points",
        "hover": [plan_text(each.estimate) for each in points],
    }
