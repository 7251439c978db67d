"""Sizes with their time and money as sentences and cells, alike on the command line and on pages."""

from __future__ import annotations

from typing import Final

from shardplan.decisions.pareto_sizes import PricedSize, SizesFront
from shardplan.reports.texts.decisions import NONE
from shardplan.units import format_count, format_time

CENTS: Final = 100
"""Money below this has cents."""


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
    return f"{count}: {size_time(size)}{a_step}, {_money(front, size)}."


def price_sentence(front: SizesFront, field: str) -> str:
    """The price of an accelerator for an hour, where it comes from, and the ``field`` that gives another."""
    quote = f", a public quote ({front.price.source}); {field} gives another" if front.price.source else ""
    return f"At {front.price.per_hour:g} {front.price.currency} an hour{quote}."


def money_title(front: SizesFront) -> str:
    """What is counted as money."""
    return "Money / 1B tokens over step" if front.question.job.tokens is None else "Money over time"


def size_time(size: PricedSize) -> str:
    """Of the run, or of a step."""
    return NONE if size.time is None else format_time(size.time)


def money_amount(money: float) -> str:
    """An amount without its currency."""
    return f"{money:.2f}" if money < CENTS else format_count(round(money))


def money_drawn(front: SizesFront, size: PricedSize) -> float:
    """Of the run where tokens are given, else of a billion tokens; 0 where there is none."""
    return (size.money_per_billion_tokens if front.question.job.tokens is None else size.money) or 0.0


def _money(front: SizesFront, size: PricedSize) -> str:
    if size.money is not None:
        return f"{money_amount(size.money)} {front.price.currency}"
    each = size.money_per_billion_tokens
    return NONE if each is None else f"{money_amount(each)} {front.price.currency} a billion tokens"
