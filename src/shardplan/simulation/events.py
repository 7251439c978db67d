"""The events of a simulated step: its pieces, transfers between ranks, and what happens once a step.

They also give the memory of every rank over time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.fields import dataclass
from shardplan.estimation.parts.chunks import MemoryParts, OnceAStep
from shardplan.physics.schedules.base import ChunkTimes
from shardplan.simulation import pieces as piece_kinds
from shardplan.simulation import timeline as shown
from shardplan.simulation.case import Seconds
from shardplan.simulation.exchanges import StateExchanges
from shardplan.simulation.pieces import NOTHING, Ints
from shardplan.simulation.step import CriticalPath, SimulatedStep, critical_path, durations
from shardplan.simulation.timeline import AlivePart, Events, MemoryTrace

KIND_OF_PIECE: Final = np.array([shown.FORWARD, shown.INPUT_GRADIENT, shown.WEIGHT_GRADIENT, shown.BACKWARD])
"""Event kind of each kind of piece, by its number."""
WITH_INPUT_GRADIENT: Final = (piece_kinds.INPUT_GRADIENT, piece_kinds.BACKWARD)
SHORTEST: Final = 1e-9
"""Parts of a pass that are shorter are not drawn as events. [s]"""
SENDERS: Final = (piece_kinds.FORWARD, *WITH_INPUT_GRADIENT)


@dataclass(frozen=True, kw_only=True)
class PlacedStep:
    """A step whose first event is at time 0, with everything that happens once a step if that is known."""

    step: SimulatedStep
    times: ChunkTimes
    """Times of the pieces before any disturbance."""
    once: OnceAStep | None
    exchanges: StateExchanges | None
    """What states exchange once a step, if known."""
    start: Seconds
    """Start of every piece; pieces of one block share the rank, and are placed one after another. [s]"""
    end: Seconds
    """End of the block of every piece. [s]"""
    slowest: int
    """The rank that ends last."""
    path: CriticalPath

    @classmethod
    def of(
        cls,
        step: SimulatedStep,
        times: ChunkTimes,
        once: OnceAStep | None = None,
        exchanges: StateExchanges | None = None,
    ) -> PlacedStep:
        """``step`` shifted so that its first piece, or the gathering of parameters before it, starts at 0."""
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

    def seconds_of(self, part: Seconds | None, kinds: Sequence[int]) -> Seconds:
        """Seconds of every piece of the given kinds, from the chunk times ``part``; 0 for other kinds. [s]"""
        pieces = self.step.pieces
        if part is None:
            return np.zeros(len(pieces.rank))
        whole = durations(pieces, self.times)
        has_it = np.isin(pieces.kind, kinds) & (whole > 0)
        share = np.where(has_it, np.minimum(part[pieces.position] / np.where(has_it, whole, 1.0), 1.0), 0.0)
        return np.where(share * whole > SHORTEST, share, 0.0) * self.step.took


def events_of(at: PlacedStep) -> Events:
    """All events of a step, sorted by rank, lane and time."""
    again = at.seconds_of(at.times.recomputed, WITH_INPUT_GRADIENT)
    waiting = at.seconds_of(at.times.exchanging, SENDERS)  # waits for sharded weights and gradients
    passes = [_work_events(at), _events_at_start(at, again, shown.COMPUTE, shown.RECOMPUTATION)]
    groups = [
        *passes,
        _transfer_events(at),
        _events_at_start(at, waiting, shown.EXCHANGES, shown.SHARDED),
        *_hidden_exchanges(at),
        *_once_a_step(at),
    ]
    every = Events(
        **{each.name: np.concatenate([getattr(one, each.name) for one in groups]) for each in fields(Events)}
    )
    return every.at(np.lexsort((every.start, every.lane, every.rank)))


def _work_events(at: PlacedStep) -> Events:
    """Every piece, without the time in which it recomputes its forward pass."""
    again = at.seconds_of(at.times.recomputed, WITH_INPUT_GRADIENT)
    kind, every = KIND_OF_PIECE[at.step.pieces.kind], np.ones(len(again), dtype=bool)
    return _pass_events(at, every, lane=shown.COMPUTE, kind=kind, start=at.start + again, duration=at.step.took - again)


def _events_at_start(at: PlacedStep, seconds: Seconds, lane: int, kind: int) -> Events:
    """An event at the start of every piece for which ``seconds`` is not negligible."""
    some = seconds > 0
    return _pass_events(at, some, lane=lane, kind=kind, start=at.start[some], duration=seconds[some])


def _transfer_events(at: PlacedStep) -> Events:
    """Transfers: the end of a pass in which its sender is busy sending, and the rest of the way."""
    pieces = at.step.pieces
    (waits,) = np.nonzero(pieces.edge != NOTHING)
    sending = at.seconds_of(at.times.sending, SENDERS)
    duration = sending[pieces.source[waits]] + at.step.transfer[waits]
    waits, duration = waits[duration > 0], duration[duration > 0]
    source = pieces.source[waits]
    return _events(
        rank=pieces.rank[source],
        lane=shown.TRANSFERS,
        kind=np.where(pieces.kind[source] == piece_kinds.FORWARD, shown.SEND_FORWARD, shown.SEND_BACKWARD),
        chunk=pieces.chunk[source],
        microbatch=pieces.microbatch[source],
        start=at.end[source] - sending[source],
        duration=duration,
        critical=at.path.transfers[waits],
    )


def _hidden_exchanges(at: PlacedStep) -> Iterator[Events]:
    """Traffic of states that runs behind the pieces of a rank, chunk by chunk."""
    if at.exchanges is None:
        return
    moved = at.start[0] - at.step.placed_start[0]
    traffic = {
        shown.HIDDEN_GATHERING: at.exchanges.gatherings,
        shown.HIDDEN_REDUCTION: at.exchanges.reductions,
    }
    for kind, buckets in traffic.items():
        yield _events(
            rank=buckets.rank,
            lane=shown.EXCHANGES,
            kind=kind,
            chunk=buckets.chunk,
            microbatch=shown.NO_CHUNK,
            start=buckets.start + moved,
            duration=buckets.end - buckets.start,
            critical=False,
        )


def _once_a_step(at: PlacedStep) -> Iterator[Events]:
    """What happens once a step: gathering of parameters before a rank's first piece, everything else after its last."""
    if at.once is None:
        return
    once, pieces = at.once, at.step.pieces
    first, now = at.start[pieces.bounds[:-1]], at.end[pieces.bounds[1:] - 1]
    ranks = np.arange(len(first))
    begins = ranks == pieces.rank[at.path.first]
    yield _rank_events(shown.GATHERING, shown.EXCHANGES, first - once.gather, once.gather, begins)
    after = once.after_passes(_spans(at.step))
    for kind, lane, duration in (
        (shown.REDUCTION, shown.EXCHANGES, once.reduce),
        *((kind, shown.COMPUTE, after[key]) for key, kind in shown.KIND_OF_TERM.items()),
    ):
        yield _rank_events(kind, lane, now, duration, ranks == at.slowest)
        now = now + duration


