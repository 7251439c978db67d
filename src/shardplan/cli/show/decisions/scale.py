"""The answer of ``scale``: a table of sizes with bars, their plans, and where more accelerators stop paying."""

from __future__ import annotations

from collections.abc import Sequence

from shardplan.cli.layout import Column, Page
from shardplan.cli.show.answer import show_question
from shardplan.cli.show.decisions.columns import (
    NONE,
    bars,
    plan_columns,
    show_doubtful_sizes,
    show_written,
    used_column,
)
from shardplan.decisions.scale import ScalePoint, Scaling
from shardplan.units import format_count, format_time


def show_scale(page: Page, scaling: Scaling, given: Sequence[str], written: Sequence[str]) -> None:
    """The whole answer."""
    points = scaling.points
    first, last = points[0].num_accelerators, points[-1].num_accelerators
    show_question(page, scaling.question, given, count=f"{first:,} to {last:,}" if first < last else None)
    page.console.print()
    if scaling.pays_up_to is None:
        page.labelled("Too big", "No size has a plan that fits.", style="bold red")
    else:
        page.labelled("Pays", _verdict(scaling, scaling.pays_up_to), style="bold green")
        page.heading("Speed at each size", "size: accelerators; bar: efficiency against the smallest")
        page.table(_columns(page, points))
        page.heading("Plan to take at each size", "mb: micro-batch size")
        sizes = Column(title="size", cells=[f"{each.num_accelerators:,}" for each in points])
        estimates = [each.answered.estimate for each in points]
        page.table([sizes, *used_column(estimates), *plan_columns(estimates)])
        show_doubtful_sizes(page, estimates)
    missing = [each for each in points if each.answered.reason is not None]
    if missing:
        page.heading("Sizes without a plan")
        page.bullets(f"{each.num_accelerators:,}: {each.answered.reason}" for each in missing)
    show_written(page, written)


def _verdict(scaling: Scaling, best: int) -> str:
    """Up to which size accelerators pay, and by which rule."""
    least, rule = f"{100 * scaling.least_gain:.0f} %", f"of what one brings at {_smallest(scaling):,}"
    if not scaling.stops:
        return f"At every size up to {best:,}: each added accelerator brings at least {least} {rule}."
    return f"Up to {best:,} accelerators. Beyond, each added one brings less than {least} {rule}."


def _smallest(scaling: Scaling) -> int:
    return next(each.num_accelerators for each in scaling.points if each.answered.estimate is not None)


def _columns(page: Page, points: Sequence[ScalePoint]) -> list[Column]:
    estimates = [each.answered.estimate for each in points]
    bands = [
        NONE if e is None else f"{format_time(e.step_time_p10)} to {format_time(e.step_time_p90)}" for e in estimates
    ]
    return [
        Column(title="size", cells=[f"{each.num_accelerators:,}" for each in points]),
        Column(title="step", cells=[NONE if e is None else format_time(e.step_time) for e in estimates]),
        Column(title="band", cells=bands, rank=2),
        Column(title="tokens/s", cells=[_count(each.answered.tokens_per_second) for each in points]),
        Column(title="efficiency", cells=[_percent(each.efficiency) for each in points]),
        Column(title="marginal", cells=[_percent(each.marginal_efficiency) for each in points]),
        Column(title="", cells=bars(page, [each.efficiency for each in points], 10), is_text=True, rank=1),
    ]


def _count(value: float | None) -> str:
    return NONE if value is None else format_count(round(value))


def _percent(share: float | None) -> str:
    return NONE if share is None else f"{100 * share:.0f} %"
