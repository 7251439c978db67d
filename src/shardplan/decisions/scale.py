r"""One training job on clusters of several sizes: how its speed grows, and where more accelerators stop paying.

The batch is the same at every size. With R the tokens per second of N accelerators and s the smallest size that has a
plan, the efficiency of a size and the marginal efficiency of a step from size i to the next size j are

.. math:: e_j = \frac{R_j / N_j}{R_s / N_s}, \quad m_j = \frac{(R_j - R_i) / (N_j - N_i)}{R_s / N_s}

Where a smaller size takes less time for the step, a larger one uses as many and leaves the others idle: more
accelerators never slow the job down. Only the sizes of the list are compared for that.

The marginal efficiency is what each added accelerator brings, relative to an accelerator of the smallest size. Adding
accelerators stops paying where it falls below ``least_gain``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from shardplan.decisions.searching import Answered, Progress, Searches
from shardplan.errors import InputError, shown
from shardplan.estimation.estimate import Estimate, estimate_plan
from shardplan.estimation.question import Question
from shardplan.fields import dataclass

LEAST_GAIN: Final = 0.5
"""Half of what an accelerator brings at the smallest size."""
MOST_SIZES: Final = 100
LEAST_DIFFERENCE: Final = 1e-3
"""Share of a step by which a larger size may be slower: less does not show in the digits of an answer."""


@dataclass(frozen=True, kw_only=True)
class ScalePoint:
    """One size with its plan."""

    num_accelerators: int
    """World size."""
    answered: Answered
    """The plan to take, or why there is none."""
    efficiency: float | None
    """Tokens per second and accelerator over those of the smallest size that has a plan."""
    marginal_efficiency: float | None
    """Tokens per second that each accelerator adds since the size before, over those of one at the smallest size."""


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """One job on several sizes."""

    points: tuple[ScalePoint, ...]
    """Smallest size first."""
    least_gain: float
    """Marginal efficiency from which a larger size pays."""
    assumptions: tuple[str, ...] = ()
    """What was assumed in putting the questions."""

    @property
    def question(self) -> Question:
        """The question at the largest size."""
        last = self.points[-1].answered.question
        return replace(last, num_accelerators=last.num_given, num_idle=0)

    @property
    def pays_up_to(self) -> int | None:
        """The largest size before the first step that does not pay; None where no size has a plan."""
        last = None
        for point in self.points:
            gain = point.marginal_efficiency
            if gain is not None and gain < self.least_gain:
                return last
            last = point.num_accelerators if point.answered.estimate is not None else last
        return last

    @property
    def stops(self) -> bool:
        """Whether a size that was looked at does not pay."""
        gains = [point.marginal_efficiency for point in self.points]
        return any(gain is not None and gain < self.least_gain for gain in gains)


def scaling(
    question: Question,
    sizes: Sequence[int],
    searches: Searches,
    *,
    least_gain: float = LEAST_GAIN,
    leaves_idle: bool = True,
    progress: Progress | None = None,
) -> Scaling:
    """The plan to take at each of ``sizes``, the batch of ``question`` kept. Raises ``InputError``.

    ``leaves_idle``: whether a size may use as many accelerators as a smaller one.
    """
    ordered = checked_sizes(sizes)
    _check_gain(least_gain)
    answers = searches.answers([replace(question, num_accelerators=size) for size in ordered], progress)
    if all(each.reason is not None for each in answers):
        searches.result(answers[-1].question)  # raises, where what is asked for contradicts itself
    return Scaling(points=_points(_never_slower(answers) if leaves_idle else answers), least_gain=least_gain)


def _never_slower(answers: Sequence[Answered]) -> list[Answered]:
    """Answers of growing sizes; one that is slower than a smaller size uses as many accelerators as that."""
    made: list[Answered] = []
    best: Answered | None = None
    for answered in answers:
        of_best = None if best is None or best.fastest is None else best.fastest.step_time * (1 + LEAST_DIFFERENCE)
        time = math.inf if answered.fastest is None else answered.fastest.step_time
        if best is not None and of_best is not None and time > of_best:
            made.append(_with_idle(best, answered.question.num_accelerators))
        else:
            made.append(answered)
            best = answered if answered.fastest is not None else best
    return made


def _with_idle(answered: Answered, num_given: int) -> Answered:
    """The same plans with more accelerators, which do nothing."""
    idle = num_given - answered.question.num_accelerators
    question = replace(answered.question, num_idle=idle)

    def told(estimate: Estimate | None) -> Estimate | None:
        if estimate is None:
            return None
        new = estimate_plan(question, estimate.plan)
        return replace(new, framework=estimate.framework, refusals=estimate.refusals)

    return replace(answered, question=question, estimate=told(answered.estimate), fastest=told(answered.fastest))


def _points(answers: Sequence[Answered]) -> tuple[ScalePoint, ...]:
    """Sizes with their efficiencies."""
    points: list[ScalePoint] = []
    first: tuple[int, float] | None = None
    before: tuple[int, float] | None = None
    for answered in answers:
        size, rate = answered.question.num_given, answered.tokens_per_second
        if rate is None:
            points.append(_point(answered, None, None))
            continue
        first = first or (size, rate)
        of_one = first[1] / first[0]
        marginal = None if before is None else (rate - before[1]) / (size - before[0]) / of_one
        points.append(_point(answered, rate / size / of_one, marginal))
        before = size, rate
    return tuple(points)


def _point(answered: Answered, efficiency: float | None, marginal: float | None) -> ScalePoint:
    size = answered.question.num_given
    return ScalePoint(num_accelerators=size, answered=answered, efficiency=efficiency, marginal_efficiency=marginal)


def checked_sizes(sizes: Sequence[int]) -> list[int]:
    """The sizes in order, each once. Raises ``InputError``."""
    given = [*sizes]
    ordered = sorted(set(given)) if all(isinstance(size, int) and size > 0 for size in given) else []
    if not 1 <= len(ordered) <= MOST_SIZES:
        raise InputError(
            f"the sizes are {shown(given)}",
            rule=f"1 to {MOST_SIZES} sizes are given, each a whole number of accelerators",
            hint="give sizes such as 64, 128 and 256",
        )
    return ordered


def doubling(first: int, last: int) -> list[int]:
    """``first`` and its doubles up to ``last``, and ``last``. Raises ``InputError`` where that is no range."""
    if not 1 <= first <= last:
        raise InputError(
            f"the range is {first}..{last}, which is empty",
            rule="a range starts at 1 or more and ends at or above its start",
            hint=f"write {max(min(first, last), 1)}..{max(first, last, 1)}",
        )
    sizes = [first]
    while sizes[-1] * 2 < last:
        sizes.append(sizes[-1] * 2)
    return list(dict.fromkeys((*sizes, last)))


def _check_gain(least_gain: float) -> None:
    if not 0 < least_gain <= 1:
        raise InputError(
            f"least_gain is {shown(least_gain)}",
            rule="least_gain is a share above 0 and at most 1",
            hint="give 0.5 for half of what an accelerator brings at the smallest size",
        )