def _rank_events(kind: int, lane: int, start: Seconds, duration: Seconds, critical: NDArray[np.bool_]) -> Events:
    """One event for every rank whose ``duration`` is not negligible."""
    (ranks,) = np.nonzero(duration > 0)
    return _events(
        rank=ranks,
        lane=lane,
        kind=kind,
        chunk=shown.NO_CHUNK,
        microbatch=shown.NO_CHUNK,
        start=start[ranks],
        duration=duration[ranks],
        critical=critical[ranks],
    )


def _pass_events(at: PlacedStep, some: NDArray[np.bool_], **columns: Any) -> Events:
    """Events at the start of some pieces, on their ranks; critical if the piece is."""
    pieces = at.step.pieces
    return _events(
        rank=pieces.rank[some],
        chunk=pieces.chunk[some],
        microbatch=pieces.microbatch[some],
        critical=at.path.pieces[some],
        **columns,
    )


def _events(**columns: Any) -> Events:
    """Events from columns, or from single values for all events."""
    num = len(columns["rank"])
    return Events(**{name: np.broadcast_to(np.asarray(column), (num,)) for name, column in columns.items()})


def _spans(step: SimulatedStep) -> Seconds:
    """Time from the first piece of every rank to its last. [s]"""
    return np.array([rank.span for rank in step.ranks])


