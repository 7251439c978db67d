r"""Traffic of states once a step, chunk by chunk: what of it the simulated passes leave exposed.

The gradients of a chunk are complete when its last pass of weight gradients ends; parameters are needed by its first
forward pass. A chunk is a bucket of its rank's traffic. Buckets smaller than a chunk are in the window of its pass, the
estimate's price for how much of the traffic travels while the pass runs.

A rank's card moves, behind a pass, what the estimate's window allows, in which transfers between stages are accounted
for; where the rank waits, all the time that no transfer to or from it is on its way (transfers go first, if they use
the same network tier). With the card's time :math:`C` from the start of a chunk's last pass to the end of the rank's
last, of chunks in the order in which they complete, a reduction of t seconds on n chunks shows

.. math:: \max\left(\max_k \left(\frac{(n - k + 1)\,t}{n} - C_k\right),\; c\,t\right)

With n = 1, :math:`C` is the window of one pass and this the estimate's ``exposed``; ``exposed_with_chunks`` is the case
in which the g passes of every chunk follow one another. Gathering is the same with time reversed.

Data-parallel replicas of a pipeline work apart, and wait for one another when gradients are reduced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.errors import InputError, shown
from shardplan.base.fields import dataclass
from shardplan.estimation.parts.chunks import OnceAStep, StepTraffic
from shardplan.physics.schedules.base import ChunkTimes
from shardplan.simulation import pieces as piece_kinds
from shardplan.simulation.case import Seconds
from shardplan.simulation.pieces import NOTHING, Ints, any_of
from shardplan.simulation.step import Disturbance, SimulatedStep, check_slowdown

COMPLETING: Final = (piece_kinds.WEIGHT_GRADIENT, piece_kinds.BACKWARD)


@dataclass(frozen=True, kw_only=True)
class Buckets:
    """Traffic of chunks while their rank runs its pieces, one after the other."""

    rank: Ints
    chunk: Ints
    """Which of the rank's chunks."""
    start: Seconds
    """As the step's pieces start. [s]"""
    end: Seconds


