"""A question of the Plan view with its search, and a picture of the space that was searched.

The picture shows step time and memory of a sample of the plans, and of the best.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, Final

from shardplan.base.errors import InputError, ShardplanError
from shardplan.base.fields import dataclass
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.question import PutQuestion
from shardplan.estimation.written import estimate_written
from shardplan.inputs.plan import Plan
from shardplan.planner.related.neighbours import offers_of
from shardplan.planner.restrictions import Restrictions
from shardplan.planner.result import SearchResult
from shardplan.planner.search import search_question
from shardplan.planner.software import limited_to
from shardplan.planner.stopping import SearchStopped, Stop
from shardplan.reports.texts.plan import short_recompute
from shardplan.web.state import LOCK, FieldError, PageQuestion, about_field, blamed, plan_code, plan_in

LISTED: Final = 24
"""Plans of the table."""


class NothingFitsError(InputError):
    """A view is about the plan to take, and no plan fits: Plan shows what would."""

    def __init__(self) -> None:
        """The same words in every view."""
        super().__init__(
            "no plan of the search fits",
            rule="this view shows a plan that fits, or one that is named",
            hint="see on Plan what would fit, or name a plan: tp=8;pp=4",
        )
        self.is_of_fit = True


@dataclass(frozen=True, kw_only=True)
class PageAnswer:
    """A search for a page."""

    put: PutQuestion
    """The question on the accelerators that the answer uses."""
    result: SearchResult
    locks: dict[str, tuple[str, ...]]

    @cached_property
    def best(self) -> Estimate | None:
        """The plan to take; None where nothing fits."""
        return self.result.recommended

    def shown(self, code: str) -> Estimate:
        """The plan that is named, or else the one to take. Raises ``FieldError``, and NothingFitsError."""
        with about_field("show"):
            found = self.estimate(code) if code else self.best
        if found is None:
            raise NothingFitsError
        return found

    def estimate(self, code: str) -> Estimate:
        """One plan as an answer to the same question. Raises ``ShardplanError`` where it breaks a rule."""
        listed = [*self.result.estimates, *([] if self.best is None else [self.best])]
        known = next((each for each in listed if plan_code(each.plan) == code), None)
        if known is not None:
            return known
        plan, given = plan_in(code)
        return estimate_written(self.put.question, plan, self.put.stack, given)

    def with_offers(self, stop: Stop) -> SearchResult:
        """The search with neighbouring counts and batches that would train faster."""
        if not self.result.estimates:
            return self.result
        fastest = min(self.result.estimates, key=lambda each: each.step_time)
        plans = [vars(each.plan) for each in self.result.estimates]
        limits = limited_to(Restrictions(limit=self.locks), self.result.space, plans)
        question, keeps = self.put.question, self.result.fewer is None
        asked = replace(question, num_accelerators=question.num_given, num_idle=0)
        offers = offers_of(asked, fastest, limits, self.put.stack, keeps_batch=keeps, stop=stop)
        return replace(self.result, offers=offers)


def answered(question: PageQuestion, stop: Stop) -> PageAnswer:
    """Searches. Raises FieldError and InputError, and ``SearchStopped`` where ``stop`` says so."""
    locks = question.restrictions()
    try:
        put = question.put_search(stop)
        result = search_question(
            put.question, top=LISTED, limit=locks, stack=put.stack, stop=stop, offers=False, prune=True
        )
    except (SearchStopped, FieldError):
        raise
    except ShardplanError as error:
        field = blamed(error, locks)
        raise FieldError(error, f"{LOCK}{field}" if field else "stack") from None
    return _answered(put, result, locks)


def _answered(put: PutQuestion, result: SearchResult, locks: dict[str, tuple[str, ...]]) -> PageAnswer:
    """The result with what was assumed."""
    told = result.stating_what_was_not_searched().assuming(put.restricted({"limit": locks}).assumptions)
    tuple(told.estimates)  # made in this thread, in one pass: pages read them in the event loop
    return PageAnswer(put=put._replace(question=told.question), result=told, locks=locks)


POINTS: Final = 2000
"""Plans that are drawn: a page stays smooth with them, however many millions the space has."""
DIMENSIONS: Final = ("tp", "pp", "cp", "ep", "vp", "micro_batch_size", "sharding", "recompute")
"""What the points can be coloured by."""
IN_TABLE: Final = 24


@dataclass(frozen=True, kw_only=True)
class Point:
    """A plan of the picture."""

    plan: Plan
    step_time: float
    peak_memory_bytes: float
    fits: bool


def points_of(found: PageAnswer) -> list[Point]:
    """A sample of all plans, and the listed ones."""
    sample = found.result.sample(POINTS)
    drawn = [] if sample is None else [
        Point(
            plan=sample.plan(index),
            step_time=float(sample.step_time[index]),
            peak_memory_bytes=float(sample.peak_memory_bytes[index]),
            fits=bool(sample.fits[index]),
        )
        for index in range(len(sample))
    ]  # fmt: skip
    listed = [_point(each) for each in found.result.estimates]
    return [*{each.plan: each for each in (*drawn, *listed)}.values()]


def _point(estimate: Estimate) -> Point:
    return Point(
        plan=estimate.plan,
        step_time=estimate.step_time,
        peak_memory_bytes=estimate.peak_memory_bytes,
        fits=estimate.feasible,
    )


def space_record(found: PageAnswer, points: list[Point]) -> dict[str, Any]:
    """Columns for the browser, which draws them."""
    varied = [name for name in DIMENSIONS if len({_value(each.plan, name) for each in points}) > 1]
    best = found.best
    return {
        "time": [round(each.step_time, 4) for each in points],
        "memory": [round(each.peak_memory_bytes / 1e9, 3) for each in points],
        "fits": [int(each.fits) for each in points],
        "codes": [plan_code(each.plan) for each in points],
        "dimensions": {name: [_value(each.plan, name) for each in points] for name in varied},
        "usable": None if best is None else best.usable_memory_bytes / 1e9,
        "best": None if best is None else [best.step_time, best.peak_memory_bytes / 1e9, plan_code(best.plan)],
    }


def _value(plan: Plan, name: str) -> int | str:
    value: int | str = short_recompute(plan).partition("/")[0] if name == "recompute" else getattr(plan, name)
    return value
