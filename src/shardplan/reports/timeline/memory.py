"""Memory over a step, under the rows of the ranks and on the same axis of time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shardplan.reports.timeline.bars import Bars
from shardplan.reports.timeline.frame import LONGEST_NAME, Frame, shortened
from shardplan.simulation.timeline import MemoryTrace, StepTimeline
from shardplan.units import format_bytes

MOST_STRIPS: Final = 8
STRIPS, BETWEEN, HEAD, PANEL = 176.0, 6.0, 22.0, 90.0
"""Heights of a few strips together, of the space below one, of the title, and of the panel."""
COLUMN: Final = 2.0
"""Width of what shows the most memory of its time, where there are more changes than can be seen. [pixels]"""


def memory_height(timeline: StepTimeline, bars: Bars) -> float:
    """Of all that :func:`memory_strips` draws. [pixels]"""
    if not timeline.memory:
        return 0.0
    number = len(bars.ranks)
    return HEAD + (number * (_strip_height(number) + BETWEEN) if number <= MOST_STRIPS else PANEL) + 4


def memory_strips(timeline: StepTimeline, bars: Bars, frame: Frame) -> Iterator[str]:
    """A strip for each of a few ranks; else one panel with the fullest rank, and the range of all."""
    traces = [timeline.memory[rank] for rank in bars.ranks] if timeline.memory else []
    if not traces:
        return
    most = max(trace.peak_bytes for trace in traces)
    if len(traces) <= MOST_STRIPS:
        height = _strip_height(len(traces))
        yield _title(frame, f"Memory of each rank, from 0 to {format_bytes(most)}; shaded: what is there all the time")
        for place, (rank, trace) in enumerate(zip(bars.ranks, traces, strict=True)):
            base = frame.memory_top + HEAD + place * (height + BETWEEN) + height
            yield from _strip(trace, frame, timeline.rank_names[rank], base, height, height / most)
        return
    yield _title(frame, "Memory: the rank with the highest peak, and the range of all ranks (shaded)")
    yield from _panel(timeline, bars, traces, frame, frame.memory_top + HEAD + PANEL, PANEL / most)


def _strip_height(number: int) -> float:
    """Of one strip of ``number``."""
    return min(max(STRIPS / number, 26.0), 40.0)


def _title(frame: Frame, text: str) -> str:
    return f'<text class="s" x="{frame.left:g}" y="{frame.memory_top + 10:g}">{escape(text)}</text>'


def _strip(trace: MemoryTrace, frame: Frame, name: str, base: float, height: float, scale: float) -> Iterator[str]:
    """Memory as an area on ``base``, ``scale`` pixels for a byte."""
    always = min(trace.baseline_bytes, trace.peak_bytes) * scale
    moments, held = _sampled(trace, frame)
    line = _line(moments, base - held * scale)
    width = frame.right - frame.left
    yield f'<path class="tr" d="M{frame.left:g} {base - height:.4g}h{width:.4g}v{height:.4g}h-{width:.4g}z"/>'
    yield f'<path class="ma" d="{line}V{base:.4g}H{moments[0]:.1f}z"/>'
    yield f'<path class="mb" d="M{moments[0]:.1f} {base:.4g}V{base - always:.1f}H{moments[-1]:.1f}V{base:.4g}z"/>'
    yield f'<path class="ml" d="{line}"/>'
    yield _peak(trace, frame, base, scale)
    yield f'<text class="s e" x="{frame.left - 8:g}" y="{base - height / 2 + 4:.4g}">{escape(shortened(name, LONGEST_NAME))}</text>'
    yield (
        f'<text class="s" x="{frame.right + 8:g}" y="{base - height / 2 + 4:.4g}">'
        f"{escape(format_bytes(trace.peak_bytes))}</text>"
    )


def _panel(
    timeline: StepTimeline, bars: Bars, traces: Sequence[MemoryTrace], frame: Frame, base: float, scale: float
) -> Iterator[str]:
    """The range of all ranks as a band, and the line of the fullest one."""
    edges = np.linspace(frame.left, frame.x(frame.end), int((frame.right - frame.left) / COLUMN) + 1)
    held = np.array([_most(trace, (edges - frame.left) / frame.scale) for trace in traces])
    fullest = int(np.argmax([trace.peak_bytes for trace in traces]))
    upper, lower = (base - held.max(axis=0) * scale, base - held.min(axis=0) * scale)
    back = "".join(f"L{x:.1f} {y:.1f}" for x, y in zip(edges[:-1][::-1], lower[::-1], strict=True))
    yield f'<path class="ma" d="{_line(edges[:-1], upper)}{back}z"/>'
    yield f'<path class="ml" d="{_line(edges[:-1], base - held[fullest] * scale)}"/>'
    yield f'<path class="g" d="M{frame.left:g} {base:.4g}H{frame.right:g}"/>'
    yield _peak(traces[fullest], frame, base, scale)
    name, top = timeline.rank_names[bars.ranks[fullest]], base - traces[fullest].peak_bytes * scale
    yield f'<text class="s e" x="{frame.left - 8:g}" y="{base + 4:.4g}">0 GB</text>'
    yield f'<text class="s e" x="{frame.left - 8:g}" y="{top + 4:.4g}">{escape(shortened(name, LONGEST_NAME))}</text>'
    yield (
        f'<text class="s" x="{frame.right + 8:g}" y="{top + 4:.4g}">'
        f"{escape(format_bytes(traces[fullest].peak_bytes))}</text>"
    )


def _peak(trace: MemoryTrace, frame: Frame, base: float, scale: float) -> str:
    x, y = frame.x(trace.peak_time), base - trace.peak_bytes * scale
    return f'<circle class="mp" cx="{x:.1f}" cy="{y:.1f}" r="2.5"/>'


def _sampled(trace: MemoryTrace, frame: Frame) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Places [pixels] and bytes: every change, or the most of every column where changes are too many."""
    columns = int((frame.right - frame.left) / COLUMN)
    if len(trace.times) <= columns:
        return frame.left + trace.times * frame.scale, trace.allocated
    edges = np.linspace(float(trace.times[0]), float(trace.times[-1]), columns + 1)
    return frame.left + edges[:-1] * frame.scale, _most(trace, edges)


def _most(trace: MemoryTrace, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Most bytes between each of ``edges`` [s] and the next one."""
    last = len(trace.times) - 1
    first = np.clip(np.searchsorted(trace.times, edges, side="right") - 1, 0, last)
    inside = np.searchsorted(trace.times, edges[1:], side="left")
    return np.array(
        [trace.allocated[begin : max(end, begin + 1)].max() for begin, end in zip(first[:-1], inside, strict=True)]
    )


def _line(x: NDArray[np.float64], y: NDArray[np.float64]) -> str:
    """Steps: each value holds until the next place."""
    steps = [f"M{x[0]:.1f} {y[0]:.1f}"]
    level = f"{y[0]:.1f}"
    for place, height in zip(x[1:].tolist(), y[1:].tolist(), strict=True):
        text = f"{height:.1f}"
        if text != level:
            steps.append(f"H{place:.1f}V{text}")
            level = text
    return "".join(steps) + f"H{x[-1]:.1f}"
