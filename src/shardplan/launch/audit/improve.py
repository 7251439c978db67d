"""The most valuable changes of a plan: found by the search near it, told apart by what each changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Final, NamedTuple

from shardplan.base.errors import InputError, ShardplanError
from shardplan.base.fields import dataclass
from shardplan.estimation.band import band_of
from shardplan.estimation.estimate import Estimate, estimate_plan, estimates_of, in_framework, price_plans
from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.question import Question
from shardplan.estimation.ties import tie_factor
from shardplan.inputs.plan import Plan
from shardplan.inputs.software import CHOSEN
from shardplan.launch.audit.nearby import Change, changes, nearby_plans
from shardplan.launch.audit.question import Posed
from shardplan.launch.audit.wording import (
    NO_CHANGE,
    OPTION,
    Batch,
    StatedOptions,
    WordedChange,
    Wording,
    by_own_names,
    by_record,
    field_of,
    stated_options,
)
from shardplan.launch.dialects.edits import Edits
from shardplan.launch.dialects.reading import PLAN_KEYS
from shardplan.physics.frameworks.stack import Stack
from shardplan.planner.robustness import complexity_of
from shardplan.planner.software import other_software
from shardplan.planner.stopping import Stop, check

Read = Callable[[Edits], Posed | None]
MOST: Final = 3
LEAST_GAIN: Final = 0.01
"""Gain in step time from which a change is worth a line."""
GAIN_OF_A_FIELD: Final = 0.02
"""Gain in step time for which one more field is worth changing."""
SWITCHES: Final = frozenset({*CHOSEN, "overlap_tp", "overlap_ep"})
"""Fields of a plan that a search chooses together with the degrees, and that a framework may have no options for."""
MOST_TRIED: Final = 12
"""Changes that are made in the file to see what it states then."""
SAME_TIME: Final = 0.01
"""Share by which the step time of a changed file differs at most from the promised one."""
KEEPABLE: Final = frozenset(each.name for each in fields(Plan))


@dataclass(frozen=True, kw_only=True)
class Improvement:
    """A change with what it is predicted to give."""

    change: Change
    """Old and new value of every field that changes."""
    removed: tuple[str, ...]
    """Options to take out, as the framework calls them."""
    added: tuple[str, ...]
    """Options to put in."""
    estimate: Estimate
    """The changed plan."""
    gain: float | None
    """Share of the step time that is saved; None where the plan as it is does not run."""

    @property
    def gain_band(self) -> tuple[float, float] | None:
        """Gain in 8 of 10 pairs of configurations that were measured, the lower end first (``estimation.ties``)."""
        if self.gain is None:
            return None
        low, high = (1 - (1 - self.gain) * factor for factor in (tie_factor(), 1 / tie_factor()))
        return low, high

    @property
    def gain_text(self) -> str:
        """What is saved, with its band; a band from below zero says that it may be nothing."""
        if self.gain is None or self.gain_band is None:
            return "runs and fits"
        gain, low, high = (round(100 * each) for each in (self.gain, *self.gain_band))
        return f"{gain} % less time ({low} to {high} %)"


def check_keep(keep: Sequence[str]) -> None:
    """Raises InputError for a name that is no field of a plan."""
    for name in keep:
        if name not in KEEPABLE:
            raise InputError(
                f"--keep has {name[:40]}, which is no field of a plan",
                rule="--keep names fields of a plan",
                hint="such as --keep tp,pp,micro_batch_size",
            )


class _Change(NamedTuple):
    """A candidate."""

    fields: Change
    priced: PricedPlan
    """The changed plan, under other software where that is the change."""
    makes_uneven: bool
    """Whether stages have unequal layers that have equal ones now."""

    @property
    def step_time(self) -> float:
        """Of the changed plan. [s]"""
        return self.priced.step_time

    @property
    def num_fields(self) -> int:
        """Fields to change, with the layers of stages where these become unequal.

        The schedule follows from the chunks per rank.
        """
        return len(self.fields.keys() - {"schedule"}) + self.makes_uneven

    def is_better(self, other: _Change) -> bool:
        """Whether the other changes more fields, and gains too little by them."""
        more = other.num_fields - self.num_fields
        return more > 0 and self.step_time <= other.step_time * (1 + GAIN_OF_A_FIELD * more)

    def differs(self, faster: _Change) -> bool:
        """Whether it does more than leave out what a faster one changes to other values."""
        mine, theirs = self.fields.keys(), faster.fields.keys()
        return bool(mine - theirs) or len(mine) < len(theirs)


def improvements(
    question: Question,
    plan: Plan,
    now: Estimate | None,
    stack: Stack | None,
    keep: Sequence[str],
    *,
    wording: Wording,
    read: Read,
    stop: Stop | None = None,
) -> tuple[Improvement, ...]:
    """At most three changes that run, fit, and are faster; where the plan does not run, the fastest that do.

    ``wording``: how the file states the plan; ``read``: what it states once it is changed. Raises ``SearchStopped``
    where ``stop`` says so.
    """
    base = now.step_time if now is not None and now.feasible else None
    kept = _kept(keep, stack, wording)
    priced = price_plans(question, nearby_plans(question, plan, stack, sorted(kept & PLAN_KEYS), stop))
    every = () if stack is None or now is None else other_software(question, now, stack)
    others = [each for each in every if field_of(each.key) not in kept]
    most = _most_memory(question, now)
    longest = math.inf if base is None else base * (1 - LEAST_GAIN)
    fitting = (each for each in (*priced, *(each.priced for each in others)) if each.fits)
    worth = [each for each in fitting if each.step_time < longest]
    roomy = {id(each) for each in worth if each.peak_memory_bytes <= most} or set(map(id, worth))
    found = [
        *(_change(question, plan, each) for each in priced if id(each) in roomy),
        *(
            _Change({field_of(each.key): (each.old, each.new)}, each.priced, makes_uneven=False)
            for each in others
            if id(each.priced) in roomy
        ),
    ]
    before = stated_options(question, plan, stack)
    best = _best_worded(found, lambda each: _word(each, question, before, stack, wording=wording, read=read), stop)
    return tuple(_improvement(each, difference, base, stack) for each, difference in best)


def _kept(keep: Sequence[str], stack: Stack | None, wording: Wording) -> frozenset[str]:
    """Fields that stay as they are: what the user keeps or has given, and what no option of the file's dialect states.

    A default that the file seems to contradict stays too: nobody knows what is gained by changing it.
    """
    unsayable = PLAN_KEYS - wording.sayable if wording.is_own else frozenset(_unsayable_switches(stack, wording))
    return frozenset({*keep, *unsayable, *wording.given, *wording.doubted})


def _unsayable_switches(stack: Stack | None, wording: Wording) -> Iterator[str]:
    """Switches that stay as they are: the framework of the file lacks options that the record has for them."""
    can = None if stack is None or not wording.known else stack.can_run
    for entry in () if can is None or can.options is None else can.options.entries:
        if not wording.known.issuperset(OPTION.findall(entry.text)):
            yield from SWITCHES.intersection(entry.says)


def _change(question: Question, plan: Plan, priced: PricedPlan) -> _Change:
    layers = question.model.num_hidden_layers
    is_uneven, was_uneven = (complexity_of(each, layers)[0] for each in (priced.plan, plan))
    fields = changes(question.with_software(plan), question.with_software(priced.plan))
    return _Change(fields, priced, is_uneven and not was_uneven)


def _most_memory(question: Question, now: Estimate | None) -> float:
    """What a plan may need: it fits at the upper end of its band too, or it needs no more than now. [bytes]"""
    surely = float(question.usable_memory) / band_of(question, "memory").high
    return max(surely, now.peak_memory_bytes if now is not None and now.feasible else 0.0)


def _best(candidates: Sequence[_Change]) -> list[_Change]:
    """The fastest, then those that change fewest fields for their gain; the most valuable first."""
    found: list[_Change] = []
    those = [each for each in candidates if each.fields]
    for each in sorted(those, key=lambda one: one.step_time):
        if not any(one.is_better(each) for one in those) and all(map(each.differs, found)):
            found.append(each)
    simple = sorted(found[1:], key=lambda each: len(each.fields))[: MOST - 1]
    return [each for each in found if each is found[0] or each in simple]


def _best_worded(
    candidates: Sequence[_Change], word: Callable[[_Change], WordedChange | None], stop: Stop | None
) -> list[tuple[_Change, WordedChange]]:
    """The best of those that the file can state; at most so many are tried."""
    left, known = [*candidates], dict[int, WordedChange | None]()
    while True:
        best = _best(left)
        for each in best:
            if id(each) not in known:
                check(stop)
                known[id(each)] = word(each) if len(known) < MOST_TRIED else None
        if all(known[id(each)] is not None for each in best):
            return [(each, difference) for each in best if (difference := known[id(each)]) is not None]
        left = [each for each in left if known.get(id(each), NO_CHANGE) is not None]


def _word(
    found: _Change, question: Question, before: StatedOptions, stack: Stack | None, *, wording: Wording, read: Read
) -> WordedChange | None:
    """The change in the words of the file; None where the changed file does not state the plan and the same job."""
    plan, batch = found.priced.plan, Batch(question.num_accelerators, question.job.global_batch_size)
    ways = [by_own_names(found.fields, plan, batch, wording)]
    if not wording.is_own:
        after = stated_options(found.priced.question, plan, stack)
        of_record = by_record(found.fields, before, after, wording)
        ways = [*ways, of_record] if wording.has_others(found.fields, before) else [of_record, *ways]
    return next((each for each in ways if each is not None and _states(read(each.edits), found)), None)


def _states(again: Posed | None, found: _Change) -> bool:
    """Whether a changed file states the changed plan: for the same job, in the same time."""
    if again is None or again.question is None or again.plan is None:
        return False
    asked, priced = again.question, found.priced
    jobs = [replace(each.job, software=priced.question.job.software) for each in (asked, priced.question)]
    if jobs[0] != jobs[1] or asked.num_accelerators != priced.question.num_accelerators:
        return False
    try:
        time = in_framework(estimate_plan(asked, again.plan), again.stack, asked).step_time
    except ShardplanError:
        return False
    return abs(time / priced.step_time - 1) < SAME_TIME


def _improvement(found: _Change, difference: WordedChange, base: float | None, stack: Stack | None) -> Improvement:
    priced = found.priced
    estimate = in_framework(estimates_of(priced.question, [priced])[0], stack, priced.question)
    return Improvement(
        change=found.fields,
        removed=difference.removed,
        added=difference.added,
        estimate=estimate,
        gain=None if base is None else 1 - estimate.step_time / base,
    )
