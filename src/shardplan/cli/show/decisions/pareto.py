"""The answer of ``pareto``: the front as a plot in characters, and a few of its plans."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from shardplan.answers.document import Dot
from shardplan.cli.layout import INDENT, Column, Page
from shardplan.cli.show.answer import show_doubt, show_plan, show_question
from shardplan.cli.show.decisions.columns import plan_columns, show_written
from shardplan.decisions.pareto import ParetoFront, ParetoPoint
from shardplan.plotting.decisions.pareto import SLOWEST
from shardplan.render.drawings import scatter
from shardplan.units import format_bytes, format_time

LISTED: Final = 8


def show_pareto(page: Page, front: ParetoFront, given: Sequence[str], written: Sequence[str]) -> None:
    """The whole answer."""
    show_question(page, front.question, given)
    page.console.print()
    if not front.points or front.recommended is None:
        page.labelled("Too big", f"None of {front.num_plans_evaluated:,} valid plans fits.", style="bold red")
        return
    text = f"{len(front.points):,} plans; no other of {front.num_plans_feasible:,} that fit is better than one of them."
    page.labelled("Front", text, style="bold green")
    show_plan(page, front.recommended, "Plan")
    show_doubt(page, front.recommended)
    page.heading("Memory headroom over step time", "both better to the upper left; *: plan to take")
    for line in _plot(front, page.width - INDENT):
        page.line(line)
    page.heading("Plans of the front", "worse: step where things are worse; mb: micro-batch size")
    shown = _chosen(front)
    page.table(_columns(front, shown), styles=["bold green" if _is_taken(front, each) else "" for each in shown])
    if len(shown) < len(front.points):
        page.line(f"{len(shown)} of {len(front.points)}; --csv and --json have all.", style="dim")
    show_written(page, written)


def _is_taken(front: ParetoFront, point: ParetoPoint) -> bool:
    return front.recommended is not None and point.estimate.plan == front.recommended.plan


def _chosen(front: ParetoFront) -> list[ParetoPoint]:
    """The fastest, the plan to take, the one with most headroom, and others at even steps of headroom."""
    points = front.points
    roomy = sorted(points, key=lambda each: each.headroom_bytes)
    low, high = roomy[0].headroom_bytes, roomy[-1].headroom_bytes
    wanted = [points[0], *(each for each in points if _is_taken(front, each))]
    for number in range(1, LISTED + 1):
        least = low + (high - low) * number / LISTED
        wanted.append(next((each for each in points if each.headroom_bytes >= least * (1 - 1e-12)), roomy[-1]))
    kept = {id(each): each for each in wanted}
    return sorted(kept.values(), key=lambda each: each.estimate.step_time)


def _columns(front: ParetoFront, shown: Sequence[ParetoPoint]) -> list[Column]:
    return [
        Column(title="", cells=["*" if _is_taken(front, each) else " " for each in shown], is_text=True),
        Column(title="step", cells=[format_time(each.estimate.step_time) for each in shown]),
        Column(title="worse", cells=[format_time(each.pessimistic_time) for each in shown]),
        Column(title="headroom", cells=[format_bytes(each.headroom_bytes) for each in shown]),
        *plan_columns([each.estimate for each in shown]),
    ]


def _plot(front: ParetoFront, width: int) -> list[str]:
    """Headroom over the logarithm of the step time, of plans that are not too slow."""
    longest = SLOWEST * front.points[0].estimate.step_time
    points = [each for each in front.points if each.estimate.step_time <= longest]
    dots = [
        Dot(math.log(each.estimate.step_time), each.headroom_bytes, "*" if _is_taken(front, each) else "o")
        for each in points
    ]
    times, rooms = [each.estimate.step_time for each in points], [each.headroom_bytes for each in points]
    x_ends = format_time(min(times)), format_time(max(times))
    return scatter(dots, width, x_ends, (format_bytes(min(rooms)), format_bytes(max(rooms))))
