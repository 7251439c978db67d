"""A trace against the rules of the Trace Event Format, and what importers do with it."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulation.cases import even, passes, pipeline, step
from tests.simulation.test_plan import question
from tests.simulation.test_step import sizes, suited, uneven

from shardplan.inputs.plan import Plan
from shardplan.physics.schedules.registry import list_all_schedules, load_any_schedule
from shardplan.reports.timeline.trace import MEMORY, trace_text
from shardplan.simulation.plan import simulate_plan, timeline_of, timeline_of_times
from shardplan.simulation.timeline import EVENT_KINDS, LANES, StepTimeline

PLAN = Plan(tp=2, pp=4, vp=2, recompute="full")
MICROSECONDS = 1e6


def opened(timeline: StepTimeline) -> dict[str, Any]:
    trace: dict[str, Any] = json.loads("".join(trace_text(timeline)))
    return trace


def of_plan() -> StepTimeline:
    return timeline_of(simulate_plan(question(), PLAN, load_any_schedule("interleaved")))


def slices(trace: dict[str, Any]) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """Complete events of every thread."""
    threads: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            threads[event["pid"], event["tid"]].append(event)
    return threads


def test_every_event_has_the_fields_that_its_phase_needs() -> None:
    """Google, "Trace Event Format": X has ts and dur, C and M have args, all have name, ph and pid."""
    timeline = of_plan()
    trace = opened(timeline)
    assert set(trace) >= {"traceEvents", "displayTimeUnit"}
    needed = {"X": {"ts", "dur", "tid", "cat", "args"}, "C": {"ts", "args"}, "M": {"args"}}
    for event in trace["traceEvents"]:
        assert set(event) >= {"name", "ph", "pid"} | needed[event["ph"]]
        assert event.get("ts", 0) >= 0
        assert event.get("dur", 0) >= 0
    assert sum(map(len, slices(trace).values())) == len(timeline.events)
    assert trace["otherData"]["step_time_s"] == timeline.step_time


def test_a_process_for_every_rank_and_a_thread_for_every_lane() -> None:
    events = opened(of_plan())["traceEvents"]
    processes = [each["args"]["name"] for each in events if each["name"] == "process_name"]
    assert processes == [f"stage {rank}" for rank in range(4)]
    threads = {each["args"]["name"] for each in events if each["name"] == "thread_name"}
    assert threads == set(LANES)


def test_times_names_and_categories_are_those_of_the_events() -> None:
    timeline = of_plan()
    seconds: dict[str, float] = defaultdict(float)
    for thread in slices(opened(timeline)).values():
        for event in thread:
            seconds[event["cat"]] += event["dur"] / MICROSECONDS
    events = timeline.events
    for kind, name in enumerate(EVENT_KINDS):
        assert seconds[name] == pytest.approx(events.duration[events.kind == kind].sum(), abs=1e-6)
    first = next(iter(slices(opened(timeline)).values()))[0]
    assert first["name"] == "F 0"
    assert first["args"] == {"micro-batch": 0, "chunk": 0, "critical": True}


@given(st.sampled_from(list_all_schedules()), sizes(), st.integers(0, 100), st.sampled_from([0.0, 0.5, 30.0]))
def test_events_of_a_thread_never_overlap(name: str, size: tuple[int, int, int], seed: int, transfer: float) -> None:
    """Importers drop events that overlap without being nested: long transfers get threads of their own."""
    schedule = load_any_schedule(name)
    at = suited(schedule, *size)
    times = uneven(at, seed, transfer)
    trace = opened(timeline_of_times(schedule, step(schedule, at, times), times))
    for events in slices(trace).values():
        events.sort(key=lambda event: float(event["ts"]))
        start = np.array([round(event["ts"] * 1000) for event in events])
        end = start + np.array([round(event["dur"] * 1000) for event in events])
        assert np.all(start[1:] >= end[:-1])


def test_memory_is_a_counter_that_follows_the_trace() -> None:
    timeline = of_plan()
    counters = [each for each in opened(timeline)["traceEvents"] if each["ph"] == "C"]
    assert {each["name"] for each in counters} == {MEMORY}
    for rank, trace in enumerate(timeline.memory):
        values = [each["args"]["bytes"] for each in counters if each["pid"] == rank + 1]
        assert values == [round(value) for value in trace.allocated.tolist()]


def test_text_comes_in_blocks() -> None:
    """No block holds more than some thousand events, whatever the length of the step."""
    at = pipeline(4, 20_000)
    times = replace(even(passes(), at), transfer=np.full(4, 0.1))
    schedule = load_any_schedule("1f1b")
    timeline = timeline_of_times(schedule, step(schedule, at, times), times)
    blocks = [len(block) for block in trace_text(timeline)]
    assert max(blocks) < sum(blocks) / 5
