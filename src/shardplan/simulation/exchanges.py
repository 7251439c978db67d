r"""Traffic of states once a step, chunk by chunk, and the part of it that the simulated passes leave exposed.

The gradients of a chunk are complete when its last pass of weight gradients ends; its parameters are needed by its
first forward pass. A chunk is one bucket of its rank's traffic. Buckets smaller than a chunk are covered by the window
of its pass, the estimate's measure of how much traffic a pass can hide.

Behind a pass, a rank's network card sends as much as the estimate's window allows, which already accounts for transfers
between stages. While the rank waits, the card sends all the time, except during transfers to or from it (transfers go
first if they use the same network tier). With the card's time :math:`C` from the start of a chunk's last pass to the
end of the rank's last, of chunks in the order in which they complete, a reduction of t seconds on n chunks exposes

.. math:: \max\left(\max_k \left(\frac{(n - k + 1)\,t}{n} - C_k\right),\; c\,t\right)

With n = 1, :math:`C` is the window of one pass, and this is the estimate's ``exposed``; ``exposed_with_chunks`` is the
case in which the g passes of every chunk follow one another. Gathering is the same with time reversed.

Data-parallel replicas of a pipeline run independently, and wait for one another when gradients are reduced.
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
    """Traffic of chunks while their rank runs its pieces, one chunk after the other."""

    rank: Ints
    chunk: Ints
    """Chunk within the rank."""
    start: Seconds
    """Start, on the clock of the step's pieces. [s]"""
    end: Seconds


@dataclass(frozen=True, kw_only=True)
class StateExchanges:
    """The traffic of states in a simulated step."""

    traffic: StepTraffic
    step: SimulatedStep
    times: ChunkTimes
    """The estimate's times of the chunks, of which the windows are shares."""

    def once(self, estimated: OnceAStep) -> OnceAStep:
        """What happens once a step, with the exchanges that the simulated passes leave exposed."""
        return replace(estimated, gather=self.gather_exposed, reduce=self.reduce_exposed)

    @cached_property
    def reduce_exposed(self) -> Seconds:
        """Exposed gradient reduction after the last piece of every rank. [s]"""
        time, window = self.traffic.reduce_time, self.traffic.reduce_window
        if not time.any():
            return time
        count = self._last_gradient_pieces.shape[1]
        card = self._card_time_at_end[self._last_pieces][:, None] - self._card_time_at_start[self._last_gradient_pieces]
        return self._exposed(time, window, card, np.arange(count, 0, -1) / count)

    @cached_property
    def gather_exposed(self) -> Seconds:
        """Exposed parameter gathering before the first piece of every rank. [s]"""
        time, window = self.traffic.gather_time, self.traffic.gather_window
        if not time.any():
            return time
        count = self._first_forward_pieces.shape[1]
        card = (
            self._card_time_at_end[self._first_forward_pieces] - self._card_time_at_start[self._first_pieces][:, None]
        )
        return self._exposed(time, window, card, np.arange(1, count + 1) / count)

    def _exposed(self, time: Seconds, window: Seconds, card: Seconds, share: Seconds) -> Seconds:
        """Exposed part of ``time``; ``card``: time of the card for the ``share`` of the traffic, ranks x chunks. [s]"""
        left = np.max(time[:, None] * share - card, axis=1)
        return np.where(window > 0, np.maximum(left, self.traffic.least_share * time), time)

    @property
    def reductions(self) -> Buckets:
        """Gradient reduction that overlaps with the pieces of its rank."""
        size = self.traffic.reduce_time / self._last_gradient_pieces.shape[1]
        begin, end = _one_after_another(self._card_time_at_start[self._last_gradient_pieces], size)
        return self._buckets(self._last_gradient_pieces, begin, end, self.traffic.reduce_window * size > 0)

    @property
    def gatherings(self) -> Buckets:
        """Parameter gathering that overlaps with the pieces of its rank."""
        size = self.traffic.gather_time / self._first_forward_pieces.shape[1]
        end, begin = _one_after_another(-self._card_time_at_end[self._first_forward_pieces][:, ::-1], size)
        return self._buckets(
            self._first_forward_pieces, -begin[:, ::-1], -end[:, ::-1], self.traffic.gather_window * size > 0
        )

    def _buckets(self, marks: Ints, begin: Seconds, end: Seconds, overlaps: NDArray[np.bool_]) -> Buckets:
        """Buckets from times of the card, ranks x chunks, cut at the first and the last piece of the rank."""
        times = [np.stack([self._times_at(rank, card[rank]) for rank in range(len(card))]) for card in (begin, end)]
        some = (times[1] > times[0]) & overlaps[:, None]
        ranks, chunks = self.step.pieces.rank[marks], self.step.pieces.chunk[marks]
        return Buckets(rank=ranks[some], chunk=chunks[some], start=times[0][some], end=times[1][some])

    def _times_at(self, rank: int, card: Seconds) -> Seconds:
        """The moments at which the card of a rank has sent for ``card`` seconds. [s]"""
        own = slice(int(self._first_pieces[rank]), int(self._last_pieces[rank]) + 1)
        had = np.stack([self._card_time_at_start[own], self._card_time_at_end[own]], axis=1).ravel()
        start = self.step.placed_start[own]
        return np.interp(card, had, np.stack([start, start + self.step.took[own]], axis=1).ravel())

    # What the card of a rank has time for.

    @cached_property
    def _card_time_at_end(self) -> Seconds:
        """Sending time of the rank's card until every piece ends, with a common origin for all pieces. [s]"""
        return np.cumsum(self._sending_behind + self._sending_while_waiting)

    @cached_property
    def _card_time_at_start(self) -> Seconds:
        """Sending time of the rank's card until every piece starts. [s]"""
        return self._card_time_at_end - self._sending_behind

    @cached_property
    def _sending_behind(self) -> Seconds:
        """Sending time of the card behind every piece. [s]"""
        pieces, times = self.step.pieces, self.times
        at, ranks = (pieces.rank, pieces.position), len(pieces.rank_names)
        held = np.zeros((ranks, len(times.forward)), dtype=bool)
        held[at] = True
        backward = times.input_gradient + times.weight_gradient
        windows = ((self.traffic.gather_window, times.forward), (self.traffic.reduce_window, backward))
        share = np.stack([_window_share(window, passes, held) for window, passes in windows])
        return share[(pieces.kind != piece_kinds.FORWARD).astype(np.int64), pieces.rank] * self.step.took

    @cached_property
    def _sending_while_waiting(self) -> Seconds:
        """Sending time of the card before every piece, while the rank waits. [s]"""
        step, pieces = self.step, self.step.pieces
        idle = step.placed_start.copy()
        idle[1:] -= step.placed_start[:-1] + step.took[:-1]
        idle[self._first_pieces] = 0.0
        if self.traffic.shares_card:
            (waits,) = np.nonzero(pieces.edge != NOTHING)
            sent = np.zeros(len(idle) + 1)
            np.maximum.at(sent, pieces.source[waits] + 1, step.transfer[waits])
            idle -= step.transfer + sent[:-1]
        return np.maximum(idle, 0.0)

    @cached_property
    def _last_gradient_pieces(self) -> Ints:
        """Last weight-gradient piece of every chunk of every rank, in order of completion: ranks x chunks."""
        pieces = self.step.pieces
        (found,) = np.nonzero(any_of(pieces.kind, COMPLETING))
        return self._per_chunk(found, np.maximum, NOTHING)

    @cached_property
    def _first_forward_pieces(self) -> Ints:
        """First forward pass of every chunk of every rank, in order: ranks x chunks."""
        (found,) = np.nonzero(self.step.pieces.kind == piece_kinds.FORWARD)
        return self._per_chunk(found, np.minimum, len(self.step.pieces.kind))

    def _per_chunk(self, found: Ints, choose: np.ufunc, start: int) -> Ints:
        pieces = self.step.pieces
        chosen = np.full((len(pieces.rank_names), int(pieces.chunk.max()) + 1), start)
        choose.at(chosen, (pieces.rank[found], pieces.chunk[found]), found)
        return np.sort(chosen, axis=1)

    @property
    def _first_pieces(self) -> Ints:
        return self.step.pieces.bounds[:-1]

    @property
    def _last_pieces(self) -> Ints:
        return self.step.pieces.bounds[1:] - 1


