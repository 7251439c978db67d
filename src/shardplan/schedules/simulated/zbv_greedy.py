"""ZB-V, greedy: every rank starts what it can, in the memory of 1F1B (Qi et al., arXiv 2405.15362 and 2401.10241)."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final

from shardplan.errors import InputError
from shardplan.schedules.base import ChunkTimes, Folded, Kind, Orders, Pass, Pipeline

LEAST: Final = 2
"""Chunk passes that a rank must be able to keep: one of either chunk."""


class ZeroBubbleVGreedy(Folded):
    """The chunks of ZB-V, ordered for given times: a free rank runs an input gradient, a forward pass, or else a W.

    A rank keeps 2p chunk passes at most, as ZB-V does, and leaves room for one forward pass of its second chunk, so
    that no rank waits for ever.
    """

    name = "zbv-greedy"
    title = "ZB-V, greedy"
    source = "arXiv 2401.10241, section 6; arXiv 2405.15362"
    priced_as = "zb-v"
    closed_form_holds = False

    def order(self, at: Pipeline, times: ChunkTimes) -> Orders:
        """What the ranks run, one event after the other."""
        pp = int(at.pp)
        limit = 2 * pp if times.max_in_flight is None else times.max_in_flight
        if limit < LEAST:
            raise InputError(
                f"max_in_flight is {limit}",
                rule="a rank can keep one pass of either chunk",
                hint=f"set max_in_flight to {LEAST} or more",
            )
        greedy = _Greedy(pp, int(at.num_microbatches), times, limit)
        greedy.run()
        return greedy.orders


class _Greedy:
    """Ranks at work: what has arrived, what they keep, and when they are free."""

    def __init__(self, pp: int, num_microbatches: int, times: ChunkTimes, limit: int) -> None:
        self.pp, self.limit = pp, limit
        self.seconds = {"F": times.forward, "B": times.input_gradient, "W": times.weight_gradient}
        self.transfer = times.transfer
        self.orders: list[list[Pass]] = [[] for _ in range(pp)]
        self.kept = [0] * pp
        self.is_free = [True] * pp
        self.ready: list[dict[tuple[Kind, int], list[int]]] = [
            {(kind, chunk): [] for kind in ("F", "B", "W") for chunk in (0, 1)} for _ in range(pp)
        ]
        self.ready[0]["F", 0] = list(range(num_microbatches))
        self.events: list[tuple[float, int, int, Pass | None]] = [(0.0, 0, 0, None)]

    def run(self) -> None:
        """One event after the other; those of one time together."""
        while self.events:
            now = self.events[0][0]
            ranks = set()
            while self.events and self.events[0][0] <= now:
                _, _, rank, arrived = heapq.heappop(self.events)
                if arrived is None:
                    self.is_free[rank] = True
                else:
                    self.ready[rank][arrived.kind, arrived.chunk].append(arrived.microbatch)
                ranks.add(rank)
            for rank in sorted(ranks):
                if self.is_free[rank]:
                    self.start(rank, now)

    def start(self, rank: int, now: float) -> None:
        """Runs the next pass of a rank, if there is one."""
        found = next(self.candidates(rank), None)
        if found is None:
            return
        kind, chunk = found
        one = Pass(kind, chunk, self.ready[rank][found].pop(0))
        position = rank if chunk == 0 else 2 * self.pp - 1 - rank
        end = now + float(self.seconds[kind][position])
        self.kept[rank] += {"F": 1, "B": 0, "W": -1}[kind]
        self.orders[rank].append(one)
        self.is_free[rank] = False
        for later, place, next_one in self.followers(rank, position, one):
            self.add(end + later, place, next_one)
        self.add(end, rank, None)

    def candidates(self, rank: int) -> Iterator[tuple[Kind, int]]:
        """Kinds of passes that the rank could run, the best first."""
        ready, free = self.ready[rank], self.limit - self.kept[rank]
        gradients: list[tuple[Kind, int]] = [("B", 0), ("B", 1)]
        order = sorted(gradients, key=lambda one: ready[one][0] if ready[one] else 0)
        order += [("F", 1)] if free >= 1 else []
        order += [("F", 0)] if free >= LEAST else []
        order += [("W", 1), ("W", 0)]
        return (one for one in order if ready[one])

    def followers(self, rank: int, position: int, one: Pass) -> Iterator[tuple[float, int, Pass]]:
        """Which passes can follow, where, and how long what they need is on its way."""
        if one.kind == "B":
            yield 0.0, rank, one._replace(kind="W")
        if one.kind == "W" or (one.kind == "B" and position == 0):
            return
        if one.kind == "F" and position == 2 * self.pp - 1:
            yield 0.0, rank, one._replace(kind="B")
            return
        following = position + (1 if one.kind == "F" else -1)
        place = following if following < self.pp else 2 * self.pp - 1 - following
        lag = 0.0 if place == rank else float(self.transfer[min(position, following)])
        yield lag, place, one._replace(chunk=int(following >= self.pp))

    def add(self, time: float, rank: int, arrived: Pass | None) -> None:
        """Arrivals come before a rank that becomes free at the same time."""
        heapq.heappush(self.events, (time, int(arrived is None), rank, arrived))
