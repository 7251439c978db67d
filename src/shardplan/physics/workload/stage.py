"""Which layers each pipeline stage holds, also where they do not divide, and one value for each part of a model."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import Numbers, any_holds, gather, is_zero, plus, scaled
from shardplan.base.fields import dataclass
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import chunk_layers

Part = TypeVar("Part")
Held: TypeAlias = tuple[Numbers, ...]
"""Numbers of all parts that one stage holds."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What one pipeline rank holds. Numbers, or arrays over plans that differ in ``vp``."""

    rank: Numbers
    """Position in the pipeline, from 0."""
    num_layers: Numbers
    counts: tuple[Numbers, ...]
    """Layers of every kind of ``ModelConfig.layer_kinds``."""
    has_embedding: Numbers
    has_head: Numbers
    num_mtp_layers: Numbers
    num_behind: Numbers = 0
    """Stages behind it, or behind the last one that holds the same; counted where ranks hold one chunk."""
    behind: Stage | None = None
    """What these hold together; None where there are none."""

    @cached_property
    def _held(self) -> list[tuple[int, Numbers]]:
        """Places of the parts that it holds among those of a model, and how many of each."""
        counts = (*self.counts, self.has_embedding, self.has_head, self.num_mtp_layers)
        return [(place, count) for place, count in enumerate(counts) if any_holds(count)]

    def holds(self, layers: tuple[Part, ...], embedding: Part, head: Part, mtp: Part) -> list[tuple[Numbers, Part]]:
        """How many of each part of a model it holds, those that it does not hold left out."""
        parts = (*layers, embedding, head, mtp)
        return [(count, parts[place]) for place, count in self._held]


def stages(model: ModelConfig, pp: int, vp: int, layers: tuple[int, ...] | None = None) -> tuple[Stage, ...]:
    """Every stage of a pipeline: rank r holds the chunks r, r + pp, r + 2 pp ... of the model."""
    return stages_of_chunks(model, chunk_counts(model, pp, vp, layers))


def chunk_counts(model: ModelConfig, pp: int, vp: int, layers: tuple[int, ...] | None) -> NDArray[np.int64]:
    """Layers of every kind in every chunk: kinds x chunks per rank x ranks."""
    return counts_of_chunks(model, [(pp, vp, layers)])[0]


def counts_of_chunks(
    model: ModelConfig, shapes: Sequence[tuple[int, int, tuple[int, ...] | None]]
) -> list[NDArray[np.int64]]:
    """The same of several pipelines."""
    num_layers, num_mtp_layers = model.num_hidden_layers, model.num_mtp_layers
    sizes = [layers or chunk_layers(num_layers, pp * vp, num_mtp_layers) for pp, vp, layers in shapes]
    num_chunks, sums = np.asarray([(len(each), sum(each)) for each in sizes]).T
    flat = np.asarray([size for each in sizes for size in each])
    ends = np.cumsum(flat) - np.repeat(np.cumsum(sums) - sums, num_chunks)
    before = layers_before(model)
    counts = np.split(before[:, ends] - before[:, ends - flat], np.cumsum(num_chunks)[:-1], axis=1)
    return [held.reshape(-1, vp, pp) for held, (pp, vp, _) in zip(counts, shapes, strict=True)]


def stages_of_chunks(model: ModelConfig, counts: NDArray[np.int64]) -> tuple[Stage, ...]:
    """Every stage of a pipeline from the layers of its chunks."""
    loop = _Loop(model, counts)
    return tuple(loop.stage(rank) for rank in range(len(loop.held)))


def kinds_of_chunks(model: ModelConfig, counts: NDArray[np.int64]) -> tuple[Stage, ...]:
    """``kinds_of_stage`` of this pipeline; its other stages are not made."""
    loop = _Loop(model, counts)
    last = len(loop.held) - 1
    return tuple(loop.stage(rank) for rank in _first_of_kinds(loop.held, lambda parts: loop.last[parts] < last))


class _Loop:
    """A pipeline of which rank r holds the chunks r, r + pp, r + 2 pp ... of the model."""

    def __init__(self, model: ModelConfig, counts: NDArray[np.int64]) -> None:
        _, vp, pp = counts.shape
        self._model = model
        self._per_rank = counts.sum(axis=1).T
        self.held: list[Held] = [(*held, 0, 0) for held in self._per_rank.tolist()]
        """Layers of every kind, embedding and head of every rank."""
        self.held[0] = (*self.held[0][:-2], 1, int(pp == 1))
        self.held[-1] = (*self.held[-1][:-1], 1)
        self.last = {parts: rank if vp == 1 else pp - 1 for rank, parts in enumerate(self.held)}
        """The last rank that holds as much; that of the pipeline where ranks hold several chunks."""

    def stage(self, rank: int) -> Stage:
        """What a rank holds."""
        *counts, is_first, is_last = self.held[rank]
        last = self.last[self.held[rank]]
        return Stage(
            rank=rank,
            num_layers=sum(counts),
            counts=tuple(counts),
            has_embedding=is_first,
            has_head=is_last,
            num_mtp_layers=self._model.num_mtp_layers * is_last,
            num_behind=len(self.held) - 1 - last,
            behind=self._behind(last),
        )

    def _behind(self, rank: int) -> Stage | None:
        """All stages behind a rank as one."""
        counts = self._per_rank[rank + 1 :].sum(axis=0).tolist()
        return _together(counts, self._model) if rank < len(self.held) - 1 else None


def _together(counts: list[int], model: ModelConfig) -> Stage:
    """The last stages of a pipeline as one."""
    return Stage(
        rank=1,
        num_layers=sum(counts),
        counts=tuple(counts),
        has_embedding=0,
        has_head=1,
        num_mtp_layers=model.num_mtp_layers,
    )


