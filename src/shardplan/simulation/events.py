"""The events of a simulated step: its pieces, what travels between ranks, and what comes once a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.fields import dataclass
from shardplan.estimation.parts.chunks import OnceAStep
from shardplan.physics.schedules.base import ChunkTimes
from shardplan.simulation import pieces as piece_kinds
from shardplan.simulation.case import Seconds
from shardplan.simulation.exchanges import StateExchanges
from shardplan.simulation.pieces import NOTHING
from shardplan.simulation.step import CriticalPath, SimulatedStep, critical_path, durations
from shardplan.simulation.timeline import (
    BACKWARD,
    COMPUTE,
    EXCHANGES,
    FORWARD,
    GATHERING,
    HIDDEN_GATHERING,
    HIDDEN_REDUCTION,
    INPUT_GRADIENT,
    KIND_OF_TERM,
    NO_CHUNK,
    RECOMPUTATION,
    REDUCTION,
    SEND_BACKWARD,
    SEND_FORWARD,
    SHARDED,
    TRANSFERS,
    WEIGHT_GRADIENT,
    Events,
)

KIND_OF_PIECE: Final = np.array([FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, BACKWARD])
"""By the number of a piece's kind."""
WITH_INPUT_GRADIENT: Final = (piece_kinds.INPUT_GRADIENT, piece_kinds.BACKWARD)
SHORTEST: Final = 1e-9
"""Seconds of a part of a pass: what is shorter is no event of its own."""
SENDERS: Final = (piece_kinds.FORWARD, *WITH_INPUT_GRADIENT)


@dataclass(frozen=True, kw_only=True)
class PlacedStep:
    """A step whose first event is at 0, with all that comes once a step, if that is known."""

    step: SimulatedStep
    times: ChunkTimes
    """What its pieces take before any disturbance."""
    once: OnceAStep | None
    exchanges: StateExchanges | None
    """What states exchange once a step, if that is known."""
    start: Seconds
    """Of every piece; those of one block, which share the rank, one after another. [s]"""
    end: Seconds
    """Of the block of every piece. [s]"""
    slowest: int
    """The rank that ends the step."""
    path: CriticalPath

    @classmethod
    def of(
        cls,
        step: SimulatedStep,
        times: ChunkTimes,
        once: OnceAStep | None = None,
        exchanges: StateExchanges | None = None,
    ) -> PlacedStep:
        """``step``, moved to where its first piece, or the gathering of parameters before that, starts at 0."""
        pieces = step.pieces
        spans = _spans(step)
        slowest = int(np.argmax(spans if once is None else once.after(spans)))
        firsts = step.start[pieces.bounds[:-1]]
        origin = np.min(firsts if once is None else firsts - once.gather)
        return cls(
            step=step,
            times=times,
            once=once,
            exchanges=exchanges,
            start=step.placed_start - origin,
            end=step.end - origin,
            slowest=slowest,
            path=critical_path(step, slowest),
        )

    def share_of(self, part: Seconds | None, kinds: Sequence[int]) -> Seconds:
        """``part`` (seconds of every chunk) of the time of every piece of some kinds; 0 of the others."""
        pieces = self.step.pieces
        if part is None:
            return np.zeros(len(pieces.rank))
        whole = durations(pieces, self.times)
        has_it = np.isin(pieces.kind, kinds) & (whole > 0)
        share = np.where(has_it, np.minimum(part[pieces.position] / np.where(has_it, whole, 1.0), 1.0), 0.0)
        return np.where(share * whole > SHORTEST, share, 0.0)


def events_of(at: PlacedStep) -> Events:
    """Everything that happens in a step, sorted by rank, lane and time."""
    groups = [_work(at), _recomputation(at), _sends(at), _exchanges(at), *_hidden(at), *_once(at)]
    every = Events(
        **{each.name: np.concatenate([getattr(one, each.name) for one in groups]) for each in fields(Events)}
    )
    return every.at(np.lexsort((every.start, every.lane, every.rank)))


def _work(at: PlacedStep) -> Events:
    """Every piece, without the time in which it runs the forward pass again."""
    pieces = at.step.pieces
    again = _again(at)
    return _events(
        rank=pieces.rank,
        lane=COMPUTE,
        kind=KIND_OF_PIECE[pieces.kind],
        chunk=pieces.chunk,
        microbatch=pieces.microbatch,
        start=at.start + again,
        duration=at.step.took - again,
        critical=at.path.pieces,
    )


