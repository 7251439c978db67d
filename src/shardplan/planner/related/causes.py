"""Where nothing fits: the plan that needs least memory, and numbers of the question that divide badly.

Ranks share a sequence evenly, degrees divide the accelerators, and replicas divide the batch. A length of 1,000,003
tokens leaves no context parallelism, 1,021 accelerators leave one degree. Such a number is named as the cause if the
plan that needs least memory needs much less with its neighbour, that divides well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import gcd
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardplan.base.errors import InputError
from shardplan.base.units import format_bytes
from shardplan.estimation.question import Question
from shardplan.inputs.counts import MAX_NUM_ACCELERATORS
from shardplan.inputs.plan import Plan
from shardplan.planner.evaluation import pairs_in
from shardplan.planner.pricing.pairs import peaks
from shardplan.planner.pricing.tables import Tables
from shardplan.planner.pruning.bounds import ROUNDING, FirstStages
from shardplan.planner.related.counts import LARGEST_UNIT, Pair, batches_near, layouts_of
from shardplan.planner.related.neighbours import MORE_LAYOUTS

FIRST = 256
"""Points with a recomputation that may be lightest of all, which are looked at first."""
MORE = 8
"""Times as many are looked at next where others may be lighter."""


class _Found(NamedTuple):
    """A plan with its memory; of plans that need as much the first one in this order counts."""

    peak_memory_bytes: float
    family: int
    sharding: int
    slot: int
    point: int
    layout: int


def lightest_plan(families: Sequence[Tables]) -> Plan:
    """The valid plan that needs least memory.

    Looked for among plans that may need no more than some bytes, until these are enough for one of them.
    """
    least = [FirstStages(tables).least_memory() for tables in families]
    ordered = np.sort(np.concatenate([each.ravel() for each in least]))
    size, most, best = FIRST, -np.inf, None
    while best is None or best.peak_memory_bytes * (1 + ROUNDING) > most:
        most = float(ordered[size - 1]) if size < len(ordered) else np.inf
        most = min(most, best.peak_memory_bytes * (1 + ROUNDING)) if best else most
        every = (_lightest(number, families[number], each <= most) for number, each in enumerate(least))
        size, best = MORE * size, min((each for found in every for each in found), default=None)
    return families[best.family].plan(best.sharding, best.slot, best.layout, best.point)


def _lightest(number: int, whole: Tables, cells: NDArray[np.bool_]) -> Iterator[_Found]:
    """The lightest plan of some cells of a family, by slot of recomputation and point."""
    points = np.flatnonzero(cells.any(axis=0))
    tables = whole.within(points, cells[:, points])
    plans = pairs_in(tables, tables.family.recomputes)
    if len(plans.points):
        peak = peaks(tables, plans, on_any_host=True)
        kind, plan = np.nonzero(peak == peak.min())
        rows = zip(kind, plans.slots[plan], points[plans.points[plan]], plans.layouts[plan], strict=True)
        yield min(_Found(float(peak.min()), number, *map(int, row)) for row in rows)


LARGEST_SLICES: Final = 1024
"""Slices that a length divides by which divides well: two for each of 512 ranks that share it."""
LENGTH_SHARE: Final = 1 / 64
"""Share by which a length that divides well differs at most."""
MUCH_LESS: Final = 0.9
"""Factor in memory from which a number is named as the cause: judgement, more than a neighbour itself explains."""


def near_length(question: Question) -> int | None:
    """The length nearest to the one asked for that divides by as many slices as ranks may have; None where that does.

    Slices are powers of two: twice the largest of them that divides the accelerators.
    """
    length, number = question.job.sequence_length, question.num_accelerators
    slices = min(2 * (number & -number), LARGEST_SLICES)
    while slices > length * LENGTH_SHARE:
        slices //= 2
    if slices <= 1 or length % slices == 0:
        return None
    below = length // slices * slices
    nearest = (below, below + slices) if 2 * (length - below) <= slices else (below + slices, below)
    return next((each for each in nearest if _is_allowed(question, each)), None)


def _is_allowed(question: Question, length: int) -> bool:
    """Whether the model takes sequences of this length."""
    try:
        with_length(question, length)
    except InputError:
        return False
    return True


def with_length(question: Question, length: int) -> Question:
    """The same with sequences of another length. Raises InputError."""
    return replace(question, job=replace(question.job, sequence_length=length))


def next_pair(question: Question) -> Pair | None:
    """The next count of accelerators that fills whole nodes, with a batch that suits it, where it has more layouts."""
    number, batch = question.num_accelerators, question.job.global_batch_size
    unit = min(LARGEST_UNIT, 1 << (number - 1).bit_length())
    above = -(-number // unit) * unit
    if above == number or above > MAX_NUM_ACCELERATORS:
        return None
    pairs = [(number, batch), (above, batch), *((above, size) for size in batches_near(above, batch))]
    layouts = layouts_of(np.asarray(pairs), question.model.num_hidden_layers)
    place = 1 if MORE_LAYOUTS * layouts[1] >= layouts.max() else int(layouts.argmax())
    return pairs[place] if layouts[place] > MORE_LAYOUTS * layouts[0] else None


def fits_then(what: str) -> str:
    """What comes of a number that divides well, where a plan fits then."""
    return f"with {what} a plan fits"


def least_then(what: str, least: float) -> str:
    """What comes of it where none fits: the memory of the plan that needs least. [bytes]"""
    return f"with {what} the least is {format_bytes(least)}"


CAUSES: Final = {
    "length": "a sequence of {:,} tokens ({}) leaves few ways to share it among ranks",
    "count": "{:,} accelerators ({}) leave few layouts, as tp, cp, pp and dp divide them",
    "batch": "a batch of {:,} sequences ({}) leaves few layouts, as dp divides it",
}


def cause(what: str, number: int, then: str) -> str:
    """That a length, a count of accelerators or a batch is the cause, and what comes of another."""
    return f"{CAUSES[what].format(number, factors(number))}; {then}"


def pair_cause(question: Question, then: str) -> str:
    """That count and batch together are the cause, and what comes of others."""
    number, batch = question.num_accelerators, question.job.global_batch_size
    common = gcd(number, batch)
    return f"{number:,} accelerators and a batch of {batch:,} sequences have only {common:,} as common divisor; {then}"


def factors(number: int) -> str:
    """A number as the product of its prime factors; ``a prime number``.

    >>> factors(1_000_003), factors(1_022), factors(1024)
    ('a prime number', '2 x 7 x 73', '2^10')
    """
    found = [*_prime_factors(number)]
    if len(found) == 1:
        return "a prime number"
    powers = {prime: found.count(prime) for prime in found}
    return " x ".join(f"{prime:,}^{power}" if power > 1 else f"{prime:,}" for prime, power in powers.items()) or "one"


def _prime_factors(number: int) -> Iterator[int]:
    """Prime factors, the smallest first, each as often as it divides."""
    divisor = 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            yield divisor
            number //= divisor
        divisor += 1
    if number > 1:
        yield number
