r"""The best compromises among plans, and among sizes of a cluster: those that no other dominates.

Plans are compared by step time, peak memory and pessimistic step time. A plan q dominates a plan p if it is no worse in
step time T, peak memory M and pessimistic step time :math:`\hat T` (``planner.robustness``), and better in one of them.
The front consists of the plans that fit and that no other dominates. It is exact, though few plans are priced one by
one. The survey gives the least step time and the least memory of every cell of plans (all chunks per rank of otherwise
equal plans). Since :math:`T \le \hat T`, a cell is ruled out if

.. math:: \hat T_q \le \min T, \quad M_q \le \min M

for a priced plan q: the plans of the cells that no other dominates by their least values. The rest is priced and
compared in all three.

Sizes are compared by time, accelerators and cost. One job is planned at each size, with one batch
(:mod:`shardplan.decide.scale`). With tokens, the time is the wall time t of the whole run, including failures. Its
cost, at a price p of an accelerator-hour, and the cost of a billion tokens are

.. math:: c = p\,N\,t, \qquad \hat c = 10^9\,c / \text{tokens}

Without tokens the time is that of a step, and t and tokens in the second are those of a step.

A size dominates another if it is no slower, no larger and no more expensive, and better in one of the three. On one
cluster, a size that is slower than a smaller one is also more expensive; sizes that are larger and faster are on the
front at any price.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.fields import dataclass
from shardplan.decide.budget import HOUR
from shardplan.decide.goodput import Duration, StageRun, check_tokens, duration_of
from shardplan.decide.operations import HourlyPrice, Operations, needed_price
from shardplan.decide.scale import checked_sizes, scaling
from shardplan.decide.searching import Answered, Progress, Searches
from shardplan.estimation.estimate import Estimate, estimate_plan, estimate_plans
from shardplan.estimation.question import Question
from shardplan.planner.evaluation import Table
from shardplan.planner.priced_plans import PricedPlans, priced_cells
from shardplan.planner.pricing.pieces import SMALLEST
from shardplan.planner.ranking import different_cells
from shardplan.planner.related.forms import plainest, recommended_with_software
from shardplan.planner.robustness import PlanFacts, pessimistic_times
from shardplan.planner.survey import Survey

Masks = Sequence[NDArray[np.bool_]]
"""Selected cells of every table."""


@dataclass(frozen=True, kw_only=True)
class ParetoPoint:
    """A plan that no other dominates."""

    estimate: Estimate
    """Its step time and its memory."""
    pessimistic_time: float
    """Step time if network, overlap and host are worse, with the surcharge for unmeasured plans. [s]"""

    @property
    def headroom_bytes(self) -> float:
        """Memory that is left on the fullest accelerator. [bytes]"""
        return self.estimate.usable_memory_bytes - self.estimate.peak_memory_bytes


@dataclass(frozen=True, kw_only=True)
class ParetoFront:
    """The front of a space."""

    question: Question
    """The question."""
    points: tuple[ParetoPoint, ...]
    """The fastest first; empty if nothing fits."""
    recommended: Estimate | None
    """The plan that ``plan`` recommends; it can be off the front, by differences that count as ties."""
    num_plans_evaluated: int
    """Number of valid plans."""
    num_plans_feasible: int
    """Number of plans that fit: the front is among these."""
    num_plans_priced: int
    """Number of plans that were compared in all three respects."""
    assumptions: tuple[str, ...] = ()
    """Assumptions made when the question was read."""


def pareto_front(question: Question, searches: Searches) -> ParetoFront:
    """The front over all plans of the space that fit. Raises ``InputError``."""
    survey = searches.survey(question)
    front = ParetoFront(
        question=question,
        points=(),
        recommended=None,
        num_plans_evaluated=survey.num_evaluated,
        num_plans_feasible=survey.num_feasible,
        num_plans_priced=0,
    )
    if not survey.num_feasible:
        return front
    priced = _candidates(survey)
    values = np.stack([priced.step_time, priced.peak_memory_bytes, pessimistic_times(question, priced)])
    chosen = not_dominated(values)
    chosen = chosen[np.argsort(values[0, chosen], kind="stable")]
    estimates = estimate_plans(question, [priced.plan(int(index)) for index in chosen])
    points = tuple(
        ParetoPoint(estimate=estimate, pessimistic_time=float(values[2, index]))
        for estimate, index in zip(estimates, chosen, strict=True)
    )
    recommended = _recommended(question, survey, searches)
    return replace(front, points=points, recommended=recommended, num_plans_priced=len(priced.step_time))


def _recommended(question: Question, survey: Survey, searches: Searches) -> Estimate | None:
    """The recommended plan, as the search chooses it."""
    cells = different_cells(survey.tables, 1)
    priced = survey.with_prices(cells).priced
    if priced is None:
        return None
    space, facts = survey.space, PlanFacts(question, priced, searches.tested(question))
    priced, best = recommended_with_software(question, facts, priced.index_of(cells[0]), space)
    plain = plainest(space, question, priced.plan(best), priced.needs(best))
    return estimate_plan(question, plain)


def _candidates(survey: Survey) -> PricedPlans:
    """All plans that can be on the front, priced."""
    question, tables = survey.question, survey.tables
    memory = [table.best for table in survey.under(SMALLEST).tables]
    ideal = _without_dominated_cells(tables, memory)
    known = priced_cells(question, tables, ideal)
    pessimistic = pessimistic_times(question, known)
    order = np.argsort(pessimistic, kind="stable")
    least_memory = np.minimum.accumulate(known.peak_memory_bytes[order])

    def is_out(times: NDArray[np.float64], needed: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Cells that a known plan dominates, by their least time and memory."""
        place = np.searchsorted(pessimistic[order], times, side="right") - 1
        return np.asarray((place >= 0) & (least_memory[np.maximum(place, 0)] <= needed))

    kept = [
        cells | (np.isfinite(table.best) & ~is_out(table.best, least))
        for cells, table, least in zip(ideal, tables, memory, strict=True)
    ]
    return priced_cells(question, tables, kept)


