"""The answer of ``pareto`` for several sizes: time, accelerators and money of each, and the front of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Final

from shardplan.answers.document import (
    NONE,
    AnswerDocument,
    Block,
    Bullets,
    Column,
    Dot,
    Line,
    Part,
    Plot,
    RowTable,
    Tone,
)
from shardplan.answers.plans import (
    EstimateOf,
    asked_record,
    count_text,
    doubtful_sizes,
    of_plan,
    plan_columns,
    question_lines,
    whole_plan,
)
from shardplan.base.units import format_count, format_time
from shardplan.decide.goodput import DAY
from shardplan.decide.pareto import PricedSize, SizesFront
from shardplan.plotting.chart import GREY, PALETTE, Axis, Chart, Marker, Panel, Series
from shardplan.reports.texts.answer import sentence

CENTS: Final = 100
"""Money below this has cents."""
MILLION: Final = 1e6


estimate: Final[EstimateOf] = attrgetter("answered.estimate")
"""The plan to take at a size."""


def duration(name: str) -> Callable[[PricedSize], float | None]:
    """A time of the run in days; None where there is none."""
    return lambda size: None if size.duration is None else getattr(size.duration, name) / DAY


SIZE: Final = Column("num_accelerators", "size", lambda size: size.num_accelerators, "{:,}".format)
COLUMNS: Final = (
    SIZE,
    Column("is_on_front", None, lambda size: size.is_on_front),
    Column("step_time_s", None, of_plan(estimate, "step_time")),
    Column("days", None, lambda size: None if size.duration is None else size.duration.accounts.wall_time / DAY),
    Column("days_p10", None, duration("wall_time_p10")),
    Column("days_p90", None, duration("wall_time_p90")),
    Column("goodput", None, lambda size: None if size.duration is None else size.duration.accounts.goodput),
    Column("money", None, lambda size: size.money),
    Column("money_per_billion_tokens", None, lambda size: size.money_per_billion_tokens),
    Column("reason", None, lambda size: size.reason),
    whole_plan(estimate),
)


def shown_columns(front: SizesFront) -> list[Column]:
    """Columns on a terminal and on pages."""
    is_run = front.question.job.tokens is not None

    def money(size: PricedSize) -> str | None:
        return None if size.time is None else amount(money_drawn(front, size))

    return [
        Column("", "", lambda size: "o" if size.is_on_front else " ", is_text=True),
        SIZE,
        Column("", "step", of_plan(estimate, "step_time"), format_time),
        *([Column("", "run", time_text)] if is_run else []),
        Column("", "money" if is_run else "money / 1B", money),
        *plan_columns(front.sizes, estimate),
        whole_plan(estimate),
    ]


def pareto_sizes_document(
    front: SizesFront,
    given: Sequence[str] = (),
    *,
    price: str = "--price",
    failures: str = "--failure-rate of `shardplan budget`",
) -> AnswerDocument:
    """The whole answer. ``given``: what the user set in place of usual values.

    ``price`` and ``failures`` name where a price and a rate of failures are given.
    """
    warnings = [f"{sentence(warning)} See {failures}." for warning in front.warnings]
    sizes, table = front.sizes, RowTable(front.sizes, COLUMNS)
    verdict = [Line(front_sentence(front), "Too big", "bad"), *(Line(text, "", "doubt") for text in warnings)]
    parts = []
    if front.fastest is not None and front.cheapest is not None:
        verdict = [
            Line(front_sentence(front), "Front", "good"),
            Line(size_sentence(front, front.cheapest), "Cheapest", "strong"),
            Line(size_sentence(front, front.fastest), "Fastest", "strong"),
        ]
        title = "Money over time" if front.question.job.tokens is not None else "Money / 1B tokens over step"
        if front.question.job.tokens is None:
            verdict.append(Line("With tokens given, time and money are those of the whole run.", only="pages"))
        parts = [
            Part(title, [plot(front)], "both better to the lower left; .: off the front"),
            Part(
                "Sizes",
                [*_list(front, price), *(Line(text, tone="doubt") for text in warnings)],
                "o: on the front; mb: micro-batch size",
            ),
        ]
    missing = [f"{each.num_accelerators:,}: {each.reason}" for each in sizes if each.reason is not None]
    return AnswerDocument(
        name="pareto-sizes",
        head=question_lines(front.question, given, count=count_text([each.num_accelerators for each in sizes])),
        verdict=verdict,
        parts=[*parts, *([Part("Sizes that cannot run", [Bullets(missing)])] if missing else [])],
        assumptions=front.assumptions,
        table=table,
        record=lambda: {
            **asked_record(front.question, front.assumptions),
            "price_per_hour": front.price.per_hour,
            "currency": front.price.currency,
            "fastest": None if front.fastest is None else front.fastest.num_accelerators,
            "cheapest": None if front.cheapest is None else front.cheapest.num_accelerators,
            "sizes": table,
        },
        chart=lambda: pareto_sizes_chart(front),
        is_yes=bool(front.front),
    )


def _list(front: SizesFront, price: str) -> list[Block]:
    """A table of the sizes, and what is to know of their prices, plans and failures."""

    def tone(size: PricedSize) -> Tone:
        return "" if size.is_on_front else "quiet"

    return [
        RowTable(front.sizes, shown_columns(front), tone),
        Line(price_sentence(front, price), tone="quiet"),
        *doubtful_sizes([estimate(each) for each in front.sizes]),
    ]


def front_sentence(front: SizesFront) -> str:
    """How many sizes are on the front, and why the others are not."""
    running = [each for each in front.sizes if each.time is not None]
    if not running:
        return "No size has a plan that fits."
    if len(running) == 1:
        return "The only size that can run."
    if len(front.front) == len(running):
        return f"All {len(running)} sizes: a larger one is always faster."
    return f"{len(front.front)} of {len(running)} sizes. The others are slower and more expensive than a smaller one."


def size_sentence(front: SizesFront, size: PricedSize) -> str:
    """A size with its time and its money."""
    count = f"{size.num_accelerators:,} accelerator{'s' * (size.num_accelerators > 1)}"
    a_step = " a step" if front.question.job.tokens is None else ""
    return f"{count}: {time_text(size)}{a_step}, {_money(front, size)}."


def _money(front: SizesFront, size: PricedSize) -> str:
    if size.money is not None:
        return f"{amount(size.money)} {front.price.currency}"
    each = size.money_per_billion_tokens
    return NONE if each is None else f"{amount(each)} {front.price.currency} a billion tokens"


def price_sentence(front: SizesFront, field: str) -> str:
    """The price of an accelerator for an hour, where it comes from, and the ``field`` that gives another."""
    quote = f", a public quote ({front.price.source}); {field} gives another" if front.price.source else ""
    return f"At {front.price.per_hour:,.2f} {front.price.currency} an accelerator-hour{quote}."


def time_text(size: PricedSize) -> str:
    """Of the run, or of a step."""
    return NONE if size.time is None else format_time(size.time)


def amount(money: float) -> str:
    """Money without its currency."""
    return f"{money:.2f}" if money < CENTS else format_count(round(money))


def money_drawn(front: SizesFront, size: PricedSize) -> float:
    """Of the run where tokens are given, else of a billion tokens; 0 where there is none."""
    return (size.money_per_billion_tokens if front.question.job.tokens is None else size.money) or 0.0


def plot(front: SizesFront) -> Plot:
    """Money over the logarithm of the time."""
    drawn = [(each, each.time, money_drawn(front, each)) for each in front.sizes if each.time is not None]
    dots = [
        Dot(math.log(time), money, "o" if each.is_on_front else ".", f"{each.num_accelerators:,}")
        for each, time, money in drawn
    ]
    times, costs = [time for _, time, _ in drawn], [money for _, _, money in drawn]
    return Plot(dots, (format_time(min(times)), format_time(max(times))), (amount(min(costs)), amount(max(costs))))


def pareto_sizes_chart(front: SizesFront) -> Chart:
    """Money over time, and time over accelerators."""
    question, currency = front.question, front.price.currency
    job, is_run = question.job, question.job.tokens is not None
    sizes = [each for each in front.sizes if each.money_per_billion_tokens is not None]
    time = Axis(title="time of the run [days]" if is_run else "step time [s]", scale="log2")
    money = Axis(title=f"money [million {currency}]" if is_run else f"money [{currency} per billion tokens]")
    accelerators = Axis(title="accelerators", scale="log2")
    whole = "" if job.tokens is None else f", {job.tokens / 1e12:.4g} T tokens"
    return Chart(
        name="pareto_sizes",
        title=f"{question.model.name} on {question.cluster.name}{whole}: time, accelerators and money",
        panels=(
            Panel(title="money over time, with accelerators", x=time, y=money, series=_series(sizes, _time, _paid)),
            Panel(title="time over accelerators", x=accelerators, y=time, series=_series(sizes, _size, _time)),
        ),
        num_columns=2,
        note=f"Each point is the recommended plan at its size, at one global batch of {job.global_batch_size:,} "
        f"sequences, at {front.price.per_hour:,.2f} {currency} an accelerator-hour. A size is on the front if no other "
        "is faster, smaller and cheaper. Predicted by shardplan.",
        panel_size=(560, 400),
    )


def _time(size: PricedSize) -> float:
    """Of the run in days, or of a step in seconds."""
    step = of_plan(estimate, "step_time")(size)
    return float(step if size.duration is None else size.duration.accounts.wall_time / DAY)


def _paid(size: PricedSize) -> float:
    return float(size.money_per_billion_tokens or 0.0) if size.money is None else size.money / MILLION


def _size(size: PricedSize) -> float:
    return float(size.num_accelerators)


def _series(
    sizes: Sequence[PricedSize], x: Callable[[PricedSize], float], y: Callable[[PricedSize], float]
) -> tuple[Series, ...]:
    """Sizes of the front, and the others."""
    kinds: tuple[tuple[str, bool, str, Marker], ...] = (
        ("front", True, PALETTE[0], "circle"),
        ("off the front", False, GREY, "square"),
    )
    chosen = [(name, [e for e in sizes if e.is_on_front is on], colour, mark) for name, on, colour, mark in kinds]
    return tuple(
        Series(
            name=name,
            x=[x(each) for each in shown],
            y=[y(each) for each in shown],
            kind="points",
            colour=colour,
            marker=marker,
            labels=[f"{each.num_accelerators:,}" for each in shown] if x is not _size else (),
        )
        for name, shown, colour, marker in chosen
        if shown
    )
