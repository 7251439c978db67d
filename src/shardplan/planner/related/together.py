r"""Questions that differ in memory and rates of the accelerator and in rates of the network alone, answered together.

Plans, pipelines and the memory of every plan are the same for such questions; they are found once. Memory decides
which plans fit, and nothing else: plans fall into classes, by the smallest capacity in which they fit, and the
fastest plan of a capacity is that of its own class or of a smaller one. Plans that have headroom fit a capacity of
their own, which is smaller than that of the question. Systems, each with the rates of its
accelerator and its network, stand side by side on an axis of their own, in front of those of the plans; what computes
is the same for all systems whose accelerators have the same rates.

The memory of plans and their step are found only where a bound (``planner.pruning.bounds``) does not show that they are
slower than plans that fit as small a memory, by more than a tie where ties are asked for. Plans that are left are
priced under the systems to which they may be of use (``planner.pricing.pairs``). So the fastest plan, and the
recommended one, are those of an exhaustive search of each question.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import coded, different, distinct
from shardplan.estimation.estimate import Estimate, estimate_plan, estimate_plans, price_plans, with_memory_of
from shardplan.estimation.perturbation import GROUPS
from shardplan.estimation.question import Question
from shardplan.estimation.ties import tie_factor
from shardplan.inputs.plan import Plan
from shardplan.physics.frameworks.stack import Stack
from shardplan.planner.evaluation import Listed, times_of
from shardplan.planner.points import families
from shardplan.planner.priced_plans import SAME, Needs, PricedPlans, lost_time
from shardplan.planner.pricing.pairs import Index
from shardplan.planner.pricing.tables import Tables, tables_of
from shardplan.planner.related.fitting import FamilyPools, Fitting
from shardplan.planner.related.forms import plainest, recommended_with_software
from shardplan.planner.related.side_by_side import (
    Limits,
    Rates,
    Slice,
    by_system,
    candidates,
    limits_of,
    limits_within,
    rates_of,
)
from shardplan.planner.result import Answers
from shardplan.planner.robustness import (
    ALIKE_TIME,
    PlanFacts,
    Tested,
    not_dominated,
    pessimistic_times,
)
from shardplan.planner.scope import Scope
from shardplan.planner.space import Space
from shardplan.planner.stopping import Stop

SOME_BEST = 8
"""Candidates of every question that are asked first how robust they are."""
NEAR = 1.02
"""Factor of the fastest within which all plans are priced before."""


class FoundPlan(NamedTuple):
    """A plan that fits, with what a search ranks plans by."""

    plan: Plan
    step_time: float
    """[s]"""
    peak_memory_bytes: float


class AnsweredTogether(NamedTuple):
    """What is found for a question."""

    fastest: FoundPlan | None
    """None where nothing fits."""
    recommended: FoundPlan | None
    """The plan that a search recommends; None where nothing fits, or where it is not asked for."""
    num_plans: int
    """Valid plans, each priced, or shown to be slower; their number depends on neither memory nor network."""
    not_searched: tuple[str, ...]
    """Candidates that are left out because there are too many."""


def best_together(
    questions: Sequence[Question], scope: Scope, *, with_recommended: bool = False, tested: Tested | None = None
) -> list[AnsweredTogether]:
    """The fastest plan of each of ``questions``, which differ in memory and rates of accelerator and network alone.

    ``with_recommended``: whether the recommended plan is found too; ``tested``: as for ``recommended_of``. Each answer
    is that of a search of its own. Raises InputError as ``search`` does, and ``SearchStopped`` where the scope says so.
    """
    space = scope.space(questions[0])
    every = list(families(questions[0], space, Counter()))
    num_plans = sum(family.whole.num_plans() for family in every if family.counts)
    found: dict[int, AnsweredTogether] = {}
    plain = partial(_in_plain_words, space)
    for numbers in by_system(questions):
        asked = Slice.of([questions[number] for number in numbers], with_roomy=with_recommended)
        tables = tables_of(asked.joint, every, scope.known)
        search = _Search(
            asked, tables, scope.stop, with_recommended=with_recommended, tested=tested or scope.tested(questions[0])
        )
        plans = (
            search.with_recommended(space) if with_recommended else [(fastest, None) for fastest in search.fastest()]
        )
        for number, (fastest, taken) in zip(numbers, plans, strict=True):
            plainer = plain(questions[number], taken)
            first = plainer if fastest == taken else fastest  # as a search lists it
            found[number] = AnsweredTogether(
                first if with_recommended else fastest, plainer, num_plans, space.not_searched
            )
    return [found[number] for number in range(len(questions))]


def recommended_plan(question: Question, scope: Scope, every: Sequence[Tables]) -> Answers:
    """What a search of some families of a scope recommends, found when it is read; none where nothing fits.

    Whether something fits is found at once. Raises ``SearchStopped`` where the scope says so.
    """
    asked, tested = Slice.of([question], with_roomy=True), scope.tested(question)
    search = _Search(asked, every, scope.stop, with_recommended=True, tested=tested)

    def read(_places: Sequence[int]) -> list[Estimate]:
        space = scope.space(question)
        best = _in_plain_words(space, question, search.with_recommended(space)[0][1])
        assert best is not None
        return [estimate_plan(question, best.plan)]

    return Answers(int(search.fits), read)


Found = tuple[FoundPlan | None, FoundPlan | None]
"""The fastest plan, and the recommended plan."""


class _Search:
    """A search for the answers to questions side by side."""

    def __init__(
        self, asked: Slice, every: Sequence[Tables], stop: Stop | None, *, with_recommended: bool, tested: Tested | None
    ) -> None:
        """``every``: families, not priced yet or in part; ``with_recommended``: whether that plan will be asked for."""
        self._asked, self._stop, self._tested = asked, stop, tested
        self._factor, near = (tie_factor(), NEAR) if with_recommended else (1.0, 1.0)
        self._families = [FamilyPools(asked, number, tables, stop) for number, tables in enumerate(every)]
        self._kept: list[Fitting] = []
        self._least = np.full((len(asked.of_systems), len(asked.usable)), np.inf)
        """The fastest step so far, by system and by the smallest capacity in which its plan fits. [s]"""
        for points in (FamilyPools.first_points, FamilyPools.other_points):
            for each in self._families:
                each.fill(points(each), self._limits(self._factor))
                if each.has_many:
                    self._price(each, each.promising(self._limits(1.0)))
                self._price(each, self._limits(near if each.has_many else self._factor))

    @property
    def fits(self) -> bool:
        """Whether a plan fits for some question."""
        return bool(np.isfinite(self._least).any())

    def fastest(self) -> list[FoundPlan | None]:
        """The fastest plan of every question."""
        kept = self._found(self._limits(1.0))
        priced = self._priced(kept)
        rows = (self._fastest(kept, number) for number in range(len(self._asked.questions)))
        return [None if row is None else _found(priced, row) for row in rows]

    def _limits(self, factor: float) -> Limits:
        """Times within a factor of the fastest known, and of those with headroom."""
        return limits_of(self._asked, self._least_known, factor)

    @property
    def _least_known(self) -> NDArray[np.float64]:
        """The fastest step so far of plans that fit a capacity, by system and capacity. [s]"""
        return np.minimum.accumulate(self._least, axis=1)

    def _price(self, family: FamilyPools, limits: Limits) -> None:
        """Prices plans of a family that may be within limits; keeps those within a factor of the fastest known."""
        for each in family.price(limits, self._limits(self._factor)):
            np.minimum.at(self._least, (each.systems, each.classes), each.step_time)
            self._kept.append(each.within(self._limits(self._factor)))

    def _found(self, limits: Limits) -> Fitting:
        """All plans within limits, in the order in which a search names equally fast ones."""
        return Fitting.joined([each.within(limits) for each in self._kept]).in_order()

    def _of_question(self, kept: Fitting, number: int) -> Index:
        """Plans that fit for a question."""
        asked = self._asked
        return np.flatnonzero((kept.systems == asked.systems[number]) & (kept.classes <= asked.capacities[number]))

    def _fastest(self, kept: Fitting, number: int) -> int | None:
        """The fastest plan of a question, the first of equal ones."""
        rows = self._of_question(kept, number)
        times = kept.step_time[rows]
        return int(rows[(times <= times.min() * (1 + SAME)).argmax()]) if len(rows) else None

    def _priced(self, kept: Fitting, lost: NDArray[np.float64] | None = None) -> PricedPlans:
        return PricedPlans(
            tables=tuple(each.times for each in self._families),
            factor=tie_factor(),
            positions=kept.places,
            step_time=kept.step_time,
            lost=np.zeros((len(GROUPS), len(kept.systems))) if lost is None else lost,
            peak_memory_bytes=kept.peak_memory_bytes,
        )

    def with_recommended(self, space: Space) -> list[Found]:
        """The fastest plan of every question and the recommended plan, of all that may be as robust.

        ``space``: the one that the families are of.
        """
        if len(self._asked.questions) > 1:
            limits, some, lost = self._robust_limits()
        else:  # these would save less than they take
            limits = limits_within(self._asked, self._least_known, [np.inf])
            some, lost = Fitting.joined([]), np.empty((len(GROUPS), 0))
        for each in self._families:
            self._kept += each.price(limits, limits)
        kept = self._found(limits)
        priced = self._priced(kept, self._lost(kept, some, lost))
        facts = PlanFacts(self._asked.alone, priced, self._tested)
        numbers = range(len(self._asked.questions))
        return [self._answer(number, kept, priced, facts, space) for number in numbers]

    def _answer(self, number: int, kept: Fitting, priced: PricedPlans, facts: PlanFacts, space: Space) -> Found:
        fastest, rows = self._fastest(kept, number), self._of_question(kept, number)
        if fastest is None:
            return None, None
        question = self._asked.questions[number]
        best = recommended_with_software(question, facts, fastest, space, rows)
        return _found(priced, fastest), _found(*best)

    def _robust_limits(self) -> tuple[Limits, Fitting, NDArray[np.float64]]:
        """Steps of plans that may be as robust as some candidate of every question take no longer; nor than candidates.

        With these candidates, and what they lose where constants are worse.
        """
        asked, known = self._asked, self._found(self._limits(NEAR))
        some = self._some_of_the_best(known)
        rows = different(np.concatenate(some))
        near = known.at(rows)
        lost = self._lost_anew(near)
        times = pessimistic_times(asked.alone, self._priced(near, lost)) * (1 + ALIKE_TIME)
        most = [times[np.searchsorted(rows, own)].min(initial=np.inf) for own in some]
        return limits_within(asked, self._least_known, most), near, lost

    def _some_of_the_best(self, known: Fitting) -> list[Index]:
        """For each question some of the fastest plans that may be recommended, as far as all faster ones are known.

        None where one of these is untested: other forms of it may be recommended.
        """
        systems, (capacities, longest) = self._asked.systems, candidates(self._asked, self._least_known)
        near = np.minimum(longest, self._least_known[systems, capacities] * NEAR)
        priced = self._priced(known)
        facts = PlanFacts(self._asked.alone, priced, self._tested)
        found = []
        for system, capacity, most in zip(systems, capacities, near, strict=True):
            of_use = (known.systems == system) & (known.classes <= capacity) & (known.step_time <= most)
            front = not_dominated(priced, np.flatnonzero(of_use))
            best = front if facts.are_tested(front).all() else front[:0]
            found.append(best[np.argsort(known.step_time[best], kind="stable")[:SOME_BEST]])
        return found

    def _lost(self, kept: Fitting, some: Fitting, lost: NDArray[np.float64]) -> NDArray[np.float64]:
        """As ``_lost_anew``, where it is known of some plans."""
        of_both = [np.vstack([each.places, each.systems]) for each in (some, kept)]
        _, number = distinct(*coded(*np.concatenate(of_both, axis=1)))
        known = np.full((len(GROUPS), int(number.max(initial=-1)) + 1), np.nan)
        known[:, number[: len(some.systems)]] = lost
        own = number[len(some.systems) :]
        missing = np.flatnonzero(np.isnan(known[0, own]))
        known[:, own[missing]] = self._lost_anew(kept.at(missing))
        return known[:, own]

    def _lost_anew(self, kept: Fitting) -> NDArray[np.float64]:
        """How much longer steps take where a group of constants is worse: groups by plans. [s]"""
        found = np.zeros((len(GROUPS), len(kept.systems)))
        for number, each in enumerate(self._families):
            here = np.flatnonzero(kept.places[0] == number)
            if len(here):
                found[:, here] = self._lost_of(each.times, kept.at(here))
        return found

    def _lost_of(self, tables: Tables, kept: Fitting) -> NDArray[np.float64]:
        """The same of plans of one family."""
        _, sharding, slot, layout, point = kept.places
        plans = Listed(shardings=sharding, slots=slot, layouts=layout, points=point)
        times = times_of(self._asked.where_worse, tables, plans, kept.systems)
        return lost_time(np.broadcast_to(times, (1 + len(GROUPS), len(plans))))


def _in_plain_words(space: Space, question: Question, found: FoundPlan | None) -> FoundPlan | None:
    """A recommended plan without software that gains it nothing."""
    if found is None:
        return None
    plan = plainest(space, question, found.plan, Needs(found.step_time, found.peak_memory_bytes))
    if plan == found.plan:
        return found
    (priced,) = price_plans(question, [plan])
    return FoundPlan(plan, priced.step_time, priced.peak_memory_bytes)


def _found(priced: PricedPlans, index: int) -> FoundPlan:
    return FoundPlan(priced.plan(index), float(priced.step_time[index]), float(priced.peak_memory_bytes[index]))


def estimates_of(
    questions: Sequence[Question], plans: Sequence[FoundPlan | None], stack: Stack | None
) -> list[Estimate | None]:
    """The full answers for a plan of each of some questions that differ in memory and rates alone.

    A plan of several capacities is answered once for each system.
    """
    of_system: dict[Rates, list[int]] = {}
    for number, question in enumerate(questions):
        if plans[number] is not None:
            of_system.setdefault(rates_of(question), []).append(number)
    found: list[Estimate | None] = [None] * len(plans)
    for numbers in of_system.values():
        chosen = {number: each.plan for number in numbers if (each := plans[number]) is not None}
        different_plans = [*dict.fromkeys(chosen.values())]
        answers = dict(zip(different_plans, estimate_plans(questions[numbers[0]], different_plans), strict=True))
        for number, plan in chosen.items():
            answer = with_memory_of(answers[plan], questions[number])
            found[number] = answer if stack is None else replace(answer, framework=stack.label)
    return found