def _window_share(window: Seconds, passes: Seconds, held: NDArray[np.bool_]) -> Seconds:
    """Share of every rank's mean pass that hides its traffic; ``held``: ranks x chunks of the model."""
    mean = (held @ passes) / held.sum(axis=1)
    return np.where(mean > 0, window / np.where(mean > 0, mean, 1.0), 0.0)


def _one_after_another(ready: Seconds, size: Seconds) -> tuple[Seconds, Seconds]:
    """Start and end of buckets of one ``size``, sent in the order in which they are ready: ranks x chunks. [s]"""
    steps = size[:, None] * np.arange(ready.shape[1])
    begin = np.maximum.accumulate(ready - steps, axis=1) + steps
    return begin, begin + size[:, None]


MOST_REPLICAS: Final = 4096
"""Most replicas of one simulation: with jitter each is simulated on its own."""


@dataclass(frozen=True, kw_only=True)
class Replicas:
    """The number of replicas, and which of them are slow."""

    count: int = 1
    """Number of replicas."""
    slowdown: Mapping[int, float] = field(default_factory=dict)
    """Factor on all pieces of a replica, by its number from 0."""

    def __post_init__(self) -> None:
        """Checks the count and the numbers. Raises ``InputError``."""
        if not 1 <= self.count <= MOST_REPLICAS:
            raise InputError(
                f"the number of replicas is {shown(self.count)}; it must be from 1 to {MOST_REPLICAS:,}",
                rule=f"a simulation has 1 to {MOST_REPLICAS:,} replicas",
                hint="simulate fewer replicas: identical ones take the same time",
            )
        check_slowdown(self.slowdown, self.count, "replica")

    def disturbances(self, of_each: Disturbance) -> dict[int, Disturbance]:
        """Disturbances of replicas that differ, by the first of each kind; equally slow ones differ only by jitter."""
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
    """Steps of replicas that differ, by the number of the first replica of each kind."""

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
        """Longest time over the replicas from the first piece of every rank to its last. [s]"""
        spans: Seconds = np.max([step.spans for step in self.steps.values()], axis=0)
        return spans

    @property
    def longest_wait(self) -> float:
        """How long the fastest replica waits for the slowest. [s]"""
        return self.step.step_time - min(step.step_time for step in self.steps.values())


def simulate_replicas(
    simulated: Callable[[Disturbance], SimulatedStep], of_each: Disturbance, replicas: Replicas
) -> ReplicaSteps:
    """The steps of ``replicas``; ``simulated`` returns the step of one replica under a disturbance."""
    steps = {number: simulated(each) for number, each in replicas.disturbances(of_each).items()}
    return ReplicaSteps(count=replicas.count, steps=steps)
