"""Memory over time: what every rank of a simulated step holds from event to event."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.fields import dataclass
from shardplan.estimation.parts.chunks import MemoryParts
from shardplan.simulation import pieces as piece_kinds
from shardplan.simulation.case import Seconds
from shardplan.simulation.events import PlacedStep
from shardplan.simulation.pieces import Ints
from shardplan.simulation.timeline import OPTIMIZER, AlivePart, Events, MemoryTrace

Bytes = NDArray[np.float64]

STATES: Final = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer states": "optimizer",
    "buffers of states": "whole",
    "framework": "framework",
}
"""What is there all the time, by the field of ``MemoryParts``."""
TEMPORARY: Final = {
    "recomputed layer": "recomputed",
    "gradients of a layer's tensors": "passing",
    "logits and loss": "loss",
    "activations on their way to or from the host": "moving",
}
"""What comes and goes with a pass."""
PARTS: Final = {
    **{name: name for name in ("weights", "gradients", "framework")},
    "optimizer states": "optimizer",
    "buffers of states": "buffers",
    "recomputed layer": "activations",
    "gradients of a layer's tensors": "buffers",
    "logits and loss": "logits",
    "activations on their way to or from the host": "activations",
}
"""In which part of the memory of a stage each of these counts."""
CHUNK: Final = "activations of model chunk "
"""Name of a chunk's activations, in front of its number."""
WITH_GRADIENT: Final = (piece_kinds.INPUT_GRADIENT, piece_kinds.BACKWARD)
ROUNDING: Final = 1e-12
"""Of a step: changes that are no further apart happen at once. Times of one event are sums in several orders."""
FREEING: Final = (piece_kinds.WEIGHT_GRADIENT, piece_kinds.BACKWARD)


def memory_of(at: PlacedStep, events: Events, parts: MemoryParts) -> tuple[MemoryTrace, ...]:
    """The memory of every rank.

    Activations of a micro-batch in a chunk are there from the start of its forward pass to the end of its weight
    gradient. What a pass needs besides is there while it runs. The optimizer needs its buffers when all that is gone.
    So the peak is what the estimate counts, wherever its number of micro-batches in flight is that of the simulation.
    """
    end = float(events.end.max())
    return tuple(_of_rank(at, events, parts, rank, end) for rank in range(len(at.step.ranks)))


@dataclass(frozen=True, kw_only=True)
class _Changes:
    """Memory beyond the baseline: after every start and every end of a rank's passes, in turn."""

    times: Seconds
    position: Ints
    """Of the chunk in the model that the pass is of."""
    microbatch: Ints
    kept: Ints
    """Change of the number of micro-batches whose activations are kept: 1, 0 or -1."""
    temporary: Bytes
    """What is there while the pass runs, kinds x changes."""

    def by_part(self, parts: MemoryParts) -> dict[str, Bytes]:
        """After every change, by part of the memory of a stage. [bytes]"""
        waiting = np.zeros(len(self.times))
        for chunk in np.unique(self.position).tolist():
            waiting += np.cumsum(np.where(self.position == chunk, self.kept, 0)) * parts.kept[chunk]
        found = {"activations": waiting}
        for name, size in zip(TEMPORARY, self.temporary, strict=True):
            found[PARTS[name]] = found.get(PARTS[name], 0.0) + size
        return found

    def alive(self, change: int, parts: MemoryParts) -> list[AlivePart]:
        """What there is after one of the changes."""
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


def _of_rank(at: PlacedStep, events: Events, parts: MemoryParts, rank: int, end: float) -> MemoryTrace:
    baseline = {name: float(getattr(parts, field)[rank]) for name, field in STATES.items()}
    changes = _changes(at, parts, rank)
    varying = changes.by_part(parts)
    own = events.of_rank(rank)
    updates = np.flatnonzero(own.kind == OPTIMIZER)
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
    lasts = np.flatnonzero(np.append(apart, True))  # of several changes at once the last counts
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


def _changes(at: PlacedStep, parts: MemoryParts, rank: int) -> _Changes:
    """What the passes of a rank bring and take."""
    pieces, took = at.step.pieces, at.step.took
    own = slice(int(pieces.bounds[rank]), int(pieces.bounds[rank + 1]))
    kind, position = pieces.kind[own], pieces.position[own]
    is_gradient, ends = np.isin(kind, WITH_GRADIENT), position == len(parts.kept) - 1
    is_weight = kind == piece_kinds.WEIGHT_GRADIENT
    during = (
        parts.recomputed[rank] * is_gradient,
        parts.passing[rank] * (is_gradient | is_weight),
        parts.loss[rank] * (is_gradient & ends),
        parts.moving[rank] * ~is_weight,
    )
    start = at.start[own]
    return _Changes(
        times=np.maximum.accumulate(_in_turn(start, start + took[own])),
        position=np.repeat(position, 2),
        microbatch=np.repeat(pieces.microbatch[own], 2),
        kept=_in_turn(kind == piece_kinds.FORWARD, -np.isin(kind, FREEING).astype(np.int64)),
        temporary=np.stack([_in_turn(size, np.zeros_like(size)) for size in during]),
    )


def _in_turn(starts: NDArray[Any], ends: NDArray[Any]) -> NDArray[Any]:
    """What belongs to the start of every pass, and then to its end."""
    return np.stack([starts, ends], axis=1).ravel()
