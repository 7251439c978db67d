r"""Counts of accelerators and batches near those that were asked for, which train more tokens a second.

A count whose divisors do not suit the model, or a batch that its replicas do not divide, leaves few plans: 5,000
accelerators are slower than 4,992. Counts down to ``FEWEST`` of those there are, and batches within ``BATCH_SHARE`` are
looked at by how many layouts each pair leaves: counts that fill whole nodes, and with the batch that was asked for
those that its divisors suit,

.. math:: L(N, B) = \sum_{tp, cp, pp} w(pp)\,[tp\,cp\,pp \mid N]\,[\tfrac{N}{tp\,cp\,pp} \mid B]

with half the weight for depths that do not divide the layers. Of the pairs with many more layouts than the one that was
asked for those are searched that promise most,

.. math:: \frac{1}{1 / N + T_{1/2} / (B S)} \cdot \frac{L}{L + L_{1/2}}

with sequences of S tokens: accelerators count as long as each has tokens of a step, layouts less and less. The best
comes first, so that of the others only plans are priced that may train more tokens a second. They are offered where
they train ``LEAST_GAIN`` more than what was asked for. A much larger batch is offered beside them
(:mod:`shardplan.planner.related.larger_batch`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil, gcd
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shardplan.arrays import divisors
from shardplan.errors import ShardplanError
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.parts.terms import keys_of
from shardplan.estimation.question import Question
from shardplan.fields import dataclass
from shardplan.frameworks.stack import Stack
from shardplan.planner.layouts import KnownPipelines
from shardplan.planner.pruning.goals import BestWith, Goal
from shardplan.planner.ranking import best_cell
from shardplan.planner.related.alike import plan_to_take, tables_of_space
from shardplan.planner.related.larger_batch import larger_batch
from shardplan.planner.related.possible import can_fit, can_have_plans
from shardplan.planner.restrictions import Restrictions
from shardplan.planner.result import Offer
from shardplan.planner.robustness import tested_by
from shardplan.planner.space import Space, declare
from shardplan.planner.stopping import Stop
from shardplan.planner.survey import Survey, survey_of

FEWEST: Final = 0.75
"""Share of the accelerators that an offer uses at least: a power of two, or three of them, is never much further.
Where the batch leaves them less than ``HALF_TOKENS`` each, of those that have as many."""
BATCH_SHARE: Final = 0.125
"""Share by which the batch of an offer differs at most."""
LEAST_GAIN: Final = 0.02
"""Gain in tokens per second from which a pair is offered: less is within the noise of equal measured runs."""
MORE_LAYOUTS: Final = 1.3
"""Factor in layouts from which a pair is searched."""
HALF_LAYOUTS: Final = 16.0
"""Layouts that are half as good as any number of them: judgement, a quarter of those that are enough."""
HALF_TOKENS: Final = 1024
"""Tokens of a step on each accelerator with which these are half as fast. Judgement: twice what a rank has at least."""
ENOUGH_LAYOUTS: Final = 64
"""Layouts with which a pair has no neighbour worth a search (``benchmarks/random_questions.py``)."""
MOST_SEARCHED: Final = 6
"""Pairs with the batch that was asked for that are searched, and as many with another, each of another count."""
MOST_COUNTS: Final = 128
MOST_OF_BATCH: Final = 16
"""Counts that suit the batch alone that are looked at: few of them fill whole nodes."""
TINY: Final = 1e-300
LARGEST_UNIT: Final = 8
"""Accelerators of the largest node that counts fill: racks and slices are shared."""
TENSOR, CONTEXT, DEEPEST = (1, 2, 4, 8, 16), (1, 2, 4, 8), 64
"""Degrees whose products are counted."""
COMPUTING: Final = keys_of("arithmetic")
"""Terms of a step that fewer accelerators do not shorten."""

Pair = tuple[int, int]
"""Number of accelerators and global batch."""


def offers_of(
    question: Question,
    fastest: Estimate,
    restrictions: Restrictions,
    stack: Stack | None,
    *,
    keeps_batch: bool = True,
    near: bool = True,
    known: KnownPipelines | None = None,
    stop: Stop | None = None,
) -> tuple[Offer, ...]:
    """What trains more tokens a second than ``fastest``, the best first: at most three pairs, and a larger batch.

    ``fastest``: may leave some of the accelerators idle. ``keeps_batch``: whether fewer accelerators are offered with
    the batch that was asked for; ``near``: whether neighbouring pairs are looked at, besides a larger batch.
    """
    searched = Neighbours(question, restrictions, stack, known or KnownPipelines(), stop)
    larger = larger_batch(question, fastest, searched.fastest_with)
    found = _nearby(searched, fastest, keeps_batch=keeps_batch) if near else ()
    return tuple(sorted((*found, *([] if larger is None else [larger])), key=lambda offer: -offer.gain))


def nearby_offers(
    question: Question,
    fastest: Estimate,
    restrictions: Restrictions,
    stack: Stack | None,
    *,
    stop: Stop | None = None,
) -> tuple[Offer, ...]:
    """Of these the pairs near the one that was asked for."""
    return _nearby(Neighbours(question, restrictions, stack, KnownPipelines(), stop), fastest, keeps_batch=True)


def _nearby(searched: Neighbours, fastest: Estimate, *, keeps_batch: bool) -> tuple[Offer, ...]:
    question = searched.question
    per_second = question.job.global_batch_size / fastest.step_time
    share_used = fastest.num_accelerators_used / question.num_accelerators
    pairs = _promising(question, _most_gain(fastest) / share_used)
    pairs = tuple(pair for pair in pairs if keeps_batch or pair[1] != question.job.global_batch_size)
    offers = searched.faster_than(per_second * (1 + LEAST_GAIN), pairs)
    return _worth_it(question, [replace(each, gain=_rate(each) / per_second - 1) for each in offers])


def nearest_with_plans(
    question: Question,
    restrictions: Restrictions,
    stack: Stack | None,
    *,
    has_plans: bool = False,
    known: KnownPipelines | None = None,
    stop: Stop | None = None,
) -> tuple[Offer, ...]:
    """Where no plan is valid or none fits: as ``offers_of``, with the plan to take of each pair.

    ``has_plans``: whether some are valid, so that pairs without more layouts do not help.
    """
    searched = Neighbours(question, restrictions, stack, known or KnownPipelines(), stop)
    found = searched.faster_than(0.0, _promising(question, has_plans=has_plans))
    best = max(map(_rate, found), default=1.0)
    offers = _worth_it(question, [replace(each, gain=_rate(each) / best - 1) for each in found])
    return tuple(replace(each, estimate=searched.to_take(each)) for each in offers)


def _rate(offer: Offer) -> float:
    """Sequences per second."""
    return offer.global_batch_size / offer.estimate.step_time


@dataclass(frozen=True)
class Neighbours:
    """Searches of other pairs than the one that was asked for."""

    question: Question
    restrictions: Restrictions
    stack: Stack | None
    known: KnownPipelines
    stop: Stop | None

    def survey(self, pair: Pair, goal: Goal) -> Survey | None:
        """The plans of a pair that ``goal`` asks for; None without any."""
        put = self._put(pair)
        return None if put is None else survey_of(*put, goal=goal, known=self.known, stop=self.stop)

    def _put(self, pair: Pair) -> tuple[Question, Space] | None:
        """The question of a pair and its space; None where no plan can fit."""
        other = _asked_with(self.question, pair)
        if not (can_have_plans(other, self.restrictions) and can_fit(other, self.restrictions)):
            return None
        try:
            return other, declare(other, self.restrictions, self.stack)
        except ShardplanError:  # the count contradicts a restriction
            return None

    def to_take(self, offer: Offer) -> Estimate:
        """The plan to take of a pair, where its fastest is known."""
        put = self._put((offer.num_accelerators, offer.global_batch_size))
        if put is None:
            return offer.estimate
        tables = tables_of_space(*put, self.known)
        taken = plan_to_take(
            put[0], tables, self.stop, tested=tested_by(self.stack, put[0]), stack=self.stack,
            restrictions=self.restrictions,
        )  # fmt: skip
        return taken[0] if taken else offer.estimate

    def fastest_with(self, batch: int, within: float) -> Estimate | None:
        """The fastest plan of another batch on all accelerators, where it takes less than a time [s]."""
        return self._fastest((self.question.num_accelerators, batch), within)

    def _fastest(self, pair: Pair, within: float) -> Estimate | None:
        survey = self.survey(pair, BestWith({}, within))
        cell = None if survey is None else best_cell(survey.tables)
        return None if survey is None or cell is None or cell.value >= within else survey.estimate(cell)

    def faster_than(self, rate: float, pairs: Sequence[Pair]) -> list[Offer]:
        """The fastest plan of each pair that trains more sequences a second than ``rate``, and enough to be shown."""
        found: list[Offer] = []
        for pair in pairs:
            within = pair[1] / max(rate, _to_beat(self.question, pair, found), TINY)
            estimate = self._fastest(pair, within)
            if estimate is not None:
                found.append(Offer(num_accelerators=pair[0], global_batch_size=pair[1], gain=0.0, estimate=estimate))
        return found


def _to_beat(question: Question, pair: Pair, found: Sequence[Offer]) -> float:
    """Sequences per second from which a pair could be shown beside those found: within what is alike of the best.

    That of all, of those with its batch if it is the one asked for, or of those with all accelerators if it has them.
    """
    batch, number = question.job.global_batch_size, question.num_accelerators
    groups = [found]
    groups += [[each for each in found if each.global_batch_size == batch]] if pair[1] == batch else []
    groups += [[each for each in found if each.num_accelerators == number]] if pair[0] == number else []
    return min(max(map(_rate, group), default=0.0) for group in groups) / (1 + LEAST_GAIN)


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


def has_enough_layouts(question: Question) -> bool:
    """Whether no neighbour is worth a search."""
    (layouts,) = layouts_of(np.asarray([_asked(question)]), question.model.num_hidden_layers)
    return bool(layouts >= ENOUGH_LAYOUTS)


def _asked(question: Question) -> Pair:
    return question.num_accelerators, question.job.global_batch_size


def _promising(question: Question, bound: float = np.inf, *, has_plans: bool = True) -> tuple[Pair, ...]:
    """Pairs to search, those that promise most first; some with the batch that was asked for, some with others.

    ``bound``: factor by which a pair could be faster at most on as many accelerators. ``has_plans``: whether what was
    asked for has valid plans; if not, however many layouts.
    """
    if has_plans and has_enough_layouts(question):
        return ()
    asked = _asked(question)
    pairs = [asked, *(pair for pair in _pairs(question) if pair[0] * bound > asked[0] * (1 + LEAST_GAIN))]
    numbered = np.asarray(pairs)
    layouts = layouts_of(numbered, question.model.num_hidden_layers)
    of_asked = float(layouts[0]) if has_plans else 0.0
    order = np.lexsort((_changed(numbered), -worth(question, numbered, layouts)))
    rich = [pairs[place] for place in order if place and layouts[place] > MORE_LAYOUTS * of_asked]
    same = [pair for pair in rich if pair[1] == asked[1]]
    other = _first_of_each_count(pair for pair in rich if pair[1] != asked[1])
    number_of = dict(zip(pairs, layouts.tolist(), strict=True))
    chosen = {pair for group in (same, other) for pair in _chosen(group, number_of)}
    return tuple(pair for pair in rich if pair in chosen)


def _chosen(pairs: Sequence[Pair], layouts: Mapping[Pair, float]) -> list[Pair]:
    """The first of some pairs, and the one of most layouts."""
    richest = sorted(pairs[MOST_SEARCHED - 1 :], key=lambda pair: -layouts[pair])[:1]
    return [*pairs[: MOST_SEARCHED - 1], *richest]


def worth(question: Question, pairs: NDArray[np.int64], layouts: NDArray[np.float64]) -> NDArray[np.float64]:
    """What pairs with so many layouts promise."""
    number, batch = pairs.T
    tokens = batch * question.job.sequence_length
    return layouts / (layouts + HALF_LAYOUTS) / (1 / number + HALF_TOKENS / tokens)


def worth_of_batches(question: Question, batches: Sequence[int]) -> list[float]:
    """What batches promise on the accelerators of the question, by how many layouts they leave."""
    pairs = np.asarray([(question.num_accelerators, batch) for batch in batches], np.int64).reshape(-1, 2)
    found: list[float] = worth(question, pairs, layouts_of(pairs, question.model.num_hidden_layers)).tolist()
    return found


def _changed(pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """How far the batches of pairs are from that of the first."""
    return np.abs(pairs[:, 1] - pairs[0, 1])


def _first_of_each_count(pairs: Iterable[Pair]) -> list[Pair]:
    first: dict[int, Pair] = {}
    for pair in pairs:
        first.setdefault(pair[0], pair)
    return list(first.values())


def _most_gain(fastest: Estimate) -> float:
    """Factor by which the same accelerators could be faster at most: if they did nothing but compute."""
    computing = sum(fastest.breakdown.get(term, 0.0) for term in COMPUTING)
    return fastest.step_time / max(computing, 1e-3 * fastest.step_time)


def _pairs(question: Question) -> Iterator[Pair]:
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
