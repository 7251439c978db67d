"""Runs the passes of a schedule: each rank in its order, each pass when what it needs is there. Transfers are free."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shardplan.schedules.base import Pass, Passes, Pipeline, PipelineSchedule, Place

Key = tuple[str, int, int]
"""What a pass computes: F, B or W; the stage's position on the micro-batch's path; the micro-batch."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """What the ranks did in one step."""

    step_time: float
    """From the first pass of any rank to the last. [s]"""
    idle: tuple[float, ...]
    """By rank, between its first pass and its last. [s]"""
    in_flight: tuple[float, ...]
    """By rank, micro-batches whose activations it keeps at its peak, in units of its whole stage."""


def run(schedule: PipelineSchedule, at: Pipeline, seconds: Callable[[str, Place], float]) -> Step:
    """One step; ``seconds``: of a forward pass (F), an input gradient (B) and a weight gradient (W) at a place."""
    pp, vp, num_microbatches, group_size = map(int, (at.pp, at.vp, at.num_microbatches, at.group_size))
    paths = {m: schedule.path(pp, vp, num_microbatches, m) for m in range(num_microbatches)}
    positions = {(m, place): position for m, path in paths.items() for position, place in enumerate(path)}
    order = schedule.events(pp, vp, num_microbatches, group_size)
    done: dict[Key, float] = {}
    spans: list[list[float]] = [[] for _ in range(pp)]
    clock, busy, turn = [0.0] * pp, [0.0] * pp, [0] * pp
    while any(turn[rank] < len(order[rank]) for rank in range(pp)):
        before = list(turn)
        for rank in range(pp):
            while turn[rank] < len(order[rank]):
                one = order[rank][turn[rank]]
                place = Place(rank, one.chunk)
                position = positions[one.microbatch, place]
                needed = _needed(one, position, len(paths[one.microbatch]))
                if any(key not in done for key in needed):
                    break
                start = max([clock[rank], *(done[key] for key in needed)])
                duration = sum(seconds(kind, place) for kind in ("BW" if one.kind == "BW" else one.kind))
                clock[rank] = start + duration
                spans[rank] += [start, clock[rank]]
                busy[rank] += duration
                turn[rank] += 1
                for kind in one.kind:
                    assert (kind, position, one.microbatch) not in done, f"{one} twice"
                    done[kind, position, one.microbatch] = clock[rank]
        if before == turn:
            waiting = [order[rank][turn[rank]] for rank in range(pp) if turn[rank] < len(order[rank])]
            raise AssertionError(f"ranks wait for one another: {waiting}")
    expected = {(kind, position, m) for m, path in paths.items() for position in range(len(path)) for kind in "FBW"}
    assert done.keys() == expected, "not every pass once"
    return Step(
        step_time=max(clock),
        idle=tuple(ends[-1] - ends[0] - work for ends, work in zip(spans, busy, strict=True)),
        in_flight=tuple(peak(passes) / vp for passes in order),
    )


def _needed(one: Pass, position: int, length: int) -> list[Key]:
    if one.kind == "F":
        return [("F", position - 1, one.microbatch)] if position else []
    if one.kind == "W":
        return [("B", position, one.microbatch)]
    own: Key = ("F", position, one.microbatch)
    return [own] if position == length - 1 else [own, ("B", position + 1, one.microbatch)]


def peak(passes: tuple[Pass, ...]) -> int:
    """Most chunk passes whose activations are kept at a time: from the forward pass to the weight gradient."""
    kept = most = 0
    for one in passes:
        kept += one.kind == "F"
        most = max(most, kept)
        kept -= "W" in one.kind
    return most


def equal(passes: Passes, vp: int) -> Callable[[str, Place], float]:
    """Equal stages: every chunk takes 1/v of ``passes``."""
    seconds = {"F": passes.forward, "B": passes.input_gradient, "W": passes.weight_gradient}
    return lambda kind, _place: float(seconds[kind]) / vp
