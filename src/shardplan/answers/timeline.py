"""The answer of ``simulate``: what every stage does in a simulated step, where its time goes, and what it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from shardplan.answers.document import AnswerDocument, Block, Column, Line, Part, RowTable, ShareBars
from shardplan.base.records import plain
from shardplan.base.units import format_bytes, format_time
from shardplan.base.words import joined
from shardplan.physics.schedules.base import Schedule
from shardplan.reports.breakdown import Share
from shardplan.reports.texts.answer import more_or_less, percent
from shardplan.simulation.events import CHUNK
from shardplan.simulation.exchanges import ReplicaSteps
from shardplan.simulation.plan import SimulatedPlan, timeline_of
from shardplan.simulation.step import SimulatedStep
from shardplan.simulation.timeline import EVENT_KINDS, PIPELINE_KINDS, AlivePart, MemoryTrace, StepTimeline

MOST_RANKS: Final = 8
"""Rows of a table of measured ranks; the record has all of them."""
MOST_SIMULATED: Final = 64
"""Rows of that of a simulation."""
LEAST_SHARE: Final = 0.0005
"""Kinds of event below this share of the step are left out."""
WORK: Final = {EVENT_KINDS[kind] for kind in PIPELINE_KINDS}
ROOM_FOR_SHARES: Final = 7


def simulated_plan_document(
    simulated: SimulatedPlan, timeline: StepTimeline | None = None, written: Sequence[str] = ()
) -> AnswerDocument:
    """Of a plan, whose step time includes what comes once a step. ``written``: files that show the step."""
    shown, closed = timeline or timeline_of(simulated), simulated.closed_form_time
    named = {"schedule": simulated.schedule.name, "bubble_rate": simulated.bubble_rate, "plan": plain(simulated.plan)}
    return AnswerDocument(
        name="simulation",
        verdict=_verdict(simulated.schedule, simulated.replicas, simulated.step_time, closed),
        parts=_parts(simulated.step, shown, written),
        record=lambda: _record(simulated.replicas, shown, closed) | named,
    )


def simulated_case_document(
    schedule: Schedule,
    steps: ReplicaSteps,
    timeline: StepTimeline,
    closed_form_time: float | None,
    *,
    has_transfers: bool,
    written: Sequence[str] = (),
) -> AnswerDocument:
    """Of a case with times of its own; the schedule's formula leaves out transfers."""
    source = "The formula of the schedule" + ", without transfers," * has_transfers
    return AnswerDocument(
        name="simulation",
        verdict=_verdict(schedule, steps, steps.step.step_time, closed_form_time, source=source),
        parts=_parts(steps.step, timeline, written),
        record=lambda: _record(steps, timeline, closed_form_time),
    )


def _verdict(
    schedule: Schedule,
    steps: ReplicaSteps,
    step_time: float,
    closed_form_time: float | None,
    *,
    source: str = "The estimate",
) -> list[Block]:
    """Step time next to that of the estimate, or of the schedule's formula."""
    step, texts = steps.step, []
    if step_time > step.step_time:
        texts.append(
            f"{format_time(step.step_time)} from the first pass of a stage to its last; the rest comes once a step."
        )
    if steps.count > 1:
        texts.append(
            f"Replica {steps.slowest} of {steps.count} (from 0) takes longest; "
            f"others wait for it up to {format_time(steps.longest_wait)} at the reduction of gradients."
        )
    if len(step.ranks) > 1:
        waits = f"{format_time(step.bubble_time)} ({percent(step.bubble_time / step_time if step_time else 0.0)})"
        texts.append(f"Pipeline bubble: stage {step.busiest}, the slowest, waits {waits}.")
    if closed_form_time is not None:
        texts.append(
            f"{source} says {format_time(closed_form_time)}, {more_or_less(closed_form_time / step_time - 1)}."
        )
    headline = Line(f"{schedule.title}: {format_time(step_time)} a step", tone="good")
    return [headline, *(Line(text, indent=2) for text in texts)]


def stages_part(step: SimulatedStep, timeline: StepTimeline) -> Part:
    """A row for every stage; shares are of the whole step."""
    whole, peaks = timeline.step_time or 1.0, [trace.peak_bytes for trace in timeline.memory]
    columns = [
        Column("", "stage", lambda row: row[0]),
        Column("", "passes", lambda row: row[1].busy_time, format_time),
        Column("", "waits", lambda row: row[1].idle_time, format_time),
        Column("", "share", lambda row: row[1].idle_time / whole, percent, rank=1),
        Column("", "in flight", lambda row: row[1].peak_in_flight),
    ]
    columns += [Column("", "peak memory", lambda row: peaks[row[0]], format_bytes)] if peaks else []
    table = RowTable([*enumerate(step.ranks[:MOST_SIMULATED])], columns)
    note = "share: of the step that a stage waits; in flight: passes through a chunk whose activations are kept"
    return Part("Stages", [table, *more_stages(len(step.ranks), MOST_SIMULATED)], note)


def more_stages(number: int, shown: int) -> list[Line]:
    """How many of the stages are not in the table."""
    return [Line(f"{number - shown} more stages: --json - lists all.", tone="quiet")] if number > shown else []


def _replicas(steps: ReplicaSteps) -> dict[str, Any]:
    """Which of several replicas is slowest, and how long others wait for it; nothing of a single one."""
    if steps.count == 1:
        return {}
    return {"replicas": {"number": steps.count, "slowest": steps.slowest, "longest_wait_s": steps.longest_wait}}


