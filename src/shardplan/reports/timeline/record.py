"""A simulated step as a record: where its time goes, the bubble and the memory of every rank, what is at the peak."""

from __future__ import annotations

from typing import Final

import numpy as np

from shardplan.estimation.parts.layer_operators import LayerOperator
from shardplan.records import Record
from shardplan.simulation.timeline import AlivePart, MemoryTrace, StepTimeline

SCHEMA: Final = "shardplan/timeline/1"


def timeline_record(timeline: StepTimeline) -> Record:
    """``breakdown_s`` is that of the slowest rank and sums to the step time; without a plan there is no memory."""
    memory = timeline.memory
    fullest = fullest_rank(timeline)
    ranks: list[Record] = [{"name": name, "bubble_rate": rate} for name, rate in _bubbles(timeline)]
    for rank, trace in zip(ranks, memory, strict=False):
        rank |= {"peak_memory_bytes": trace.peak_bytes, "peak_memory_time_s": trace.peak_time}
    return {
        "schema": SCHEMA,
        "title": timeline.title,
        "step_time_s": timeline.step_time,
        "pipeline_time_s": timeline.pipeline_time,
        "slowest_rank": timeline.slowest,
        "breakdown_s": timeline.split(timeline.slowest),
        "critical_path_s": timeline.critical_split,
        "num_events": len(timeline.events),
        "ranks": ranks,
        "peak_memory": None if fullest is None else _peak(fullest, memory[fullest]),
        "layer": [_operator(each) for each in timeline.layer],
    }


def fullest_rank(timeline: StepTimeline) -> int | None:
    """The rank with the highest peak of memory; None where no memory is known."""
    return int(np.argmax([trace.peak_bytes for trace in timeline.memory])) if timeline.memory else None


def _bubbles(timeline: StepTimeline) -> zip[tuple[str, float]]:
    return zip(timeline.rank_names, timeline.bubble_rates.tolist(), strict=True)


def _peak(rank: int, trace: MemoryTrace) -> Record:
    return {
        "rank": rank,
        "bytes": trace.peak_bytes,
        "time_s": trace.peak_time,
        "alive": [_alive(part) for part in trace.at_peak],
    }


def _alive(part: AlivePart) -> Record:
    return {"name": part.name, "bytes": part.num_bytes, "microbatches": [*part.microbatches]}


def _operator(each: LayerOperator) -> Record:
    return {
        "name": each.name,
        "direction": each.direction,
        "time_s": each.time,
        "exposed_time_s": each.exposed_time,
        "bound": each.bound,
    }
