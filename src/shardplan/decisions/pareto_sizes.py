r"""The sizes of a cluster that no other is better than: in time, accelerators and money.

One job is planned at each size, with one batch (:mod:`shardplan.decisions.scale`). With tokens, the time is the wall
time t of the whole run, failures included. Its money, at a price p of one accelerator for an hour, and the money of a
billion tokens are

.. math:: c = p\,N\,t, \qquad \hat c = 10^9\,c / \text{tokens}

Without tokens the time is that of a step, and t and tokens in the second are those of a step.

A size dominates another where it is no slower, no larger and no dearer, and better in one of the three. On one cluster
a size that is slower than a smaller one is dearer, too; sizes that are larger and faster are on the front at any price.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from shardplan.decisions.budget import HOUR
from shardplan.decisions.duration import Duration, StageRun, check_tokens, duration_of
from shardplan.decisions.money import HourlyPrice, needed_price
from shardplan.decisions.operations import Operations
from shardplan.decisions.pareto import not_dominated
from shardplan.decisions.scale import checked_sizes, scaling
from shardplan.decisions.searching import Answered, Progress, Searches
from shardplan.estimation.question import Question
from shardplan.fields import dataclass

BILLION: Final = 1e9
USUAL: Final = Operations()
"""Failures, checkpoints and restarts of every run."""


@dataclass(frozen=True, kw_only=True)
class PricedSize:
    """One size with its plan, time and money."""

    answered: Answered
    """The plan to take, or why there is none."""
    duration: Duration | None
    """Of the whole run; None where no tokens are given, or nothing can run."""
    price_per_hour: float
    """Of one accelerator."""
    reason: str | None = None
    """Why it has no time and no money."""
    is_on_front: bool = False
    """Whether no other size is better than it."""

    @property
    def num_accelerators(self) -> int:
        """World size."""
        return self.answered.question.num_accelerators

    @property
    def time(self) -> float | None:
        """Of the whole run where tokens are given, else of a step; None where there is a ``reason``. [s]"""
        if self.reason is not None or self.answered.estimate is None:
            return None
        return self.answered.estimate.step_time if self.duration is None else self.duration.accounts.wall_time

    @property
    def money(self) -> float | None:
        """Of the whole run; None where no tokens are given, or there is a ``reason``."""
        return self._money if self.duration is not None else None

    @property
    def money_per_billion_tokens(self) -> float | None:
        """Of the whole run where tokens are given, else at the speed of a step; None where there is a ``reason``."""
        job, money = self.answered.question.job, self._money
        tokens = job.tokens_per_step if self.duration is None else job.tokens
        return None if money is None or not tokens else BILLION * money / tokens

    @property
    def _money(self) -> float | None:
        """For the ``time``."""
        return None if self.time is None else self.price_per_hour * self.num_accelerators * self.time / HOUR


@dataclass(frozen=True, kw_only=True)
class SizesFront:
    """One job on several sizes, and those of them that no other is better than."""

    sizes: tuple[PricedSize, ...]
    """All of them, the smallest first."""
    price: HourlyPrice
    """Of one accelerator for an hour."""
    warnings: tuple[str, ...] = ()
    """Assumptions that are shown with every answer: what nobody has measured."""
    assumptions: tuple[str, ...] = ()
    """What was assumed in putting the questions, and of failures and price."""

    @property
    def question(self) -> Question:
        """The question at the largest size."""
        return self.sizes[-1].answered.question

    @property
    def front(self) -> tuple[PricedSize, ...]:
        """Sizes that no other is better than, the smallest first; none where nothing fits."""
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
    """Each of ``sizes`` with its plan, time and money, the batch of ``question`` kept. Raises ``InputError``."""
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
    """A size with the duration of its run, where tokens are given."""
    question, estimate, reason = answered.question, answered.estimate, answered.reason
    duration = None
    if question.job.tokens is not None and estimate is not None:
        duration = duration_of([StageRun.of(question, estimate, question.job.tokens)], USUAL)
        reason = "failures leave no time to train" if duration is None else None
    return PricedSize(answered=answered, duration=duration, price_per_hour=price.per_hour, reason=reason)


def _with_front(sizes: Sequence[PricedSize]) -> tuple[PricedSize, ...]:
    """The same sizes, those of the front marked."""
    values = [
        (each.time, float(each.num_accelerators), each.money_per_billion_tokens)
        for each in sizes
        if each.time is not None and each.money_per_billion_tokens is not None
    ]
    kept = not_dominated(np.array(values, dtype=np.float64).reshape(-1, 3).T)
    front = {values[place][1] for place in kept}
    return tuple(replace(each, is_on_front=float(each.num_accelerators) in front) for each in sizes)
