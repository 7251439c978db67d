"""Where nothing fits, or nothing is valid: the nearest changes that would have an answer, each checked by a search."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from typing import Final, NamedTuple

import numpy as np

from shardplan.base.arrays import divisors
from shardplan.base.errors import ShardplanError
from shardplan.estimation.estimate import Estimate, estimate_plan, price_plans
from shardplan.estimation.question import Question
from shardplan.inputs.counts import MAX_NUM_ACCELERATORS
from shardplan.inputs.plan import Offload
from shardplan.inputs.plan_numbers import degrees_with
from shardplan.physics.frameworks.runnable import rules_of
from shardplan.planner.priced_plans import Needs
from shardplan.planner.pricing.tables import Tables, offloading
from shardplan.planner.related.causes import (
    MUCH_LESS,
    cause,
    fits_then,
    least_then,
    lightest_plan,
    near_length,
    next_pair,
    pair_cause,
    with_length,
)
from shardplan.planner.related.counts import Pair, has_enough_layouts, may_fit
from shardplan.planner.related.forms import plainest
from shardplan.planner.related.neighbours import nearby_offers, nearest_with_plans
from shardplan.planner.related.together import recommended_plan
from shardplan.planner.restrictions import LIBRARY
from shardplan.planner.result import Answers, Offer, SearchResult, Suggestion
from shardplan.planner.scope import Scope
from shardplan.planner.survey import Survey


class ChangedQuestion(NamedTuple):
    """A change of the question."""

    text: str
    """In words with its flags."""
    question: Question
    """What is asked then."""
    scope: Scope
    offload: Offload | None = None
    """What is kept in host memory then, where nothing else is changed."""


MOST_DOUBLINGS = 8
MOST_TRIALS = 48
"""Batch sizes or world sizes that are tried on either side."""


Trial = Callable[[ChangedQuestion], "Suggestion | None"]
"""The recommended plan under a change, if one fits."""


def suggest(result: SearchResult, scope: Scope, survey: Survey) -> SearchResult:
    """``result`` with what would help, each checked by a search; ``survey``: the one that it is the result of.

    Where plans are valid but too large: the smallest one, and changes that make plans fit. Where none is valid: batches
    and world sizes nearby that have some. A number that divides badly is named as the cause.
    """
    question = result.question
    trial = partial(_best, survey)
    if result.num_plans_evaluated == 0:
        return _with_valid(result, scope, trial)
    lighter = tuple(_that_fit(_lighter(question, scope), trial))
    is_lighter = any(each.estimate.plan.offload != "none" for each in lighter)
    lightest = Answers(1, lambda _places: [_lightest(survey, scope, offloads=not is_lighter)])
    near = nearest_with_plans(question, scope, has_plans=True)
    beside = [_beside(question, each) for each in near[:1]]
    larger, of_count = _larger(question, scope, trial, lightest)
    rest = (*lighter, *larger)
    lengths, of_length = _of_length(question, scope, trial, (lightest, rest))
    found = (*_freed(question, scope, trial), *beside, *lengths, *rest)
    causes = (*of_length, *(_causes(question, near) or of_count))
    return replace(result, lightest=lightest, suggestions=found, causes=causes)


def _with_valid(result: SearchResult, scope: Scope, trial: Trial) -> SearchResult:
    """Where no plan is valid: changes with which one fits, and the numbers that are the cause."""
    question = result.question
    near = nearest_with_plans(question, scope)
    found = [*_with_plans(question, scope, near, trial)]
    lengths, of_length = _of_length(question, scope, trial, ((), found))
    return replace(result, suggestions=(*found, *lengths), causes=(*of_length, *_causes(question, near)))


def _lightest(survey: Survey, scope: Scope, *, offloads: bool) -> Estimate:
    """The full answer for the plan that needs least memory; ``offloads``: also of those that move some to the host."""
    question, families = survey.question, [each.tables for each in survey.pruned or survey.tables]
    for change in _offloading(question, scope) if offloads else ():
        with suppress(ShardplanError):  # the framework cannot run it
            families += _tables(survey, change)
    plan = lightest_plan(families)
    (priced,) = price_plans(question, [plan])
    needs = Needs(priced.step_time, priced.peak_memory_bytes, fits=priced.fits)
    return estimate_plan(question, plainest(scope.space(question), question, plan, needs))


def _of_length(
    question: Question,
    scope: Scope,
    trial: Trial,
    asked: tuple[Sequence[Estimate], Sequence[Suggestion]],
) -> tuple[list[Suggestion], list[str]]:
    """What fits with a length that divides well, and that the length is the cause, where it is.

    ``asked``: the plan that needs least memory with the length that is asked for, if one is valid, and what fits then.
    """
    length = near_length(question)
    if length is None:
        return [], []
    is_cause = partial(cause, "length", question.job.sequence_length)
    text, other = f"a sequence length of {length:,}: --sequence-length {length}", with_length(question, length)
    alone = trial(ChangedQuestion(text, other, scope))
    if alone is not None:
        return [alone], [is_cause(fits_then(f"{length:,} tokens"))]
    more = (_lighter(other, scope), _more_accelerators(other, scope))
    found = [
        each
        for changes in more
        for each in _first((each._replace(text=f"{text}, {each.text}") for each in changes), trial)
    ]
    lightest, fewest = asked[0], _fewest(found)
    if fewest < _fewest(asked[1]):
        return found, [
            cause(
                "length", question.job.sequence_length, f"{fits_then(f'{length:,} tokens')} on {fewest:,} accelerators"
            )
        ]
    least = _least_memory(other, scope)
    if least is None or (lightest and least > MUCH_LESS * lightest[0].peak_memory_bytes):
        return [], []
    return found, [is_cause(least_then(f"{length:,} tokens", least))]


def _fewest(suggestions: Sequence[Suggestion]) -> float:
    """Fewest accelerators on which a change makes a plan fit."""
    return min((each.num_accelerators for each in suggestions), default=inf)


def _least_memory(question: Question, scope: Scope) -> float | None:
    """Memory of the plan that needs least, on the accelerator or with some of it moved to the host. [bytes]"""
    families: list[Tables] = []
    for change in (ChangedQuestion("", question, scope), *_offloading(question, scope)):
        with suppress(ShardplanError):  # the framework cannot run it, or it contradicts a restriction
            families += change.scope.tables(question)
    return estimate_plan(question, lightest_plan(families)).peak_memory_bytes if families else None


def _larger(
    question: Question, scope: Scope, trial: Trial, lightest: Sequence[Estimate]
) -> tuple[list[Suggestion], list[str]]:
    """More accelerators with which a plan fits, and that their number is the cause, where it is."""
    pair = next_pair(question)
    if pair is not None:
        found = trial(_with_pair(question, scope, pair))
        if found is not None:
            whole = found.estimate.peak_memory_bytes * pair[0]
            is_cause = whole < MUCH_LESS * lightest[0].peak_memory_bytes * question.num_accelerators
            return [found], [cause("count", question.num_accelerators, fits_then(f"{pair[0]:,}"))] if is_cause else []
    return [*_first(_more_accelerators(question, scope), trial)], []


def _with_pair(question: Question, scope: Scope, pair: Pair) -> ChangedQuestion:
    """Another count and batch."""
    other = replace(question.job, global_batch_size=pair[1])
    return ChangedQuestion(_pair_text(question, pair), replace(question, num_accelerators=pair[0], job=other), scope)


def _causes(question: Question, near: Sequence[Offer]) -> list[str]:
    """Which number is the cause, where neighbouring counts or batches have plans that fit."""
    number, batch = question.num_accelerators, question.job.global_batch_size
    counts = [each.num_accelerators for each in near if each.global_batch_size == batch]
    batches = [each.global_batch_size for each in near if each.num_accelerators == number]
    found = [cause("count", number, fits_then(f"{each:,}")) for each in counts[:1]]
    found += [cause("batch", batch, fits_then(f"{each:,}")) for each in batches[:1]]
    if found or not near:
        return found
    other = f"{near[0].num_accelerators:,} and {near[0].global_batch_size:,}"
    return [pair_cause(question, fits_then(other))]


def _with_plans(question: Question, scope: Scope, near: Sequence[Offer], trial: Trial) -> Iterator[Suggestion]:
    """Where no plan is valid: restrictions that are lifted, and the neighbouring counts and batches that train fastest.

    Where no neighbour has a plan that fits, the nearest batches and counts that have one.
    """
    yield from _freed(question, scope, trial)
    yield from (_beside(question, each) for each in near)
    if not near:
        yield from _nearest_batches(question, scope, trial)
        yield from _nearest_worlds(question, scope, trial)


def _beside(question: Question, best: Offer, *changes: str) -> Suggestion:
    """A neighbouring count and batch, with other changes."""
    used = best.num_accelerators
    text = ", ".join((*changes, _pair_text(question, (used, best.global_batch_size))))
    return Suggestion(change=text, num_accelerators=used, taken=(best.estimate,))


def _pair_text(question: Question, pair: Pair) -> str:
    """Another count and batch in words with their flags."""
    used, batch = pair
    texts = [f"use {used:,} accelerators: --gpus {used}"] if used != question.num_accelerators else []
    if batch != question.job.global_batch_size:
        texts.append(f"a global batch of {batch:,} sequences: --global-batch-size {batch}")
    return ", ".join(texts)


def _that_fit(changes: Iterable[ChangedQuestion], trial: Trial) -> Iterator[Suggestion]:
    """Changes under which a plan fits, each with the neighbouring count or batch that trains most then, if any does."""
    for change in changes:
        fits = trial(change)
        if fits is not None:
            yield fits
            question = change.question
            if not has_enough_layouts(question):
                offers = nearby_offers(question, fits.estimate, change.scope)
                yield from (_beside(question, each, change.text) for each in offers[:1])


def _freed(question: Question, scope: Scope, trial: Trial) -> Iterator[Suggestion]:
    """Each restricted field left free; all of them where none helps alone."""
    names = scope.fields
    changes = (ChangedQuestion(f"leave {name} free", question, scope.without(name)) for name in names)
    alone = [each for each in map(trial, changes) if each is not None]
    yield from alone
    if len(names) > 1 and not alone:
        free = scope.without(*names, LIBRARY)
        yield from _first([ChangedQuestion(f"leave {', '.join(names)} free", question, free)], trial)


def _lighter(question: Question, scope: Scope) -> Iterator[ChangedQuestion]:
    """States and activations in host memory; states in fewer bits."""
    yield from _offloading(question, scope)
    job = question.job
    if job.grad_dtype == "fp32" and job.precision != "fp32":
        lighter = replace(job, grad_dtype="bf16")
        text = "accumulate gradients in bf16: --grad-dtype bf16"
        yield ChangedQuestion(text, replace(question, job=lighter), scope)
        if job.moment_dtype == "fp32":
            lighter = replace(lighter, moment_dtype="bf16")
            text = "keep gradients and moments in bf16: --grad-dtype bf16 --moment-dtype bf16"
            yield ChangedQuestion(text, replace(question, job=lighter), scope)


def _offloading(question: Question, scope: Scope) -> Iterator[ChangedQuestion]:
    """States, then activations in host memory."""
    for place, name in OFFLOADED.items():
        if "offload" not in scope.fields:
            text = f"keep {name} in host memory: --fix offload={place}"
            yield ChangedQuestion(text, question, scope.fixing(offload=place), offload=place)


OFFLOADED: Final[Mapping[Offload, str]] = {"optimizer": "optimizer states", "activations": "activations"}


def _more_accelerators(question: Question, scope: Scope) -> Iterator[ChangedQuestion]:
    sizes = (question.num_accelerators * 2**doubling for doubling in range(1, MOST_DOUBLINGS + 1))
    return _on_accelerators(question, scope, sizes)


def _on_accelerators(question: Question, scope: Scope, sizes: Iterable[int]) -> Iterator[ChangedQuestion]:
    """Other numbers of accelerators, as far as there may be so many."""
    batch = question.job.global_batch_size
    return (_with_pair(question, scope, (n, batch)) for n in sizes if 1 <= n <= MAX_NUM_ACCELERATORS)


def _nearest_batches(question: Question, scope: Scope, trial: Trial) -> Iterator[Suggestion]:
    """The nearest global batch below and above that has plans, among multiples of divisors of the world size."""
    number, batch = question.num_accelerators, question.job.global_batch_size
    units = divisors(number)
    below = sorted({batch // unit * unit for unit in units} - {0, batch}, reverse=True)
    above = sorted({-(-batch // unit) * unit for unit in units} - {batch})
    for sizes in (below, above):
        yield from _first((_with_pair(question, scope, (number, size)) for size in sizes[:MOST_TRIALS]), trial)


def _nearest_worlds(question: Question, scope: Scope, trial: Trial) -> Iterator[Suggestion]:
    """The nearest number of accelerators below and above that has plans."""
    n = question.num_accelerators
    for step in (-1, 1):
        sizes = (n + step * distance for distance in range(1, MOST_TRIALS + 1))
        yield from _first(_on_accelerators(question, scope, sizes), trial)


def _first(changes: Iterable[ChangedQuestion], trial: Trial) -> Iterator[Suggestion]:
    """The first change under which a plan fits."""
    yield from itertools.islice((each for each in map(trial, changes) if each is not None), 1)


def _best(survey: Survey, change: ChangedQuestion) -> Suggestion | None:
    question, scope = change.question, change.scope
    if not may_fit(question, scope):
        return None
    try:
        every = _tables(survey, change)
    except ShardplanError:  # the change contradicts a restriction
        return None
    taken = recommended_plan(question, scope, every)
    number = question.num_accelerators
    return Suggestion(change=change.text, num_accelerators=number, taken=taken) if taken else None


def _tables(survey: Survey, change: ChangedQuestion) -> list[Tables]:
    """The families under a change: those of ``survey`` where only what they offload is another."""
    if change.offload is not None and _offloads_freely(survey, change.scope, change.offload):
        return offloading([each.tables for each in survey.pruned or survey.tables], change.offload)
    return change.scope.tables(change.question)


def _offloads_freely(survey: Survey, scope: Scope, offload: Offload) -> bool:
    """Whether every valid plan stays one, and no other becomes one, where something else is kept in host memory."""
    if any("offload_num_layers" in each.family.switches for each in survey.tables):
        return False
    setting, degrees = survey.question.setting, degrees_with({"offload": offload})
    rules = [rule for rule in (rules_of(scope.stack) if scope.stack else ()) if "offload" in rule.reads]
    return all(rule.reads == ("offload",) and np.all(rule.holds(setting, degrees)) for rule in rules)
