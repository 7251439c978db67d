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
they train ``LEAST_GAIN`` more than what was asked for.

A larger batch than the one that was asked for is offered beside them, where that trains many more tokens a second.
A batch with few sequences for each replica leaves pipelines empty, or asks for more tensor, context and expert
parallelism than the model needs. Of the time of a token, the share g is computed whatever the batch, and of the rest
about ``LEFT`` is left each time that the batch is doubled. So after j doublings as many accelerators train about

.. math:: G_j = \frac{1}{g + (1 - g) \lambda^j}

times as many tokens a second. The batch is the one from which another doubling promises less than ``NEXT_GAIN``; it is
searched where it promises ``LEAST_GAIN_OF_LARGER`` or more, and offered where its fastest plan keeps that. How well a
model learns from a larger batch is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from typing import Final

import numpy as np

from shardplan.base.errors import ShardplanError
from shardplan.base.fields import dataclass
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.parts.terms import keys_of
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan
from shardplan.planner.pruning.computing import Computed, FastEnough
from shardplan.planner.ranking import Cell, best_cell
from shardplan.planner.related.counts import (
    Pair,
    asked_pair,
    first_and_richest,
    has_enough_layouts,
    layouts_of,
    may_fit,
    pairs_near,
    worth,
)
from shardplan.planner.related.together import recommended_plan
from shardplan.planner.result import Offer
from shardplan.planner.scope import Scope
from shardplan.planner.survey import BestWith, Survey

LEAST_GAIN_OF_LARGER: Final = 0.2
"""Gain in tokens per second from which a larger batch is offered: judgement, as each of its tokens may teach less."""
NEXT_GAIN: Final = 0.1
"""Gain from which a batch is doubled once more."""
LEFT: Final = 0.4
"""Share that is left of what a token takes besides computing where the batch doubles: fitted to searches of mixtures of
experts with 1 to 16 times their batch (MiniMax-M2.5, Qwen3 30B and 235B). It decides what is searched, no more."""
MOST_DOUBLINGS: Final = 4
MOST_TOKENS: Final = 2**27
"""Tokens of a step at most: the largest batch that a maker has published (MiniMax-01, arXiv 2501.08313)."""
FEW_SEQUENCES: Final = 2
"""Sequences of a replica for each of its stages up to which a batch has few: with more, smaller replicas would have
been possible."""
ALWAYS_TAKEN: Final = keys_of("arithmetic", "passes")
"""Terms of a step that a token takes whatever the batch."""

Fastest = Callable[[int, float], Estimate | None]
"""The fastest plan of a batch; None where none takes less than a time [s]."""


def larger_batch(question: Question, fastest: Estimate, fastest_of: Fastest) -> Offer | None:
    """A multiple of the batch that trains many more tokens a second than ``fastest``; None where none promises that."""
    asked = question.job.global_batch_size
    if not has_few_sequences(question, fastest.plan, fastest.num_accelerators_used):
        return None
    factor = _promising_factor(fastest, MOST_TOKENS / question.job.tokens_per_step)
    if factor == 1:
        return None
    found = fastest_of(asked * factor, factor * fastest.step_time / (1 + LEAST_GAIN_OF_LARGER))
    if found is None:
        return None
    gain = factor * fastest.step_time / found.step_time - 1
    return Offer(
        num_accelerators=question.num_accelerators, global_batch_size=asked * factor, gain=gain, estimate=found
    )


def has_few_sequences(question: Question, plan: Plan, num_accelerators: int) -> bool:
    """Whether a plan on so many accelerators has few sequences for each replica and stage."""
    return question.job.global_batch_size <= FEW_SEQUENCES * plan.dp(num_accelerators) * plan.pp


def _promising_factor(fastest: Estimate, most: float) -> int:
    """The power of two, ``most`` at most, by which a batch may grow; 1 where that promises little."""
    computing = sum(fastest.breakdown.get(term, 0.0) for term in ALWAYS_TAKEN) / fastest.step_time
    gains = [1 / (computing + (1 - computing) * LEFT**count) for count in range(MOST_DOUBLINGS + 1)]
    count = 0
    while count < MOST_DOUBLINGS and gains[count + 1] >= (1 + NEXT_GAIN) * gains[count] and 2 ** (count + 1) <= most:
        count += 1
    return 2**count if gains[count] >= 1 + LEAST_GAIN_OF_LARGER else 1


LEAST_GAIN: Final = 0.02
"""Gain in tokens per second from which a pair is offered: less is within the noise of equal measured runs."""
MORE_LAYOUTS: Final = 1.3
"""Factor in layouts from which a pair is searched."""
MOST_SEARCHED: Final = 6
"""Pairs with the batch that was asked for that are searched, and as many with another, each of another count."""
TINY: Final = 1e-300
COMPUTING: Final = keys_of("arithmetic")
"""Terms of a step that fewer accelerators do not shorten."""


def offers_of(
    question: Question, fastest: Estimate, scope: Scope, *, keeps_batch: bool = True, near: bool = True
) -> tuple[Offer, ...]:
    """What trains more tokens a second than ``fastest``, the best first: at most three pairs, and a larger batch.

    ``fastest``: may leave some of the accelerators idle. ``keeps_batch``: whether fewer accelerators are offered with
    the batch that was asked for; ``near``: whether neighbouring pairs are looked at, besides a larger batch.
    """
    larger = larger_batch(question, fastest, Neighbours(question, scope).fastest_with)
    found = nearby_offers(question, fastest, scope, keeps_batch=keeps_batch) if near else ()
    return tuple(sorted((*found, *([] if larger is None else [larger])), key=lambda offer: -offer.gain))


