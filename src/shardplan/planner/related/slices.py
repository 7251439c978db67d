"""Questions side by side: systems, each with the rates of its accelerator and its network, on an axis of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from shardplan.costs.network import Network
from shardplan.costs.roofline import MachineRates
from shardplan.estimation.perturbation import side_by_side
from shardplan.estimation.question import Question
from shardplan.fields import dataclass
from shardplan.planner.tied import roomy_memory

NUM_AXES = 2
"""Axes of the plans behind that of the networks: slots of recomputation (or kinds of sharding), and points."""
MOST_SYSTEMS = 32
"""Systems that stand side by side: their arrays stay small."""
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