def _without_dominated_cells(tables: Sequence[Table], memory: Sequence[NDArray[np.float64]]) -> Masks:
    """Cells for which no other has both less time and less memory, by the least values of each."""
    times = np.concatenate([table.best.ravel() for table in tables])
    least = np.concatenate([each.ravel() for each in memory])
    order = np.lexsort((least, times))
    before = np.minimum.accumulate(np.concatenate([[np.inf], least[order][:-1]]))
    chosen = np.zeros(len(times), dtype=bool)
    chosen[order] = np.isfinite(times[order]) & (least[order] < before)
    ends = np.cumsum([table.best.size for table in tables])[:-1]
    parts = np.split(chosen, ends)
    return [part.reshape(table.best.shape) for part, table in zip(parts, tables, strict=True)]


def not_dominated(values: NDArray[np.float64]) -> NDArray[np.intp]:
    """Indices of the columns that no other dominates, less being better in every row; one of equal columns."""
    _, first = np.unique(values, axis=1, return_index=True)
    chosen: list[int] = []
    for index in first[np.lexsort(values[::-1, first])].tolist():
        if not np.any(np.all(values[:, chosen] <= values[:, index, None], axis=0)):
            chosen.append(index)
    return np.asarray(chosen, dtype=np.intp)


BILLION: Final = 1e9
USUAL: Final = Operations()
"""Default failures, checkpoints and restarts."""


