"""One training step through a pipeline, event by event: when every piece runs, and what every rank does.

It also has the closed form of the schedule for the same times, and the critical path: the chain of pieces and
transfers without a gap that ends with the step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass
from shardplan.physics.schedules.base import ChunkTimes, Passes, Pipeline, RankPasses, Schedule
from shardplan.physics.schedules.registry import closed_form
from shardplan.simulation.case import Between, Seconds, run
from shardplan.simulation.pieces import (
    BACKWARD,
    FORWARD,
    INPUT_GRADIENT,
    KEPT_PASSES,
    NOTHING,
    WEIGHT_GRADIENT,
    Pieces,
    any_of,
    pieces_of,
)

MOST_KEPT: Final = 64
"""Most steps that ``KnownSteps`` keeps, of 1 MB each."""
LEAST_FACTOR: Final = 0.01
MOST_FACTOR: Final = 100.0


@dataclass(frozen=True, kw_only=True)
class Disturbance:
    """Changes of the duration of pieces."""

    jitter: float = 0.0
    """Relative spread of the duration of a piece: a log-normal factor of mean 1."""
    seed: int = 0
    """Seed of the random numbers."""
    stream: int = 0
    """Which sequence of random numbers of this seed to use: each replica has its own."""
    slowdown: Mapping[int, float] = field(default_factory=dict)
    """Factor on all pieces of a rank, by its number from 0."""
    factor: float = 1.0
    """Factor on all pieces of all ranks."""

    def factors(self, pieces: Pieces) -> Seconds:
        """Factor on the duration of every piece."""
        num_ranks = len(pieces.rank_names)
        check_slowdown(self.slowdown, num_ranks, "rank")
        of_rank = np.array([self.factor * self.slowdown.get(rank, 1.0) for rank in range(num_ranks)])
        factors = of_rank[pieces.rank]
        if self.jitter:
            spread = np.sqrt(np.log1p(self.jitter**2))
            seeds = (self.seed, self.stream) if self.stream else self.seed
            drawn = np.random.default_rng(seeds).standard_normal(len(factors))
            factors *= np.exp(spread * drawn - spread**2 / 2)
        return factors


UNDISTURBED = Disturbance()


@dataclass(frozen=True, kw_only=True)
class RankActivity:
    """What a rank does in a step."""

    busy_time: float
    """Work. [s]"""
    idle_time: float
    """The rest of the step. [s]"""
    span: float
    """From its first piece to its last. [s]"""
    peak_in_flight: int
    """Most chunk passes with all activations saved: from their forward pass to their input gradient."""
    peak_kept: int
    """Most chunk passes with any activations saved: from their forward pass to their weight gradient."""


@dataclass(frozen=True, kw_only=True)
class SimulatedStep:
    r"""Start and duration of every piece of a step.

    The step time is the longest time from the first piece of a rank to its last. Ranks need not wait for one another
    between steps, so steps can follow one another at this pace. Without split gradients the first rank starts
    first and ends last, and it is the time from the first piece of all to the last.
    """

    pieces: Pieces
    start: Seconds
    """Start of every piece. [s]"""
    end: Seconds
    took: Seconds
    """Duration of every piece on its own, even if several run as one block. [s]"""
    transfer: Seconds
    """Travel time of the input of every piece. [s]"""

    @cached_property
    def placed_start(self) -> Seconds:
        """Start of every piece; pieces of one block share the rank, and are placed one after another. [s]"""
        before = np.cumsum(self.took) - self.took
        return self.start + (before - before[self.pieces.first_of_block])

    @cached_property
    def step_time(self) -> float:
        """Longest time from the first piece of a rank to its last. [s]"""
        return float(self.spans.max())

    @property
    def bubble_rate(self) -> float:
        """Share of the step in which the busiest rank, the slowest stage, waits."""
        return self.bubble_time / self.step_time if self.step_time else 0.0

    @property
    def bubble_time(self) -> float:
        """Time of the step in which the busiest rank waits. [s]"""
        return max(self.step_time - float(self._busy.max()), 0.0)

    @property
    def busiest(self) -> int:
        """The rank that works longest: the slowest stage."""
        return int(np.argmax(self._busy))

    @cached_property
    def ranks(self) -> tuple[RankActivity, ...]:
        """Work, idle time and activations of every rank."""
        in_flight, kept = self._peaks((INPUT_GRADIENT, BACKWARD)), self._peaks((WEIGHT_GRADIENT, BACKWARD))
        columns = (self._busy.tolist(), self.spans.tolist(), in_flight.tolist(), kept.tolist())
        idle = np.maximum(self.step_time - self._busy, 0.0).tolist()
        names = ("busy_time", "span", "peak_in_flight", "peak_kept", "idle_time")
        return tuple(RankActivity(**dict(zip(names, row, strict=True))) for row in zip(*columns, idle, strict=True))

    @cached_property
    def spans(self) -> Seconds:
        """Time from the first piece of every rank to its last. [s]"""
        first, last = self.pieces.bounds[:-1], self.pieces.bounds[1:] - 1
        return self.end[last] - self.start[first]

    @cached_property
    def _busy(self) -> Seconds:
        return np.add.reduceat(self.took, self.pieces.bounds[:-1])

    def _peaks(self, freeing: Sequence[int]) -> NDArray[np.int64]:
        """Most forward passes of every rank that wait for one of the ``freeing`` pieces."""
        kind, bounds = self.pieces.kind, self.pieces.bounds
        kept = np.cumsum((kind == FORWARD).astype(np.int64) - any_of(kind, freeing))
        before = np.concatenate(([0], kept))[bounds[:-1]]
        return np.maximum.reduceat(kept, bounds[:-1]) - before


def simulate(
    schedule: Schedule,
    at: Pipeline,
    times: ChunkTimes,
    disturbance: Disturbance = UNDISTURBED,
    between: Between | None = None,
) -> SimulatedStep:
    """A step of ``schedule`` with pieces and transfers of ``times``, for which its order is chosen.

    ``between`` is called now and then: an exception from it ends the simulation. A transfer takes time between two
    ranks and costs neither of them work. Raises ``InputError`` if the schedule does not suit the pipeline, exceeds the
    limit of ``times``, or never ends.
    """
    check(schedule, at)
    pieces = pieces_of(schedule, at, times)
    took = durations(pieces, times) * disturbance.factors(pieces)
    transfer = np.where(pieces.edge == NOTHING, 0.0, times.transfer[pieces.edge])
    start, end = run(pieces, took, transfer, between)
    step = SimulatedStep(pieces=pieces, start=start, end=end, took=took, transfer=transfer)
    _check_limit(schedule, step, times.max_in_flight)
    return step


class KnownSteps:
    """Finished steps, for plans whose passes take the same times."""

    def __init__(self) -> None:
        self._steps: dict[tuple[object, ...], SimulatedStep] = {}

    def simulate(
        self,
        schedule: Schedule,
        at: Pipeline,
        times: ChunkTimes,
        disturbance: Disturbance = UNDISTURBED,
        between: Between | None = None,
    ) -> SimulatedStep:
        """Like ``simulate``, but runs only once for the same times."""
        columns = (times.forward, times.input_gradient, times.weight_gradient, times.transfer)
        counts = (at.pp, at.vp, at.num_microbatches, at.group_size, times.max_in_flight)
        key = (schedule.name, *counts, repr(disturbance), *(column.tobytes() for column in columns))
        step = self._steps.get(key)
        if step is None:
            step = simulate(schedule, at, times, disturbance, between)
            if at.pp * at.vp * at.num_microbatches <= KEPT_PASSES:
                self._steps[key] = step
            if len(self._steps) > MOST_KEPT:
                self._steps.pop(next(iter(self._steps)))
        return step


def check_slowdown(slowdown: Mapping[int, float], count: int, what: str) -> None:
    """Refuses factors for ranks that do not exist, and factors that are not between 0.01 and 100."""
    for number, factor in slowdown.items():
        if not 0 <= number < count:
            raise InputError(
                f"{what} {number} is slow; there {'is' if count == 1 else 'are'} {count}, numbered from 0",
                rule=f"a slow {what} is one of those that are simulated",
                hint=f"name a {what} from 0 to {count - 1}" if count > 1 else f"name {what} 0, or simulate more",
            )
        if not LEAST_FACTOR <= factor <= MOST_FACTOR:
            raise InputError(
                f"{what} {number} is slower by a factor of {factor:g}",
                rule=f"the factor of a slow {what} is between {LEAST_FACTOR:g} and {MOST_FACTOR:g}",
                hint="give the time of a pass over its usual time: 1.2 is 20 % longer",
            )


def check(schedule: Schedule, at: Pipeline) -> None:
    """Refuses a pipeline that the schedule cannot run."""
    if schedule.can_run(at):
        return
    needed = schedule.needs
    if not schedule.takes_chunks(at.vp):
        is_one = schedule.most_vp == schedule.least_vp
        needed = f"{schedule.least_vp}{'' if is_one else ' or more'} chunks on each rank"
    elif at.pp < schedule.least_pp:
        needed = f"{schedule.least_pp} ranks or more"
    elif at.num_microbatches < schedule.least_microbatches(at.pp):
        needed = f"{schedule.least_microbatches(at.pp)} micro-batches or more"
    raise InputError(
        f"schedule {schedule.name} cannot run {at.num_microbatches} micro-batches on {at.pp} ranks "
        f"with {at.vp} chunks each",
        rule=schedule.rule,
        hint=f"use {needed}",
    )


def durations(pieces: Pieces, times: ChunkTimes) -> Seconds:
    """Seconds of every piece."""
    backward = times.input_gradient + times.weight_gradient
    by_kind = np.stack([times.forward, times.input_gradient, times.weight_gradient, backward])
    took: Seconds = by_kind[pieces.kind, pieces.position]
    return took


def _check_limit(schedule: Schedule, step: SimulatedStep, limit: int | None) -> None:
    """Refuses a fixed order with more chunk passes in flight than the limit."""
    if limit is None:
        return
    rank = int(np.argmax([one.peak_in_flight for one in step.ranks]))
    most = step.ranks[rank].peak_in_flight
    if most > limit:
        raise InputError(
            f"schedule {schedule.name} has {most} chunk passes in flight on rank {rank}; max_in_flight is {limit}",
            rule="no rank keeps more chunk passes than max_in_flight",
            hint=f"set max_in_flight to {most} or more, or choose a schedule that keeps less",
        )


LARGEST_LOOP: Final = 1_000_000
"""Largest ranks x chunks of all ranks for which the longest path through uneven chunks is sought: 50 MB."""
NAMES: Final = ("forward", "input_gradient", "weight_gradient")


def closed_form_step_time(schedule: Schedule, at: Pipeline, times: ChunkTimes) -> float | None:
    r""":math:`\max_r \left(M t_r + idle_r\right)` without transfers; None if there is no closed form. [s]

    t is the time of one micro-batch on a rank, and the idle time of the rank is ``PipelineSchedule.idle_time``.
    Schedules that only the simulation runs have no closed form, nor have loops of very many ranks and chunks.
    """
    formula = closed_form(schedule)
    if formula is None or (at.vp > 1 and at.pp * at.pp * at.vp > LARGEST_LOOP):
        return None
    copies = schedule.parameter_copies
    held = np.array(schedule.placement(int(at.pp), int(at.vp)))[: int(at.pp) // copies]  # copies mirror these ranks

    of_chunks = (times.forward, times.input_gradient, times.weight_gradient)
    parts = [np.asarray(seconds[held].sum(axis=1) / copies) for seconds in of_chunks]
    own, everyone, behind = (
        Passes(**dict(zip(NAMES, values, strict=True)))
        for values in (parts, [copies * part.sum() for part in parts], [part.sum() - part.cumsum() for part in parts])
    )
    placed = RankPasses.of(own, np.arange(len(held))[::-1], behind)
    work = (times.forward + times.input_gradient + times.weight_gradient)[held].T
    idle = formula.idle_time(at, placed, everyone, formula.pace(work))
    return float(np.max(at.num_microbatches * own.total + idle))


@dataclass(frozen=True, kw_only=True)
class CriticalPath:
    """The pieces that decide how long a step takes."""

    pieces: NDArray[np.bool_]
    """Whether every piece is on the path."""
    transfers: NDArray[np.bool_]
    """Whether the transfer of every piece's input is on the path."""
    first: int
    """Piece with which the path begins."""


def critical_path(step: SimulatedStep, rank: int) -> CriticalPath:
    """The path to the last piece of ``rank``.

    A piece starts when the rank has ended the one before, or when its input arrives: the path continues with whichever
    was later, and with the rank's own piece if both are at the same time. Pieces of one block start together.
    """
    pieces = step.pieces
    on_path, sent = np.zeros((2, len(pieces.rank)), dtype=bool)
    piece = int(pieces.bounds[rank + 1]) - 1
    while True:
        first, last = int(pieces.first_of_block[piece]), int(pieces.block[piece])
        on_path[first : last + 1] = True
        own = first - 1 if first > pieces.bounds[pieces.rank[first]] else NOTHING
        latest, arrived = (step.end[own] if own != NOTHING else -np.inf), NOTHING
        for waiting in range(first, last + 1):
            need = pieces.after[waiting]
            if need != NOTHING and step.end[need] + step.transfer[waiting] > latest:
                latest, arrived = step.end[need] + step.transfer[waiting], waiting
        if arrived != NOTHING:
            sent[arrived], piece = True, int(pieces.after[arrived])
        elif own != NOTHING:
            piece = own
        else:
            return CriticalPath(pieces=on_path, transfers=sent, first=first)