Bytes = NDArray[np.float64]

STATES: Final = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer states": "optimizer",
    "buffers of states": "whole",
    "framework": "framework",
}
"""Memory that is there all the time, by field of ``MemoryParts``."""
TEMPORARY: Final = {
    "recomputed layer": "recomputed",
    "gradients of a layer's tensors": "passing",
    "logits and loss": "loss",
    "activations on their way to or from the host": "moving",
}
"""Memory that exists only during a pass."""
PARTS: Final = {
    **{name: name for name in ("weights", "gradients", "framework")},
    "optimizer states": "optimizer",
    "buffers of states": "buffers",
    "recomputed layer": "activations",
    "gradients of a layer's tensors": "buffers",
    "logits and loss": "logits",
    "activations on their way to or from the host": "activations",
}
"""The part of a stage's memory in which each of these counts."""
CHUNK: Final = "activations of model chunk "
"""Prefix of the name of a chunk's activations, before its number."""
ROUNDING: Final = 1e-12
"""Share of a step within which changes count as simultaneous: times of one event are sums in several orders."""
FREEING: Final = (piece_kinds.WEIGHT_GRADIENT, piece_kinds.BACKWARD)


def memory_of(at: PlacedStep, events: Events, parts: MemoryParts) -> tuple[MemoryTrace, ...]:
    """The memory of every rank.

    Activations of a micro-batch in a chunk exist from the start of its forward pass to the end of its weight gradient.
    Temporary memory of a pass exists while it runs. The optimizer's buffers come after all that is freed. So the peak
    equals the estimate's, if the estimate's number of micro-batches in flight is that of the simulation.
    """
    end = float(events.end.max())
    return tuple(_memory_of_rank(at, events, parts, rank, end) for rank in range(len(at.step.ranks)))


@dataclass(frozen=True, kw_only=True)
class _Changes:
    """Memory beyond the baseline after every start and every end of a rank's passes, in order."""

    times: Seconds
    position: Ints
    """Position in the model of the chunk of the pass."""
    microbatch: Ints
    kept: Ints
    """Change of the number of micro-batches with saved activations: 1, 0 or -1."""
    temporary: Bytes
    """Temporary memory of the running pass, kinds x changes."""

    def by_part(self, parts: MemoryParts) -> dict[str, Bytes]:
        """Memory after every change, by part of the memory of a stage. [bytes]"""
        waiting = np.zeros(len(self.times))
        for chunk in np.unique(self.position).tolist():
            waiting += np.cumsum(np.where(self.position == chunk, self.kept, 0)) * parts.kept[chunk]
        found = {"activations": waiting}
        for name, size in zip(TEMPORARY, self.temporary, strict=True):
            found[PARTS[name]] = found.get(PARTS[name], 0.0) + size
        return found

    def alive(self, change: int, parts: MemoryParts) -> list[AlivePart]:
        """What is in memory after one of the changes."""
        counts = np.zeros((len(parts.kept), int(self.microbatch.max()) + 1), dtype=np.int64)
        until = slice(change + 1)
        np.add.at(counts, (self.position[until], self.microbatch[until]), self.kept[until])
        kept = [
            AlivePart(
                name=f"{CHUNK}{chunk}",
                num_bytes=float(counts[chunk].sum() * parts.kept[chunk]),
                microbatches=tuple(np.flatnonzero(counts[chunk]).tolist()),
            )
            for chunk in np.flatnonzero(counts.any(axis=1)).tolist()
        ]
        during = zip(TEMPORARY, self.temporary[:, change].tolist(), strict=True)
        return kept + [AlivePart(name=name, num_bytes=size) for name, size in during if size]