@dataclass(frozen=True, kw_only=True)
class PricedSize:
    """One size with its plan, time and cost."""

    answered: Answered
    """The recommended plan, or why there is none."""
    duration: Duration | None
    """Duration of the whole run; None without tokens, or if nothing can run."""
    price_per_hour: float
    """Price of an accelerator-hour."""
    reason: str | None = None
    """Why it has no time and no cost."""
    is_on_front: bool = False
    """Whether no other size dominates it."""

    @property
    def num_accelerators(self) -> int:
        """World size."""
        return self.answered.question.num_accelerators

    @property
    def time(self) -> float | None:
        """Time of the whole run if tokens are given, else of a step; None if there is a ``reason``. [s]"""
        if self.reason is not None or self.answered.estimate is None:
            return None
        return self.answered.estimate.step_time if self.duration is None else self.duration.accounts.wall_time

    @property
    def money(self) -> float | None:
        """Cost of the whole run; None without tokens, or if there is a ``reason``."""
        return self._money if self.duration is not None else None

    @property
    def money_per_billion_tokens(self) -> float | None:
        """Cost of a billion tokens in the run, or without tokens at the speed of a step; None with a ``reason``."""
        job, money = self.answered.question.job, self._money
        tokens = job.tokens_per_step if self.duration is None else job.tokens
        return None if money is None or not tokens else BILLION * money / tokens

    @property
    def _money(self) -> float | None:
        """Cost of the ``time``."""
        return None if self.time is None else self.price_per_hour * self.num_accelerators * self.time / HOUR


@dataclass(frozen=True, kw_only=True)
class SizesFront:
    """One job on several sizes, and the sizes that no other dominates."""

    sizes: tuple[PricedSize, ...]
    """All of them, the smallest first."""
    price: HourlyPrice
    """Price of an accelerator-hour."""
    warnings: tuple[str, ...] = ()
    """Assumptions that are shown with every answer: what nobody has measured."""
    assumptions: tuple[str, ...] = ()
    """Assumptions made when the questions were read, and those on failures and price."""

    @property
    def question(self) -> Question:
        """The question at the largest size."""
        return self.sizes[-1].answered.question

    @property
    def front(self) -> tuple[PricedSize, ...]:
        """Sizes that no other dominates, the smallest first; empty if nothing fits."""
        return tuple(each for each in self.sizes if each.is_on_front)

    @property
    def fastest(self) -> PricedSize | None:
        """The size with the shortest time: the largest of the front."""
        return self.front[-1] if self.front else None

    @property
    def cheapest(self) -> PricedSize | None:
        """The size that costs least."""
        return min(self.front, key=lambda each: each.money_per_billion_tokens or 0.0, default=None)


def sizes_front(
    question: Question, sizes: Sequence[int], searches: Searches, *, progress: Progress | None
) -> SizesFront:
    """Each of ``sizes`` with its plan, time and cost, with the batch of ``question``. Raises ``InputError``."""
    price = needed_price(question.cluster, USUAL)
    if question.job.tokens is not None:
        check_tokens(question)
    found = scaling(question, checked_sizes(sizes), searches, leaves_idle=False, progress=progress)
    priced = [_priced(each.answered, price) for each in found.points]
    quoted = (f"price {price.per_hour:g} {price.currency}/h: {price.source}",) if price.source else ()
    warning = None if question.job.tokens is None else USUAL.extrapolation(max(sizes))
    warnings = () if warning is None else (warning,)
    of_runs = () if question.job.tokens is None else (*warnings, *USUAL.assumptions())
    return SizesFront(sizes=_with_front(priced), price=price, warnings=warnings, assumptions=(*quoted, *of_runs))


def _priced(answered: Answered, price: HourlyPrice) -> PricedSize:
    """A size with the duration of its run, if tokens are given."""
    question, estimate, reason = answered.question, answered.estimate, answered.reason
    duration = None
    if question.job.tokens is not None and estimate is not None:
        duration = duration_of([StageRun.of(question, estimate, question.job.tokens)], USUAL)
        reason = "failures leave no time to train" if duration is None else None
    return PricedSize(answered=answered, duration=duration, price_per_hour=price.per_hour, reason=reason)


def _with_front(sizes: Sequence[PricedSize]) -> tuple[PricedSize, ...]:
    """The same sizes with those of the front marked."""
    values = [
        (each.time, float(each.num_accelerators), each.money_per_billion_tokens)
        for each in sizes
        if each.time is not None and each.money_per_billion_tokens is not None
    ]
    kept = not_dominated(np.array(values, dtype=np.float64).reshape(-1, 3).T)
    front = {values[place][1] for place in kept}
    return tuple(replace(each, is_on_front=float(each.num_accelerators) in front) for each in sizes)
