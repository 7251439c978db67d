"""A simulated step in the Trace Event Format, which Perfetto (ui.perfetto.dev) opens.

A process is a rank, counted from 1 because process 0 is the idle process of a system, and a thread one of its lanes.
Every event is a complete event (``X``) with its micro-batch and chunk; memory is a counter (``C``). Times are whole
nanoseconds, written in microseconds, so that an event ends where the next one starts. The format: "Trace Event Format",
Google, 2016.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shardplan.simulation.pieces import Ints
from shardplan.simulation.timeline import EVENT_KINDS, LANES, Events, MemoryTrace, StepTimeline

SCHEMA: Final = "shardplan/trace/1"
BLOCK: Final = 1 << 15
"""Events that are in memory as text at a time."""
SHORT: Final = {
    "forward": "F", "input gradient": "B", "weight gradient": "W", "backward": "BW", "recomputation": "R",
    "send forward": "send F", "send backward": "send B",
}  # fmt: skip
"""Names of passes in front of their micro-batch; of what has no short one, all of it."""
MEMORY: Final = "allocated memory"
MOST_ROWS: Final = 100
"""Threads of one lane: more transfers at the same time than this share threads."""
NUM_ROWS: Final = MOST_ROWS * len(LANES)

HEADS: Final = tuple(f'{{"ph":"X","cat":"{name}","name":"{SHORT.get(name, name)}' for name in EVENT_KINDS)
"""Start of an event, by its kind."""
PLACE: Final = '","pid":%d,"tid":%d,"ts":%.3f,"dur":%.3f,"args":{'
NAMED: Final = "%s %d" + PLACE + '"micro-batch":%d,"chunk":%d%s}}'
UNNAMED: Final = "%s" + PLACE + "%s}}"
COUNTER: Final = '{"ph":"C","pid":%d,"name":"' + MEMORY + '","ts":%.3f,"args":{"bytes":%.0f}}'
CRITICAL: Final = ("", '"critical":true')


def trace_text(timeline: StepTimeline) -> Iterator[str]:
    """The trace, some events at a time, so that a million of them take little memory."""
    rows = _rows(timeline.events)
    yield _head(timeline)
    yield ",\n".join(_metadata(timeline, rows))
    for lines in _blocks(timeline, rows):
        yield ",\n" + ",\n".join(lines)
    yield "\n]}\n"


def _head(timeline: StepTimeline) -> str:
    """What there is before the events."""
    about = {"title": timeline.title, "step_time_s": timeline.step_time, "pipeline_time_s": timeline.pipeline_time}
    return f'{{"schema": "{SCHEMA}",\n"displayTimeUnit": "ms",\n"otherData": {json.dumps(about)},\n"traceEvents": [\n'


def _metadata(timeline: StepTimeline, rows: Ints) -> Iterator[str]:
    """Names of processes and threads, in their order."""
    for rank, name in enumerate(timeline.rank_names):
        yield _about("process_name", rank, name=name)
        yield _about("process_sort_index", rank, sort_index=rank)
    for used in np.unique(timeline.events.rank * NUM_ROWS + rows).tolist():
        rank, row = divmod(used, NUM_ROWS)
        yield _about("thread_name", rank, row, name=LANES[row // MOST_ROWS])
        yield _about("thread_sort_index", rank, row, sort_index=row)


def _about(what: str, rank: int, row: int = 0, **args: Any) -> str:
    return json.dumps({"ph": "M", "pid": _process(rank), "tid": _thread(rank, row), "name": what, "args": args})


def _process(rank: Any) -> Any:
    """Number of a rank's process, for one rank or for a column."""
    return rank + 1


def _thread(rank: Any, row: Any) -> Any:
    """Number of a thread, which no other process has."""
    return NUM_ROWS * _process(rank) + row


def _blocks(timeline: StepTimeline, rows: Ints) -> Iterator[list[str]]:
    """Lines of events, and then of counters."""
    events = timeline.events
    start, duration = _whole_nanoseconds(events, rows)
    for first in range(0, len(events), BLOCK):
        block = slice(first, first + BLOCK)
        yield _lines(events.at(block), rows[block], start[block], duration[block])
    for rank, memory in enumerate(timeline.memory):
        yield from _counters(rank, memory)


def _lines(events: Events, rows: Ints, start: Ints, duration: Ints) -> list[str]:
    """Complete events: those with a micro-batch, and the others."""
    lines: list[str] = []
    for has_number in (True, False):
        chosen = (events.microbatch >= 0) == has_number
        columns = (
            events.kind, events.microbatch, _process(events.rank), _thread(events.rank, rows),
            start / 1e3, duration / 1e3, events.chunk, events.critical,
        )  # fmt: skip
        kind, microbatch, rank, row, ts, dur, chunk, critical = (column[chosen].tolist() for column in columns)
        heads = [HEADS[each] for each in kind]
        place = (rank, row, ts, dur)
        if has_number:
            ends = [f",{CRITICAL[1]}" if each else "" for each in critical]
            lines += map(NAMED.__mod__, zip(heads, microbatch, *place, microbatch, chunk, ends, strict=True))
        else:
            ends = [CRITICAL[each] for each in critical]
            lines += map(UNNAMED.__mod__, zip(heads, *place, ends, strict=True))
    return lines


def _counters(rank: int, memory: MemoryTrace) -> Iterator[list[str]]:
    """Allocated bytes wherever they change."""
    times = np.rint(memory.times * 1e9) / 1e3
    for first in range(0, len(times), BLOCK):
        block = slice(first, first + BLOCK)
        values = zip(times[block].tolist(), memory.allocated[block].tolist(), strict=True)
        yield [COUNTER % (_process(rank), time, value) for time, value in values]


def _whole_nanoseconds(events: Events, rows: Ints) -> tuple[Ints, Ints]:
    """Start and duration of every event; none reaches into the next one of its thread."""
    start, end = (np.rint(seconds * 1e9).astype(np.int64) for seconds in (events.start, events.end))
    order = np.lexsort((start, rows, events.rank))
    following = np.append(start[order][1:], np.iinfo(np.int64).max)
    alone = np.append((np.diff(rows[order]) != 0) | (np.diff(events.rank[order]) != 0), True)  # the last one
    end[order] = np.where(alone, end[order], np.minimum(end[order], following))
    return start, end - start


def _rows(events: Events) -> Ints:
    """Thread of every event: one for each lane, and more where events of a lane overlap, as transfers may."""
    rows = events.lane * MOST_ROWS
    starts_group = np.append(True, (np.diff(events.lane) != 0) | (np.diff(events.rank) != 0))  # the first one
    overlaps = np.append(False, events.start[1:] < events.end[:-1] - 1e-12) & ~starts_group  # the same
    groups = np.cumsum(starts_group) - 1
    for group in np.unique(groups[overlaps]).tolist():
        first, last = np.searchsorted(groups, (group, group + 1))
        rows[first:last] += _packed(events.start[first:last], events.end[first:last])
    return rows


def _packed(start: NDArray[np.float64], end: NDArray[np.float64]) -> Ints:
    """For events in the order of their start, the first row of which the last event has ended."""
    free: list[float] = []
    chosen = []
    for begins, ends in zip(start.tolist(), end.tolist(), strict=True):
        row = next((row for row, until in enumerate(free) if until <= begins + 1e-12), len(free))
        if row == len(free) and row < MOST_ROWS:
            free.append(ends)
        row = min(row, MOST_ROWS - 1)
        free[row] = ends
        chosen.append(row)
    return np.array(chosen)