def _recomputation(at: PlacedStep) -> Events:
    """The forward passes that run again before their gradients."""
    again = _again(at)
    some = again > 0
    return _of_passes(at, some, lane=COMPUTE, kind=RECOMPUTATION, start=at.start[some], duration=again[some])


def _again(at: PlacedStep) -> Seconds:
    """Seconds of every piece in which the forward pass runs again."""
    return at.share_of(at.times.recomputed, WITH_INPUT_GRADIENT) * at.step.took


def _sends(at: PlacedStep) -> Events:
    """What goes to another rank: the end of the pass in which the sender is busy with it, and the rest of its way."""
    pieces = at.step.pieces
    (waits,) = np.nonzero(pieces.edge != NOTHING)
    sending = at.share_of(at.times.sending, SENDERS) * at.step.took
    duration = sending[pieces.source[waits]] + at.step.transfer[waits]
    waits, duration = waits[duration > 0], duration[duration > 0]
    source = pieces.source[waits]
    return _events(
        rank=pieces.rank[source],
        lane=TRANSFERS,
        kind=np.where(pieces.kind[source] == piece_kinds.FORWARD, SEND_FORWARD, SEND_BACKWARD),
        chunk=pieces.chunk[source],
        microbatch=pieces.microbatch[source],
        start=at.end[source] - sending[source],
        duration=duration,
        critical=at.path.transfers[waits],
    )


def _exchanges(at: PlacedStep) -> Events:
    """Sharded weights and gradients on their way while a pass waits for them, at its start."""
    waiting = at.share_of(at.times.exchanging, SENDERS) * at.step.took
    some = waiting > 0
    return _of_passes(at, some, lane=EXCHANGES, kind=SHARDED, start=at.start[some], duration=waiting[some])


def _hidden(at: PlacedStep) -> Iterator[Events]:
    """Traffic of states once a step while the rank runs its pieces, chunk by chunk."""
    if at.exchanges is None:
        return
    moved = at.start[0] - at.step.placed_start[0]
    for kind, buckets in (
        (HIDDEN_GATHERING, at.exchanges.gatherings),
        (HIDDEN_REDUCTION, at.exchanges.reductions),
    ):
        yield _events(
            rank=buckets.rank,
            lane=EXCHANGES,
            kind=kind,
            chunk=buckets.chunk,
            microbatch=NO_CHUNK,
            start=buckets.start + moved,
            duration=buckets.end - buckets.start,
            critical=False,
        )


def _once(at: PlacedStep) -> Iterator[Events]:
    """What comes once a step: the gathering of parameters before a rank's first piece, all else after its last."""
    if at.once is None:
        return
    once, pieces = at.once, at.step.pieces
    first, now = at.start[pieces.bounds[:-1]], at.end[pieces.bounds[1:] - 1]
    ranks = np.arange(len(first))
    begins = ranks == pieces.rank[at.path.first]
    yield _of_ranks(GATHERING, EXCHANGES, first - once.gather, once.gather, begins)
    after = once.after_passes(_spans(at.step))
    for kind, lane, duration in (
        (REDUCTION, EXCHANGES, once.reduce),
        *((kind, COMPUTE, after[key]) for key, kind in KIND_OF_TERM.items()),
    ):
        yield _of_ranks(kind, lane, now, duration, ranks == at.slowest)
        now = now + duration


def _of_ranks(kind: int, lane: int, start: Seconds, duration: Seconds, critical: NDArray[np.bool_]) -> Events:
    """One event of every rank that takes time."""
    (ranks,) = np.nonzero(duration > 0)
    return _events(
        rank=ranks,
        lane=lane,
        kind=kind,
        chunk=NO_CHUNK,
        microbatch=NO_CHUNK,
        start=start[ranks],
        duration=duration[ranks],
        critical=critical[ranks],
    )


def _of_passes(at: PlacedStep, some: NDArray[np.bool_], **columns: Any) -> Events:
    """Events at the start of some pieces, on their ranks; critical where the pieces are."""
    pieces = at.step.pieces
    return _events(
        rank=pieces.rank[some],
        chunk=pieces.chunk[some],
        microbatch=pieces.microbatch[some],
        critical=at.path.pieces[some],
        **columns,
    )


def _events(**columns: Any) -> Events:
    """Events from columns, or from numbers that all have in common."""
    num = len(columns["rank"])
    return Events(**{name: np.broadcast_to(np.asarray(column), (num,)) for name, column in columns.items()})


def _spans(step: SimulatedStep) -> Seconds:
    """From the first piece of every rank to its last. [s]"""
    return np.array([rank.span for rank in step.ranks])
