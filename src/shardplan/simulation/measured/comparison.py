"""Differences between a measured step and the prediction of a plan: by pass, by rank, and by term of the step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass, in_files
from shardplan.estimation.parts.terms import STEP_TERMS
from shardplan.simulation.case import Seconds
from shardplan.simulation.measured import passes as kinds
from shardplan.simulation.measured.passes import MeasuredStep
from shardplan.simulation.measured.profile import ProfiledStep
from shardplan.simulation.pieces import FORWARD, Ints, Pieces
from shardplan.simulation.plan import SimulatedPlan, simulate_priced
from shardplan.simulation.step import SimulatedStep

DIRECTIONS: Final = ("forward", "backward")
"""Directions of passes. A backward pass includes gradients of inputs and weights, and recomputation."""
MOST_PASSES: Final = 3
"""Most slow passes that are listed."""
SLOW: Final = 1.25
"""A pass is slow if it takes this many times the median of its chunk."""


@dataclass(frozen=True, kw_only=True)
class PassName:
    """One pass of a micro-batch through a chunk."""

    rank: int
    chunk: int
    microbatch: int
    direction: str


@dataclass(frozen=True, kw_only=True)
class SlowPass:
    """A pass that took longer than others of its chunk."""

    name: PassName
    start: float = field(metadata=in_files("start_s"))
    """Time since the first pass of the step. [s]"""
    time: float = field(metadata=in_files("time_s"))
    """Duration. [s]"""
    usual_time: float = field(metadata=in_files("usual_time_s"))
    """Median of its chunk and direction. [s]"""


@dataclass(frozen=True, kw_only=True)
class RankComparison:
    """One pipeline rank; times of passes are medians, summed over its chunks."""

    rank: int
    forward: tuple[float, float]
    """Measured and predicted. [s]"""
    backward: tuple[float, float]
    busy: tuple[float, float]
    """Measured and predicted time in which a pass runs. [s]"""
    bubble: tuple[float, float]
    """Measured and predicted 1 - busy / time from the first pass to the last."""
    memory_bytes: tuple[float, float] | None
    """Measured and predicted peak, if both are known. [bytes]"""


@dataclass(frozen=True, kw_only=True)
class PassComparison:
    """The passes of a measured step next to those of a prediction."""

    measured: MeasuredStep
    predicted: SimulatedPlan
    with_measured_times: SimulatedPlan
    """The plan's schedule with the measured times of its stages."""
    ranks: tuple[RankComparison, ...]
    first_other: tuple[PassName, PassName] | None
    """The first pass, measured and predicted, where the orders differ; None if they do not."""
    slow: tuple[SlowPass, ...]
    """The passes that lost most time against the median of their chunk, longest loss first."""

    @property
    def times(self) -> tuple[float, float]:
        """Measured and predicted time of the pipeline, from a rank's first pass to its last. [s]"""
        return self.measured.pipeline_time, self.predicted.step.step_time

    @property
    def by_stage_times(self) -> float:
        """The part of the difference due to stage times: prediction with measured times less prediction. [s]"""
        return self.with_measured_times.step.step_time - self.predicted.step.step_time

    @property
    def by_the_rest(self) -> float:
        """The part of the difference due to everything else: slow passes, another order, transfers that wait. [s]"""
        return self.measured.pipeline_time - self.with_measured_times.step.step_time

    def ratio(self, direction: str) -> float:
        """Measured over predicted time of all passes of a direction, by medians."""
        pairs = [getattr(rank, direction) for rank in self.ranks]
        predicted = sum(pair[1] for pair in pairs)
        return float(sum(pair[0] for pair in pairs) / predicted) if predicted else float("nan")


