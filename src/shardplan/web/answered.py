"""A question of the Plan view with its search, a picture of the space that was searched, and a filter of plans.

The picture shows step time and memory of a sample of the plans, and of the best. Of what is typed into the filter,
``tp 8, zero1`` are values of the plan: the best plans with them are searched for. ``step 7..9, memory 20..40`` is a
part of the picture, in seconds and GB. Other words have to be in the words of a plan.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final, NamedTuple

from shardplan.base.errors import InputError, ShardplanError
from shardplan.base.fields import dataclass, described
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.question import PosedQuestion
from shardplan.estimation.written import estimate_written
from shardplan.inputs.plan import Plan
from shardplan.inputs.words import field_meant
from shardplan.planner.related.neighbours import offers_of
from shardplan.planner.result import SearchResult
from shardplan.planner.scope import Scope
from shardplan.planner.search import search_question
from shardplan.planner.software import limited_to
from shardplan.planner.stopping import SearchStopped, Stop
from shardplan.reports.texts.plan import plan_words, short_recompute
from shardplan.web.state import LOCK, FieldError, PageQuestion, about_field, blamed, plan_code, plan_in

LISTED: Final = 24
"""Plans of the table."""


class NothingFitsError(InputError):
    """A view is about the recommended plan, and no plan fits: Plan shows what would."""

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

    posed: PosedQuestion
    """The question on the accelerators that the answer uses."""
    result: SearchResult
    locks: dict[str, tuple[str, ...]]

    @cached_property
    def best(self) -> Estimate | None:
        """The recommended plan; None where nothing fits."""
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
        return estimate_written(self.posed.question, plan, self.posed.stack, given)

    def with_offers(self, stop: Stop) -> SearchResult:
        """The search with neighbouring counts and batches that would train faster."""
        if not self.result.estimates:
            return self.result
        fastest = min(self.result.estimates, key=lambda each: each.step_time)
        plans = [vars(each.plan) for each in self.result.estimates]
        scope = limited_to(Scope.of(limit=self.locks, stack=self.posed.stack, stop=stop), self.result.space, plans)
        question, keeps = self.posed.question, self.result.fewer is None
        asked = replace(question, num_accelerators=question.num_given, num_idle=0)
        offers = offers_of(asked, fastest, scope, keeps_batch=keeps)
        return replace(self.result, offers=offers)


def answered(question: PageQuestion, stop: Stop) -> PageAnswer:
    """Searches. Raises FieldError and InputError, and ``SearchStopped`` where ``stop`` says so."""
    locks = question.restrictions()
    try:
        posed = question.posed_search(stop)
        result = search_question(
            posed.question, top=LISTED, limit=locks, stack=posed.stack, stop=stop, offers=False, prune=True
        )
    except (SearchStopped, FieldError):
        raise
    except ShardplanError as error:
        field = blamed(error, locks)
        raise FieldError(error, f"{LOCK}{field}" if field else "stack") from None
    # The result with what was assumed
    told = result.stating_what_was_not_searched().assuming(posed.restricted({"limit": locks}).assumptions)
    tuple(told.estimates)  # made in this thread, in one pass: pages read them in the event loop
    return PageAnswer(posed=posed._replace(question=told.question), result=told, locks=locks)


POINTS: Final = 2000
"""Plans that are drawn: a page stays smooth with them, however many millions the space has."""
DIMENSIONS: Final = ("tp", "pp", "cp", "ep", "vp", "micro_batch_size", "sharding", "recompute")
"""What the points can be coloured by."""
IN_TABLE: Final = 24


class Point(NamedTuple):
    """A plan of the picture."""

    plan: Plan
    step_time: float
    peak_memory_bytes: float
    fits: bool


def points_of(found: PageAnswer) -> list[Point]:
    """A sample of all plans, and the listed ones."""
    sample = found.result.sample(POINTS)
    drawn = [] if sample is None else [
        Point(sample.plan(at), float(sample.step_time[at]), float(sample.peak_memory_bytes[at]), bool(sample.fits[at]))
        for at in range(len(sample))
    ]  # fmt: skip
    listed = [
        Point(each.plan, each.step_time, each.peak_memory_bytes, each.feasible) for each in found.result.estimates
    ]
    return [*{each.plan: each for each in (*drawn, *listed)}.values()]


def space_record(found: PageAnswer, points: list[Point]) -> dict[str, Any]:
    """Columns for the browser, which draws them."""
    varied = [name for name in DIMENSIONS if len({_dimension(each.plan, name) for each in points}) > 1]
    best = found.best
    return {
        "time": [round(each.step_time, 4) for each in points],
        "memory": [round(each.peak_memory_bytes / 1e9, 3) for each in points],
        "fits": [int(each.fits) for each in points],
        "codes": [plan_code(each.plan) for each in points],
        "dimensions": {name: [_dimension(each.plan, name) for each in points] for name in varied},
        "usable": None if best is None else best.usable_memory_bytes / 1e9,
        "best": None if best is None else [best.step_time, best.peak_memory_bytes / 1e9, plan_code(best.plan)],
    }


def _dimension(plan: Plan, name: str) -> int | str:
    value: int | str = short_recompute(plan).partition("/")[0] if name == "recompute" else getattr(plan, name)
    return value


RANGE: Final = re.compile(r"(step|memory) ([\d.]+)\.\.([\d.]+)")
VALUE: Final = re.compile(r"([a-z][a-z _-]*?) ?[ =] ?([\w.+]+)")
SHORT: Final = {"mb": "micro_batch_size", "micro-batch": "micro_batch_size"}
"""Titles of columns that are no names of fields."""
MOST_TERMS: Final = 12


class Filter(NamedTuple):
    """What plans are looked for."""

    locks: Mapping[str, str]
    """Values of fields."""
    ranges: Mapping[str, tuple[float, float]]
    """Of step time and memory. [s, bytes]"""
    words: tuple[str, ...]
    """Others."""

    @classmethod
    def of(cls, text: str) -> Filter:
        """From what is typed."""
        locks: dict[str, str] = {}
        ranges: dict[str, tuple[float, float]] = {}
        words = []
        for term in [each.strip().lower() for each in text.split(",") if each.strip()][:MOST_TERMS]:
            found = _value(term)
            if part := RANGE.fullmatch(term):
                unit = 1e9 if part[1] == "memory" else 1.0
                low, high = sorted(_number(end) * unit for end in part.groups()[1:])
                ranges[part[1]] = (low, high)
            elif found is not None:
                locks |= dict([found])
            else:
                words.append(term)
        return cls(locks, ranges, tuple(words))

    def passes(self, estimate: Estimate) -> bool:
        """Whether a plan is in the ranges and has the words."""
        values = {"step": estimate.step_time, "memory": estimate.peak_memory_bytes}
        text = f" {' '.join(plan_words(estimate)).lower()} "
        return all(low <= values[name] <= high for name, (low, high) in self.ranges.items()) and all(
            f" {word}" in text for word in self.words
        )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _value(term: str) -> tuple[str, str] | None:
    """The field and its value; None where the term is neither that nor the value of one field alone."""
    if pair := VALUE.fullmatch(term):
        name = SHORT.get(pair[1], field_meant(pair[1]) or pair[1].replace(" ", "_"))
        if name in described(Plan):
            return name, pair[2].replace("+", ",")
    return ("sharding", term) if term in described(Plan)["sharding"].kind.choices else None


class Filtered(NamedTuple):
    """What a filter finds."""

    estimates: Sequence[Estimate]
    told: str
    """What they are."""
    offer: str
    """A setting that locks what no plan has: ``lock.tp=99``; empty where there is nothing to lock."""


def filtered(question: PageQuestion, found: PageAnswer, text: str, stop: Stop) -> Filtered:
    """The best plans that pass, fastest first. Raises ``SearchStopped`` where ``stop`` says so."""
    asked = Filter.of(text)
    try:
        searched = _locked(question, found, asked, stop)
    except ShardplanError:
        return Filtered((), f"No plan has {text}.", _offer(asked))
    if asked.ranges or asked.words:
        plans = [*_drawn(searched, asked)]
        kind = "drawn plans and the best" if asked.ranges else "best plans"
        return Filtered(plans, f"{len(plans)} of the {kind}", "" if plans else _offer(asked))
    plans = list(searched.result.estimates)
    if not plans:
        return Filtered((), f"No plan with {text} fits.", _offer(asked))
    number = f"{'at least ' if searched.result.num_plans_pruned else ''}{searched.result.num_plans_feasible:,}"
    return Filtered(plans, f"{len(plans)} best of {number} plans that fit", "")


def _locked(question: PageQuestion, found: PageAnswer, asked: Filter, stop: Stop) -> PageAnswer:
    """The search with the values locked; ``found`` where there are none."""
    if not asked.locks:
        return found
    return answered(question.with_values(locks={**question.locks, **asked.locks}), stop)


def _drawn(found: PageAnswer, asked: Filter) -> Iterator[Estimate]:
    """Plans of the picture, and the listed ones, that pass."""
    limits = {"step": (0.0, float("inf")), "memory": (0.0, float("inf"))} | dict(asked.ranges)
    points = points_of(found) if asked.ranges else []
    codes = [plan_code(each.plan) for each in found.result.estimates]
    codes += [
        plan_code(each.plan)
        for each in sorted(points, key=lambda each: (not each.fits, each.step_time))
        if limits["step"][0] <= each.step_time <= limits["step"][1]
        and limits["memory"][0] <= each.peak_memory_bytes <= limits["memory"][1]
    ][:LISTED]
    known = (found.estimate(code) for code in dict.fromkeys(codes))
    yield from sorted((each for each in known if asked.passes(each)), key=lambda each: each.step_time)[:LISTED]


def _offer(asked: Filter) -> str:
    """The first of the values, as a lock of the form."""
    return next((f"{LOCK}{name}={value}" for name, value in asked.locks.items()), "")
