"""Whether something shows that a framework runs a plan: a test or a recipe in its repository, or a published run.

What a framework does not refuse (:mod:`shardplan.frameworks.runnable`) may still never have been run. A plan is
untested where an aspect of the record concerns it and no source covers it. A record without the entry ``shown`` shows
nothing, so that all its plans are untested; without a record nothing is known, and nothing is said.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shardplan.arrays import Flags
from shardplan.frameworks.conditions import FACTS, KnownFacts, plan_fields
from shardplan.frameworks.option_entries import VALUES
from shardplan.frameworks.shown import Aspect
from shardplan.frameworks.stack import Same, Stack
from shardplan.inputs.degrees import Degrees, Setting, differing_in_numbers
from shardplan.inputs.plan import Plan

NOTHING_SHOWN: Final = "its record names no test, recipe or run of any plan"


def untested(stack: Stack | None, setting: Setting, degrees: Degrees, *, leaving_out: Collection[str] = ()) -> Flags:
    """Whether nothing shows that the framework runs the plan, or each of the candidates, of ``degrees``.

    ``leaving_out``: aspects that read one of these fields do not count, as another value of it may be shown to run.
    """
    can = None if stack is None else stack.can_run
    if can is None:
        return False
    if can.shown is None:
        return True
    known = KnownFacts(FACTS, setting, degrees)
    found: Flags = False
    for aspect in can.shown:
        lacks = False if not {*leaving_out}.isdisjoint(aspect.names) else aspect.lacks(known)
        if lacks is not False:
            found = np.logical_or(found, lacks)
    return found


def untested_aspects(stack: Stack | None, setting: Setting, plan: Plan) -> tuple[str, ...]:
    """What nothing shows of one plan, each as a sentence; none where all of it is shown or there is no record."""
    can = None if stack is None else stack.can_run
    if stack is None or can is None:
        return ()
    if can.shown is None:
        return (f"{stack.label}: {NOTHING_SHOWN}",)
    known = KnownFacts(VALUES, setting, Degrees.of(plan))
    lacking = (each for each in can.shown if bool(np.any(each.lacks(known))))
    return tuple(f"{stack.label}: no test or recipe runs {each.asked(known)}" for each in lacking)


def all_tested(stack: Stack, setting: Setting, plans: Sequence[Plan]) -> NDArray[np.bool_]:
    """Whether something shows that the framework runs each of several plans; those alike but for numbers at once."""
    found = np.zeros(len(plans), dtype=bool)
    for alike in differing_in_numbers(plans):
        found[alike] = np.logical_not(untested(stack, setting, Degrees.of_all([plans[place] for place in alike])))
    return found


def fields_that_decide(stack: Stack | None) -> tuple[str, ...]:
    """Fields of a plan that decide whether it is tested, so that a search can ask once for their distinct values."""
    return () if stack is None else _fields_that_decide(Same(stack))


@lru_cache(maxsize=64)
def _fields_that_decide(same: Same) -> tuple[str, ...]:
    aspects: tuple[Aspect, ...] = () if same.stack.can_run is None else same.stack.can_run.shown or ()
    return plan_fields(dict.fromkeys(name for each in aspects for name in each.names))
