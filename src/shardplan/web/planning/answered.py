"""A question of the Plan view with its search."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Final

from shardplan.errors import InputError, ShardplanError
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.question import PutQuestion
from shardplan.estimation.written import estimate_written
from shardplan.fields import dataclass
from shardplan.planner.related.neighbours import offers_of
from shardplan.planner.restrictions import Restrictions
from shardplan.planner.result import SearchResult
from shardplan.planner.search import search_question
from shardplan.planner.software import limited_to
from shardplan.planner.stopping import SearchStopped, Stop
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
