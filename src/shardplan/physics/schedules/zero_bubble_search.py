"""Schedules whose order is found by a heuristic, for given times under a memory limit (arXiv 2401.10241, section 3.1).

ZB-V is ordered greedily: every rank starts what it can, in the memory of 1F1B (Qi et al., arXiv 2405.15362 and
2401.10241).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import ClassVar, Final

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass
from shardplan.physics.schedules.base import ChunkTimes, Folded, Kind, Orders, Pass, Pipeline, Schedule

KEPT_SHARE: Final = 32 / 74
"""Activations that a B leaves for its W, as a share of a micro-batch's: 32 of 34 + 5 a s / h in units of s b h
(arXiv 2401.10241, table 1), with heads of 128 and sequences of 1,024 tokens as in the larger models of its table 3."""
SMALL = 1e-9


@dataclass(frozen=True, kw_only=True)
class OrderChoices:
    """The yes-or-no choices of the heuristic, of which the search tries all combinations."""

    delays_first_b: bool
    """Whether another forward pass of the warm-up may delay the first B."""
    skips_f: bool
    """Whether a rank that is two forward passes ahead of the next one leaves a forward pass out."""
    fills_small_gaps: bool
    """Whether a W fills a gap that is shorter, also where the rank has waited less than the longest-waiting one."""


class Search:
    """One run of the heuristic: what every rank has done so far, and when."""

    def __init__(self, times: ChunkTimes, num_microbatches: int, limit: int, choices: OrderChoices) -> None:
        self.num_ranks, self.num_microbatches = len(times.forward), num_microbatches
        self.limit, self.choices = limit, choices
        self.seconds: dict[Kind, list[float]] = {
            "F": times.forward.tolist(), "B": times.input_gradient.tolist(), "W": times.weight_gradient.tolist()
        }  # fmt: skip
        self.transfer: list[float] = times.transfer.tolist()
        self.orders: list[list[Pass]] = [[] for _ in range(self.num_ranks)]
        self.ends: dict[Kind, list[list[float]]] = {
            kind: [[] for _ in range(self.num_ranks)] for kind in self.seconds
        }  # fmt: skip
        self.clock = [0.0] * self.num_ranks
        self.waited = [0.0] * self.num_ranks

    def run(self) -> None:
        """Warm-up, then a round of one F and one B on every rank for each micro-batch, then the W that are left."""
        self.warm_up()
        for _ in range(1, self.num_microbatches):
            for rank in self.ranks_with_forward():
                self.make_room(rank)
                self.fill(rank, self.arrival("F", rank))
                self.put(rank, "F")
            for rank in reversed(range(self.num_ranks)):
                self.fill(rank, self.arrival("B", rank))
                if rank == 0 and self.count("F", 0) == self.num_microbatches:
                    self.put_all_weight_gradients(0)
                self.put(rank, "B")
        for rank in range(self.num_ranks):
            self.put_all_weight_gradients(rank)

    def count(self, kind: Kind, rank: int) -> int:
        """How many passes of a kind a rank has run."""
        return len(self.ends[kind][rank])

    def waiting(self, rank: int) -> bool:
        """Whether a weight gradient of the rank waits."""
        return self.count("W", rank) < self.count("B", rank)

    def kept(self, rank: int) -> float:
        """Activations that the rank keeps, in micro-batches; a waiting W counts ``KEPT_SHARE``."""
        waiting = self.count("B", rank) - self.count("W", rank)
        return self.count("F", rank) - self.count("B", rank) + KEPT_SHARE * waiting

    def arrival(self, kind: Kind, rank: int) -> float:
        """When the rank's next F or B has what it needs of the neighbour; 0 where it needs nothing."""
        before = rank - 1 if kind == "F" else rank + 1
        if not 0 <= before < self.num_ranks:
            return 0.0
        return self.ends[kind][before][self.count(kind, rank)] + self.transfer[min(rank, before)]

    def put(self, rank: int, kind: Kind) -> None:
        """Runs the rank's next pass of a kind as soon as it can."""
        arrival = 0.0 if kind == "W" else self.arrival(kind, rank)
        if self.count("F", rank):
            self.waited[rank] += max(arrival - self.clock[rank], 0.0)
        self.clock[rank] = max(self.clock[rank], arrival) + self.seconds[kind][rank]
        self.orders[rank].append(Pass(kind, 0, self.count(kind, rank)))
        self.ends[kind][rank].append(self.clock[rank])

    def put_all_weight_gradients(self, rank: int) -> None:
        """Runs all that wait."""
        while self.waiting(rank):
            self.put(rank, "W")

    def make_room(self, rank: int) -> None:
        """Runs weight gradients until another forward pass is within the limit."""
        while self.kept(rank) + 1 > self.limit + SMALL:
            self.put(rank, "W")

    def fill(self, rank: int, until: float) -> None:
        """Fills the gap before ``until`` with weight gradients; the last may reach beyond it."""
        while self.waiting(rank) and self.clock[rank] + self.seconds["W"][rank] <= until:
            self.put(rank, "W")
        gap = until - self.clock[rank]
        if self.waiting(rank) and gap > 0:
            is_longest = self.waited[rank] + gap > max(self.waited)
            if is_longest or self.choices.fills_small_gaps:
                self.put(rank, "W")

    def warm_up(self) -> None:
        """As many F as fit before the first B; each rank at least one more than the next."""
        for rank in range(self.num_ranks):
            self.put(rank, "F")
        extra = self.extra_forward()
        for rank in range(self.num_ranks):
            for _ in range(extra[rank]):
                self.put(rank, "F")
        for rank in reversed(range(self.num_ranks)):
            self.put(rank, "B")

    def extra_forward(self) -> list[int]:
        """How many F every rank runs between its first and its first B."""
        extra = [0] * self.num_ranks
        last = self.num_ranks - 1
        arrival = self.clock[last] + self.seconds["B"][last]
        for rank in reversed(range(last)):
            arrival += self.transfer[rank]
            clock, forward = self.clock[rank], self.seconds["F"][rank]
            while 1 + extra[rank] < min(self.limit, self.num_microbatches):
                if clock >= arrival or (not self.choices.delays_first_b and clock + forward > arrival):
                    break
                clock, extra[rank] = clock + forward, extra[rank] + 1
            arrival = max(clock, arrival) + self.seconds["B"][rank]
        for rank in range(1, self.num_ranks):
            before = extra[rank - 1]
            extra[rank] = min(extra[rank], before if 1 + before == self.num_microbatches else max(before - 1, 0))
        return extra

    def ranks_with_forward(self) -> list[int]:
        """Ranks that run a forward pass in this round: where one leaves it out, so do all before it."""
        runs = [self.wants_forward(rank) for rank in range(self.num_ranks)]
        return [rank for rank in range(self.num_ranks) if all(runs[rank:])]

    def wants_forward(self, rank: int) -> bool:
        """Whether a forward pass is left, and the rank should not keep the next one waiting for a B."""
        if self.count("F", rank) == self.num_microbatches:
            return False
        following = rank + 1
        ahead = following < self.num_ranks and self.count("F", rank) >= self.count("F", following) + 2
        if not (ahead and self.choices.skips_f):
            return True
        arrival = (
            self.clock[following] + self.seconds["F"][following] + self.seconds["B"][following] + self.transfer[rank]
        )
        if self.clock[rank] >= arrival:
            return False
        freed = math.ceil(max(self.kept(rank) + 1 - self.limit - SMALL, 0.0) / KEPT_SHARE)
        if self.clock[rank] + self.seconds["F"][rank] + freed * self.seconds["W"][rank] <= arrival:
            return True
        return arrival - self.clock[rank] > max(self.waited) - self.waited[rank]

    @property
    def longest(self) -> float:
        """Longest time from the first pass of a rank to its last. [s]"""
        starts = (ends[0] - forward for ends, forward in zip(self.ends["F"], self.seconds["F"], strict=True))
        return max(end - start for end, start in zip(self.clock, starts, strict=True))


