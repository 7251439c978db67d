"""The sizes that no other is better than in time, accelerators and money, as a record and as rows."""

from __future__ import annotations

from typing import Any, Final

from shardplan.decisions.goodput import DAY
from shardplan.decisions.pareto_sizes import PricedSize, SizesFront
from shardplan.reports.decisions.shared import asked_record, plan_record, with_plans

SCHEMA: Final = "shardplan/pareto-sizes/1"


def pareto_sizes_record(front: SizesFront) -> dict[str, Any]:
    """The answer as a mapping that JSON can hold; units are in the keys."""
    return {
        "schema": SCHEMA,
        **asked_record(front.question, front.assumptions),
        "price_per_hour": front.price.per_hour,
        "currency": front.price.currency,
        "fastest": None if front.fastest is None else front.fastest.num_accelerators,
        "cheapest": None if front.cheapest is None else front.cheapest.num_accelerators,
        "sizes": [{**_own(each), **plan_record(each.answered.estimate)} for each in front.sizes],
    }


def _own(size: PricedSize) -> dict[str, Any]:
    """What a size has of its own."""
    estimate, duration = size.answered.estimate, size.duration
    return {
        "num_accelerators": size.num_accelerators,
        "is_on_front": size.is_on_front,
        "step_time_s": None if estimate is None else estimate.step_time,
        "days": None if duration is None else duration.accounts.wall_time / DAY,
        "days_p10": None if duration is None else duration.wall_time_p10 / DAY,
        "days_p90": None if duration is None else duration.wall_time_p90 / DAY,
        "goodput": None if duration is None else duration.accounts.goodput,
        "money": size.money,
        "money_per_billion_tokens": size.money_per_billion_tokens,
        "reason": size.reason,
    }


def pareto_sizes_rows(front: SizesFront) -> list[dict[str, Any]]:
    """A row for each size, the smallest first."""
    return with_plans([_own(each) for each in front.sizes], [each.answered.estimate for each in front.sizes])
