r"""One training job on clusters of several sizes: how its speed grows, and from where more accelerators do not pay.

The batch is the same at every size. With R the tokens per second of N accelerators and s the smallest size that has a
plan, the efficiency of a size and the marginal efficiency of a step from size i to the next size j are

.. math:: e_j = \frac{R_j / N_j}{R_s / N_s}, \quad m_j = \frac{(R_j - R_i) / (N_j - N_i)}{R_s / N_s}

If a smaller size takes less time for the step, a larger one uses that many accelerators and leaves the rest idle: more
accelerators never slow the job down. Only the sizes of the list are compared for that.

The marginal efficiency is what each added accelerator brings, relative to an accelerator of the smallest size. Adding
accelerators stops paying when it falls below ``least_gain``.

This file also finds the smallest size that meets a limit, with few searches. Sizes are whole nodes, 32 of them between
one power of two and the next. The time of a run falls with the size, but not everywhere: a size whose divisors do not
suit the model trains less per accelerator than its neighbours. So after a bisection between powers of two, every size
that could still meet the limit is searched: one that would meet it at the best rate per accelerator among the sizes
from half of it up to it, plus ``MARGIN``.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Final, Protocol, TypeVar

from shardplan.base.errors import InputError, shown
from shardplan.base.fields import dataclass
from shardplan.decide.searching import Answered, Progress, Searches
from shardplan.estimation.estimate import Estimate, estimate_plan
from shardplan.estimation.question import Question
from shardplan.inputs.counts import MAX_NUM_ACCELERATORS
from shardplan.inputs.readers.typed import RANGE, whole

LEAST_GAIN: Final = 0.5
"""Half of what an accelerator brings at the smallest size."""
MOST_SIZES: Final = 100
LEAST_DIFFERENCE: Final = 1e-3
"""Share of a step by which a larger size may be slower, since a smaller difference is invisible in an answer."""


@dataclass(frozen=True, kw_only=True)
class ScalePoint:
    """One size with its plan."""

    num_accelerators: int
    """World size."""
    answered: Answered
    """The recommended plan, or why there is none."""
    efficiency: float | None
    """Tokens per second and accelerator over those of the smallest size that has a plan."""
    marginal_efficiency: float | None
    """Tokens per second that each accelerator adds to the previous size, over those of one at the smallest size."""


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """One job on several sizes."""

    points: tuple[ScalePoint, ...]
    """Smallest size first."""
    least_gain: float
    """Marginal efficiency from which a larger size pays."""
    assumptions: tuple[str, ...] = ()
    """Assumptions made when the questions were read."""

    @property
    def question(self) -> Question:
        """The question at the largest size."""
        last = self.points[-1].answered.question
        return replace(last, num_accelerators=last.num_given, num_idle=0)

    @property
    def pays_up_to(self) -> int | None:
        """The largest size before the first step that does not pay; None if no size has a plan."""
        planned = [each for each in self.points if each.answered.estimate is not None]
        return pays_up_to([(each.num_accelerators, each.marginal_efficiency) for each in planned], self.least_gain)

    @property
    def stops(self) -> bool:
        """Whether one of the sizes does not pay."""
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
    """The recommended plan at each of ``sizes``, with the batch of ``question``. Raises ``InputError``.

    ``leaves_idle`` lets a size use only as many accelerators as a smaller one.
    """
    ordered = checked_sizes(sizes)
    check_gain(least_gain)
    answers = searches.answers([replace(question, num_accelerators=size) for size in ordered], progress)
    if all(each.reason is not None for each in answers):
        searches.result(answers[-1].question)  # raises if the restrictions contradict themselves
    answers = _never_slower(answers) if leaves_idle else answers
    found = efficiencies([(each.question.num_given, each.tokens_per_second) for each in answers])
    points = tuple(
        ScalePoint(
            num_accelerators=answered.question.num_given,
            answered=answered,
            efficiency=efficiency,
            marginal_efficiency=marginal,
        )
        for answered, (efficiency, marginal) in zip(answers, found, strict=True)
    )
    return Scaling(points=points, least_gain=least_gain)


def _never_slower(answers: Sequence[Answered]) -> list[Answered]:
    """Answers of growing sizes; one that is slower than a smaller size uses as many accelerators as that."""
    made: list[Answered] = []
    best: Answered | None = None
    for answered in answers:
        time = math.inf if answered.fastest is None else answered.fastest.step_time
        if best and best.fastest and time > best.fastest.step_time * (1 + LEAST_DIFFERENCE):
            made.append(_with_idle(best, answered.question.num_accelerators))
        else:
            made.append(answered)
            best = answered if answered.fastest is not None else best
    return made


def _with_idle(answered: Answered, num_given: int) -> Answered:
    """The same plans with more accelerators, which are idle."""
    idle = num_given - answered.question.num_accelerators
    question = replace(answered.question, num_idle=idle)

    def with_more_idle(estimate: Estimate | None) -> Estimate | None:
        if estimate is None:
            return None
        new = estimate_plan(question, estimate.plan)
        return replace(new, framework=estimate.framework, refusals=estimate.refusals)

    return replace(
        answered,
        question=question,
        estimate=with_more_idle(answered.estimate),
        fastest=with_more_idle(answered.fastest),
    )


def efficiencies(rates: Sequence[tuple[int, float | None]]) -> list[tuple[float | None, float | None]]:
    """Efficiency and marginal efficiency for the tokens per second of each size; None if a size has no plan."""
    found: list[tuple[float | None, float | None]] = []
    first: tuple[int, float] | None = None
    before: tuple[int, float] | None = None
    for size, rate in rates:
        if rate is None:
            found.append((None, None))
            continue
        first = first or (size, rate)
        of_one = first[1] / first[0]
        marginal = None if before is None else (rate - before[1]) / (size - before[0]) / of_one
        found.append((rate / size / of_one, marginal))
        before = size, rate
    return found


def pays_up_to(gains: Sequence[tuple[int, float | None]], least_gain: float) -> int | None:
    """The largest size with a plan before the first whose marginal efficiency is too small."""
    last = None
    for size, gain in gains:
        if gain is not None and gain < least_gain:
            return last
        last = size
    return last


def checked_sizes(sizes: Sequence[int] | str) -> list[int]:
    """The sizes in order, each once; a text may be a range, ``8..64`` or ``8-64``. Raises ``InputError``."""
    given = sizes_in(sizes, "sizes") if isinstance(sizes, str) else [*sizes] if isinstance(sizes, Iterable) else [sizes]
    ordered = sorted(set(given)) if all(isinstance(size, int) and size > 0 for size in given) else []
    if not 1 <= len(ordered) <= MOST_SIZES:
        raise InputError(
            f"the sizes are {shown(given)}",
            rule=f"1 to {MOST_SIZES} sizes are given, each a whole number of accelerators",
            hint="give sizes such as 64, 128 and 256",
        )
    return ordered


def sizes_in(text: str, flag: str) -> list[int]:
    """The sizes in a range, 64..4096 or 64-4096, or in a list, 64,96,128. Raises InputError."""

    def size(part: str) -> int:
        return whole(part, flag, most=MAX_NUM_ACCELERATORS)

    ends = RANGE.split(text)
    if len(ends) == 2:
        return doubling(size(ends[0]), size(ends[1]))
    parts = text.split(",")
    if len(parts) > MOST_SIZES:
        raise InputError(
            f"{flag} is {shown(text)}; it has {len(parts)} sizes",
            rule=f"at most {MOST_SIZES} sizes are given",
            hint=f"give {flag} a range such as 64..4096",
        )
    rule = f"{flag} is a range or a list of whole numbers"
    if any(len(part) > 1 and part.startswith("0") for part in parts):
        hint = f"write thousands without a comma: {flag} {text.replace(',', '')}"
        raise InputError(f"{flag} is {shown(text)}; a comma is between two sizes", rule=rule, hint=hint)
    if not all(part.strip() for part in parts):
        hint = f"write {flag} 64,96,128"
        raise InputError(f"{flag} is {shown(text)}; between two commas is no size", rule=rule, hint=hint)
    sizes = [size(part) for part in parts]
    if len(set(sizes)) < len(sizes):
        hint = f"write {flag} {','.join(map(str, dict.fromkeys(sizes)))}"
        raise InputError(f"{flag} is {shown(text)}; a size is there twice", rule="each size is given once", hint=hint)
    return sizes


def doubling(first: int, last: int) -> list[int]:
    """``first`` and its doubles up to ``last``, and ``last``. Raises ``InputError`` if that is no range."""
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


def check_gain(least_gain: float) -> None:
    """Raises InputError unless the gain is valid."""
    if not 0 < least_gain <= 1:
        raise InputError(
            f"least_gain is {shown(least_gain)}",
            rule="least_gain is a share above 0 and at most 1",
            hint="give 0.5 for half of what an accelerator brings at the smallest size",
        )


PER_DOUBLING: Final = 32
MARGIN: Final = 0.05
"""Share by which a size trains more per accelerator, at most, than the best evaluated one from half of it up to it."""
NEXT_RUNGS: Final = 2
"""Powers of two after the last that meets a limit of cost that are also searched."""
NEXT_SIZES: Final = 3
"""Sizes after the last that meets a limit of cost that are also searched."""
LARGEST_UNKNOWN: Final = 131_072
"""Largest size of a cluster without a known bound: that of the largest announced clusters."""


class SizedRun(Protocol):
    """What is known of a run on one size."""

    @property
    def num_accelerators(self) -> int:
        """Working accelerators."""
        ...

    @property
    def wall_time(self) -> float:
        """Time of the whole run. [s]"""
        ...


R = TypeVar("R", bound=SizedRun)
Evaluate = Callable[[int], R | None]
"""Returns the run on a size; None if it has no plan."""
IsSlower = Callable[[int, float], bool]
"""Whether the run on a size certainly takes longer than a wall time [s]: cheaper to find than its exact time."""


def sizes_of(node_size: int, most: int | None, per_doubling: int = PER_DOUBLING) -> tuple[int, ...]:
    """Whole nodes in growing order, at most ``per_doubling`` between one power of two and the next."""
    most = most or LARGEST_UNKNOWN
    found = [size for size in range(1, node_size) if node_size % size == 0 and size <= most]
    size = node_size
    while size <= most:
        found.append(size)
        octave = 1 << (size.bit_length() - 1)
        size += node_size * max(octave // per_doubling // node_size, 1)
    return tuple(found)


def _rungs(sizes: Sequence[int]) -> list[int]:
    """Indices of the sizes that are about twice the one before, the last included."""
    places, least = [], 0
    for place, size in enumerate(sizes):
        if size >= least:
            places.append(place)
            least = 2 * size
    return [*places, *([len(sizes) - 1] if places[-1] != len(sizes) - 1 else [])]


def fewest(
    sizes: Sequence[int], evaluate: Evaluate[R], wall_time: float, is_slower: IsSlower | None = None
) -> tuple[R | None, list[R]]:
    """The fewest accelerators that finish within ``wall_time``, and all runs that were searched."""
    seen: dict[int, R | None] = {}
    slower: list[int] = []

    def run(place: int) -> R | None:
        if place not in seen:
            seen[place] = evaluate(sizes[place])
        return seen[place]

    def meets(place: int) -> bool:
        found = run(place)
        return found is not None and found.wall_time <= wall_time

    rungs = _rungs(sizes)
    first = _first(len(rungs), lambda number: meets(rungs[number]), start=_estimated_rung(sizes, rungs, run, wall_time))
    low = rungs[max(first - 2, 0)]
    high = rungs[first] if first < len(rungs) else len(sizes)
    for place in range(low, high):
        size = sizes[place]
        near = [each for each in seen.values() if each is not None and size <= 2 * each.num_accelerators <= 2 * size]
        if place not in seen and near:
            if not _could_finish_in_time(near, slower, size, wall_time):
                continue
            if is_slower is not None and is_slower(size, wall_time):
                slower.append(size)
                continue
        if meets(place):
            high = place
            break
    runs = [found for found in seen.values() if found is not None]
    return (run(high) if high < len(sizes) else None), runs


def _estimated_rung(
    sizes: Sequence[int], rungs: Sequence[int], run: Callable[[int], SizedRun | None], wall_time: float
) -> int:
    """The rung that would finish in time if all accelerators were as fast as those of a middle one."""
    for number in range(len(rungs) // 2, len(rungs)):
        found = run(rungs[number])
        if found is not None:
            wanted = found.wall_time / wall_time * found.num_accelerators
            return min(bisect_left([sizes[place] for place in rungs], wanted), len(rungs) - 1)
    return 0


def _first(count: int, meets: Callable[[int], bool], *, start: int) -> int:
    """The first of ``count`` that meets a limit that all later ones meet; ``count`` if none does."""
    place = start
    if meets(place):
        while place > 0 and meets(place - 1):
            place -= 1
        return place
    while place < count and not meets(place):
        place += 1
    return place


def _last(count: int, fits: Callable[[int], bool]) -> int | None:
    """The last of ``count`` that fits, searched from the middle until two in a row do not; None if none does."""
    place = count // 2
    while place >= 0 and not fits(place):
        place -= 1
    found = place
    while place + 1 < count and place - found < NEXT_RUNGS:
        place += 1
        found = place if fits(place) else found
    return found if found >= 0 else next((n for n in range(count // 2 + 1, count) if fits(n)), None)


def _could_finish_in_time(near: Sequence[SizedRun], slower: Sequence[int], size: int, wall_time: float) -> bool:
    """Whether a size would finish in time at the best rate per accelerator of those near it.

    ``slower`` are sizes that are known to be too slow, but not by how much.
    """
    if any(size <= 2 * other for other in slower):
        return True
    work = min(run.wall_time * run.num_accelerators for run in near)
    return work / (1 + MARGIN) <= wall_time * size


def soonest(sizes: Sequence[int], evaluate: Evaluate[R], affords: Callable[[R], bool]) -> tuple[R | None, list[R]]:
    """The run that finishes first among those that ``affords`` accepts, and all runs that were searched."""
    seen: dict[int, R | None] = {}

    @cache
    def fits(place: int) -> bool:
        seen[place] = evaluate(sizes[place])
        found = seen[place]
        return found is not None and affords(found)

    rungs = _rungs(sizes)
    good = _last(len(rungs), lambda number: fits(rungs[number]))
    if good is not None:
        low = rungs[good]
        high = rungs[good + 1] if good + 1 < len(rungs) else low + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        for place in range(low + 1, min(low + 1 + NEXT_SIZES, len(sizes))):
            fits(place)
    runs = [found for found in seen.values() if found is not None]
    taken = [run for run in runs if affords(run)]
    return min(taken, key=lambda run: run.wall_time, default=None), runs
