"""The size of a cluster that meets a limit: few searches over the sizes there are.

Sizes are whole nodes, 32 of them from one power of two to the next. The time of a run falls with the size, but not
everywhere: a size whose divisors do not suit the model trains less per accelerator than its neighbours. So a bisection
between powers of two is followed by every size that could still meet the limit: one where the best rate per accelerator
among the sizes from half of it up to it, and ``MARGIN`` more, is enough.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final, Protocol, TypeVar

PER_DOUBLING: Final = 32
MARGIN: Final = 0.05
"""By which a size trains more per accelerator, at most, than the best evaluated one from half of it up to it."""
NEXT_RUNGS: Final = 2
"""Powers of two behind the last that meets a limit of money that are looked at, too."""
NEXT_SIZES: Final = 3
"""Sizes behind the last that meets a limit of money that are looked at, too."""
LARGEST_UNKNOWN: Final = 131_072
"""Largest size of a cluster of which no bound is known: that of the largest clusters announced."""


class SizedRun(Protocol):
    """What is known of a run on one size."""

    @property
    def num_accelerators(self) -> int:
        """Accelerators at work."""
        ...

    @property
    def wall_time(self) -> float:
        """Of the whole run. [s]"""
        ...


R = TypeVar("R", bound=SizedRun)
Evaluate = Callable[[int], R | None]
"""The run on a size; None where it has no plan."""
IsSlower = Callable[[int, float], bool]
"""Whether the run on a size certainly takes longer than a wall time [s]: sooner found out than how long it takes."""


def sizes_of(node_size: int, most: int | None) -> tuple[int, ...]:
    """Whole nodes in growing order."""
    most = most or LARGEST_UNKNOWN
    below = range(1, node_size)
    found = [size for size in below if node_size % size == 0 and size <= most]
    size = node_size
    while size <= most:
        found.append(size)
        octave = 1 << (size.bit_length() - 1)
        size += node_size * max(octave // PER_DOUBLING // node_size, 1)
    return tuple(found)


def _rungs(sizes: Sequence[int]) -> list[int]:
    """Places of the sizes that are about twice the one before, the last included."""
    places, least = [], 0
    for place, size in enumerate(sizes):
        if size >= least:
            places.append(place)
            least = 2 * size
    return [*places, *([len(sizes) - 1] if places[-1] != len(sizes) - 1 else [])]


def fewest(
    sizes: Sequence[int], evaluate: Evaluate[R], wall_time: float, is_slower: IsSlower | None = None
) -> tuple[R | None, list[R]]:
    """The fewest accelerators that are done within ``wall_time``, and all runs that were looked at."""
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
    first = _first(len(rungs), lambda number: meets(rungs[number]), start=_guess(sizes, rungs, run, wall_time))
    low = rungs[max(first - 2, 0)]
    high = rungs[first] if first < len(rungs) else len(sizes)
    for place in range(low, high):
        near = _near(seen, sizes[place])
        if place not in seen and near:
            if not _could_meet(near, slower, sizes[place], wall_time):
                continue
            if is_slower is not None and is_slower(sizes[place], wall_time):
                slower.append(sizes[place])
                continue
        if meets(place):
            high = place
            break
    runs = [found for found in seen.values() if found is not None]
    return (run(high) if high < len(sizes) else None), runs


def _guess(sizes: Sequence[int], rungs: Sequence[int], run: Callable[[int], SizedRun | None], wall_time: float) -> int:
    """The rung at which the run on a middle one would be done in time, were all as fast per accelerator."""
    for number in range(len(rungs) // 2, len(rungs)):
        found = run(rungs[number])
        if found is not None:
            wanted = found.wall_time / wall_time * found.num_accelerators
            return min(bisect_left([sizes[place] for place in rungs], wanted), len(rungs) - 1)
    return 0


def _first(count: int, meets: Callable[[int], bool], *, start: int) -> int:
    """The first of ``count`` that meets a limit that all later ones meet; ``count`` where none does."""
    place = start
    if meets(place):
        while place > 0 and meets(place - 1):
            place -= 1
        return place
    while place < count and not meets(place):
        place += 1
    return place


def _last(count: int, fits: Callable[[int], bool]) -> int | None:
    """The last of ``count`` that fits, looked for from the middle until two in turn do not; None where none does."""
    place = count // 2
    while place >= 0 and not fits(place):
        place -= 1
    found = place
    while place + 1 < count and place - found < NEXT_RUNGS:
        place += 1
        found = place if fits(place) else found
    return found if found >= 0 else next((n for n in range(count // 2 + 1, count) if fits(n)), None)


def _near(seen: Mapping[int, R | None], size: int) -> list[R]:
    """Runs on sizes from half of ``size`` up to it."""
    return [run for run in seen.values() if run is not None and size <= 2 * run.num_accelerators <= 2 * size]


def _could_meet(near: Sequence[SizedRun], slower: Sequence[int], size: int, wall_time: float) -> bool:
    """Whether a size would be done in time at the best rate per accelerator of those near it.

    Of those that are ``slower`` it is not known by how much.
    """
    if any(size <= 2 * other for other in slower):
        return True
    work = min(run.wall_time * run.num_accelerators for run in near)
    return work / (1 + MARGIN) <= wall_time * size


def soonest(sizes: Sequence[int], evaluate: Evaluate[R], affords: Callable[[R], bool]) -> tuple[R | None, list[R]]:
    """The run that is done soonest among those that ``affords`` takes, and all that were looked at."""
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
