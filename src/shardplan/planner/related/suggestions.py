"""Where nothing fits, or nothing is valid: the nearest changes that would have an answer, each checked by a search."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from shardplan.arrays import divisors
from shardplan.errors import ShardplanError
from shardplan.estimation.estimate import Estimate, estimate_plan
from shardplan.estimation.question import MAX_NUM_ACCELERATORS, Question
from shardplan.frameworks.stack import Stack
from shardplan.planner.answers import Answers
from shardplan.planner.layouts import KnownPipelines
from shardplan.planner.related.alike import plan_to_take
from shardplan.planner.related.lightest import lightest_plan
from shardplan.planner.related.neighbours import has_enough_layouts, nearest_with_plans, offers_of
from shardplan.planner.related.possible import can_fit, can_have_plans, least_bytes
from shardplan.planner.restrictions import Restrictions
from shardplan.planner.result import Offer, SearchResult, Suggestion
from shardplan.planner.space import declare
from shardplan.planner.stopping import Stop
from shardplan.planner.survey import Survey

Change = tuple[str, Question, Restrictions]
"""In words with its flags, and what is asked then."""

MOST_DOUBLINGS = 8
MOST_TRIALS = 48
"""Batch sizes or world sizes that are tried on either side."""


Trial = Callable[[Question, Restrictions], "Suggestion | None"]
"""The plan to take of a changed question, if one fits."""


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
    trial = partial(_best, KnownPipelines() if not survey.tables else survey.tables[0].tables.known, stack, stop)
    if result.num_plans_evaluated == 0:
        return replace(result, suggestions=tuple(_with_plans(question, restrictions, stack, trial, stop)))
    larger = _first(_more_accelerators(question, restrictions), trial)
    lighter = _that_fit(_lighter(question, restrictions), trial, partial(offers_of, stack=stack, stop=stop))
    near = nearest_with_plans(question, restrictions, stack, has_plans=True, stop=stop)[:1]
    beside = (_beside(question, each) for each in near)
    found = itertools.chain(_freed(question, restrictions, trial), beside, lighter, larger)
    lightest = Answers(1, lambda _places: [_lightest(survey, restrictions)])
    return replace(result, lightest=lightest, suggestions=tuple(found))


def _lightest(survey: Survey, restrictions: Restrictions) -> Estimate:
    """The full answer for the plan that needs least memory."""
    least = least_bytes(survey.question, restrictions)
    return estimate_plan(survey.question, lightest_plan([table.tables for table in survey.tables], least))


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
    for text, question, restrictions in changes:
        fits = trial(question, restrictions)
        if fits is not None:
            yield replace(fits, change=text)
            more = [] if has_enough_layouts(question) else offers(question, fits.estimate, restrictions)[:1]
            yield from (_beside(question, each, text) for each in more)


def _freed(question: Question, restrictions: Restrictions, trial: Trial) -> Iterator[Suggestion]:
    """Each restricted field left free; all of them where none helps alone."""
    names = restrictions.fields
    alone = [*_first_of_each(((f"leave {name} free", question, restrictions.without(name)) for name in names), trial)]
    yield from alone
    if len(names) > 1 and not alone:
        yield from _first([(f"leave {', '.join(names)} free", question, Restrictions())], trial)


def _lighter(question: Question, restrictions: Restrictions) -> Iterator[Change]:
    """States and activations in host memory; states in fewer bits."""
    for place in ("optimizer", "activations"):
        if "offload" not in restrictions.fields:
            yield (
                f"keep {NAMES[place]} in host memory: --fix offload={place}",
                question,
                restrictions.fixing("offload", place),
            )
    job = question.job
    if job.grad_dtype == "fp32" and job.precision != "fp32":
        lighter = replace(job, grad_dtype="bf16")
        yield "accumulate gradients in bf16: --grad-dtype bf16", replace(question, job=lighter), restrictions
        if job.moment_dtype == "fp32":
            lighter = replace(lighter, moment_dtype="bf16")
            text = "keep gradients and moments in bf16: --grad-dtype bf16 --moment-dtype bf16"
            yield text, replace(question, job=lighter), restrictions


NAMES = {"optimizer": "optimizer states", "activations": "activations"}


def _more_accelerators(question: Question, restrictions: Restrictions) -> Iterator[Change]:
    for doubling in range(1, MOST_DOUBLINGS + 1):
        n = question.num_accelerators * 2**doubling
        if n <= MAX_NUM_ACCELERATORS:
            yield f"use {n:,} accelerators: --gpus {n}", replace(question, num_accelerators=n), restrictions


def _nearest_batches(question: Question, restrictions: Restrictions, trial: Trial) -> Iterator[Suggestion]:
    """The nearest global batch below and above that has plans, among multiples of divisors of the world size."""
    batch = question.job.global_batch_size
    units = divisors(question.num_accelerators)
    below = sorted({batch // unit * unit for unit in units} - {0, batch}, reverse=True)
    above = sorted({-(-batch // unit) * unit for unit in units} - {batch})
    for sizes in (below, above):
        changes = [
            (
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
            (f"use {size:,} accelerators: --gpus {size}", replace(question, num_accelerators=size), restrictions)
            for size in sizes
            if 1 <= size <= MAX_NUM_ACCELERATORS
        ]
        yield from _first(changes, trial)


def _first_of_each(changes: Iterable[Change], trial: Trial) -> Iterator[Suggestion]:
    for change in changes:
        yield from _first([change], trial)


def _first(changes: Iterable[Change], trial: Trial) -> Iterator[Suggestion]:
    """The first change under which a plan fits."""
    for text, question, restrictions in changes:
        best = trial(question, restrictions)
        if best is not None:
            yield replace(best, change=text)
            return


def _best(
    known: KnownPipelines, stack: Stack | None, stop: Stop | None, question: Question, restrictions: Restrictions
) -> Suggestion | None:
    if not (can_have_plans(question, restrictions) and can_fit(question, restrictions)):
        return None
    try:
        space = declare(question, restrictions, stack)
    except ShardplanError:  # the change contradicts a restriction
        return None
    taken = plan_to_take(question, space, known, stop)
    return Suggestion(change="", num_accelerators=question.num_accelerators, taken=taken) if taken else None
