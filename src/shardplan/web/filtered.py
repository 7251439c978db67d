"""The filter of the table of plans: all plans with these values are searched, or those of the picture in a range.

``tp 8, zero1`` are values of the plan: the best plans with them are searched for. ``step 7..9, memory 20..40`` is a
part of the picture, in seconds and GB. Other words have to be in the words of a plan.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from shardplan.base.errors import ShardplanError
from shardplan.base.fields import described
from shardplan.estimation.estimate import Estimate
from shardplan.inputs.plan import Plan
from shardplan.inputs.words import field_meant
from shardplan.planner.stopping import Stop
from shardplan.reports.texts.plan import plan_words
from shardplan.web.answered import LISTED, PageAnswer, answered, points_of
from shardplan.web.state import LOCK, PageQuestion, plan_code

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
