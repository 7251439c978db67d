"""Where nothing fits, or nothing is valid: the nearest changes that would have an answer, each checked by a search."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from shardplan.arrays import divisors
from shardplan.errors import ShardplanError
from shardplan.estimation.estimate import Estimate, estimate_plan
from shardplan.estimation.question import MAX_NUM_ACCELERATORS, Question
from shardplan.frameworks.runnable import rules_of
from shardplan.frameworks.stack import Stack
from shardplan.inputs.degrees import degrees_with
from shardplan.inputs.plan import Offload
from shardplan.planner.answers import Answers
from shardplan.planner.layouts import KnownPipelines
from shardplan.planner.pricing.tables import Tables
from shardplan.planner.related.alike import plan_to_take, tables_of
from shardplan.planner.related.lightest import lightest_plan
from shardplan.planner.related.neighbours import has_enough_layouts, nearest_with_plans, offers_of
from shardplan.planner.related.possible import can_fit, can_have_plans
from shardplan.planner.restrictions import Restrictions
from shardplan.planner.result import Offer, SearchResult, Suggestion
from shardplan.planner.space import declare
from shardplan.planner.stopping import Stop
from shardplan.planner.survey import Survey


class Change(NamedTuple):
    """A change of the question."""

    text: str
    """In words with its flags."""
    question: Question
    """What is asked then."""
    restrictions: Restrictions
    offload: Offload | None = None
    """What is kept in host memory then, where nothing else is changed."""


MOST_DOUBLINGS = 8
MOST_TRIALS = 48
"""Batch sizes or world sizes that are tried on either side."""


Trial = Callable[[Change], "Suggestion | None"]
"""The plan to take under a change, if one fits."""


def suggest(
    result: SearchResult,
    restrictions: Restrictions,
    survey: Survey,
    stack: Stack | None = None,
    *,
    stop: Stop | None = None,
) -> SearchResult:
    """``result`` with what would help, each checked by a search; ``survey``: the one that it is the result of.

    Where plans are valid but too large: the smallest one, and changes that make plans fit. Where none is valid: batches
    and world sizes nearby that have some.
    """
    question = result.question
    trial = partial(_best, survey, stack, stop)
    if result.num_plans_evaluated == 0:
        return replace(result, suggestions=tuple(_with_plans(question, restrictions, stack, trial, stop)))
    larger = _first(_more_accelerators(question, restrictions), trial)
    lighter = _that_fit(_lighter(question, restrictions), trial, partial(offers_of, stack=stack, stop=stop))
    near = nearest_with_plans(question, restrictions, stack, has_plans=True, stop=stop)[:1]
    beside = (_beside(question, each) for each in near)
    found = itertools.chain(_freed(question, restrictions, trial), beside, lighter, larger)
    lightest = Answers(1, lambda _places: [_lightest(survey)])
    return replace(result, lightest=lightest, suggestions=tuple(found))


def _lightest(survey: Survey) -> Estimate:
    """The full answer for the plan that needs least memory."""
    return estimate_plan(survey.question, lightest_plan([table.tables for table in survey.tables]))


def _with_plans(
    question: Question, restrictions: Restrictions, stack: Stack | None, trial: Trial, stop: Stop | None
) -> Iterator[Suggestion]:
    """Where no plan is valid: restrictions that are lifted, and the neighbouring counts and batches that train fastest.

    Where no neighbour has a plan that fits, the nearest batches and counts that have one.
    """
    yield from _freed(question, restrictions, trial)
    near = nearest_with_plans(question, restrictions, stack, stop=stop)
    yield from (_beside(question, each) for each in near)
    if not near:
        yield from _nearest_batches(question, restrictions, trial)
        yield from _nearest_worlds(question, restrictions, trial)


def _beside(question: Question, best: Offer, *changes: str) -> Suggestion:
    """A neighbouring count and batch, with other changes."""
    used, batch = best.num_accelerators, best.global_batch_size
    texts = [f"use {used:,} accelerators: --gpus {used}"] if used != question.num_accelerators else []
    if batch != question.job.global_batch_size:
        texts.append(f"a global batch of {batch:,} sequences: --global-batch-size {batch}")
    return Suggestion(change=", ".join((*changes, *texts)), num_accelerators=used, taken=(best.estimate,))


def _that_fit(changes: Iterable[Change], trial: Trial, offers: Callable[..., Sequence[Offer]]) -> Iterator[Suggestion]:
    """Changes under which a plan fits, each with the neighbouring count or batch that trains most then, if any does."""
    for change in changes:
        fits = trial(change)
        if fits is not None:
            yield fits
            question = change.question
            more = [] if has_enough_layouts(question) else offers(question, fits.estimate, change.restrictions)[:1]
            yield from (_beside(question, each, change.text) for each in more)


def _freed(question: Question, restrictions: Restrictions, trial: Trial) -> Iterator[Suggestion]:
    """Each restricted field left free; all of them where none helps alone."""
    names = restrictions.fields
    changes = (Change(f"leave {name} free", question, restrictions.without(name)) for name in names)
    alone = [each for each in map(trial, changes) if each is not None]
    yield from alone
    if len(names) > 1 and not alone:
        yield from _first([Change(f"leave {', '.join(names)} free", question, Restrictions())], trial)


def _lighter(question: Question, restrictions: Restrictions) -> Iterator[Change]:
    """States and activations in host memory; states in fewer bits."""
    for place, name in OFFLOADED.items():
        if "offload" not in restrictions.fields:
            text = f"keep {name} in host memory: --fix offload={place}"
            yield Change(text, question, restrictions.fixing("offload", place), offload=place)
    job = question.job
    if job.grad_dtype == "fp32" and job.precision != "fp32":
        lighter = replace(job, grad_dtype="bf16")
        text = "accumulate gradients in bf16: --grad-dtype bf16"
        yield Change(text, replace(question, job=lighter), restrictions)
        if job.moment_dtype == "fp32":
            lighter = replace(lighter, moment_dtype="bf16")
            text = "keep gradients and moments in bf16: --grad-dtype bf16 --moment-dtype bf16"
            yield Change(text, replace(question, job=lighter), restrictions)


OFFLOADED: Final[Mapping[Offload, str]] = {"optimizer": "optimizer states", "activations": "activations"}


def _more_accelerators(question: Question, restrictions: Restrictions) -> Iterator[Change]:
    for doubling in range(1, MOST_DOUBLINGS + 1):
        n = question.num_accelerators * 2**doubling
        if n <= MAX_NUM_ACCELERATORS:
            asked = replace(question, num_accelerators=n)
            yield Change(f"use {n:,} accelerators: --gpus {n}", asked, restrictions)


def _nearest_batches(question: Question, restrictions: Restrictions, trial: Trial) -> Iterator[Suggestion]:
    """The nearest global batch below and above that has plans, among multiples of divisors of the world size."""
    batch = question.job.global_batch_size
    units = divisors(question.num_accelerators)
    below = sorted({batch // unit * unit for unit in units} - {0, batch}, reverse=True)
    above = sorted({-(-batch // unit) * unit for unit in units} - {batch})
    for sizes in (below, above):
        changes = [
            Change(
                f"a global batch of {size:,} sequences: --global-batch-size {size}",
                replace(question, job=replace(question.job, global_batch_size=size)),
                restrictions,
            )
            for size in sizes[:MOST_TRIALS]
        ]
        yield from _first(changes, trial)


def _nearest_worlds(question: Question, restrictions: Restrictions, trial: Trial) -> Iterator[Suggestion]:
    """The nearest number of accelerators below and above that has plans."""
    n = question.num_accelerators
    for step in (-1, 1):
        sizes = [n + step * distance for distance in range(1, MOST_TRIALS + 1)]
        changes = [
            Change(f"use {size:,} accelerators: --gpus {size}", replace(question, num_accelerators=size), restrictions)
            for size in sizes
            if 1 <= size <= MAX_NUM_ACCELERATORS
        ]
        yield from _first(changes, trial)


def _first(changes: Iterable[Change], trial: Trial) -> Iterator[Suggestion]:
    """The first change under which a plan fits."""
    yield from itertools.islice((each for each in map(trial, changes) if each is not None), 1)


def _best(survey: Survey, stack: Stack | None, stop: Stop | None, change: Change) -> Suggestion | None:
    question, restrictions = change.question, change.restrictions
    if not (can_have_plans(question, restrictions) and can_fit(question, restrictions)):
        return None
    try:
        every = _tables(survey, stack, change)
    except ShardplanError:  # the change contradicts a restriction
        return None
    taken = plan_to_take(question, every, stop)
    number = question.num_accelerators
    return Suggestion(change=change.text, num_accelerators=number, taken=taken) if taken else None


def _tables(survey: Survey, stack: Stack | None, change: Change) -> list[Tables]:
    """The families under a change: those of ``survey`` where only what they offload is another."""
    if change.offload is not None and _offloads_freely(survey, stack, change.offload):
        return [each.tables.offloading(change.offload) for each in survey.tables]
    known = survey.tables[0].tables.known if survey.tables else KnownPipelines()
    return tables_of(change.question, declare(change.question, change.restrictions, stack), known)


def _offloads_freely(survey: Survey, stack: Stack | None, offload: Offload) -> bool:
    """Whether every valid plan stays one, and no other becomes one, where something else is kept in host memory."""
    if any("offload_num_layers" in each.family.switches for each in survey.tables):
        return False
    setting, degrees = survey.question.setting, degrees_with({"offload": offload})
    rules = [rule for rule in (rules_of(stack) if stack else ()) if "offload" in rule.reads]
    return all(rule.reads == ("offload",) and np.all(rule.holds(setting, degrees)) for rule in rules)
