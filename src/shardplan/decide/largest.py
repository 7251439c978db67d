r"""The largest sequence, micro-batch or model that a cluster trains, and the smallest cluster that trains a job.

A value is possible if at least one plan of the space fits. The largest sequence length and number of layers
are found by doubling and bisection, since the least memory of all plans grows with both. Divisibility leaves
some values fewer plans, so this order is checked: the ``CHECKED`` next larger values must not fit either; if
one does, the search continues from it. One search covers all micro-batch sizes, and clusters are tried one by one
from the smallest that can hold the weights, so these answers are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, Literal

import numpy as np

from shardplan.base.arrays import divisors
from shardplan.base.errors import InputError, UnknownNameError
from shardplan.base.fields import dataclass
from shardplan.decide.searching import Answered, Searches
from shardplan.estimation.question import Question
from shardplan.inputs.counts import MAX_NUM_ACCELERATORS
from shardplan.inputs.defaults import with_usual_batch
from shardplan.inputs.job import Job
from shardplan.inputs.layers import Layer
from shardplan.planner.pricing.pieces import SMALLEST as SMALLEST_MEMORY
from shardplan.planner.survey import Survey

Sought = Literal["sequence_length", "micro_batch_size", "layers", "gpus"]
LARGEST: Final[tuple[Sought, ...]] = ("sequence_length", "micro_batch_size", "layers")
SMALLEST: Final[tuple[Sought, ...]] = ("gpus",)
LENGTH_UNIT: Final = 1024
"""Sequence lengths are multiples of this many tokens, which context parallelism of any usual degree divides."""
LONGEST: Final = 2**26
MOST_LAYERS: Final = 4096
CHECKED: Final = 4
"""Next larger values that must not fit."""
MOST_SIZES_TRIED: Final = 512


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A value that was tried."""

    value: int
    fits: bool
    """Whether any plan fits."""
    least_memory_bytes: float | None
    """Peak memory of the valid plan that needs least; None if no plan is valid. [bytes]"""


@dataclass(frozen=True, kw_only=True)
class LargestFit:
    """The largest or smallest value, with its plan."""

    sought: Sought
    """What is maximised, or minimised."""
    is_largest: bool
    value: int | None
    """The largest or smallest value that fits; None if none does."""
    answered: Answered
    """The recommended plan at that value; if none fits, the question at the easiest value."""
    next_value: int | None
    """The next value that was tried and does not fit."""
    tried: tuple[Tried, ...]
    """All values that were tried, in order."""
    bound: str | None = None
    """The limit of the search, if every value up to it fits."""
    assumptions: tuple[str, ...] = ()
    """Assumptions made when the question was read."""

    @property
    def usable_memory_bytes(self) -> float:
        """Memory of an accelerator that tensors can use. [bytes]"""
        return float(np.max(self.answered.question.usable_memory))


OTHER_NAMES: Final[Mapping[str, str]] = {
    "num_hidden_layers": "layers",
    "num_layers": "layers",
    "num_accelerators": "gpus",
    "accelerators": "gpus",
    "nodes": "gpus",
    "seq_length": "sequence_length",
    "sequence": "sequence_length",
    "micro_batch": "micro_batch_size",
}
"""Other names of what can be sought."""
FOLLOWS: Final = ("sequence length ", "global batch ")
"""Starts of assumptions that do not hold if the length or the size is sought."""


def sought_of(name: str, *, is_largest: bool) -> Sought:
    """The meaning of ``name``. Raises ``UnknownNameError``."""
    known, word = (LARGEST if is_largest else SMALLEST), name.strip("-").lower().replace("-", "_")
    for each in known:
        if each == OTHER_NAMES.get(word, word):
            return each
    which = "largest" if is_largest else "smallest"
    raise UnknownNameError(f"quantity to make {which}", name[:60], known, hint=f"one of {', '.join(known)}")


