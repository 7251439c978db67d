"""The answer of ``scale``: speed and plan at each size, and where more accelerators stop paying."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from shardplan.answers.document import AnswerDocument, Bar, Bullets, Column, Line, Part, RowTable
from shardplan.answers.plans import (
    EstimateOf,
    asked_record,
    count_text,
    doubtful_sizes,
    of_plan,
    plan_columns,
    question_lines,
    step_columns,
    used_column,
    whole_percent,
    whole_plan,
)
from shardplan.base.units import short_count
from shardplan.decide.scale import ScalePoint, Scaling
from shardplan.plotting.chart import GREY, PALETTE, Axis, Chart, Panel, Series

estimate: Final[EstimateOf] = attrgetter("answered.estimate")
"""The plan to take at a size."""
SIZES: Final = Axis(title="accelerators", scale="log2")
SIZE: Final = Column("num_accelerators", "size", lambda point: point.num_accelerators, "{:,}".format)
COLUMNS: Final = (
    SIZE,
    Column("num_accelerators_used", None, of_plan(estimate, "num_accelerators_used")),
    *step_columns(estimate),
    Column("tokens_per_s", "tokens/s", lambda point: point.answered.tokens_per_second, short_count),
    Column("efficiency", "efficiency", lambda point: point.efficiency, whole_percent),
    Column("marginal_efficiency", "marginal", lambda point: point.marginal_efficiency, whole_percent),
    Column("reason", None, lambda point: point.answered.reason),
    Column("", "", lambda point: point.efficiency, bar=Bar(10), rank=1),
    whole_plan(estimate),
)
"""Of the first table, of records and of CSV; the second table shows the plans and is in neither."""


def scale_document(scaling: Scaling, given: Sequence[str] = ()) -> AnswerDocument:
    """The whole answer. ``given``: what the user set in place of usual values."""
    points, table = scaling.points, RowTable(scaling.points, COLUMNS)
    missing = [f"{each.num_accelerators:,}: {each.answered.reason}" for each in points if each.answered.reason]
    parts = [
        Part("Speed at each size", [table], "size: accelerators; bar: efficiency against the smallest"),
        Part(
            "Plan to take at each size",
            [
                RowTable(points, [SIZE, *used_column(points, estimate), *plan_columns(points, estimate)]),
                *doubtful_sizes([estimate(each) for each in points]),
            ],
            "mb: micro-batch size",
        ),
    ]
    return AnswerDocument(
        name="scale",
        head=question_lines(scaling.question, given, count=count_text([each.num_accelerators for each in points])),
        verdict=[verdict(scaling)],
        parts=[
            *(parts if scaling.pays_up_to is not None else ()),
            *([Part("Sizes without a plan", [Bullets(missing)])] if missing else ()),
        ],
        assumptions=scaling.assumptions,
        table=table,
        record=lambda: {
            **asked_record(scaling.question, scaling.assumptions),
            "least_gain": scaling.least_gain,
            "pays_up_to": scaling.pays_up_to,
            "stops_paying": scaling.stops,
            "points": table,
        },
        chart=lambda: scale_chart(scaling),
        is_yes=scaling.pays_up_to is not None,
    )


def verdict(scaling: Scaling) -> Line:
    """Up to which size accelerators pay, and by which rule."""
    smallest = next((each.num_accelerators for each in scaling.points if estimate(each) is not None), 0)
    return pays_line(scaling.pays_up_to, smallest, scaling.least_gain, stops=scaling.stops)


def pays_line(best: int | None, smallest: int, least_gain: float, *, stops: bool) -> Line:
    """The same of any sizes: up to ``best`` they pay, of those from ``smallest``."""
    if best is None:
        return Line("No size has a plan that fits.", "Too big", "bad")
    least, rule = f"{100 * least_gain:.0f} %", f"of what one brings at {smallest:,}"
    if stops:
        text = f"Up to {best:,} accelerators. Beyond, each added one brings less than {least} {rule}."
    else:
        text = f"At every size up to {best:,}: each added accelerator brings at least {least} {rule}."
    return Line(text, "Pays", "good")


def scale_chart(scaling: Scaling) -> Chart:
    """Step time with its band, tokens per second, and what an added accelerator brings."""
    question = scaling.question
    points = [point for point in scaling.points if point.answered.estimate is not None]
    sizes = [point.num_accelerators for point in points]
    return Chart(
        name="scale",
        title=f"{question.model.name} on {question.cluster.name}: one job on more accelerators",
        panels=(_times(sizes, points), _rates(sizes, points), _gains(sizes, points, scaling.least_gain)),
        num_columns=3,
        note="Each point is the recommended plan at its size, at one global batch of "
        f"{question.job.global_batch_size:,} sequences. Marginal efficiency: the tokens per second that each added "
        "accelerator brings, over those of one accelerator at the smallest size. Predicted by shardplan.",
        panel_size=(440, 380),
    )


def _times(sizes: Sequence[int], points: Sequence[ScalePoint]) -> Panel:
    """Step time, its band, and the degrees of the plans, where they change."""
    ends = [
        Series(name="80 % band", x=sizes, y=[end(point) for point in points], colour=GREY, is_dashed=True)
        for end in (of_plan(estimate, "step_time_p10"), of_plan(estimate, "step_time_p90"))
    ]
    plans = [each.answered.estimate.plan for each in points if each.answered.estimate is not None]
    degrees = [f"{plan.tp} x {plan.cp} x {plan.pp}" for plan in plans]
    is_one = len(set(degrees)) == 1
    title = f"step time, at tp x cp x pp {degrees[0]}" if is_one else "step time, with tp x cp x pp"
    time = Series(
        name="step time",
        x=sizes,
        y=[of_plan(estimate, "step_time")(point) for point in points],
        marker="circle",
        labels=["" if is_one or text == last else text for text, last in zip(degrees, ["", *degrees], strict=False)],
        label_sides=["bottom left" if number % 2 and number > 2 else "top right" for number in range(len(points))],
    )
    axis = Axis(title="step time [s]", scale="log10")
    return Panel(title=title, x=SIZES, y=axis, series=(*ends, time))


def _rates(sizes: Sequence[int], points: Sequence[ScalePoint]) -> Panel:
    rates = [point.answered.tokens_per_second or 0.0 for point in points]
    first = rates[0] / sizes[0] if points else 0.0
    series = (
        Series(name="ideal", x=sizes, y=[first * size for size in sizes], colour=GREY),
        Series(name="tokens per second", x=sizes, y=rates, colour=PALETTE[2], marker="circle"),
    )
    return Panel(title="tokens per second", x=SIZES, y=Axis(title="tokens/s", scale="log10"), series=series)


def _gains(sizes: Sequence[int], points: Sequence[ScalePoint], least: float) -> Panel:
    shares = [100 * (point.efficiency or 0.0) for point in points]
    later = [(each.num_accelerators, 100 * gain) for each in points if (gain := each.marginal_efficiency) is not None]
    series = [
        Series(name="efficiency", x=sizes, y=shares, marker="circle"),
        Series(
            name="marginal efficiency",
            x=[size for size, _ in later],
            y=[gain for _, gain in later],
            colour=PALETTE[3],
            marker="square",
        ),
        Series(name="least that pays", x=[*sizes[:1], *sizes[-1:]], y=[100 * least] * 2, colour=GREY, is_dashed=True),
    ]
    shown = tuple(each for each in series if each.x)
    heights = [y for each in shown for y in each.y] or [100.0]
    limits = (0.9 * min(heights), 1.1 * max(heights))
    return Panel(title="efficiency", x=SIZES, y=Axis(title="efficiency [%]", limits=limits), series=shown)