@dataclass(frozen=True, kw_only=True)
class StateExchanges:
    """The traffic of states in a simulated step."""

    traffic: StepTraffic
    step: SimulatedStep
    times: ChunkTimes
    """What the traffic's windows are shares of: the estimate's times of the chunks."""

    def once(self, estimated: OnceAStep) -> OnceAStep:
        """What comes once a step, with what the simulated passes leave exposed."""
        return replace(estimated, gather=self.gather_exposed, reduce=self.reduce_exposed)

    @cached_property
    def reduce_exposed(self) -> Seconds:
        """Reduction of gradients after the last piece of every rank. [s]"""
        time, window = self.traffic.reduce_time, self.traffic.reduce_window
        if not time.any():
            return time
        count = self._completing.shape[1]
        card = self._card_after[self._last][:, None] - self._card_before[self._completing]
        return self._exposed(time, window, card, np.arange(count, 0, -1) / count)

    @cached_property
    def gather_exposed(self) -> Seconds:
        """Gathering of parameters before the first piece of every rank. [s]"""
        time, window = self.traffic.gather_time, self.traffic.gather_window
        if not time.any():
            return time
        count = self._needing.shape[1]
        card = self._card_after[self._needing] - self._card_before[self._first][:, None]
        return self._exposed(time, window, card, np.arange(1, count + 1) / count)

    def _exposed(self, time: Seconds, window: Seconds, card: Seconds, share: Seconds) -> Seconds:
        """``card``: time of the card for the ``share`` of the traffic, ranks x chunks. [s]"""
        left = np.max(time[:, None] * share - card, axis=1)
        return np.where(window > 0, np.maximum(left, self.traffic.least_share * time), time)

    @property
    def reductions(self) -> Buckets:
        """Gradients on their way before the last piece of their rank ends."""
        size = self.traffic.reduce_time / self._completing.shape[1]
        begin, end = _in_turn(self._card_before[self._completing], size)
        return self._buckets(self._completing, begin, end, self.traffic.reduce_window * size > 0)

    @property
    def gatherings(self) -> Buckets:
        """Parameters on their way after the first piece of their rank starts."""
        size = self.traffic.gather_time / self._needing.shape[1]
        end, begin = _in_turn(-self._card_after[self._needing][:, ::-1], size)
        return self._buckets(self._needing, -begin[:, ::-1], -end[:, ::-1], self.traffic.gather_window * size > 0)

    def _buckets(self, marks: Ints, begin: Seconds, end: Seconds, overlaps: NDArray[np.bool_]) -> Buckets:
        """Buckets from times of the card, ranks x chunks; without what is before the first piece or after the last."""
        times = [np.stack([self._times_at(rank, card[rank]) for rank in range(len(card))]) for card in (begin, end)]
        some = (times[1] > times[0]) & overlaps[:, None]
        ranks, chunks = self.step.pieces.rank[marks], self.step.pieces.chunk[marks]
        return Buckets(rank=ranks[some], chunk=chunks[some], start=times[0][some], end=times[1][some])

    def _times_at(self, rank: int, card: Seconds) -> Seconds:
        """When the card of a rank has had so much time."""
        own = slice(int(self._first[rank]), int(self._last[rank]) + 1)
        had = np.stack([self._card_before[own], self._card_after[own]], axis=1).ravel()
        start = self.step.placed_start[own]
        return np.interp(card, had, np.stack([start, start + self.step.took[own]], axis=1).ravel())

    # What the card of a rank has time for.

    @cached_property
    def _card_after(self) -> Seconds:
        """Time that the card of its rank has had when a piece ends, from the same moment for all pieces. [s]"""
        return np.cumsum(self._behind + self._waiting)

    @cached_property
    def _card_before(self) -> Seconds:
        """The same when a piece starts. [s]"""
        return self._card_after - self._behind

    @cached_property
    def _behind(self) -> Seconds:
        """Time of the card behind every piece. [s]"""
        pieces, times = self.step.pieces, self.times
        at, ranks = (pieces.rank, pieces.position), len(pieces.rank_names)
        held = np.zeros((ranks, len(times.forward)), dtype=bool)
        held[at] = True
        backward = times.input_gradient + times.weight_gradient
        windows = ((self.traffic.gather_window, times.forward), (self.traffic.reduce_window, backward))
        share = np.stack([_share(window, passes, held) for window, passes in windows])
        return share[(pieces.kind != piece_kinds.FORWARD).astype(np.int64), pieces.rank] * self.step.took

    @cached_property
    def _waiting(self) -> Seconds:
        """Time of the card before every piece, while the rank waits. [s]"""
        step, pieces = self.step, self.step.pieces
        idle = step.placed_start.copy()
        idle[1:] -= step.placed_start[:-1] + step.took[:-1]
        idle[self._first] = 0.0
        if self.traffic.shares_card:
            (waits,) = np.nonzero(pieces.edge != NOTHING)
            sent = np.zeros(len(idle) + 1)
            np.maximum.at(sent, pieces.source[waits] + 1, step.transfer[waits])
            idle -= step.transfer + sent[:-1]
        return np.maximum(idle, 0.0)

    @cached_property
    def _completing(self) -> Ints:
        """Last piece of weight gradients of every chunk of every rank, in turn: ranks x chunks."""
        pieces = self.step.pieces
        (found,) = np.nonzero(any_of(pieces.kind, COMPLETING))
        return self._of_chunks(found, np.maximum, NOTHING)

    @cached_property
    def _needing(self) -> Ints:
        """First forward pass of every chunk of every rank, in turn: ranks x chunks."""
        (found,) = np.nonzero(self.step.pieces.kind == piece_kinds.FORWARD)
        return self._of_chunks(found, np.minimum, len(self.step.pieces.kind))

    def _of_chunks(self, found: Ints, choose: np.ufunc, start: int) -> Ints:
        pieces = self.step.pieces
        chosen = np.full((len(pieces.rank_names), int(pieces.chunk.max()) + 1), start)
        choose.at(chosen, (pieces.rank[found], pieces.chunk[found]), found)
        return np.sort(chosen, axis=1)

    @property
    def _first(self) -> Ints:
        return self.step.pieces.bounds[:-1]

    @property
    def _last(self) -> Ints:
        return self.step.pieces.bounds[1:] - 1


def _share(window: Seconds, passes: Seconds, held: NDArray[np.bool_]) -> Seconds:
    """Share of the mean pass of every rank behind which its traffic travels; ``held``: ranks x chunks of the model."""
    mean = (held @ passes) / held.sum(axis=1)
    return np.where(mean > 0, window / np.where(mean > 0, mean, 1.0), 0.0)


def _in_turn(ready: Seconds, size: Seconds) -> tuple[Seconds, Seconds]:
    """Begin and end of buckets of one ``size`` in the order in which they are ready, ranks x chunks."""
    steps = size[:, None] * np.arange(ready.shape[1])
    begin = np.maximum.accumulate(ready - steps, axis=1) + steps
    return begin, begin + size[:, None]


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