def still_assumed(sought: Sought, assumed: tuple[str, ...]) -> tuple[str, ...]:
    """The assumptions of the question that hold at every value that is tried."""
    if sought not in ("gpus", "sequence_length"):
        return assumed
    return tuple(text for text in assumed if not text.startswith(FOLLOWS))


QuestionAt = Callable[[int], Question]
"""Returns the question with a value of what is sought. Raises ``ShardplanError`` if there is no such question."""


def fitted(question: Question, sought: Sought, searches: Searches, *, keeps_batch: bool) -> LargestFit:
    """The largest or, for accelerators, the smallest value of ``sought`` that fits. Raises ``InputError``.

    ``keeps_batch`` keeps the batch. Otherwise it is the usual one of each length and size.
    """
    found = _fitted(question, sought, searches, keeps_batch=keeps_batch)
    if found.value is None:
        searches.result(found.answered.question)  # raises if the restrictions contradict themselves
    return found


def _fitted(question: Question, sought: Sought, searches: Searches, *, keeps_batch: bool) -> LargestFit:
    if sought == "micro_batch_size":
        return _largest_micro_batch(question, searches)
    if sought == "gpus":
        return _smallest_size(question, searches, keeps_batch=keeps_batch)
    if sought == "layers":
        return _bisected("layers", lambda n: _with_layers(question, n), searches, 1, MOST_LAYERS)
    model, size = question.model, question.num_accelerators
    longest = model.max_position_embeddings if model.num_position_embeddings else LONGEST  # learned positions bound it
    unit = min(LENGTH_UNIT, 1 << (longest.bit_length() - 1))

    def question_at(count: int) -> Question:
        job = replace(question.job, sequence_length=count * unit)
        return _asked_with(question, job, size, keeps_batch=keeps_batch)

    return _bisected("sequence_length", question_at, searches, unit, longest // unit)


def _asked_with(question: Question, job: Job, size: int, *, keeps_batch: bool) -> Question:
    """The question about another job and size, with the batch of the job or the usual one."""
    job = job if keeps_batch else with_usual_batch(job, question.model, size)[0]
    return replace(question, num_accelerators=size, job=job)


def _with_layers(question: Question, count: int) -> Question:
    model = question.model
    if count == model.num_hidden_layers:
        return question
    name = f"{model.name} with {count:,} layers"
    return replace(question, model=replace(model, name=name, layers=deepened(model.layers, count)))


def deepened(layers: tuple[Layer, ...], count: int) -> tuple[Layer, ...]:
    """``count`` layers: the first ones, or all of them followed by repetitions of the pattern of the last ones."""
    if count <= len(layers):
        return layers[:count]
    period = _pattern_length(layers)
    last = layers[-period:]
    return (*layers, *(last[number % period] for number in range(count - len(layers))))


def _pattern_length(layers: tuple[Layer, ...]) -> int:
    """Length of the pattern that repeats over the last half of the layers; all of them if none does."""
    tail = layers[len(layers) // 2 :]
    for period in range(1, len(tail) // 2 + 1):
        if all(tail[i] == tail[i - period] for i in range(period, len(tail))):
            return period
    return len(layers)


def _bisected(sought: Sought, question_at: QuestionAt, searches: Searches, unit: int, most: int) -> LargestFit:
    """The largest number of units at which a plan fits, checked at the next larger ones."""
    tried: dict[int, Tried] = {}

    def fits(count: int) -> bool:
        if count not in tried:
            tried[count] = _tried(count * unit, question_at(count), searches)
        return tried[count].fits

    best = _last_that_fits(fits, most)
    while best and (larger := next(filter(fits, range(best + 1, min(best + CHECKED, most) + 1)), None)) is not None:
        best = larger
    is_bound = best == most
    return LargestFit(
        sought=sought,
        is_largest=True,
        value=best * unit if best else None,
        answered=searches.answer(question_at(best or 1)),
        next_value=None if is_bound else (best + 1) * unit,
        tried=tuple(tried[count] for count in sorted(tried)),
        bound=f"no more than {most * unit:,} are looked at" if is_bound else None,
    )


def _tried(value: int, question: Question, searches: Searches) -> Tried:
    """Whether any plan fits, and the least memory of all valid ones."""
    survey = searches.survey_if_any(question)
    if survey is None or not survey.num_evaluated:
        return Tried(value=value, fits=False, least_memory_bytes=None)
    least = min(float(table.best.min()) for table in survey.under(SMALLEST_MEMORY).tables)
    return Tried(value=value, fits=survey.num_feasible > 0, least_memory_bytes=least)


def _last_that_fits(fits: Callable[[int], bool], most: int) -> int:
    """The largest value that fits, by doubling, then bisection; 0 if the first does not fit."""
    if not fits(1):
        return 0
    low, high = 1, 2
    while high <= most and fits(high):
        low, high = high, 2 * high
    if low <= most < high:
        if fits(most):
            return most
        high = most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _largest_micro_batch(question: Question, searches: Searches) -> LargestFit:
    """The largest micro-batch size of any plan that fits, from one search of all divisors of the batch."""
    if "micro_batch_size" in searches.fields:
        raise InputError(
            "micro_batch_size is restricted, and its largest value is sought",
            rule="what is sought is free",
            hint="leave micro_batch_size out of --fix, --limit and --exclude",
        )
    sizes = divisors(question.job.global_batch_size)
    survey = searches.limiting(micro_batch_size=sizes).survey(question)
    times, memory = _least_of_each(survey), _least_of_each(survey.under(SMALLEST_MEMORY))
    best = max(times, default=None)
    easiest = searches if best is None else searches.fixing(micro_batch_size=best)
    return LargestFit(
        sought="micro_batch_size",
        is_largest=True,
        value=best,
        answered=easiest.answer(question),
        next_value=next((size for size in sizes if size > (best or 0)), None),
        tried=tuple(
            Tried(value=size, fits=size in times, least_memory_bytes=memory[size]) for size in sizes if size in memory
        ),
        bound=f"the global batch has {sizes[-1]:,} sequences" if best == sizes[-1] else None,
    )


def _least_of_each(survey: Survey) -> dict[int, float]:
    """The least value of the objective of each micro-batch size that has a plan."""
    least: dict[int, float] = {}
    for table in survey.tables:
        best = table.best.min(axis=(0, 1))
        for size in np.unique(table.family.points["micro_batch_size"]).tolist():
            value = float(best[table.family.points["micro_batch_size"] == size].min())
            if np.isfinite(value):
                least[size] = min(value, least.get(size, np.inf))
    return least


def _smallest_size(question: Question, searches: Searches, *, keeps_batch: bool) -> LargestFit:
    """The smallest number of accelerators that fits: powers of two within a node, then whole nodes."""
    tried: list[Tried] = []
    question_at = partial(_asked_with, question, question.job, keeps_batch=keeps_batch)
    for size in _sizes(question):
        tried.append(_tried(size, question_at(size), searches))
        if tried[-1].fits:
            break
    last = tried[-1]
    return LargestFit(
        sought="gpus",
        is_largest=False,
        value=last.value if last.fits else None,
        answered=searches.answer(question_at(last.value)),
        next_value=next((each.value for each in reversed(tried) if not each.fits), None),
        tried=tuple(tried),
        bound=None if last.fits else f"no more than {last.value:,} are looked at",
    )


def _sizes(question: Question) -> Iterator[int]:
    """Sizes from the smallest whose memory holds the weights once, which every plan needs."""
    model, node = question.model, question.cluster.accelerators_per_node
    weights = model.num_parameters * question.job.recipe.weight_bytes
    least = weights / float(np.max(question.usable_memory))
    inside = [size for size in (2**power for power in range(node.bit_length())) if size < node]
    nodes = range(max(int(least) // node, 1), max(int(least) // node, 1) + MOST_SIZES_TRIED)
    sizes = [size for size in (*inside, *(node * count for count in nodes)) if least <= size <= MAX_NUM_ACCELERATORS]
    yield from sizes or [MAX_NUM_ACCELERATORS]
