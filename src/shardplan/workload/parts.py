"""Everything of which a pipeline stage can hold a number: layers of each kind, the embedding, the head, prediction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from shardplan.arrays import Numbers, any_holds, gather, is_zero, plus, scaled
from shardplan.fields import dataclass
from shardplan.workload.stage import Stage

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
