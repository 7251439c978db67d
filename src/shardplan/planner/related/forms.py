"""The recommended plan under other software: forms that something shows to run, and the plainest of equal ones.

A search looks at no software that is never better than other software (``planner.software``). Where nothing shows that
a framework runs a plan under the better one, the recommended plan may be the same one under the other: a form of it. It
needs as much memory and takes at least as long, so that wherever a form counts, the plan that it is a form of does too.
And the plan that is found may capture graphs, or need a library, for less than anybody could measure: each such choice
goes back to what is usual, as long as the step stays within ``ALIKE_TIME`` and the plan fits as well as before.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import all_hold, any_holds
from shardplan.base.fields import replace
from shardplan.estimation.estimate import price_plans
from shardplan.estimation.perturbation import GROUPS, perturbed
from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import Degrees, differing_in_numbers
from shardplan.inputs.software import CHOSEN
from shardplan.physics.frameworks.runnable import all_tested, untested
from shardplan.planner.framework_axes import VARIED
from shardplan.planner.priced_plans import SAME, Needs, PricedPlans, has_headroom
from shardplan.planner.robustness import ALIKE_TIME, PlanFacts, candidates_of, not_dominated, recommended_of
from shardplan.planner.software import orders
from shardplan.planner.space import Space

CHANGED: Final = ("overlap_tp", "moe_dispatcher", "cuda_graphs")
"""Choices of which a search leaves out values that are never better, without a difference in memory."""
SEVERAL: Final = 128
"""Plans whose forms are priced together: it takes about the time of one."""

Indices = NDArray[np.intp]
Ranks = tuple[Any, ...]
"""Places of the values of software in orders in which plans get no slower; values themselves where there is none."""


def recommended_with_software(
    question: Question, facts: PlanFacts, fastest: int | None, space: Space, among: Indices | None = None
) -> tuple[PricedPlans, int]:
    """The index of the plan to recommend, of those priced and of forms of them that something shows to run; with all.

    ``among``: as for ``recommended_of``; ``space``: the one that the plans are of.
    """
    priced = facts.priced
    forms = _Forms(question, priced, space)
    best = forms.in_front(candidates_of(question, priced, among), facts)
    if not len(best):
        return priced, recommended_of(question, facts, fastest, among)
    whole = forms.joined(best)
    added = np.arange(len(priced.step_time), len(whole.step_time))
    every = None if among is None else np.concatenate([among, added])
    return whole, recommended_of(question, PlanFacts(question, whole, facts.tested), fastest, every)


class _Form(NamedTuple):
    """A plan under other software."""

    origin: int
    """Index of the plan that it is a form of."""
    plan: Plan


class _Forms:
    """Forms of some plans, as they are found."""

    def __init__(self, question: Question, priced: PricedPlans, space: Space) -> None:
        self._question, self._given, self._space = question, priced, space
        self._orders = orders(question.profile, experts=question.model.is_moe)
        self._first, self._priced = len(priced.step_time), priced
        self._found: list[_Form] = []

    def in_front(self, plans: Indices, facts: PlanFacts) -> Indices:
        """Forms that no tested plan or form dominates. Plans are looked at from the best on, ``SEVERAL`` at a time."""
        left = plans
        most = self._priced.step_time[left].min(initial=np.inf) * self._priced.factor
        while True:
            unshown, front = self._untested_in_front(left, facts)
            if not len(unshown):
                return front[front >= self._first]
            added = self._add_forms(unshown)
            left = np.union1d(np.setdiff1d(left, unshown), added[self._priced.step_time[added] <= most])

    def _untested_in_front(self, plans: Indices, facts: PlanFacts) -> tuple[Indices, Indices]:
        """About ``SEVERAL`` untested plans that no tested one dominates, and what none dominates without these."""
        left, found = plans, np.empty(0, dtype=np.intp)
        while True:
            front = not_dominated(self._priced, left)
            known = front[front < self._first]  # all forms are tested
            unshown = known[~facts.are_tested(known)]
            if not len(unshown) or len(found) >= SEVERAL:
                return found, front
            found, left = np.union1d(found, unshown), np.setdiff1d(left, unshown)

    def _add_forms(self, plans: Indices) -> Indices:
        """Prices the best forms of ``plans``; their indices."""
        first, best = len(self._priced.step_time), self._best_of(plans)
        if best:
            times = [each.step_time for each in price_plans(self._question, [form.plan for form in best])]
            self._priced = _with_forms(self._priced, best, np.tile(times, (1 + len(GROUPS), 1)))
            self._found += best
        return np.arange(first, len(self._priced.step_time))

    def _best_of(self, plans: Indices) -> list[_Form]:
        """Forms of ``plans`` that the framework runs and something shows to run, none that another never loses to."""
        if self._space.framework is None:
            return []
        originals = [self._given.plan(index) for index in plans.tolist()]
        found: list[_Form] = []
        for alike in differing_in_numbers(originals):
            found += self._of_alike(plans[alike], [originals[place] for place in alike])
        return found

    def _of_alike(self, indices: Indices, plans: Sequence[Plan]) -> Iterator[_Form]:
        """The same of plans that differ in numbers alone, asked together."""
        stack, setting, degrees = self._space.framework, self._question.setting, Degrees.of_all(plans)
        helps = np.logical_not(untested(stack, setting, degrees, leaving_out=CHANGED))
        found: list[tuple[Ranks, NDArray[np.bool_]]] = []
        for software in self._other_software(plans[0]) if np.any(helps) else ():
            other, ranks = replace(degrees, plan=replace(degrees.plan, **software)), self._ranks(software)
            better = [~runs for known, runs in found if _is_never_slower(known, ranks)]
            runs = all_hold([helps, *better, np.logical_not(untested(stack, setting, other))])
            if any_holds(runs):
                runs = all_hold([runs, *(rule.holds(setting, other) for rule in self._space.rules)])
            found.append((ranks, np.broadcast_to(np.asarray(runs, dtype=bool), len(plans))))
            yield from (
                _Form(int(indices[place]), replace(plans[place], **software))
                for place in np.flatnonzero(found[-1][1]).tolist()
            )

    def _other_software(self, plan: Plan) -> Iterator[dict[str, Any]]:
        """Software of the space that is never better and needs as much memory, the best first."""
        own: dict[str, Any] = {name: getattr(plan, name) for name in CHANGED if name in self._space.axes}
        values: dict[str, Sequence[Any]] = {name: (value,) for name, value in own.items()}
        for name, order in self._orders.items():
            if own.get(name) in order:
                known = [each for each in order[: order.index(own[name]) + 1] if each in self._space.axes[name]]
                values[name] = known[::-1]
        if plan.overlap_tp and plan.overlap_ep and False in self._space.axes.get("overlap_tp", ()):
            values["overlap_tp"] = (True, False)
        for changed in itertools.product(*values.values()):
            software = dict(zip(values, changed, strict=True))
            if software != own:
                yield software

    def _ranks(self, software: Mapping[str, Any]) -> Ranks:
        """Places of values in their orders; of others themselves."""
        orders = self._orders
        return tuple(
            orders[name].index(value) if name in orders and value in orders[name] else value
            for name, value in software.items()
        )

    def joined(self, forms: Indices) -> PricedPlans:
        """The plans that were given, and behind them these forms, with what they lose where constants are worse."""
        chosen = [self._found[index - self._first] for index in forms.tolist()]
        plans = [form.plan for form in chosen]
        worse = [price_plans(perturbed(self._question, group), plans) for group in GROUPS]
        costs = [self._priced.step_time[forms], *([each.step_time for each in priced] for priced in worse)]
        return _with_forms(self._given, chosen, np.asarray(costs))


def _is_never_slower(one: Ranks, other: Ranks) -> bool:
    """Whether software is the same but for values that are later in their order."""
    pairs = [*zip(one, other, strict=True)]
    is_number = [type(mine) is int for mine, _ in pairs]
    return all(mine >= its if ranked else mine == its for (mine, its), ranked in zip(pairs, is_number, strict=True))


def _with_forms(priced: PricedPlans, forms: Sequence[_Form], costs: NDArray[np.float64]) -> PricedPlans:
    """``costs``: step times, a row for each group of constants, the first as they are. [s]"""
    first, origins = len(priced.step_time), np.asarray([form.origin for form in forms], dtype=np.intp)
    return priced.joined_by({first + place: form.plan for place, form in enumerate(forms)}, origins, costs)


def plainest(space: Space, question: Question, plan: Plan, now: Needs) -> Plan:
    """``plan`` with the first candidate of each choice of its space that gains it nothing; ``now``: what it takes."""
    usual = {name: space.axes[name][0] for name in (*VARIED, *CHOSEN) if name in space.axes}
    changes = {name: value for name, value in usual.items() if getattr(plan, name) not in (None, value)}
    if space.framework is None or not changes:
        return plan
    singly = {name: replace(plan, **{name: value}) for name, value in changes.items()}
    priced = _priced(question, space, [*singly.values()])
    alike = {name: priced[each] for name, each in singly.items() if each in priced}
    names = [name for name in alike if _is_alike(question, alike[name], now)]
    for name in sorted(names, key=lambda each: alike[each].step_time):
        plainer = replace(plan, **{name: changes[name]})
        found = priced.get(plainer) or _priced(question, space, [plainer]).get(plainer)
        plan = plainer if found is not None and _is_alike(question, found, now) else plan
    return plan


def _priced(question: Question, space: Space, plans: Sequence[Plan]) -> dict[Plan, PricedPlan]:
    """Those of some plans that are in the space and that the framework is shown to run, priced."""
    assert space.framework is not None, "else nothing is known of software"
    setting = question.setting
    tested = all_tested(space.framework, setting, plans)
    runs = (all_hold(rule.holds(setting, Degrees.of(plan)) for rule in space.rules) for plan in plans)
    kept = [plan for plan, is_tested, can_run in zip(plans, tested, runs, strict=True) if is_tested and np.all(can_run)]
    return dict(zip(kept, price_plans(question, kept), strict=True)) if kept else {}


def _is_alike(question: Question, one: PricedPlan, now: Needs) -> bool:
    """Whether a plan takes as long as another and fits as well; needs as little, where the other does not fit."""
    if not now.fits:
        return one.peak_memory_bytes <= now.peak_memory_bytes * (1 + SAME)
    roomy, was_roomy = (bool(has_headroom(question, np.asarray(each.peak_memory_bytes))) for each in (one, now))
    return one.fits and (roomy or not was_roomy) and one.step_time <= now.step_time * (1 + ALIKE_TIME)
