"""The answer of ``pareto`` for several sizes: money over time in characters, and every size with its plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from shardplan.cli.layout import INDENT, Column, Page
from shardplan.cli.show.answer import show_given, show_question
from shardplan.cli.show.decisions.columns import NONE, plan_columns, show_written
from shardplan.cli.show.decisions.scatter import Dot, scatter
from shardplan.decisions.pareto_sizes import PricedSize, SizesFront
from shardplan.reports.texts.answer import sentence
from shardplan.units import format_count, format_time

CENTS: Final = 100
"""Money below this has cents."""


def show_pareto_sizes(page: Page, front: SizesFront, given: Sequence[str], written: Sequence[str]) -> None:
    """The whole answer."""
    sizes = front.sizes
    first, last = sizes[0].num_accelerators, sizes[-1].num_accelerators
    show_question(page, front.question, count=f"{first:,} to {last:,}" if first < last else None)
    show_given(page, given)
    page.console.print()
    if front.fastest is None or front.cheapest is None:
        page.labelled("Too big", "No size has a plan that fits.", style="bold red")
    else:
        page.labelled("Front", _verdict(front), style="bold green")
        page.labelled("Cheapest", _cost(front, front.cheapest))
        page.labelled("Fastest", _cost(front, front.fastest))
        page.heading(_title(front), "both better to the lower left; .: off the front")
        for line in _plot(front, page.width - INDENT):
            page.line(line)
        page.heading("Sizes", "o: on the front; mb: micro-batch size")
        page.table(_columns(front), styles=["" if each.is_on_front else "dim" for each in sizes])
        page.line(f"At {front.price.per_hour:g} {front.price.currency} an hour{_quote(front)}.", style="dim")
    for warning in front.warnings:
        page.line(f"{sentence(warning)} See --failure-rate of `shardplan budget`.", style="yellow")
    missing = [each for each in sizes if each.reason is not None]
    if missing:
        page.heading("Sizes that cannot run")
        page.bullets(f"{each.num_accelerators:,}: {each.reason}" for each in missing)
    show_written(page, written)


def _verdict(front: SizesFront) -> str:
    """How many sizes are on the front, and why the others are not."""
    running = [each for each in front.sizes if each.time is not None]
    if len(running) == 1:
        return "The only size that can run."
    if len(front.front) == len(running):
        return f"All {len(running)} sizes: a larger one is always faster."
    return f"{len(front.front)} of {len(running)} sizes. Each of the others is slower and dearer than a smaller one."


def _cost(front: SizesFront, size: PricedSize) -> str:
    count = f"{size.num_accelerators:,} accelerator{'s' * (size.num_accelerators > 1)}"
    return f"{count}: {_time(size)}{_a_step(front)}, {_money(front, size)}."


def _a_step(front: SizesFront) -> str:
    return " a step" if front.question.job.tokens is None else ""


def _title(front: SizesFront) -> str:
    return "Money / 1B tokens over step" if front.question.job.tokens is None else "Money over time"


def _quote(front: SizesFront) -> str:
    """Where the price comes from."""
    return f", a public quote ({front.price.source}); --price gives another" if front.price.source else ""


def _time(size: PricedSize) -> str:
    return NONE if size.time is None else format_time(size.time)


def _money(front: SizesFront, size: PricedSize) -> str:
    """Of the run, or of a billion tokens."""
    if size.money is not None:
        return f"{_amount(size.money)} {front.price.currency}"
    each = size.money_per_billion_tokens
    return NONE if each is None else f"{_amount(each)} {front.price.currency} a billion tokens"


def _amount(money: float) -> str:
    return f"{money:.2f}" if money < CENTS else format_count(round(money))


def _value(front: SizesFront, size: PricedSize) -> float:
    """What is drawn as money."""
    return (size.money_per_billion_tokens if front.question.job.tokens is None else size.money) or 0.0


def _plot(front: SizesFront, width: int) -> list[str]:
    """Money over the logarithm of the time."""
    drawn = [(each, each.time, _value(front, each)) for each in front.sizes if each.time is not None]
    dots = [
        Dot(math.log(time), money, "o" if each.is_on_front else ".", f"{each.num_accelerators:,}")
        for each, time, money in drawn
    ]
    times, costs = [time for _, time, _ in drawn], [money for _, _, money in drawn]
    return scatter(
        dots, width, (format_time(min(times)), format_time(max(times))), (_amount(min(costs)), _amount(max(costs)))
    )


def _columns(front: SizesFront) -> list[Column]:
    sizes = front.sizes
    estimates = [each.answered.estimate for each in sizes]
    steps = Column(title="step", cells=[NONE if e is None else format_time(e.step_time) for e in estimates])
    runs = Column(title="run", cells=[_time(each) for each in sizes])
    money = "money" if front.question.job.tokens is not None else "money / 1B"
    return [
        Column(title="", cells=["o" if each.is_on_front else " " for each in sizes], is_text=True),
        Column(title="size", cells=[f"{each.num_accelerators:,}" for each in sizes]),
        steps,
        *(() if front.question.job.tokens is None else (runs,)),
        Column(title=money, cells=[NONE if each.time is None else _amount(_value(front, each)) for each in sizes]),
        *plan_columns(estimates),
    ]
