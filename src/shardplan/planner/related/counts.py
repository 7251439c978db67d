r"""Counts of accelerators and batches: how many layouts they leave, and whether they can have a plan that fits at all.

Where a user fixes degrees, most neighbouring counts of accelerators and batches have no plan; and a model whose states
exceed all memory together fits by no plan. That is arithmetic, and need not be searched.

Fewer accelerators than were given: the counts that may train the same batch in less time.

A count whose divisors do not suit the model or the batch leaves few plans, and racks of 72 leave few groups of a power
of two: 64 of 72 in each are often faster. Counts that can be laid out are whole domains of the innermost tier, and a
power of two of the accelerators in each domain; inside one domain whole nodes. Where the batch leaves all accelerators
few layouts, there are those too that divide it well, whatever the nodes. Those that are too few by arithmetic are left
out: with F operations in a step, peak P and the fastest step T on all accelerators,

.. math:: N' \le \frac{F}{P\,T}

Where there are ``MOST_SEARCHED`` or fewer, all are searched. Of more, the largest of each odd part is kept: it has the
layouts of those that differ from it by powers of two, with more replicas or longer groups. Of these, counts with less
than ``LEAST_LAYOUTS`` times the layouts of all accelerators are left out, and ``MOST_SEARCHED`` are searched: those
that promise most (``worth``), and the one of most layouts. Where the batch leaves all accelerators few
layouts, the largest counts that it fills with small replicas come first, however few layouts they have.

They are searched one after the other for plans that are faster than the best so far, so that most cost little. Where
one is, the counts below it are looked at in the same way, up to ``MOST_SEARCHED`` in all.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import ceil, gcd
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import divisors
from shardplan.base.errors import InputError
from shardplan.base.fields import replace
from shardplan.estimation.charge import step_flops
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import Degrees
from shardplan.physics.costs.network import power_of_two
from shardplan.physics.validity import RULES
from shardplan.planner.pruning.bounds import least_bytes
from shardplan.planner.restrictions import Restrictions, values_given
from shardplan.planner.result import FewerCounts

FEWEST: Final = 0.75
"""Share of the accelerators that an offer uses at least: a power of two, or three of them, is never much further.
Where the batch leaves them less than ``HALF_TOKENS`` each, of those that have as many."""
BATCH_SHARE: Final = 0.125
"""Share by which the batch of an offer differs at most."""
HALF_LAYOUTS: Final = 16.0
"""Layouts that are half as good as any number of them: judgement, a quarter of those that are enough."""
HALF_TOKENS: Final = 1024
"""Tokens of a step on each accelerator with which these are half as fast. Judgement: twice what a rank has at least."""
ENOUGH_LAYOUTS: Final = 64
"""Layouts with which a pair has no neighbour worth a search (``benchmarks/random_questions.py``)."""
MOST_COUNTS: Final = 128
MOST_OF_BATCH: Final = 16
"""Counts that suit the batch alone that are looked at: few of them fill whole nodes."""
LARGEST_UNIT: Final = 8
"""Accelerators of the largest node that counts fill: racks and slices are shared."""
Item = TypeVar("Item")
Pair = tuple[int, int]
"""Number of accelerators and global batch."""
TENSOR, CONTEXT, DEEPEST = (1, 2, 4, 8, 16), (1, 2, 4, 8), 64
"""Degrees whose products are counted."""


def has_enough_layouts(question: Question) -> bool:
    """Whether no neighbour is worth a search."""
    (layouts,) = layouts_of(np.asarray([asked_pair(question)]), question.model.num_hidden_layers)
    return bool(layouts >= ENOUGH_LAYOUTS)


def asked_pair(question: Question) -> Pair:
    """What was asked for."""
    return question.num_accelerators, question.job.global_batch_size


def worth(question: Question, pairs: NDArray[np.int64], layouts: NDArray[np.float64]) -> NDArray[np.float64]:
    """What pairs with so many layouts promise."""
    number, batch = pairs.T
    tokens = batch * question.job.sequence_length
    return layouts / (layouts + HALF_LAYOUTS) / (1 / number + HALF_TOKENS / tokens)


def first_and_richest(ranked: Sequence[Item], most: int, layouts: Callable[[Item], float]) -> list[Item]:
    """The first of some counts or pairs, ``most`` in all: the last of them is the one of most layouts."""
    return [*ranked[: most - 1], *sorted(ranked[most - 1 :], key=lambda each: -layouts(each))[:1]]


def worth_of_batches(question: Question, batches: Sequence[int]) -> list[float]:
    """What batches promise on the accelerators of the question, by how many layouts they leave."""
    pairs = np.asarray([(question.num_accelerators, batch) for batch in batches], np.int64).reshape(-1, 2)
    found: list[float] = worth(question, pairs, layouts_of(pairs, question.model.num_hidden_layers)).tolist()
    return found


def pairs_near(question: Question) -> Iterator[Pair]:
    """Neighbouring counts with the batch that was asked for and those near it that suit them."""
    batch, counts = question.job.global_batch_size, _counts(question)
    for number in (question.num_accelerators, *counts):
        for size in dict.fromkeys((batch, *batches_near(number, batch))):
            if (number, size) != (question.num_accelerators, batch):
                yield number, size
    yield from ((number, batch) for number in counts_of_batch(question) if number not in counts)


def _fewest(question: Question) -> int:
    """The smallest count that is looked at: a share of the accelerators, of those that the batch can feed."""
    fed = question.job.tokens_per_step / HALF_TOKENS
    return max(ceil(FEWEST * min(question.num_accelerators, fed)), 1)


def _counts(question: Question) -> Sequence[int]:
    """Fewer accelerators that fill whole nodes, or eighths of larger domains; the rounder ones of many."""
    number, domain = question.num_accelerators, question.network.tiers[0].size or 1
    unit = gcd(domain, LARGEST_UNIT) if number > LARGEST_UNIT else 1
    fewest = _fewest(question)
    while unit > 1 and (number - 1) // unit * unit < fewest:
        unit //= 2
    while (number - fewest) // unit > MOST_COUNTS:
        unit *= 2
    return range((number - 1) // unit * unit, fewest - 1, -unit)


def counts_of_batch(question: Question) -> list[int]:
    """Fewer accelerators, of which layouts leave replicas that divide the batch: those of most layouts."""
    number, batch = question.num_accelerators, question.job.global_batch_size
    ranks, weight = _ranks(question.model.num_hidden_layers)
    products = np.multiply.outer(ranks, divisors(batch))
    near = (products >= _fewest(question)) & (products < number)
    counts, place = np.unique(products[near], return_inverse=True)
    layouts = np.bincount(place, np.broadcast_to(weight[:, None], products.shape)[near]).astype(np.float64)
    promises = worth(question, np.stack([counts, np.full_like(counts, batch)], axis=1), layouts)
    return [int(count) for count in counts[np.argsort(-promises, kind="stable")[:MOST_OF_BATCH]]]


def batches_near(number: int, batch: int) -> Iterator[int]:
    """The batches nearest to ``batch`` that are multiples of the odd part of ``number`` times powers of two."""
    unit = number // (number & -number)
    while unit <= (1 + BATCH_SHARE) * batch:
        size = max(round(batch / unit), 1) * unit
        if abs(size - batch) <= BATCH_SHARE * batch:
            yield size
        unit *= 2


def _ranks(num_layers: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Accelerators of a replica under each layout, and the weighted number of layouts that have as many."""
    depths = np.arange(1, min(num_layers, DEEPEST) + 1)
    sizes = np.multiply.outer(np.multiply.outer(TENSOR, CONTEXT), depths)
    weights = np.broadcast_to(np.where(num_layers % depths == 0, 1.0, 0.5), sizes.shape)
    ranks, place = np.unique(sizes, return_inverse=True)
    return ranks, np.bincount(place.ravel(), weights.ravel()).astype(np.float64)