def compare_passes(
    measured: MeasuredStep, predicted: SimulatedPlan, memory_bytes: Sequence[float] | None
) -> PassComparison:
    """``measured`` compared with ``predicted``. ``memory_bytes`` is the predicted peak of every rank.

    Raises ``InputError`` if the two differ in ranks, chunks or micro-batches.
    """
    if predicted.schedule.parameter_copies > 1 or len(predicted.step.ranks) != measured.num_ranks:
        raise InputError(
            f"the measured step has {measured.num_ranks} ranks, and the plan {len(predicted.step.ranks)}",
            rule="a measured step is compared with the plan that ran, with one copy of every stage",
            hint="give the plan that was measured with --against",
        )
    times = measured.stage_times
    again = simulate_priced(predicted.priced, predicted.schedule, times=times)
    own = _Passes.of(measured.pieces, measured.start, measured.end - measured.start)
    other = _Passes.of(predicted.step.pieces, predicted.step.start, predicted.step.took)
    return PassComparison(
        measured=measured,
        predicted=predicted,
        with_measured_times=again,
        ranks=tuple(_ranks(measured, predicted.step, own, other, memory_bytes)),
        first_other=_first_difference(measured.pieces, predicted.step.pieces, measured.start),
        slow=tuple(
            SlowPass(
                name=_pass_name(own, number, is_backward=own.is_backward[number]),
                start=float(own.start[number]),
                time=float(own.time[number]),
                usual_time=float(own.usual[number]),
            )
            for number in np.argsort(own.usual - own.time, kind="stable")[:MOST_PASSES].tolist()
            if own.time[number] > SLOW * own.usual[number]
        ),
    )


@dataclass(frozen=True, kw_only=True)
class _Passes:
    """Times of passes by rank, chunk, micro-batch and direction: sums of their pieces."""

    rank: Ints
    chunk: Ints
    microbatch: Ints
    is_backward: NDArray[np.bool_]
    start: Seconds
    time: Seconds
    usual: Seconds
    """Median of the chunk and direction of every pass. [s]"""

    @classmethod
    def of(cls, pieces: Pieces, start: Seconds, took: Seconds) -> _Passes:
        key = np.stack([pieces.rank, pieces.chunk, pieces.kind != FORWARD, pieces.microbatch])
        found, inverse = np.unique(key, axis=1, return_inverse=True)
        inverse = inverse.reshape(-1)
        time = np.bincount(inverse, took).astype(np.float64)
        first = np.full(len(time), np.inf)
        np.minimum.at(first, inverse, start)
        _, alike = np.unique(found[:3], axis=1, return_inverse=True)
        medians = np.array([np.median(time[alike.reshape(-1) == one]) for one in range(int(alike.max()) + 1)])
        return cls(
            rank=found[0],
            chunk=found[1],
            microbatch=found[3],
            is_backward=found[2].astype(bool),
            start=first - first.min(),
            time=time,
            usual=medians[alike.reshape(-1)],
        )

    def of_rank(self, rank: int, *, backward: bool) -> float:
        """Medians of the rank's chunks, summed. [s]"""
        mine = (self.rank == rank) & (self.is_backward == backward)
        _, first = np.unique(self.chunk[mine], return_index=True)
        return float(self.usual[mine][first].sum())


def _ranks(
    measured: MeasuredStep, predicted: SimulatedStep, own: _Passes, other: _Passes, memory: Sequence[float] | None
) -> list[RankComparison]:
    bounds, busy = measured.pieces.bounds, measured.busy_times
    spans = np.maximum.reduceat(measured.end, bounds[:-1]) - measured.start[bounds[:-1]]
    peaks = measured.memory_bytes
    return [
        RankComparison(
            rank=rank,
            forward=(own.of_rank(rank, backward=False), other.of_rank(rank, backward=False)),
            backward=(own.of_rank(rank, backward=True), other.of_rank(rank, backward=True)),
            busy=(float(busy[rank]), activity.busy_time),
            bubble=(_bubble(float(busy[rank]), float(spans[rank])), _bubble(activity.busy_time, activity.span)),
            memory_bytes=None if peaks is None or not memory else (peaks[rank], memory[rank]),
        )
        for rank, activity in enumerate(predicted.ranks)
    ]


