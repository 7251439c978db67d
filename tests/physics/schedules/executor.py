"""Runs the passes of a schedule: each rank in its order, each pass when what it needs is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from shardplan.physics.schedules.base import Pass, Passes, Pipeline, PipelineSchedule, Place

Key = tuple[str, int, int]
"""What a pass computes: F, B or W; the stage's position on the micro-batch's path; the micro-batch."""

Seconds = Callable[[str, Place], float]
"""Of a forward pass (F), an input gradient (B) and a weight gradient (W) at a place."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """What the ranks did in one step."""

    step_time: float
    """From the first pass of any rank to the last. [s]"""
    idle: tuple[float, ...]
    """By rank, between its first pass and its last. [s]"""
    in_flight: tuple[float, ...]
    """By rank, micro-batches whose activations it keeps at its peak, in units of its whole stage."""


@dataclass
class Rank:
    """A rank on its way through its passes."""

    number: int
    blocks: list[list[Pass]]
    turn: int = 0
    start: float | None = None
    clock: float = 0.0
    busy: float = 0.0


@dataclass
class Execution:
    """A step under way."""

    paths: dict[int, tuple[Place, ...]]
    seconds: Seconds
    transfer: float
    done: dict[Key, float] = field(default_factory=dict)

    def advance(self, rank: Rank) -> bool:
        """Runs the rank's next block, if all that it needs is there."""
        if rank.turn == len(rank.blocks):
            return False
        block = [
            (one, self.paths[one.microbatch].index(Place(rank.number, one.chunk))) for one in rank.blocks[rank.turn]
        ]
        needed = [key for one, position in block for key in self.needed(one, position)]
        if any(key not in self.done for key in needed):
            return False
        start = max([rank.clock, *(self.done[key] + self.sent(key, rank.number) for key in needed)])
        took = sum(self.seconds(kind, Place(rank.number, one.chunk)) for one, _ in block for kind in one.kind)
        rank.start = start if rank.start is None else rank.start
        rank.clock, rank.busy, rank.turn = start + took, rank.busy + took, rank.turn + 1
        for one, position in block:
            for kind in one.kind:
                assert (kind, position, one.microbatch) not in self.done, f"{one} twice"
                self.done[kind, position, one.microbatch] = rank.clock
        return True

    def sent(self, key: Key, rank: int) -> float:
        """How long a result is on its way to a rank."""
        _, position, microbatch = key
        return 0.0 if self.paths[microbatch][position].rank == rank else self.transfer

    def needed(self, one: Pass, position: int) -> Iterator[Key]:
        """What must be done before a pass begins."""
        if one.kind == "F" and position:
            yield "F", position - 1, one.microbatch
        if one.kind == "W":
            yield "B", position, one.microbatch
        if one.kind in {"B", "BW"}:
            yield "F", position, one.microbatch
            if position < len(self.paths[one.microbatch]) - 1:
                yield "B", position + 1, one.microbatch


def run(schedule: PipelineSchedule, at: Pipeline, seconds: Seconds, *, transfer: float = 0.0) -> Step:
    """One step, with every pass once; ``transfer``: seconds from rank to rank, beside the passes."""
    pp, vp, num_microbatches, group_size = map(int, (at.pp, at.vp, at.num_microbatches, at.group_size))
    paths = {m: schedule.path(pp, vp, num_microbatches, m) for m in range(num_microbatches)}
    orders = schedule.events(pp, vp, num_microbatches, group_size)
    execution = Execution(paths, seconds, transfer)
    ranks = [Rank(number, list(blocks(order))) for number, order in enumerate(orders)]
    while any(execution.advance(rank) for rank in ranks):
        pass
    waiting = [(rank.number, rank.blocks[rank.turn]) for rank in ranks if rank.turn < len(rank.blocks)]
    assert not waiting, f"ranks wait for one another: {waiting}"
    expected = {(kind, position, m) for m, path in paths.items() for position in range(len(path)) for kind in "FBW"}
    assert execution.done.keys() == expected, "a pass is missing"
    return Step(
        step_time=max(rank.clock for rank in ranks),
        idle=tuple(rank.clock - (rank.start or 0.0) - rank.busy for rank in ranks),
        in_flight=tuple(peak(passes) / vp for passes in orders),
    )


def blocks(order: tuple[Pass, ...]) -> Iterator[list[Pass]]:
    """Passes that run together."""
    block: list[Pass] = []
    for one in order:
        block.append(one)
        if not one.joined:
            yield block
            block = []
    assert not block, "the last pass is joined to nothing"


def peak(passes: tuple[Pass, ...]) -> int:
    """Most chunk passes whose activations are kept at a time: from the forward pass to the weight gradient."""
    kept = most = 0
    for one in passes:
        kept += one.kind == "F"
        most = max(most, kept)
        kept -= "W" in one.kind
    return most


def equal(passes: Passes, vp: int) -> Seconds:
    """Equal stages: every chunk takes 1/v of ``passes``."""
    seconds = {"F": passes.forward, "B": passes.input_gradient, "W": passes.weight_gradient}
    return lambda kind, _place: float(seconds[kind]) / vp