def searched(times: ChunkTimes, num_microbatches: int, limit: int) -> Orders:
    """The best order that the heuristic finds where every rank keeps the activations of ``limit`` micro-batches.

    Raises ``InputError`` where the limit is below the number of ranks: 1F1B keeps as many.
    """
    num_ranks = len(times.forward)
    least = min(num_ranks, num_microbatches)
    if limit < least:
        raise InputError(
            f"max_in_flight is {limit} with {num_ranks} ranks and {num_microbatches} micro-batches",
            rule="the limit admits the micro-batches that 1F1B keeps",
            hint=f"set max_in_flight to {least} or more",
        )
    runs = []
    for choices in product((True, False), repeat=3):
        names = ("delays_first_b", "skips_f", "fills_small_gaps")
        run = Search(times, num_microbatches, limit, OrderChoices(**dict(zip(names, choices, strict=True))))
        run.run()
        runs.append(run)
    return _shortest(runs).orders


def _shortest(runs: Sequence[Search]) -> Search:
    """The first of those that take the least time but for rounding, so that the last bit of a time decides nothing."""
    least = min(run.longest for run in runs)
    return next(run for run in runs if run.longest <= least * (1 + SMALL))


class ZeroBubble1P(Schedule):
    r"""Searched for the given times, where a rank keeps the activations of p micro-batches at most.

    Its bubble is that of ZB-H1 where stages are equal and :math:`W \le F` (table 5). What a B leaves for its W counts
    less than a whole micro-batch, as table 1 has it.
    """

    name = "zb-1p"
    title = "Zero bubble, ZB-1p"
    source = "arXiv 2401.10241, section 3.1, table 5"
    splits_backward = True
    priced_as = "zb-h1"
    memory: ClassVar[int] = 1
    """Micro-batches that a rank may keep, by the number of ranks."""

    def order(self, at: Pipeline, times: ChunkTimes) -> Orders:
        """The best that the heuristic finds, within ``memory`` or the limit that is given."""
        limit = self.memory * int(at.pp) if times.max_in_flight is None else times.max_in_flight
        return searched(times, int(at.num_microbatches), limit)


class ZeroBubble2P(ZeroBubble1P):
    """As ZB-1p, in the activations of 2p micro-batches: almost no bubble where there are enough micro-batches."""

    name = "zb-2p"
    title = "Zero bubble, ZB-2p"
    priced_as = "zb-h2"
    memory = 2


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
