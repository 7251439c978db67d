"""Data-parallel replicas of a pipeline: they work apart, and wait for one another when gradients are reduced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Final

import numpy as np

from shardplan.errors import InputError, shown
from shardplan.fields import dataclass
from shardplan.simulation.clock import Seconds
from shardplan.simulation.step import Disturbance, SimulatedStep, check_slowdown

MOST_REPLICAS: Final = 4096
"""Replicas of one simulation: with jitter each is simulated on its own."""


@dataclass(frozen=True, kw_only=True)
class Replicas:
    """How many replicas there are, and which of them are slow."""

    count: int = 1
    """Replicas."""
    slowdown: Mapping[int, float] = field(default_factory=dict)
    """Factor on all pieces of a replica, by its number from 0."""

    def __post_init__(self) -> None:
        """Checks the count and the numbers. Raises ``InputError``."""
        if not 1 <= self.count <= MOST_REPLICAS:
            raise InputError(
                f"the number of replicas is {shown(self.count)}; it must be from 1 to {MOST_REPLICAS:,}",
                rule=f"a simulation has 1 to {MOST_REPLICAS:,} replicas",
                hint="simulate fewer replicas: those that are alike take the same time",
            )
        check_slowdown(self.slowdown, self.count, "replica")

    def disturbances(self, of_each: Disturbance) -> dict[int, Disturbance]:
        """Those of replicas that differ, by the first of each kind. Without jitter, equally slow ones do not."""
        every = {
            number: replace(of_each, factor=of_each.factor * self.slowdown.get(number, 1.0), stream=number)
            for number in range(self.count)
        }
        if of_each.jitter:
            return every
        first: dict[float, int] = {}
        for number, each in every.items():
            first.setdefault(each.factor, number)
        return {number: every[number] for number in first.values()}


ALONE: Final = Replicas()


@dataclass(frozen=True, kw_only=True)
class ReplicaSteps:
    """The steps of all replicas."""

    count: int
    steps: Mapping[int, SimulatedStep]
    """Of those that differ, by the number of the first that is alike."""

    @property
    def slowest(self) -> int:
        """The replica that takes longest."""
        return max(self.steps, key=lambda number: self.steps[number].step_time)

    @property
    def step(self) -> SimulatedStep:
        """The step of the slowest replica."""
        return self.steps[self.slowest]

    @property
    def spans(self) -> Seconds:
        """Time from the first piece of every rank to its last, in the replica where that is longest. [s]"""
        spans: Seconds = np.max([step.spans for step in self.steps.values()], axis=0)
        return spans

    @property
    def longest_wait(self) -> float:
        """How long the fastest replica waits for the slowest. [s]"""
        return self.step.step_time - min(step.step_time for step in self.steps.values())


def simulate_replicas(
    simulated: Callable[[Disturbance], SimulatedStep], of_each: Disturbance, replicas: Replicas
) -> ReplicaSteps:
    """The steps of ``replicas``; ``simulated``: the step of one under what disturbs it."""
    steps = {number: simulated(each) for number, each in replicas.disturbances(of_each).items()}
    return ReplicaSteps(count=replicas.count, steps=steps)