def layouts_of(pairs: NDArray[np.int64], num_layers: int) -> NDArray[np.float64]:
    """Weighted number of layouts of each pair."""
    ranks, weight = _ranks(num_layers)
    number, batch = pairs[:, :1], pairs[:, 1:]
    replicas = np.maximum(number // ranks, 1)
    return ((number % ranks == 0) & (batch % replicas == 0)) @ weight


OF_HEADS: Final = (
    "tensor-parallel ranks share heads evenly",
    "key-value heads divide tp, or tp divides them",
    "tensor-parallel ranks share the MLP width evenly",
)
"""Rules that no number of accelerators and no batch makes hold."""


def can_have_plans(question: Question, restrictions: Restrictions) -> bool:
    """Whether some degrees that the user allows divide the accelerators and the batch, and tp the heads.

    It is no more than necessary: a question that passes may still have no valid plan.
    """
    try:
        given = values_given(restrictions, question)
    except InputError:  # such as a range without a value that can be valid
        return False
    number, batch = question.num_accelerators, question.job.global_batch_size
    if "tp" in given and not {"tp_kind", "tp_rows"} & {*given}:
        given["tp"] = _sharing_heads(question, given["tp"])
    sizes = _products([given.get(name, divisors(number)) for name in ("tp", "cp", "pp")], number)
    allowed = given.get("dp")
    return any(batch % dp == 0 and (allowed is None or dp in allowed) for dp in (number // size for size in sizes))


def may_fit(question: Question, restrictions: Restrictions) -> bool:
    """Both: whether a question is worth a search."""
    return can_have_plans(question, restrictions) and can_fit(question, restrictions)


def can_fit(question: Question, restrictions: Restrictions) -> bool:
    """Whether the fullest accelerator can hold its share of the states: no more than necessary (``bounds``)."""
    offloads = values_given(restrictions, question).get("offload", (Plan().offload,))
    return any(least_bytes(question, offload) <= float(question.usable_memory) for offload in offloads)


def _products(factors: Iterable[Iterable[int]], number: int) -> set[int]:
    """Products of one of each of the ``factors`` that divide ``number``."""
    sizes = {1}
    for values in factors:
        sizes = {size * value for size, value in itertools.product(sizes, values) if number % (size * value) == 0}
    return sizes


def _sharing_heads(question: Question, degrees: Iterable[int]) -> tuple[int, ...]:
    """Tensor-parallel degrees that share the heads and the MLPs of the model evenly."""
    setting = question.setting
    rules = [rule for rule in RULES if rule.name in OF_HEADS]
    return tuple(tp for tp in degrees if all(rule.holds(setting, Degrees.of(Plan(tp=tp))) for rule in rules))


MOST_SEARCHED: Final = 8
LEAST_LAYOUTS: Final = 0.5
"""Share of the layouts of all accelerators from which a count is searched: fewer accelerators with fewer of them were
never faster (docs/search.md)."""
LEAST_GAIN: Final = 1e-3
"""Share of a step by which fewer accelerators are faster at least: less does not show in the digits of an answer."""
SMALL_REPLICAS: Final = (1, 2, 4, 8, 16)
"""Accelerators of replicas that are small: two nodes at most."""
MOST_OF_SMALL: Final = 4
"""Counts of small replicas that are searched."""
SMALL: Final = 8
"""Accelerators of which any number is used, whatever the nodes."""


def fewer_that_are_faster(
    asked: Question, fastest: float, faster_than: Callable[[int, float], float | None]
) -> tuple[int | None, FewerCounts]:
    """The number of accelerators below those of the question that takes least time, by its fastest plan.

    None where none is faster than all of them. With what was looked at.

    ``fastest``: the fastest step on all of them; infinite where no plan fits [s]; ``faster_than``: that of a count,
    where it takes less than a time.
    """
    started = time.perf_counter()
    used, best = asked.num_accelerators, fastest
    looked_at: list[int] = []
    left = counts_to_search(asked, fastest)
    while left:
        before = used
        for count in left:
            within = best if used < asked.num_accelerators else best * (1 - LEAST_GAIN)
            found = faster_than(count, within)
            used, best = (used, best) if found is None else (count, found)
        looked_at += left
        below = counts_to_search(replace(asked, num_accelerators=used), best) if used != before else []
        left = [count for count in below if count not in looked_at][: MOST_SEARCHED - len(looked_at)]
    account = FewerCounts(
        counts=tuple(looked_at),
        search_time=time.perf_counter() - started,
        step_time_of_all=fastest if np.isfinite(fastest) else None,
    )
    return used if used < asked.num_accelerators else None, account


def counts_to_search(question: Question, fastest: float) -> list[int]:
    """The counts that promise most first. ``fastest``: step time that they are to beat, infinite for none. [s]"""
    peak = question.cluster.accelerator.peak(question.job.recipe.matmul)
    fewest = step_flops(question) / (peak * fastest)
    units = counts_worth_trying(question)
    is_all = len(units) <= MOST_SEARCHED
    largest = sorted({count // (count & -count): count for count in sorted(units)}.values())  # of each odd part
    counts = [count for count in (units if is_all else largest) if count > fewest]
    if not counts:
        return []
    batch = question.job.global_batch_size
    pairs = np.asarray([(count, batch) for count in (question.num_accelerators, *counts)])
    layouts = layouts_of(pairs, question.model.num_hidden_layers)
    order = [place for place in np.argsort(-worth(question, pairs, layouts), kind="stable").tolist() if place]
    if not is_all:
        least = LEAST_LAYOUTS * layouts[0] if np.isfinite(fastest) else 0.0
        rich = [place for place in order if layouts[place] >= least]
        order = first_and_richest(rich, MOST_SEARCHED, lambda place: float(layouts[place]))
    ranked = [int(pairs[place, 0]) for place in order]
    poor = not is_all and not has_enough_layouts(question)
    first = [] if not poor else [count for count in counts_of_small_replicas(question) if count > fewest]
    return [*dict.fromkeys((*first[:MOST_OF_SMALL], *ranked))][:MOST_SEARCHED]


def counts_worth_trying(question: Question) -> list[int]:
    """Those of units, and where the batch leaves all accelerators few layouts those that it leaves most."""
    units = counts_of_units(question)
    if has_enough_layouts(question):
        return units
    return sorted({*units, *counts_of_batch(question), *counts_of_small_replicas(question)})


def counts_of_units(question: Question) -> list[int]:
    """Counts below that of the question which fill domains, or a power of two in each; inside one domain, nodes."""
    number, tier = question.num_accelerators, question.network.tiers[0]
    domain = tier.size
    if domain is None or number <= domain:
        unit = 1 if number <= SMALL else question.cluster.accelerators_per_node
        return [*range(unit, number, unit)]
    power = power_of_two(domain)
    full, rest = divmod(number, domain)
    whole = range(domain, number, domain)
    of_each = range(power, min((full + (rest >= power)) * power + 1, number), power)
    return sorted({*whole, *of_each})


def counts_of_small_replicas(question: Question) -> list[int]:
    """The largest count for each small replica of which a number that divides the batch fits; from large to small."""
    number, numbers = question.num_accelerators, np.asarray(divisors(question.job.global_batch_size))
    found = (size * numbers[size * numbers < number] for size in SMALL_REPLICAS)
    return sorted({int(counts.max()) for counts in found if len(counts)}, reverse=True)