def _parts(step: SimulatedStep, timeline: StepTimeline, written: Sequence[str]) -> list[Part]:
    """Where the time goes, the stages, and what the fullest holds; then the files that show the step."""
    # A bar for every kind of event, and the largest parts of the critical path
    whole, split = timeline.step_time, timeline.split(timeline.busiest)
    shares = [Share(name=name, value=time, share=time / whole) for name, time in split.items()]
    shown = sorted((each for each in shares if each.share >= LEAST_SHARE), key=lambda each: -each.value)
    bars = ShareBars(shown, str, lambda name: "useful" if name in WORK else "wrong", ROOM_FOR_SHARES, margin=1)
    blocks: list[Block] = [bars]
    if timeline.num_ranks > 1:
        blocks.append(_path(timeline.critical_split))
    slowest = f" on {timeline.rank_names[timeline.busiest]}, the slowest" if timeline.num_ranks > 1 else ""
    parts = [Part("Step", blocks, f"where the time goes{slowest}"), stages_part(step, timeline), *_peak_parts(timeline)]
    return [*parts[:-1], parts[-1]._replace(blocks=[*parts[-1].blocks, *written_lines(written)])]


def written_lines(files: Sequence[str]) -> list[Line]:
    """Where the files are that show the step."""
    return [Line(name, "Written", "strong") for name in files]


def _path(path: Mapping[str, float]) -> Line:
    longest = sorted(path, key=lambda name: -path[name])[:3]
    whole = sum(path.values()) or 1.0
    shares = [f"{name} {percent(path[name] / whole)}" for name in longest if path[name] >= LEAST_SHARE * whole]
    return Line(f"The critical path: {joined(shares)}.")


def _peak_parts(timeline: StepTimeline) -> list[Part]:
    """What the fullest rank holds at its peak."""
    rank = _fullest_rank(timeline)
    if rank is None:
        return []
    trace = timeline.memory[rank]
    when = f"{format_bytes(trace.peak_bytes)} on {timeline.rank_names[rank]} after {format_time(trace.peak_time)}"
    columns = (
        Column("", "what", lambda row: row[1], is_text=True),
        Column("", "bytes", lambda row: row[0], format_bytes),
    )
    return [Part("Memory", [RowTable(_together(trace.at_peak), columns)], f"at the peak, {when}")]


def _together(parts: Sequence[AlivePart]) -> list[tuple[float, str]]:
    """Bytes and names, largest first; chunks that keep the same micro-batches are one row."""
    together: dict[tuple[int, ...], list[AlivePart]] = {}
    for part in parts:
        if part.microbatches:
            together.setdefault(part.microbatches, []).append(part)
    rows = [(part.num_bytes, part.name) for part in parts if not part.microbatches]
    for numbers, kept in together.items():
        chunks = joined(part.name.removeprefix(CHUNK) for part in kept)
        name = f"activations of model chunk{'s' if len(kept) > 1 else ''} {chunks}"
        which = f"micro-batch{'es' if len(numbers) > 1 else ''} {ranges(numbers)}"
        rows.append((sum(part.num_bytes for part in kept), f"{name}: {which}"))
    return sorted(rows, reverse=True)


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers as ranges: 0 to 3, 6 and 8 to 9."""
    starts = [n for at, n in enumerate(numbers) if at == 0 or numbers[at - 1] != n - 1]
    ends = [n for at, n in enumerate(numbers) if at == len(numbers) - 1 or numbers[at + 1] != n + 1]
    return joined(str(a) if a == b else f"{a} to {b}" for a, b in zip(starts, ends, strict=True))


def _fullest_rank(timeline: StepTimeline) -> int | None:
    """The rank with the highest peak of memory; None where no memory is known."""
    return int(np.argmax([trace.peak_bytes for trace in timeline.memory])) if timeline.memory else None


def _record(steps: ReplicaSteps, timeline: StepTimeline, closed_form_time: float | None) -> dict[str, Any]:
    """``ranks``: busy and idle seconds, chunk passes in flight, and memory where a plan says it, of every stage.

    ``breakdown_s`` is that of the slowest stage and sums to the step time.
    """
    fullest, step, rates = _fullest_rank(timeline), steps.step, timeline.bubble_rates.tolist()
    ranks: list[dict[str, Any]] = [
        {
            "name": name,
            "busy_s": rank.busy_time,
            "idle_s": rank.idle_time,
            "bubble_rate": rate,
            "peak_in_flight": rank.peak_in_flight,
        }
        for name, rank, rate in zip(timeline.rank_names, step.ranks, rates, strict=True)
    ]
    for row, trace in zip(ranks, timeline.memory, strict=False):
        row |= {"peak_memory_bytes": trace.peak_bytes, "peak_memory_time_s": trace.peak_time}
    return {
        "title": timeline.title,
        "step_time_s": timeline.step_time,
        "pipeline_time_s": timeline.pipeline_time,
        "closed_form_step_time_s": closed_form_time,
        "bubble_rate": step.bubble_rate,
        "slowest_rank": timeline.busiest,
        "breakdown_s": timeline.split(timeline.busiest),
        "critical_path_s": timeline.critical_split,
        "num_events": len(timeline.events),
        "ranks": ranks,
        **_replicas(steps),
        "peak_memory": None if fullest is None else _peak_record(fullest, timeline.memory[fullest]),
        "layer": plain(timeline.layer),
    }


def _peak_record(rank: int, trace: MemoryTrace) -> dict[str, Any]:
    peak = {"rank": rank, "bytes": trace.peak_bytes, "time_s": trace.peak_time}
    return {**peak, "alive": plain(trace.at_peak)}
