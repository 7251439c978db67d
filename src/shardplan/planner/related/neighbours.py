r"""Counts of accelerators and batches near those that were asked for, which train more tokens a second.

A count whose divisors do not suit the model, or a batch that its replicas do not divide, leaves few plans: 5,000
accelerators are slower than 4,992. Counts down to ``FEWEST`` of those there are, and batches within ``BATCH_SHARE`` are
looked at by how many layouts each pair leaves,

.. math:: L(N, B) = \sum_{tp, cp, pp} w(pp)\,[tp\,cp\,pp \mid N]\,[\tfrac{N}{tp\,cp\,pp} \mid B]

with half the weight for depths that do not divide the layers. The pairs with many more layouts than the one that was
asked for are searched, those nearest to it first, and offered where they train ``LEAST_GAIN`` more tokens a second.
Where these are too many, those for which :math:`N L / (L + L_{1/2})` is largest: accelerators count in full, layouts
less and less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import ceil, gcd
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shardplan.errors import ShardplanError
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.question import Question
from shardplan.frameworks.stack import Stack
from shardplan.planner.layouts import KnownPipelines
from shardplan.planner.pruning.goals import Listing
from shardplan.planner.related.possible import can_have_plans
from shardplan.planner.related.taken import plan_to_take
from shardplan.planner.restrictions import Restrictions
from shardplan.planner.result import Offer
from shardplan.planner.space import declare
from shardplan.planner.stopping import Stop
from shardplan.planner.survey import Survey, survey_of

FEWEST: Final = 0.75
"""Share of the accelerators that an offer uses at least: a power of two, or three of them, is never much further."""
BATCH_SHARE: Final = 0.125
"""Share by which the batch of an offer differs at most."""
LEAST_GAIN: Final = 0.02
"""Gain in tokens per second from which a pair is offered: less is within the noise of equal measured runs."""
MORE_LAYOUTS: Final = 1.3
"""Factor in layouts from which a pair is searched, and between one and the next."""
HALF_LAYOUTS: Final = 16.0
"""Layouts that are half as good as any number of them: judgement, a quarter of those that are enough."""
ENOUGH_LAYOUTS: Final = 64
"""Layouts with which a pair has no neighbour worth a search (``benchmarks/random_questions.py``)."""
MOST_SEARCHED: Final = 3
"""Pairs with the batch that was asked for that are searched, and as many with another."""
MOST_COUNTS: Final = 128
LARGEST_UNIT: Final = 8
"""Accelerators of the largest node that counts fill: racks and slices are shared."""
TENSOR, CONTEXT, DEEPEST = (1, 2, 4, 8, 16), (1, 2, 4, 8), 64
"""Degrees whose products are counted."""
COMPUTING: Final = ("matmul", "attention")
"""Terms of a step that fewer accelerators do not shorten."""

Pair = tuple[int, int]
"""Number of accelerators and global batch."""


def offers_of(
    question: Question,
    fastest: Estimate,
    restrictions: Restrictions,
    stack: Stack | None,
    *,
    known: KnownPipelines | None = None,
    stop: Stop | None = None,
) -> tuple[Offer, ...]:
    """What trains more tokens a second than ``fastest``, the best first: at most three pairs."""
    pairs = _promising(question, _most_gain(fastest))
    per_second = question.job.global_batch_size / fastest.step_time
    found = _found(question, pairs, restrictions, stack, known=known, stop=stop)
    offers = [replace(each, gain=_rate(each) / per_second - 1) for each in found]
    return _worth_it(question, [offer for offer in offers if offer.gain > LEAST_GAIN])


def nearest_with_plans(
    question: Question,
    restrictions: Restrictions,
    stack: Stack | None,
    *,
    known: KnownPipelines | None = None,
    stop: Stop | None = None,
) -> Offer | None:
    """Where no plan is valid: the neighbouring pair that trains most tokens a second, if any has plans that fit."""
    pairs = _promising(question)
    found = _found(question, pairs, restrictions, stack, known=known, stop=stop, find=plan_to_take)
    return max(found, key=_rate, default=None)


def _rate(offer: Offer) -> float:
    """Sequences per second."""
    return offer.global_batch_size / offer.estimate.step_time


def _found(
    question: Question,
    pairs: Sequence[Pair],
    restrictions: Restrictions,
    stack: Stack | None,
    *,
    known: KnownPipelines | None,
    stop: Stop | None,
    find: Callable[[Survey], Estimate | None] = Survey.best_where,
) -> list[Offer]:
    """The fastest plan of each pair that has one, or another that ``find`` finds."""
    known, found = known or KnownPipelines(), []
    for number, batch in pairs:
        other = _asked_with(question, (number, batch))
        if not can_have_plans(other, restrictions):
            continue
        try:
            space = declare(other, restrictions, stack)
        except ShardplanError:  # the count contradicts a restriction
            continue
        best = find(survey_of(other, space, goal=Listing(), known=known, stop=stop))
        if best is not None:
            found.append(Offer(num_accelerators=number, global_batch_size=batch, gain=0.0, estimate=best))
    return found


def _asked_with(question: Question, pair: Pair) -> Question:
    number, batch = pair
    return replace(question, num_accelerators=number, job=replace(question.job, global_batch_size=batch))


def _worth_it(question: Question, offers: Sequence[Offer]) -> tuple[Offer, ...]:
    """The best offer of all, of those that keep the batch and of those that keep the accelerators, the best first.

    Where two gain alike, the one that changes less.
    """
    found = sorted(offers, key=lambda offer: (-round(offer.gain / LEAST_GAIN), _changes(question, offer)))
    same_batch = [each for each in found if each.global_batch_size == question.job.global_batch_size]
    same_count = [each for each in found if each.num_accelerators == question.num_accelerators]
    kept = {id(each): each for each in (*found[:1], *same_batch[:1], *same_count[:1])}
    return tuple(sorted(kept.values(), key=lambda offer: -offer.gain))


def _changes(question: Question, offer: Offer) -> tuple[int, int]:
    """How much of the question an offer changes: a batch and a count, then how many accelerators are left."""
    other_batch = offer.global_batch_size != question.job.global_batch_size
    idle = question.num_accelerators - offer.num_accelerators
    return other_batch + (idle > 0), idle


def _promising(question: Question, bound: float = np.inf) -> tuple[Pair, ...]:
    """Pairs to search: those with many more layouts, each the nearest with that many, the nearest first.

    ``bound``: factor by which a pair could be faster at most on as many accelerators.
    """
    asked = (question.num_accelerators, question.job.global_batch_size)
    pairs = [asked, *(pair for pair in _pairs(question) if pair[0] * bound > asked[0] * (1 + LEAST_GAIN))]
    numbered = np.asarray(pairs)
    layouts = _layouts(numbered, question.model.num_hidden_layers)
    if layouts[0] >= ENOUGH_LAYOUTS:
        return ()
    order = sorted(range(1, len(pairs)), key=lambda place: _distance(asked, pairs[place]))
    same = [place for place in order if pairs[place][1] == asked[1]]
    other = [place for place in order if pairs[place][1] != asked[1]]
    worth = numbered[:, 0] * layouts / (layouts + HALF_LAYOUTS)
    return tuple(pairs[place] for places in (same, other) for place in _growing(layouts, worth, places))


def _growing(layouts: NDArray[np.float64], worth: NDArray[np.float64], places: Sequence[int]) -> list[int]:
    """Of pairs in their order those with many more layouts than the one asked for and all chosen before.

    Where these are too many, those that are worth most.
    """
    chosen, most = [], MORE_LAYOUTS * float(layouts[0])
    for place in places:
        if layouts[place] > most:
            chosen.append(place)
            most = MORE_LAYOUTS * float(layouts[place])
    return sorted(sorted(chosen, key=lambda place: -worth[place])[:MOST_SEARCHED], key=chosen.index)


def _most_gain(fastest: Estimate) -> float:
    """Factor by which the same accelerators could be faster at most: if they did nothing but compute."""
    computing = sum(fastest.breakdown.get(term, 0.0) for term in COMPUTING)
    return fastest.step_time / max(computing, 1e-3 * fastest.step_time)


def _distance(asked: Pair, pair: Pair) -> tuple[int, int]:
    return asked[0] - pair[0], abs(asked[1] - pair[1])


def _pairs(question: Question) -> Iterator[Pair]:
    """Neighbouring counts with the batch that was asked for and those near it that suit them."""
    batch = question.job.global_batch_size
    for number in (question.num_accelerators, *_counts(question)):
        for size in dict.fromkeys((batch, *_batches(number, batch))):
            if (number, size) != (question.num_accelerators, batch):
                yield number, size


def _counts(question: Question) -> Sequence[int]:
    """Fewer accelerators that fill whole nodes, or eighths of larger domains; the rounder ones of many."""
    number, domain = question.num_accelerators, question.network.tiers[0].size or 1
    unit = gcd(domain, LARGEST_UNIT) if number > LARGEST_UNIT else 1
    fewest = max(ceil(FEWEST * number), 1)
    while unit > 1 and (number - 1) // unit * unit < fewest:
        unit //= 2
    while (number - fewest) // unit > MOST_COUNTS:
        unit *= 2
    return range((number - 1) // unit * unit, fewest - 1, -unit)


def _batches(number: int, batch: int) -> Iterator[int]:
    """The batches nearest to ``batch`` that are multiples of the odd part of ``number`` times powers of two."""
    unit = number // (number & -number)
    while unit <= (1 + BATCH_SHARE) * batch:
        size = max(round(batch / unit), 1) * unit
        if abs(size - batch) <= BATCH_SHARE * batch:
            yield size
        unit *= 2


def _layouts(pairs: NDArray[np.int64], num_layers: int) -> NDArray[np.float64]:
    """Weighted number of layouts of each pair."""
    depths = np.arange(1, min(num_layers, DEEPEST) + 1)
    sizes = np.multiply.outer(np.multiply.outer(TENSOR, CONTEXT), depths)
    weights = np.broadcast_to(np.where(num_layers % depths == 0, 1.0, 0.5), sizes.shape)
    ranks, place = np.unique(sizes, return_inverse=True)
    weight = np.bincount(place.ravel(), weights.ravel())
    number, batch = pairs[:, :1], pairs[:, 1:]
    replicas = np.maximum(number // ranks, 1)
    return ((number % ranks == 0) & (batch % replicas == 0)) @ weight