def nearby_offers(
    question: Question, fastest: Estimate, scope: Scope, *, keeps_batch: bool = True
) -> tuple[Offer, ...]:
    """Of these the pairs near the one that was asked for."""
    per_second = question.job.global_batch_size / fastest.step_time
    share_used = fastest.num_accelerators_used / question.num_accelerators
    pairs = _promising(question, _most_gain(fastest) / share_used)
    pairs = tuple(pair for pair in pairs if keeps_batch or pair[1] != question.job.global_batch_size)
    offers = Neighbours(question, scope).faster_than(per_second * (1 + LEAST_GAIN), pairs)
    return _worth_it(question, [replace(each, gain=_rate(each) / per_second - 1) for each in offers])


def nearest_with_plans(question: Question, scope: Scope, *, has_plans: bool = False) -> tuple[Offer, ...]:
    """Where no plan is valid or none fits: as ``offers_of``, with the recommended plan of each pair.

    ``has_plans``: whether some are valid, so that pairs without more layouts do not help.
    """
    searched = Neighbours(question, scope)
    found = searched.faster_than(0.0, _promising(question, has_plans=has_plans))
    best = max(map(_rate, found), default=1.0)
    offers = _worth_it(question, [replace(each, gain=_rate(each) / best - 1) for each in found])
    return tuple(replace(each, estimate=searched.recommended(each)) for each in offers)


def _rate(offer: Offer) -> float:
    """Sequences per second."""
    return offer.global_batch_size / offer.estimate.step_time


@dataclass(frozen=True)
class Neighbours:
    """Searches of other pairs than the one that was asked for."""

    question: Question
    scope: Scope
    computed: Computed = field(default_factory=Computed, repr=False, compare=False)
    """Computation that they share."""

    def asked(self, pair: Pair) -> Question:
        """The question of a pair."""
        number, batch = pair
        return replace(self.question, num_accelerators=number, job=replace(self.question.job, global_batch_size=batch))

    def recommended(self, offer: Offer) -> Estimate:
        """The recommended plan of a pair, where its fastest is known."""
        asked = self.asked((offer.num_accelerators, offer.global_batch_size))
        taken = recommended_plan(asked, self.scope, self.scope.tables(asked))
        return taken[0] if taken else offer.estimate

    def fastest_with(self, batch: int, within: float) -> Estimate | None:
        """The fastest plan of another batch on all accelerators, where it takes less than a time [s]."""
        return self._estimate((self.question.num_accelerators, batch), within)

    def time_on(self, count: int, within: float) -> float | None:
        """The fastest step on another number of accelerators, where it takes less than a time. [s]"""
        found = self.fastest((count, self.question.job.global_batch_size), within)
        return None if found is None else found[1].value

    def _estimate(self, pair: Pair, within: float) -> Estimate | None:
        found = self.fastest(pair, within)
        return None if found is None else found[0].estimate(found[1])

    def fastest(self, pair: Pair, within: float) -> tuple[Survey, Cell] | None:
        """The fastest plan of a pair, and the survey that it is of, where it takes less than a time [s]."""
        asked = self.asked(pair)
        if not may_fit(asked, self.scope):
            return None
        try:
            space = self.scope.space(asked)
        except ShardplanError:  # the count contradicts a restriction
            return None
        survey = self.scope.survey(asked, BestWith({}, within), space=space, fast=FastEnough(within, self.computed))
        cell = best_cell(survey.tables)
        return None if cell is None or cell.value >= within else (survey, cell)

    def faster_than(self, rate: float, pairs: Sequence[Pair]) -> list[Offer]:
        """The fastest plan of each pair that trains more sequences a second than ``rate``, and enough to be shown."""
        found: list[Offer] = []
        for pair in pairs:
            within = pair[1] / max(rate, _to_beat(self.question, pair, found), TINY)
            estimate = self._estimate(pair, within)
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


def _promising(question: Question, bound: float = np.inf, *, has_plans: bool = True) -> tuple[Pair, ...]:
    """Pairs to search, those that promise most first; some with the batch that was asked for, some with others.

    ``bound``: factor by which a pair could be faster at most on as many accelerators. ``has_plans``: whether what was
    asked for has valid plans; if not, however many layouts.
    """
    if has_plans and has_enough_layouts(question):
        return ()
    asked = asked_pair(question)
    pairs = [asked, *(pair for pair in pairs_near(question) if pair[0] * bound > asked[0] * (1 + LEAST_GAIN))]
    numbered = np.asarray(pairs)
    layouts = layouts_of(numbered, question.model.num_hidden_layers)
    of_asked = float(layouts[0]) if has_plans else 0.0
    changed = np.abs(numbered[:, 1] - asked[1])
    order = np.lexsort((changed, -worth(question, numbered, layouts)))
    rich = [pairs[place] for place in order if place and layouts[place] > MORE_LAYOUTS * of_asked]
    same = [pair for pair in rich if pair[1] == asked[1]]
    other = _first_of_each_count(pair for pair in rich if pair[1] != asked[1])
    number_of = dict(zip(pairs, layouts.tolist(), strict=True))
    groups = (first_and_richest(group, MOST_SEARCHED, number_of.__getitem__) for group in (same, other))
    chosen = {pair for group in groups for pair in group}
    return tuple(pair for pair in rich if pair in chosen)


def _first_of_each_count(pairs: Iterable[Pair]) -> list[Pair]:
    first: dict[int, Pair] = {}
    for pair in pairs:
        first.setdefault(pair[0], pair)
    return list(first.values())


def _most_gain(fastest: Estimate) -> float:
    """Factor by which the same accelerators could be faster at most: if they did nothing but compute."""
    computing = sum(fastest.breakdown.get(term, 0.0) for term in COMPUTING)
    return fastest.step_time / max(computing, 1e-3 * fastest.step_time)
