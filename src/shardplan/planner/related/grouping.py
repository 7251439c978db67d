"""Which questions differ in memory and rates of the accelerator and in rates of the network alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from shardplan.estimation.question import Question
from shardplan.frameworks.stack import Stack
from shardplan.inputs.cluster import Cluster

RATES: Final = ("memory_bytes", "memory_bandwidth", "peak_flops", "bandwidth", "latency")
"""Fields of accelerators and tiers in which questions that are answered together may differ."""
TOLD: Final = ("sources", "marks", "notes", "assumptions", "price_per_hour")
"""Fields of clusters and accelerators that no plan depends on."""


def in_groups(questions: Sequence[Question], stacks: Sequence[Stack | None]) -> list[list[int]]:
    """Positions of questions, with the framework of their plans; ``alike.best_of_alike`` answers a list together."""
    known: dict[Any, list[tuple[Any, list[int]]]] = {}
    models, clusters = _Numbers(lambda model: model), _Numbers(_what_shapes_plans)
    for number, (question, stack) in enumerate(zip(questions, stacks, strict=True)):
        size = question.num_accelerators, question.job
        others = known.setdefault((models.of(question.model), clusters.of(question.cluster), *size), [])
        whole = question.given_profile, stack
        group = next((group for other, group in others if other == whole), None)
        if group is None:
            others.append((whole, group := []))
        group.append(number)
    return [group for others in known.values() for _, group in others]


class _Numbers:
    """A number for every thing, the same for those that are alike; what is met again is known by its identity."""

    def __init__(self, what_counts: Callable[[Any], Any]) -> None:
        self._what_counts = what_counts
        self._numbers: dict[Any, int] = {}
        self._met: dict[int, int] = {}

    def of(self, thing: object) -> int:
        """The number of a thing, which somebody else keeps."""
        if id(thing) not in self._met:
            self._met[id(thing)] = self._numbers.setdefault(self._what_counts(thing), len(self._numbers))
        return self._met[id(thing)]


def _what_shapes_plans(cluster: Cluster) -> tuple[Any, ...]:
    """Everything of a cluster but rates and memory."""
    part, tiers = cluster.accelerator, tuple(_values(tier) for tier in cluster.tiers)
    return _values(part), tuple(sorted(part.peak_flops)), _values(cluster), tiers


def _values(record: Any) -> tuple[Any, ...]:
    """Values of a record of the hardware that shape plans; records inside it left out."""
    names = (each.name for each in fields(record) if each.name not in (*RATES, *TOLD, "accelerator", "tiers"))
    values = (getattr(record, name) for name in names)
    return tuple(tuple(sorted(value.items())) if isinstance(value, Mapping) else value for value in values)
