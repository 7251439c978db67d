"""The answer of ``pareto`` for several sizes: money over time in characters, and every size with its plan."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shardplan.answers.document import Dot
from shardplan.cli.layout import INDENT, Column, Page
from shardplan.cli.show.answer import show_question
from shardplan.cli.show.decisions.columns import plan_columns, show_doubtful_sizes, show_written
from shardplan.decisions.pareto_sizes import SizesFront
from shardplan.render.drawings import scatter
from shardplan.reports.texts.answer import sentence
from shardplan.reports.texts.decisions import NONE
from shardplan.reports.texts.pareto_sizes import (
    front_sentence,
    money_amount,
    money_drawn,
    money_title,
    price_sentence,
    size_sentence,
    size_time,
)
from shardplan.units import format_time


def show_pareto_sizes(page: Page, front: SizesFront, given: Sequence[str], written: Sequence[str]) -> None:
    """The whole answer."""
    sizes = front.sizes
    first, last = sizes[0].num_accelerators, sizes[-1].num_accelerators
    show_question(page, front.question, given, count=f"{first:,} to {last:,}" if first < last else None)
    page.console.print()
    if front.fastest is None or front.cheapest is None:
        page.labelled("Too big", front_sentence(front), style="bold red")
    else:
        page.labelled("Front", front_sentence(front), style="bold green")
        page.labelled("Cheapest", size_sentence(front, front.cheapest))
        page.labelled("Fastest", size_sentence(front, front.fastest))
        page.heading(money_title(front), "both better to the lower left; .: off the front")
        for line in _plot(front, page.width - INDENT):
            page.line(line)
        page.heading("Sizes", "o: on the front; mb: micro-batch size")
        page.table(_columns(front), styles=["" if each.is_on_front else "dim" for each in sizes])
        page.line(price_sentence(front, "--price"), style="dim")
        show_doubtful_sizes(page, [each.answered.estimate for each in sizes])
    for warning in front.warnings:
        page.line(f"{sentence(warning)} See --failure-rate of `shardplan budget`.", style="yellow")
    missing = [each for each in sizes if each.reason is not None]
    if missing:
        page.heading("Sizes that cannot run")
        page.bullets(f"{each.num_accelerators:,}: {each.reason}" for each in missing)
    show_written(page, written)


def _plot(front: SizesFront, width: int) -> list[str]:
    """Money over the logarithm of the time."""
    drawn = [(each, each.time, money_drawn(front, each)) for each in front.sizes if each.time is not None]
    dots = [
        Dot(math.log(time), money, "o" if each.is_on_front else ".", f"{each.num_accelerators:,}")
        for each, time, money in drawn
    ]
    times, costs = [time for _, time, _ in drawn], [money for _, _, money in drawn]
    return scatter(
        dots,
        width,
        (format_time(min(times)), format_time(max(times))),
        (money_amount(min(costs)), money_amount(max(costs))),
    )


def _columns(front: SizesFront) -> list[Column]:
    sizes = front.sizes
    estimates = [each.answered.estimate for each in sizes]
    steps = Column(title="step", cells=[NONE if e is None else format_time(e.step_time) for e in estimates])
    runs = Column(title="run", cells=[size_time(each) for each in sizes])
    money = "money" if front.question.job.tokens is not None else "money / 1B"
    return [
        Column(title="", cells=["o" if each.is_on_front else " " for each in sizes], is_text=True),
        Column(title="size", cells=[f"{each.num_accelerators:,}" for each in sizes]),
        steps,
        *(() if front.question.job.tokens is None else (runs,)),
        Column(
            title=money, cells=[NONE if each.time is None else money_amount(money_drawn(front, each)) for each in sizes]
        ),
        *plan_columns(estimates),
    ]
