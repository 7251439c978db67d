"""Which questions differ in memory and rates of the accelerator and in rates of the network alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from shardplan.estimation.question import Question
from shardplan.frameworks.stack import Stack

RATES: Final = ("memory_bytes", "memory_bandwidth", "peak_flops", "bandwidth", "latency")
"""Fields of accelerators and tiers in which questions that are answered together may differ."""
TOLD: Final = ("sources", "marks", "notes", "assumptions", "price_per_hour")
"""Fields of clusters and accelerators that no plan depends on."""


def in_groups(questions: Sequence[Question], stacks: Sequence[Stack | None]) -> list[list[int]]:
    """Positions of questions, with the framework of their plans; ``alike.best_of_alike`` answers a list together."""
    known: dict[Any, list[tuple[Any, list[int]]]] = {}
    for number, (question, stack) in enumerate(zip(questions, stacks, strict=True)):
        others = known.setdefault(_what_shapes_plans(question), [])
        whole = question.given_profile, stack
        group = next((group for other, group in others if other == whole), None)
        if group is None:
            others.append((whole, group := []))
        group.append(number)
    return [group for others in known.values() for _, group in others]


def _what_shapes_plans(question: Question) -> tuple[Any, ...]:
    """Everything but rates, memory and constants."""
    cluster, part = question.cluster, question.cluster.accelerator
    tiers = tuple(_values(tier) for tier in cluster.tiers)
    peaks = tuple(sorted(part.peak_flops))
    return question.model, question.job, question.num_accelerators, _values(part), peaks, _values(cluster), tiers


def _values(record: Any) -> tuple[Any, ...]:
    """Values of a record of the hardware that shape plans; records inside it left out."""
    names = (each.name for each in fields(record) if each.name not in (*RATES, *TOLD, "accelerator", "tiers"))
    values = (getattr(record, name) for name in names)
    return tuple(tuple(sorted(value.items())) if isinstance(value, Mapping) else value for value in values)
