"""How fast a step is simulated, and how much faster than a plain loop over its passes.

    python benchmarks/simulation.py

The plain loop keeps what is done in a dictionary and asks the ranks in turn, as one writes it first. A trace of a
million events is written as well: in how many seconds, and with how much memory besides the events.
"""

from __future__ import annotations

import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from shardplan import search
from shardplan.base.outputs import TRACE, JsonTarget
from shardplan.physics.schedules.base import ChunkTimes, Orders, Pipeline
from shardplan.physics.schedules.registry import load_any_schedule
from shardplan.reports.timeline.trace import trace_text
from shardplan.simulation.pieces import kept_pieces
from shardplan.simulation.plan import timeline_of_times
from shardplan.simulation.step import simulate

LARGE = Pipeline(pp=64, vp=4, num_microbatches=512, group_size=64)
TRANSFER = 0.01


def plain_loop(orders: Orders, pp: int) -> float:
    """End of the last pass of an interleaved step: forward passes of 1 s, backward passes of 2 s."""
    num_stages = 1 + max(one.chunk for order in orders for one in order)
    last = num_stages * pp - 1
    done: dict[tuple[str, int, int], float] = {}
    turns, clocks = [0] * pp, [0.0] * pp
    goes_on = True
    while goes_on:
        goes_on = False
        for rank, order in enumerate(orders):
            while turns[rank] < len(order):
                one = order[turns[rank]]
                stage = one.chunk * pp + rank
                need = None
                if one.kind == "F" and stage:
                    need = ("F", stage - 1, one.microbatch)
                elif one.kind == "BW" and stage < last:
                    need = ("BW", stage + 1, one.microbatch)
                if need is not None and need not in done:
                    break
                arrival = 0.0 if need is None else done[need] + TRANSFER
                clocks[rank] = max(clocks[rank], arrival) + (1.0 if one.kind == "F" else 2.0)
                done[one.kind, stage, one.microbatch] = clocks[rank]
                turns[rank] += 1
                goes_on = True
    return max(clocks)


def best_of(action: Callable[[], object], times: int = 3) -> float:
    """Seconds of the fastest of several runs."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        action()
        taken.append(time.perf_counter() - start)
    return min(taken)


def large_step() -> tuple[float, float]:
    """Seconds of the simulation, and of the plain loop, for 64 ranks x 512 micro-batches x 4 chunks."""
    schedule, one = load_any_schedule("interleaved"), np.ones(int(LARGE.pp * LARGE.vp))
    times = ChunkTimes(forward=one, input_gradient=one, weight_gradient=one, transfer=TRANSFER * one)
    simulated = best_of(lambda: simulate(schedule, LARGE, times).ranks)
    return simulated, best_of(lambda: plain_loop(schedule.order(LARGE, times), int(LARGE.pp)))


def many_plans() -> float:
    """Seconds by which a search takes longer that simulates the 50 best plans, with no order of passes known yet."""

    def asked(most: int | None) -> None:
        kept_pieces.cache_clear()  # as in a new process
        search("llama-3.1-70b", "dgx-h100", 128, simulate_top=most)

    asked(None)
    return best_of(lambda: asked(50)) - best_of(lambda: asked(None))


def large_trace() -> tuple[int, float, float, float]:
    """Events of a trace, seconds to make and to write it, and bytes that writing takes at a time."""
    schedule, one = load_any_schedule("interleaved"), np.ones(int(LARGE.pp * LARGE.vp))
    at = replace(LARGE, num_microbatches=1024)
    times = ChunkTimes(forward=one, input_gradient=one, weight_gradient=one, transfer=TRANSFER * one)
    step = simulate(schedule, at, times)
    timeline = timeline_of_times(schedule, step, times)
    made = best_of(lambda: timeline_of_times(schedule, step, times))
    with tempfile.TemporaryDirectory() as folder:
        target = JsonTarget(str(Path(folder) / "step.json"), "--out", kind=TRACE)
        written = best_of(lambda: target.write_parts(trace_text(timeline)))
        tracemalloc.start()
        target.write_parts(trace_text(timeline))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return len(timeline.events), made, written, most


if __name__ == "__main__":
    simulated, plain = large_step()
    sys.stdout.write(f"64 ranks x 512 micro-batches x 4 chunks: {simulated:.2f} s; a plain loop {plain:.2f} s\n")
    sys.stdout.write(f"50 plans of a search, priced and simulated: {many_plans():.2f} s\n")
    num_events, made, written, most = large_trace()
    sys.stdout.write(f"a trace of {num_events:,} events: {made:.2f} s to make, {written:.2f} s to write, ")
    sys.stdout.write(f"{most / 1e6:.0f} MB meanwhile\n")