def layers_before(model: ModelConfig) -> NDArray[np.int64]:
    """Layers of every kind before each position of a model: kinds x (layers + 1)."""
    pattern = np.asarray(model.layer_pattern)
    held = pattern[None, :] == np.arange(len(model.layer_kinds))[:, None]
    return np.cumsum(np.pad(held, ((0, 0), (1, 0))), axis=1)


def kinds_of_stage(all_stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Stages that can be the slowest or the fullest, the first of each kind.

    An earlier stage that exceeds another in every part keeps at least as many micro-batches, and so needs more memory.
    Where ranks hold several chunks, it takes longer as well. Where they hold one, a later stage that exceeds takes
    longer, however few the micro-batches are; a stage is left out where both an earlier and a later one exceed it.
    """
    parts = [_parts(stage) for stage in all_stages]
    behind = {held: stage.num_behind for held, stage in zip(parts, all_stages, strict=True)}
    return tuple(all_stages[rank] for rank in _first_of_kinds(parts, lambda held: bool(behind[held])))


def _first_of_kinds(parts: Sequence[Held], has_behind: Callable[[Held], bool]) -> list[int]:
    """First ranks of these kinds. ``has_behind``: whether stages count that are behind the last of a kind."""
    first = {held: rank for rank, held in reversed([*enumerate(parts)])}  # the last of each kind, from the end
    later: list[Held] = []
    slow: set[Held] = set()
    for held in first:
        if has_behind(held) and not any(_exceeds(other, held) for other in later):
            slow.add(held)
        later.append(held)
    kept: list[Held] = []
    for held in reversed(first):
        if held in slow or not any(_exceeds(other, held) for other in kept):
            kept.append(held)
    return [first[held] for held in kept]


def _exceeds(one: Held, other: Held) -> bool:
    return all(map(operator.ge, one, other))


def _parts(stage: Stage) -> Held:
    return (*stage.counts, stage.has_embedding, stage.has_head, stage.num_mtp_layers)


def stacked(all_stages: Sequence[Stage]) -> Stage:
    """Stages as one whose numbers are arrays with an element for each; what is the same in all stays a number."""

    def column(values: Iterable[Numbers]) -> Numbers:
        numbers = [float(value) for value in values]
        return numbers[0] if len(set(numbers)) == 1 else np.asarray(numbers)

    nothing = Stage(
        rank=0,
        num_layers=0,
        counts=(0,) * len(all_stages[0].counts),
        has_embedding=0,
        has_head=0,
        num_mtp_layers=0,
    )
    behind = [stage.behind for stage in all_stages]
    return Stage(
        rank=column(stage.rank for stage in all_stages),
        num_layers=column(stage.num_layers for stage in all_stages),
        counts=tuple(column(counts) for counts in zip(*(stage.counts for stage in all_stages), strict=True)),
        has_embedding=column(stage.has_embedding for stage in all_stages),
        has_head=column(stage.has_head for stage in all_stages),
        num_mtp_layers=column(stage.num_mtp_layers for stage in all_stages),
        num_behind=column(stage.num_behind for stage in all_stages),
        behind=stacked([one or nothing for one in behind]) if any(behind) else None,
    )


Value = TypeVar("Value")
Other = TypeVar("Other")


@dataclass(frozen=True, kw_only=True)
class Parts(Generic[Value]):
    """One value for each part of a model."""

    layers: tuple[Value, ...]
    """One for every kind of layer."""
    embedding: Value
    head: Value
    mtp: Value
    """A multi-token-prediction block."""

    def map(self, change: Callable[[Value], Other]) -> Parts[Other]:
        """Another value for each part."""
        return Parts(
            layers=tuple(change(value) for value in self.layers),
            embedding=change(self.embedding),
            head=change(self.head),
            mtp=change(self.mtp),
        )

    def at(self, index: NDArray[np.intp], stage: Stage) -> Parts[Value]:
        """Values at listed positions, of the parts that a stage holds; nobody reads the others."""

        def taken(count: Numbers, value: Value) -> Value:
            return gather(value, index) if any_holds(count) else value

        return Parts(
            layers=tuple(taken(count, value) for count, value in zip(stage.counts, self.layers, strict=True)),
            embedding=taken(stage.has_embedding, self.embedding),
            head=taken(stage.has_head, self.head),
            mtp=taken(stage.num_mtp_layers, self.mtp),
        )

    def held(self, stage: Stage) -> list[tuple[Numbers, Value]]:
        """How many of each part a stage holds, those that it does not hold left out."""
        return stage.holds(self.layers, self.embedding, self.head, self.mtp)

    def held_layers(self, stage: Stage) -> Iterator[tuple[Numbers, Value]]:
        """The same of layers alone."""
        return (pair for pair in zip(stage.counts, self.layers, strict=True) if any_holds(pair[0]))

    def total(self, stage: Stage, value: Callable[[Value], Numbers]) -> Numbers:
        """Sum of a number over everything that a stage holds."""
        total: Numbers = 0.0
        for count, part in self.held(stage):
            number = value(part)
            total = total if is_zero(number) else plus(scaled(count, number), total)
        return total


def largest(held: list[tuple[Numbers, Any]], name: str) -> Numbers:
    """The largest value of a field among parts that a stage holds."""
    most: Numbers = 0.0
    for count, part in held:
        value = getattr(part, name)
        if any_holds(value):
            present = np.asarray(count) > 0
            most = np.maximum(most, value if present.all() else np.where(present, value, 0.0))
    return most
