r"""The longest ways through chunks that do not take equal times, laid in a loop over the ranks.

A step is as long as its longest way through the passes, each of which waits for the pass before on its rank and for
what comes from another rank. In the steady state ways repeat themselves, so that one way says how often a micro-batch
counts every chunk. A rank that never waits is such a way: its own chunks, once each. Others change the rank where that
is longer.

**Interleaved**, groups of p micro-batches. A rank runs a forward pass and a backward pass in turn. Rank r is taken r
turns ahead, so that both neighbours' passes are of the turn before; one turn t, ranks modulo p, is

.. math::
    F_r(t) = \max(B_r(t - 1),\, F_{r-1}(t - 1)) + f_{kr}, \quad k = \lfloor (t - r - 2) / p \rfloor + 1 \bmod v

    B_r(t) = \max(F_r(t),\, B_{r+1}(t - 1)) + b_{kr}, \quad k = v - 1 - \lfloor (t + r) / p \rfloor \bmod v

and p micro-batches take p v turns. The model's first chunk waits for no other rank, as a new micro-batch enters there;
nor does the gradient of its last one, which begins there. A way may stay on a rank, where it counts both passes of
every turn, or move to the next rank with one pass in a turn. Moving pays where the passes on the way are longer than
both on a rank that waits: backward passes of long chunks, while first ranks wait that run short ones.

**Breadth-first**: all micro-batches pass a chunk before the next chunk of its rank starts, so that a way counts chunks
that are p or more apart in the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.fields import dataclass

Work = NDArray[np.float64]
"""Of every chunk, chunks per rank v x ranks p, in any unit."""
Counts = NDArray[np.float64]
"""How often a micro-batch counts every chunk of such a shape."""
Ints = NDArray[np.int32]
Flags = NDArray[np.bool_]

BACKWARD_SHARE: Final = 0.7
"""Backward pass of the time of both passes: 2/3 without recomputation, 3/4 with all of it."""
PERIODS: Final = 2
"""Groups of micro-batches that are run. The way is read in the middle, where it has no ends."""


def pace_of(work: Work, way: Counts) -> float:
    """By how much a micro-batch is slower than on the slowest rank, where it counts chunks as ``way`` does."""
    return max(float((way * work).sum() / work.sum(axis=0).max()), 1.0)


def breadth_first_way(work: Work) -> Counts:
    """The chunks, p or more apart, that take longest together."""
    pp, every = work.shape[1], work.ravel().tolist()
    best, taken = [0.0] * (len(every) + pp), [False] * len(every)
    for place, time in enumerate(every):
        taken[place] = best[place] + time > best[place + pp - 1]
        best[place + pp] = max(best[place] + time, best[place + pp - 1])
    way, place = np.zeros(len(every)), len(every) - 1
    while place >= 0:
        way[place] = taken[place]
        place -= pp if taken[place] else 1
    return way.reshape(work.shape)


def interleaved_ways(works: Sequence[Work]) -> list[Counts]:
    """The longest way through each of several pipelines, which are run together."""
    if not works:
        return []
    order = sorted(range(len(works)), key=lambda number: -works[number].size)
    found = _Loops.of([works[number] for number in order]).ways()
    return [way for _, way in sorted(zip(order, found, strict=True), key=lambda pair: pair[0])]


@dataclass(frozen=True, kw_only=True)
class _Loops:
    """Pipelines one after another, those with most chunks first: an element for each of their ranks."""

    work: Work
    """Of all chunks of all pipelines."""
    first: Ints
    """Place of the pipeline's first chunk in ``work``."""
    rank: Ints
    pp: Ints
    vp: Ints
    turns: Ints
    """Turns that the pipeline is run."""
    starts: Ints
    """First rank of every pipeline."""
    shapes: list[tuple[int, ...]]

    @classmethod
    def of(cls, works: Sequence[Work]) -> _Loops:
        """``works``, longest first."""
        shapes = [work.shape for work in works]
        vp, pp = np.array(shapes, dtype=np.int32).T
        sizes = vp * pp
        return cls(
            work=np.concatenate([work.ravel() for work in works]),
            first=np.repeat(np.cumsum(sizes) - sizes, pp).astype(np.int32),
            rank=np.concatenate([np.arange(count, dtype=np.int32) for count in pp.tolist()]),
            pp=np.repeat(pp, pp),
            vp=np.repeat(vp, pp),
            turns=np.repeat(PERIODS * sizes, pp).astype(np.int32),
            starts=(np.cumsum(pp) - pp).astype(np.int32),
            shapes=shapes,
        )

    def ways(self) -> list[Counts]:
        """How often a micro-batch counts every chunk on the longest way of each pipeline."""
        forward, backward = self._chunks()
        waited = self._run(forward, backward)
        ranks, starts, moves = self._traced(*waited)
        counts = np.zeros(len(self.work))
        read = self._periods(ranks, starts)
        turn, pipeline = np.nonzero(read & starts)
        np.add.at(counts, backward[turn, ranks[turn, pipeline]], BACKWARD_SHARE)
        turn, pipeline = np.nonzero(read & ~moves)
        np.add.at(counts, forward[turn, ranks[turn, pipeline]], 1 - BACKWARD_SHARE)
        ends = np.cumsum([vp * pp for vp, pp in self.shapes])
        return [part.reshape(s) / s[1] for part, s in zip(np.split(counts, ends[:-1]), self.shapes, strict=True)]

    def _chunks(self) -> tuple[Ints, Ints]:
        """The chunks that every rank runs forward and backward in every turn."""
        turn = np.arange(self.turns[0], dtype=np.int32)[:, None]
        own = self.first + self.rank
        forward: Ints = ((turn - self.rank - 2) // self.pp + 1) % self.vp
        backward: Ints = self.vp - 1 - (turn + self.rank) // self.pp % self.vp
        return own + forward * self.pp, own + backward * self.pp

    @property
    def _neighbours(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The ranks before and after every rank, in a ring."""
        own = np.arange(len(self.rank))
        before = np.where(self.rank == 0, own + self.pp - 1, own - 1)
        return before, np.where(self.rank == self.pp - 1, own - self.pp + 1, own + 1)

    def _run(self, forward: Ints, backward: Ints) -> tuple[Flags, Flags, NDArray[np.intp]]:
        """Whether each pass of a turn waited for another rank, and the rank of every pipeline that ends last.

        Pipelines with fewer turns are run on, to no use.
        """
        before, after = self._neighbours
        sources = np.concatenate([before, after + len(after)])
        waits = np.concatenate([forward != self.first, backward != self.first + self.pp * self.vp - 1], axis=1)
        ends = self._ends(forward, backward, sources, waits.astype(np.float64))
        sent, gradients = np.split(ends[:-1].take(sources, axis=1) * waits, 2, axis=1)
        own, passed = np.split(ends, 2, axis=1)
        stops, turns = [*self.starts[1:], len(after)], self.turns[self.starts]
        each = zip(self.starts, stops, turns, strict=True)
        last = [start + int(np.argmax(passed[turn, start:stop])) for start, stop, turn in each]
        return sent > passed[:-1], gradients > own[1:], np.array(last)

    def _ends(self, forward: Ints, backward: Ints, sources: NDArray[np.intp], waits: Work) -> Work:
        """When the passes of every turn end, first those of all ranks forward; before the first turn none has begun.

        ``sources``: the passes of the turn before that they wait for; ``waits``: one where they do, else zero.
        """
        count, turns = len(self.rank), len(forward)
        ends, come = np.zeros((turns + 1, 2 * count)), np.empty(2 * count)
        np.multiply(1 - BACKWARD_SHARE, self.work[forward], out=ends[1:, :count])
        np.multiply(BACKWARD_SHARE, self.work[backward], out=ends[1:, count:])
        sent, gradient = come[:count], come[count:]
        each = zip(ends[:-1], ends[:-1, count:], ends[1:, :count], ends[1:, count:], waits, strict=True)
        for former, before, own, passed, does_wait in each:
            former.take(sources, out=come, mode="clip")  # in half the time of one that checks
            np.multiply(come, does_wait, out=come)
            np.add(own, np.maximum(before, sent, out=sent), out=own)
            np.add(passed, np.maximum(own, gradient, out=gradient), out=passed)
        return ends

    def _traced(
        self, from_left: Flags, from_right: Flags, last: NDArray[np.intp]
    ) -> tuple[NDArray[np.intp], Flags, Flags]:
        """The ways that end with ``last``: the rank of every turn, whether its backward pass is on it, and alone."""
        back, at = self._backwards(from_left, from_right), 2 * last + 1
        states = np.zeros((len(from_left), len(last)), dtype=np.intp)
        for turn, count in reversed([*enumerate(_active(self.turns[self.starts]))]):
            states[turn, :count] = at[:count]
            at[:count] = back[turn].take(at[:count])
        ranks, has_backward = states // 2, states % 2 > 0
        return ranks, has_backward, has_backward & np.take_along_axis(from_right, ranks, axis=1)

    def _backwards(self, from_left: Flags, from_right: Flags) -> Ints:
        """The state in the turn before, by turn and state: twice the rank, and one more with its backward pass."""
        before, after = self._neighbours
        forward = np.where(from_left, 2 * before, 2 * np.arange(len(before)) + 1)
        return np.stack([forward, np.where(from_right, 2 * after + 1, forward)], axis=-1).reshape(len(forward), -1)

    def _periods(self, ranks: NDArray[np.intp], has_backward: Flags) -> Flags:
        """Turns of every way between two that are alike, a period apart, near the middle; none where no two are."""
        read = np.zeros(ranks.shape, dtype=bool)
        state = 2 * ranks + has_backward
        for number, (vp, pp) in enumerate(self.shapes):
            one = state[: PERIODS * vp * pp, number]
            period = vp * pp
            (alike,) = np.nonzero(one[:period] == one[period:])
            if len(alike):
                first = int(alike[np.argmin(np.abs(alike - period // 2))]) + 1
                read[first : first + period, number] = True
        return read


def _active(turns: Ints) -> list[int]:
    """How many of ``turns``, largest first, are still to come in every turn."""
    found: list[int] = np.searchsorted(-turns, -np.arange(turns[0])).tolist()
    return found