def _memory_of_rank(at: PlacedStep, events: Events, parts: MemoryParts, rank: int, end: float) -> MemoryTrace:
    baseline = {name: float(getattr(parts, field)[rank]) for name, field in STATES.items()}
    changes = _memory_changes(at, parts, rank)
    varying = changes.by_part(parts)
    own = events.of_rank(rank)
    updates = np.flatnonzero(own.kind == shown.OPTIMIZER)
    needed = float(parts.update[rank]) if len(updates) else 0.0
    update = np.array([own.start[updates[0]], own.end[updates[0]]]) if needed else np.zeros(0)
    times = np.concatenate(([0.0], changes.times, update, [end]))
    update_bytes = [needed, 0.0] if needed else []
    idle = [0.0 for _ in update_bytes]
    held = {
        part: np.concatenate(([0.0], values, update_bytes if part == PARTS["buffers of states"] else idle, [0.0]))
        for part, values in varying.items()
    }
    beyond = np.asarray(sum(held.values()))
    apart = np.diff(times) > ROUNDING * end
    lasts = np.flatnonzero(np.append(apart, True))  # of simultaneous changes only the last counts
    peak = int(lasts[np.argmax(beyond[lasts])])
    alive = [AlivePart(name=name, num_bytes=size) for name, size in baseline.items() if size]
    if 0 < peak <= len(changes.times):
        alive += changes.alive(peak - 1, parts)
    elif beyond[peak]:
        alive.append(AlivePart(name="buffers of the optimizer", num_bytes=needed))
    by_part = {part: values[lasts] for part, values in held.items()}
    for name, size in baseline.items():
        by_part[PARTS[name]] = by_part.get(PARTS[name], np.zeros(len(lasts))) + size
    return MemoryTrace(
        times=times[lasts],
        allocated=beyond[lasts] + sum(baseline.values()),
        baseline=baseline,
        at_peak=tuple(alive),
        by_part={part: values for part, values in by_part.items() if values.any()},
    )


def _memory_changes(at: PlacedStep, parts: MemoryParts, rank: int) -> _Changes:
    """Memory that the passes of a rank allocate and free."""
    pieces, took = at.step.pieces, at.step.took
    own = slice(int(pieces.bounds[rank]), int(pieces.bounds[rank + 1]))
    kind, position = pieces.kind[own], pieces.position[own]
    is_gradient, ends = np.isin(kind, WITH_INPUT_GRADIENT), position == len(parts.kept) - 1
    is_weight = kind == piece_kinds.WEIGHT_GRADIENT
    during = (
        parts.recomputed[rank] * is_gradient,
        parts.passing[rank] * (is_gradient | is_weight),
        parts.loss[rank] * (is_gradient & ends),
        parts.moving[rank] * ~is_weight,
    )
    start = at.start[own]
    return _Changes(
        times=np.maximum.accumulate(_alternating(start, start + took[own])),
        position=np.repeat(position, 2),
        microbatch=np.repeat(pieces.microbatch[own], 2),
        kept=_alternating(kind == piece_kinds.FORWARD, -np.isin(kind, FREEING).astype(np.int64)),
        temporary=np.stack([_alternating(size, np.zeros_like(size)) for size in during]),
    )


def _alternating(starts: NDArray[Any], ends: NDArray[Any]) -> NDArray[Any]:
    """``starts`` and ``ends`` of every pass alternately."""
    return np.stack([starts, ends], axis=1).ravel()
