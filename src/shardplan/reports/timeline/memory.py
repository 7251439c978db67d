"""Memory over a step, under the rows of the ranks and on the same axis of time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from shardplan.base.fields import dataclass
from shardplan.base.units import format_bytes
from shardplan.reports.timeline.bars import Bars
from shardplan.reports.timeline.frame import LONGEST_NAME, Frame, shortened
from shardplan.simulation.timeline import MemoryTrace, StepTimeline

T = TypeVar("T", float, NDArray[np.float64])

MOST_STRIPS: Final = 8
STRIPS, BETWEEN, HEAD, PANEL = 176.0, 6.0, 22.0, 90.0
"""Heights of a few strips together, of the space below one, of the title, and of the panel."""
ALMOST_ALL: Final = 0.6
"""Share of the peak that is always held, from which on the axis of the panel does not begin at 0."""
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
    if not timeline.memory:
        return
    traces = {timeline.rank_names[rank]: timeline.memory[rank] for rank in bars.ranks}
    top = frame.memory_top + HEAD
    if len(traces) > MOST_STRIPS:
        yield _title(frame, "Memory: the rank with the highest peak, and the range of all ranks (shaded)")
        most = max(trace.peak_bytes for trace in traces.values())
        least = min(float(trace.allocated.min()) for trace in traces.values())
        low = least if least > ALMOST_ALL * most and least < most else 0.0
        yield from _panel(traces, frame, _Scale(base=top + PANEL, height=PANEL, least=low, most=most))
        return
    height = _strip_height(len(traces))
    always = [trace.baseline_bytes for trace in traces.values()]
    above = max(trace.peak_bytes - trace.baseline_bytes for trace in traces.values())
    yield _title(frame, _what_strips_show(always, above))
    for place, (name, trace) in enumerate(traces.items()):
        base, low = top + place * (height + BETWEEN) + height, trace.baseline_bytes
        yield from _strip(name, trace, frame, _Scale(base=base, height=height, least=low, most=low + (above or 1.0)))


def _what_strips_show(always: Sequence[float], above: float) -> str:
    """``always``: bytes that each rank holds all the time; ``above``: most bytes more."""
    texts = list(dict.fromkeys(format_bytes(each) for each in (min(always), max(always))))
    if not max(always):
        return f"Memory of each rank, up to {format_bytes(above)}; its peak is at the right"
    return (
        f"Memory of each rank above the {' to '.join(texts)} that it always holds, up to {format_bytes(above)}; "
        "its peak is at the right"
    )


@dataclass(frozen=True, kw_only=True)
class _Scale:
    """Where bytes are, from bottom to top."""

    base: float
    height: float
    least: float
    """Bytes at the base."""
    most: float
    """Bytes at the top."""

    def y(self, held: T) -> T:
        """Of a number of bytes, or of many."""
        return self.base - (held - self.least) * (self.height / (self.most - self.least))


def _strip_height(number: int) -> float:
    """Of one strip of ``number``."""
    return min(max(STRIPS / number, 26.0), 40.0)


def _title(frame: Frame, text: str) -> str:
    return f'<text class="s" x="{frame.left:g}" y="{frame.memory_top + 10:g}">{escape(text)}</text>'


def _strip(name: str, trace: MemoryTrace, frame: Frame, at: _Scale) -> Iterator[str]:
    """Memory as an area."""
    moments, held = _sampled(trace, frame)
    line = _line(moments, at.y(held))
    width = frame.right - frame.left
    yield f'<path class="tr" d="M{frame.left:g} {at.base - at.height:.4g}h{width:.4g}v{at.height:.4g}h-{width:.4g}z"/>'
    yield f'<path class="ma" d="{line}V{at.base:.4g}H{moments[0]:.1f}z"/>'
    yield f'<path class="ml" d="{line}"/>'
    yield _peak(trace, frame, at)
    yield from _names(name, trace, frame, at.base - at.height / 2)


def _panel(traces: Mapping[str, MemoryTrace], frame: Frame, at: _Scale) -> Iterator[str]:
    """The range of all ranks as a band, and the line of the fullest one."""
    edges = np.linspace(frame.left, frame.x(frame.end), int((frame.right - frame.left) / COLUMN) + 1)
    held = np.array([_most(trace, (edges - frame.left) / frame.scale) for trace in traces.values()])
    name, fullest = max(traces.items(), key=lambda named: named[1].peak_bytes)
    upper, lower = at.y(held.max(axis=0)), at.y(held.min(axis=0))
    back = "".join(f"L{x:.1f} {y:.1f}" for x, y in zip(edges[:-1][::-1], lower[::-1], strict=True))
    yield f'<path class="ma" d="{_line(edges[:-1], upper)}{back}z"/>'
    yield f'<path class="ml" d="{_line(edges[:-1], at.y(held[list(traces).index(name)]))}"/>'
    yield f'<path class="g" d="M{frame.left:g} {at.base:.4g}H{frame.right:g}"/>'
    least = format_bytes(at.least) if at.least else "0 GB"
    yield f'<text class="s e" x="{frame.left - 8:g}" y="{at.base + 4:.4g}">{least}</text>'
    yield _peak(fullest, frame, at)
    yield from _names(name, fullest, frame, at.y(fullest.peak_bytes))


def _names(name: str, trace: MemoryTrace, frame: Frame, middle: float) -> Iterator[str]:
    """The rank at the left, its peak at the right."""
    shown, peak = escape(shortened(name, LONGEST_NAME)), escape(format_bytes(trace.peak_bytes))
    yield f'<text class="s e" x="{frame.left - 8:g}" y="{middle + 4:.4g}">{shown}</text>'
    yield f'<text class="s" x="{frame.right + 8:g}" y="{middle + 4:.4g}">{peak}</text>'


def _peak(trace: MemoryTrace, frame: Frame, at: _Scale) -> str:
    return f'<circle class="mp" cx="{frame.x(trace.peak_time):.1f}" cy="{at.y(trace.peak_bytes):.1f}" r="2.5"/>'


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
