"""The best plans of a search and those that tie with them, re-timed: the simulation runs the step of each.

Which plans depends on the question alone: those whose closed form is within its known error of the best, those that may
be recommended where it is of the best of these, and those that are listed; the fastest, the recommended one and the
listed ones first, then by step time, up to a number that is asked for. A plan that cannot be simulated keeps the time
of its closed form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.errors import InputError, ShardplanError, shown
from shardplan.base.fields import dataclass
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan
from shardplan.physics.schedules.registry import load_schedule
from shardplan.planner.priced_plans import PricedPlans
from shardplan.planner.ranking import DEGREES
from shardplan.planner.robustness import candidates_of
from shardplan.planner.stopping import Stop, check
from shardplan.simulation.plan import simulate_priced
from shardplan.simulation.step import KnownSteps

CLOSED_FORM_ERROR: Final = 0.05
"""Share by which closed form and simulation differ at most, in 99 % of plans with a pipeline: twenty questions of
benchmarks/closed_form.py."""
MOST_PASSES: Final = 1_000_000
"""Forward passes of chunks of a plan that is simulated here; larger ones take seconds each."""
MOST_PLANS: Final = 1000

Progress = Callable[[int, int], None]
"""Called with plans done and plans in all."""


@dataclass(frozen=True, kw_only=True)
class Retimed:
    """What the simulation says of the best plans."""

    most: int
    """Plans that may be simulated."""
    num_plans: int
    """Plans that were."""
    step_time: Mapping[Plan, float]
    """Simulated step of listed plans and of the recommended one. [s]"""
    not_simulated: Mapping[Plan, str]
    """Why the others of them keep the time of their closed form."""

    def time_of(self, estimate: Estimate) -> float:
        """Step time by which plans are ranked: the simulated one, or the closed form where there is none. [s]"""
        return self.step_time.get(estimate.plan, estimate.step_time)


@dataclass(frozen=True, kw_only=True)
class Retiming:
    """Plans chosen among priced ones, with their simulated times."""

    priced: PricedPlans
    """The chosen plans; their step time is the simulated one, or the closed form's where there is none."""
    chosen: NDArray[np.intp]
    """Their positions among all that were priced, as the closed form ranks them."""
    most: int
    faults: Mapping[int, str]
    """Why plans were not simulated, by position."""

    def local(self, index: int) -> int | None:
        """Where the plan at ``index`` of all that were priced is among the chosen."""
        found = np.flatnonzero(self.chosen == index)
        return int(found[0]) if len(found) else None

    def listed(self, found: Sequence[int]) -> list[int]:
        """Positions of as many plans as ``found``: the best of each set of degrees by simulated time, then others.

        Listed plans that were not chosen come last, in their order.
        """
        order = self.chosen[np.argsort(self.priced.step_time, kind="stable")].tolist()
        best = {self._degrees(index): index for index in reversed(order)}
        first = [index for index in order if best[self._degrees(index)] == index][: len(found)]
        others = [index for index in order if index in found and index not in first]
        ranked = sorted([*first, *others[: len(found) - len(first)]], key=order.index)
        left = [index for index in found if index not in order]
        return [*ranked, *left][: len(found)]

    def account(self, shown: Mapping[int, Plan]) -> Retimed:
        """What is said of the plans ``shown``, by position."""
        times, reasons = {}, {}
        for index, plan in shown.items():
            local = self.local(index)
            if local is None:
                reasons[plan] = f"it is not among the {self.most} best"
            elif index in self.faults:
                reasons[plan] = self.faults[index]
            else:
                times[plan] = float(self.priced.step_time[local])
        num_plans = len(self.chosen) - len(self.faults)
        return Retimed(most=self.most, num_plans=num_plans, step_time=times, not_simulated=reasons)

    def _degrees(self, index: int) -> tuple[int, ...]:
        plan = self.priced.plan(int(np.flatnonzero(self.chosen == index)[0]))
        return tuple(getattr(plan, name) for name in DEGREES)


def retime(
    question: Question,
    priced: PricedPlans,
    first: Sequence[int],
    most: int,
    *,
    progress: Progress | None = None,
    stop: Stop | None = None,
) -> Retiming:
    """Simulates the best plans of a search; those at ``first`` before others."""
    every, may_be_taken = np.arange(len(priced.step_time)), candidates_of(question, priced)
    near = np.union1d(*(priced.within(plans, 1 + CLOSED_FORM_ERROR) for plans in (every, may_be_taken)))
    near = near[np.argsort(priced.step_time[near], kind="stable")]
    chosen = np.asarray([*dict.fromkeys((*first, *near.tolist()))][:most], dtype=np.intp)
    times, faults = priced.step_time[chosen].copy(), {}
    each = PricedPlan.of_all(question, [priced.plan(int(index)) for index in chosen])
    known = KnownSteps()
    for place, one in enumerate(each):
        check(stop)
        time = _simulated(one, known)
        if isinstance(time, str):
            faults[int(chosen[place])] = time
        else:
            times[place] = time
        if progress is not None:
            progress(place + 1, len(each))
    return Retiming(priced=priced.at(chosen, times), chosen=chosen, most=most, faults=faults)


def _simulated(priced: PricedPlan, known: KnownSteps) -> float | str:
    """Step time, or why the simulation does not run the plan. [s]"""
    plan = priced.plan
    passes = plan.pp * plan.vp * int(priced.numbers.num_microbatches)
    if passes > MOST_PASSES:
        return f"its step has {passes:,} forward passes of chunks; up to {MOST_PASSES:,} are simulated"
    try:
        return simulate_priced(priced, load_schedule(plan.effective_schedule), known=known).step_time
    except ShardplanError as error:
        return error.message


def check_number(most: object) -> None:
    """Raises ``InputError`` where ``simulate_top`` is not a number of plans."""
    if most is None or (isinstance(most, int) and not isinstance(most, bool) and 1 <= most <= MOST_PLANS):
        return
    raise InputError(
        f"simulate_top is {shown(most)}; it must be a whole number from 1 to {MOST_PLANS:,}, or None",
        rule=f"simulate_top is a whole number from 1 to {MOST_PLANS:,}",
        hint="give simulate_top=50, or leave it out",
    )