def _bubble(busy: float, span: float) -> float:
    return max(1 - busy / span, 0.0) if span else 0.0


def _first_difference(measured: Pieces, predicted: Pieces, start: Seconds) -> tuple[PassName, PassName] | None:
    """Of the first differing pass of every rank, the earliest."""
    found: list[tuple[float, PassName, PassName]] = []
    for rank in range(len(measured.rank_names)):
        mine, theirs = (range(one.bounds[rank], one.bounds[rank + 1]) for one in (measured, predicted))
        for number, other in zip(mine, theirs, strict=False):
            both = ((measured, number), (predicted, other))
            names = [_pass_name(each, place, is_backward=each.kind[place] != FORWARD) for each, place in both]
            if names[0] != names[1]:
                found.append((float(start[number]), names[0], names[1]))
                break
    return min(found, key=lambda one: one[0])[1:] if found else None


def _pass_name(of: Pieces | _Passes, number: int, *, is_backward: bool) -> PassName:
    return PassName(
        rank=int(of.rank[number]),
        chunk=int(of.chunk[number]),
        microbatch=int(of.microbatch[number]),
        direction=DIRECTIONS[int(is_backward)],
    )


RECOMPUTE: Final = "recompute"
WAITING: Final = tuple(term.key for term in STEP_TERMS if term.key not in (*kinds.CLASSES, RECOMPUTE))
"""Terms of the estimate during which no kernel runs."""
SUM: Final = "computation"
"""Matrix products, attention, memory-bound passes and recomputation, whose kernels have no mark of their own."""


@dataclass(frozen=True, kw_only=True)
class TermComparison:
    """A term of the step time, measured and predicted."""

    name: str
    predicted: float | None
    """None if the estimate does not separate it from others. [s]"""
    measured: float | None
    """None if the trace does not separate it. [s]"""
    is_sum: bool = False
    """Whether it is the sum of the terms before it."""


def compare_terms(step: ProfiledStep, breakdown: Mapping[str, float]) -> tuple[TermComparison, ...]:
    """The terms of one rank next to ``breakdown``, the split of the predicted step; without sums they add up to both.

    Kernels do not show whether they recompute, so only the sum of all computation is compared. If the trace does not
    name the groups of communication, it is compared with the sum of all dimensions, or with the only one that there is.
    """
    found = dict(step.terms)
    expected = {name: breakdown.get(name, 0.0) for name in breakdown}
    names = [name for name in kinds.DIMENSIONS if expected.get(name) or found.get(name)]
    unnamed = found.pop(kinds.COMMUNICATION, 0.0)
    if unnamed and len(names) == 1:
        found[names[0]] = found.get(names[0], 0.0) + unnamed
    elif unnamed:
        found[kinds.COMMUNICATION] = unnamed + sum(found.pop(name, 0.0) for name in names)
        expected[kinds.COMMUNICATION] = sum(expected.pop(name, 0.0) for name in names)
        names = [kinds.COMMUNICATION]
    again = expected.get(RECOMPUTE, 0.0)
    classes = (kinds.MATMUL, kinds.ATTENTION, kinds.MEMORY_BOUND)

    def term(name: str) -> TermComparison:
        return TermComparison(name=name, predicted=expected.get(name, 0.0), measured=found.get(name, 0.0))

    rows = [*map(term, classes)]
    if again:
        rows.append(TermComparison(name=RECOMPUTE, predicted=again, measured=None))
    rows.append(
        TermComparison(
            name=SUM,
            predicted=sum(expected.get(name, 0.0) for name in (*classes, RECOMPUTE)),
            measured=sum(found.get(name, 0.0) for name in classes),
            is_sum=True,
        )
    )
    expected[kinds.IDLE] = sum(expected.get(name, 0.0) for name in WAITING)
    rows += map(term, (kinds.OPTIMIZER, kinds.OFFLOAD, *names, kinds.IDLE))
    return tuple(row for row in rows if row.predicted or row.measured)
