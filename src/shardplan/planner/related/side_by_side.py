"""Questions side by side: which they are, their systems on an axis of their own, and the slowest steps of use to them.

Questions are answered together where they differ in memory and rates of the accelerator and in rates of the network
alone. Each system has the rates of its accelerator and its network. A plan is of use to a question where it is the
fastest, and where it may be recommended: among ties, and among plans that have headroom (``planner.robustness``), which
are those that fit a smaller capacity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.fields import dataclass
from shardplan.estimation.perturbation import side_by_side
from shardplan.estimation.question import Question
from shardplan.estimation.ties import tie_factor
from shardplan.inputs.cluster import Cluster
from shardplan.physics.costs.network import Network
from shardplan.physics.costs.roofline import MachineRates
from shardplan.physics.frameworks.stack import Stack
from shardplan.planner.priced_plans import ROOM_FACTOR, SAME, roomy_memory

NUM_AXES = 2
"""Axes of the plans behind that of the networks: slots of recomputation (or kinds of sharding), and points."""
MOST_SYSTEMS = 32
"""Systems that stand side by side: their arrays stay small."""
Limits = NDArray[np.float64]
"""The slowest step of use, by system and by the smallest capacity in which a plan fits; minus infinity where it fits
none. [s]"""
Rates = tuple[object, ...]
"""Of an accelerator and its network: what tells systems apart."""


def by_system(questions: Sequence[Question]) -> Iterator[list[int]]:
    """Positions of the questions, those of some systems together; systems with the same accelerator are neighbours."""
    numbers: dict[Rates, dict[Rates, list[int]]] = {}
    for number, question in enumerate(questions):
        of_accelerator = numbers.setdefault(_rates_of_accelerator(question), {})
        of_accelerator.setdefault(rates_of(question), []).append(number)
    groups = [group for of_accelerator in numbers.values() for group in of_accelerator.values()]
    for start in range(0, len(groups), MOST_SYSTEMS):
        yield [number for group in groups[start : start + MOST_SYSTEMS] for number in group]


def rates_of(question: Question) -> Rates:
    """What tells the system of a question apart."""
    network = question.network
    return network.bandwidth, network.latency, _rates_of_accelerator(question)


def _rates_of_accelerator(question: Question) -> Rates:
    accelerator, recipe = question.cluster.accelerator, question.job.recipe
    return accelerator.memory_bandwidth, accelerator.peak(recipe.matmul), accelerator.peak(recipe.dense_math)


@dataclass(frozen=True, kw_only=True)
class Slice:
    """Questions side by side."""

    questions: tuple[Question, ...]
    of_systems: tuple[Question, ...]
    """A question of every system."""
    systems: tuple[int, ...]
    """System of every question, by number."""
    capacities: tuple[int, ...]
    """Capacity of every question, by number."""
    roomy: tuple[int, ...]
    """Capacity of the plans that have headroom for each question; that of the question where nobody asks for these."""
    usable: NDArray[np.float64]
    """What tensors can fill of each capacity, ascending. [bytes]"""
    alone: Question
    """The question with most memory."""
    joint: Question
    """The same with all systems."""

    @classmethod
    def of(cls, questions: Sequence[Question], *, with_roomy: bool = False) -> Slice:
        """Questions that differ in memory and rates alone; ``with_roomy``: plans that have headroom are asked for."""
        systems = {rates_of(question): question for question in questions}
        order = {rates: number for number, rates in enumerate(systems)}
        memory = [float(question.usable_memory) for question in questions]
        roomy = [roomy_memory(question) for question in questions] if with_roomy else memory
        usable, capacities = np.unique([*memory, *roomy], return_inverse=True)
        alone = questions[int(np.argmax(memory))]
        return cls(
            questions=tuple(questions),
            of_systems=tuple(systems.values()),
            systems=tuple(order[rates_of(question)] for question in questions),
            capacities=tuple(capacities[: len(memory)].tolist()),
            roomy=tuple(capacities[len(memory) :].tolist()),
            usable=usable,
            alone=alone,
            joint=alone if len(systems) == 1 else _side_by_side(alone, [*systems.values()]),
        )

    @cached_property
    def best(self) -> int | None:
        """The system whose network is the best in every respect; None where none is, or where accelerators differ."""
        if len({_rates_of_accelerator(each) for each in self.of_systems}) > 1:
            return None
        networks = [each.network for each in self.of_systems]
        rates = np.asarray([(*each.bandwidth, *(-latency for latency in each.latency)) for each in networks])
        is_best = (rates == rates.max(axis=0)).all(axis=1)
        return int(is_best.argmax()) if is_best.any() else None

    @cached_property
    def where_worse(self) -> Question:
        """All systems, under the constants as they are and under each group of worse ones, for listed plans."""
        worse = side_by_side(self.alone, num_axes=1)
        network = replace(worse.network, rates=self.joint.network.rates)
        return replace(worse, given_network=network, given_rates=self.joint.given_rates)


def _side_by_side(question: Question, systems: Sequence[Question]) -> Question:
    """``question`` with the rates of all systems."""
    accelerators = [each.cluster.accelerator for each in systems]
    return replace(
        question,
        given_network=Network.side_by_side([each.network for each in systems], num_axes=NUM_AXES),
        given_rates=MachineRates.side_by_side(accelerators, question.job.recipe, num_axes=NUM_AXES),
    )


RATES: Final = ("memory_bytes", "memory_bandwidth", "peak_flops", "bandwidth", "latency")
"""Fields of accelerators and tiers in which questions that are answered together may differ."""
TOLD: Final = ("sources", "marks", "notes", "assumptions", "price_per_hour")
"""Fields of clusters and accelerators that no plan depends on."""


def in_groups(questions: Sequence[Question], stacks: Sequence[Stack | None]) -> list[list[int]]:
    """Positions of questions, with the framework of their plans; ``together.best_together`` answers a list together."""
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


def limits_of(asked: Slice, least: NDArray[np.float64], factor: float) -> Limits:
    """Times within a factor of the fastest, and of the fastest that have headroom, as far as these may be recommended.

    ``least``: the fastest step of plans that fit a capacity, by system and capacity [s].
    """
    own, roomy = np.unique([asked.capacities, asked.roomy], axis=1)
    found = np.full_like(least.T, -np.inf)
    np.maximum.at(found, own, least.T[own] * factor)
    np.maximum.at(found, roomy, np.minimum(least.T[roomy] * factor, least.T[own] * ROOM_FACTOR))
    return _of_smaller_too(found.T)


def limits_within(asked: Slice, least: NDArray[np.float64], most: Sequence[float]) -> Limits:
    """Limits of the fastest plan of every question, and of its candidates that take no longer than ``most``. [s]"""
    found, systems, own = np.full_like(least, -np.inf), np.asarray(asked.systems), np.asarray(asked.capacities)
    capacities, longest = candidates(asked, least)
    for index, limit in ((own, least[systems, own]), (capacities, np.minimum(longest, most))):
        np.maximum.at(found.reshape(-1), systems * least.shape[1] + index, limit)
    return _of_smaller_too(found)


def candidates(asked: Slice, least: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The plans of each question one of which is recommended: the capacity that they fit, and their longest time. [s]

    The ties with headroom, else the fastest that has it and its ties, else all ties.
    """
    systems, own, roomy = asked.systems, np.asarray(asked.capacities), np.asarray(asked.roomy)
    fastest, with_room, factor = least[systems, own], least[systems, roomy], tie_factor()
    has_room = with_room <= fastest * (ROOM_FACTOR * (1 + SAME))
    is_slower = has_room & (with_room > fastest * (factor * (1 + SAME)))
    slower = np.minimum(with_room * factor, fastest * ROOM_FACTOR)
    return np.where(has_room, roomy, own), np.where(is_slower, slower, fastest * factor)


def _of_smaller_too(limits: NDArray[np.float64]) -> Limits:
    """Limits of capacities hold for plans that fit smaller ones too."""
    found = np.maximum.accumulate(limits[:, ::-1], axis=1)[:, ::-1] * (1 + SAME)
    return np.pad(found, ((0, 0), (0, 1)), constant_values=-np.inf)
