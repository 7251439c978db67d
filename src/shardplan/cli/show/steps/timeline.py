"""One simulated step on one screen: where its time goes, the bubble of every rank, what is alive at the peak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text

from shardplan.cli.layout import Column, Page
from shardplan.reports.texts.answer import percent
from shardplan.reports.timeline.record import fullest_rank
from shardplan.simulation.memory import CHUNK
from shardplan.simulation.timeline import EVENT_KINDS, PIPELINE_KINDS, AlivePart, StepTimeline
from shardplan.units import format_bytes, format_time
from shardplan.words import joined

MOST_RANKS = 8
"""Rows of the table of ranks; JSON has all of them."""
LONGEST_BAR = 40
LEAST_SHARE = 0.0005
"""Kinds of event below this share of the step are left out."""
WORK = {EVENT_KINDS[kind] for kind in PIPELINE_KINDS}


def show_timeline(page: Page, timeline: StepTimeline, *, written: Sequence[str]) -> None:
    """The answer of ``timeline``."""
    page.line(f"{timeline.title}: {format_time(timeline.step_time)} a step", style="bold green", indent=0)
    slowest = f" on {timeline.rank_names[timeline.slowest]}, the slowest" if timeline.num_ranks > 1 else ""
    page.heading("Step", f"where the time goes{slowest}")
    _show_split(page, timeline.split(timeline.slowest), timeline.step_time)
    if timeline.num_ranks > 1:
        _show_path(page, timeline.critical_split)
    _show_ranks(page, timeline)
    _show_peak(page, timeline)
    for name in written:
        page.labelled("Written", name)


def _show_split(page: Page, split: Mapping[str, float], step_time: float) -> None:
    """A bar for every kind of event."""
    shown = {name: time for name, time in split.items() if time >= LEAST_SHARE * step_time}
    labels = max(len(name) for name in shown)
    times = {name: format_time(time) for name, time in shown.items()}
    width = max(len(text) for text in times.values())
    most = max(shown.values())
    room = max(min(page.width - labels - width - 16, LONGEST_BAR), 1)
    for name, time in sorted(shown.items(), key=lambda each: -each[1]):
        line = Text(f"  {name.ljust(labels)}  {times[name].rjust(width)}  {percent(time / step_time).rjust(7)}  ")
        line.append_text(page.bar(time / most, room, "green" if name in WORK else "red"))
        page.console.print(line, soft_wrap=True)


def _show_path(page: Page, path: Mapping[str, float]) -> None:
    """The largest parts of the critical path."""
    longest = sorted(path, key=lambda name: -path[name])[:3]
    whole = sum(path.values()) or 1.0
    shares = [f"{name} {percent(path[name] / whole)}" for name in longest if path[name] >= LEAST_SHARE * whole]
    page.line(f"The critical path: {joined(shares)}.")


def _show_ranks(page: Page, timeline: StepTimeline) -> None:
    """Bubble and peak memory of every rank."""
    shown = range(min(timeline.num_ranks, MOST_RANKS))
    page.heading("Ranks", "bubble: share of the time from a rank's first pass to its last in which it waits")
    columns = [
        Column(title="rank", cells=[str(rank) for rank in shown]),
        Column(title="bubble", cells=[percent(rate) for rate in timeline.bubble_rates[: len(shown)].tolist()]),
    ]
    if timeline.memory:
        traces = [timeline.memory[rank] for rank in shown]
        columns += [
            Column(title="peak memory", cells=[format_bytes(trace.peak_bytes) for trace in traces]),
            Column(title="at", cells=[format_time(trace.peak_time) for trace in traces], rank=1),
        ]
    page.table(columns)
    show_more_ranks(page, timeline.num_ranks)


def show_more_ranks(page: Page, number: int, shown: int = MOST_RANKS) -> None:
    """How many of the ranks are not in the table."""
    if number > shown:
        page.line(f"{number - shown} more ranks: --json - lists all.", style="dim")


def _show_peak(page: Page, timeline: StepTimeline) -> None:
    """What the fullest rank holds at its peak."""
    rank = fullest_rank(timeline)
    if rank is None:
        return
    trace = timeline.memory[rank]
    when = f"{format_bytes(trace.peak_bytes)} on {timeline.rank_names[rank]} after {format_time(trace.peak_time)}"
    page.heading("Memory", f"at the peak, {when}")
    rows = _rows(trace.at_peak)
    page.table(
        [
            Column(title="bytes", cells=[format_bytes(num_bytes) for num_bytes, _ in rows]),
            Column(title="what", cells=[what for _, what in rows], is_text=True),
        ]
    )


def _rows(parts: Sequence[AlivePart]) -> list[tuple[float, str]]:
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
