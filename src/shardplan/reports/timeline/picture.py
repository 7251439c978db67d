"""A step as one picture for a page of text: every rank a row, time to the right, memory below.

It is SVG of less than ``MOST_BYTES``. Where the pieces would be narrower than can be seen, or too many, columns of
time take their place, which show the share of each sort of work; the picture says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Final, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from shardplan.base.fields import dataclass
from shardplan.base.units import format_bytes, format_time
from shardplan.reports.timeline.bars import HUES, Bars, ticks
from shardplan.reports.timeline.frame import (
    CHARACTER,
    HEAD,
    LONGEST_NAME,
    Frame,
    Places,
    entries,
    legend,
    sheet,
    shortened,
)
from shardplan.simulation.timeline import COMPUTE, MemoryTrace, StepTimeline

T = TypeVar("T", float, NDArray[np.float64])

MOST_STRIPS: Final = 8
STRIPS, BETWEEN, MEMORY_HEAD, PANEL = 176.0, 6.0, 22.0, 90.0
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
    return MEMORY_HEAD + (number * (_strip_height(number) + BETWEEN) if number <= MOST_STRIPS else PANEL) + 4


def memory_strips(timeline: StepTimeline, bars: Bars, frame: Frame) -> Iterator[str]:
    """A strip for each of a few ranks; else one panel with the fullest rank, and the range of all."""
    if not timeline.memory:
        return
    traces = {timeline.rank_names[rank]: timeline.memory[rank] for rank in bars.ranks}
    top = frame.memory_top + MEMORY_HEAD
    if len(traces) > MOST_STRIPS:
        yield _title(frame, "Memory: the stage with the highest peak, and the range of all stages (shaded)")
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
        return f"Memory of each stage, up to {format_bytes(above)}; its peak is at the right"
    return (
        f"Memory of each stage above the {' to '.join(texts)} that it always holds, up to {format_bytes(above)}; "
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


Theme = Literal["auto", "light", "dark"]
MOST_BYTES: Final = 300_000
MOST_PIECES: Final = 6_000
LEAST_WIDTH: Final = 1.6
"""Width of a typical piece of computation below which pieces are merged. [pixels]"""
MOST_ROWS: Final = 128
MOST_FIT: Final = 0.9
"""Share of the pieces of a hue on which numbers must fit, or none is written: a few would look like a choice."""
DIGIT: Final = 5.8
"""Width of a digit of the numbers on pieces. [pixels]"""
TITLE_CHARACTER: Final = 8.0
LEAST_HEIGHT_OF_NUMBERS: Final = 11.0
PER_PIXEL: Final = 2
"""Heights of merged columns that can be told apart in a pixel."""
IN_COLUMN: Final = 8
"""Events in a merged column, where columns can be narrow enough: fewer make the picture restless."""
COLUMNS: Final = (2.0, 3.0, 4.0, 6.0, 8.0, 12.0)
"""Widths of merged columns that are tried. [pixels]"""


def timeline_svg(timeline: StepTimeline, *, theme: Theme = "auto") -> str:
    """The picture. ``theme``: for light pages, dark ones, or as the reader has set."""
    bars = Bars.of(timeline, MOST_ROWS)
    frame = _frame(timeline, bars, is_merged=False)
    if not _is_merged(bars, frame):
        drawn = _whole(timeline, bars, frame, marks=list(_pieces(bars, frame)), note="", theme=theme)
        if len(drawn) <= MOST_BYTES:
            return drawn
    frame = _frame(timeline, bars, is_merged=True)
    least = IN_COLUMN * (frame.right - frame.left) * len(bars.ranks) / len(bars.events)
    for width in (each for each in COLUMNS if each >= min(least, COLUMNS[-3])):
        columns = max(int((frame.right - frame.left) / width), 1)
        note = merged_note(bars, bars.end / columns)
        drawn = _whole(timeline, bars, frame, marks=list(_columns(bars, frame, columns)), note=note, theme=theme)
        if len(drawn) <= MOST_BYTES:
            break
    return drawn


def _frame(timeline: StepTimeline, bars: Bars, *, is_merged: bool) -> Frame:
    lines = entries(bars, is_merged=is_merged)[-1].line + 1
    return Frame.of(timeline, bars, legend_lines=lines, memory_height=memory_height(timeline, bars))


def merged_note(bars: Bars, column: float) -> str:
    """What is not drawn piece by piece. ``column``: [s]."""
    return (
        f"{len(bars.events):,} events, too many to draw one by one: every column is {format_time(column)}, "
        "and its colours are shares of that time."
    )


def _is_merged(bars: Bars, frame: Frame) -> bool:
    own = bars.events.duration[bars.events.lane == COMPUTE]
    typical = float(np.median(own)) * frame.scale if len(own) else LEAST_WIDTH
    return len(bars.events) > MOST_PIECES or typical < LEAST_WIDTH


def _whole(timeline: StepTimeline, bars: Bars, frame: Frame, *, marks: Sequence[str], note: str, theme: Theme) -> str:
    """The SVG element around ``marks``."""
    is_merged = bool(note)
    memory = list(memory_strips(timeline, bars, frame))
    notes = [text for text in (note, _hidden(timeline, bars)) if text]
    height = frame.height + 18 * len(notes) + 4
    shown = "".join(
        f'<text class="s" x="{frame.left:g}" y="{frame.height + 14 + 18 * row:g}">{escape(text)}</text>'
        for row, text in enumerate(notes)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {frame.width:g} {height:g}" role="img" '
        f'data-generator="shardplan" aria-label="{escape(timeline.title)}"><title>{escape(timeline.title)}</title>'
        f"<style>{sheet(bars.num_chunks, theme)}</style>{_hatching()}"
        f"{''.join((*_heading(timeline, frame), *legend(entries(bars, is_merged=is_merged), HEAD)))}"
        f"{''.join((*_rows(timeline, bars, frame), *_axis(frame), *marks, *memory))}{shown}</svg>\n"
    )


def _hidden(timeline: StepTimeline, bars: Bars) -> str:
    if len(bars.ranks) == timeline.num_ranks:
        return ""
    return f"{len(bars.ranks)} of {timeline.num_ranks} stages are shown."


def _hatching() -> str:
    return (
        '<defs><pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<rect class="hp" width="5" height="5"/><rect class="hl" width="2" height="5"/></pattern></defs>'
    )


def _heading(timeline: StepTimeline, frame: Frame) -> Iterator[str]:
    text = f"{format_time(timeline.step_time)} a step"
    most = int((frame.width - 3 * frame.margin - CHARACTER * len(text)) / TITLE_CHARACTER)
    yield f'<text class="t" x="{frame.margin:g}" y="20">{escape(shortened(timeline.title, most))}</text>'
    yield f'<text class="s e" x="{frame.width - frame.margin:g}" y="20">{escape(text)}</text>'


def _rows(timeline: StepTimeline, bars: Bars, frame: Frame) -> Iterator[str]:
    """Names and empty tracks: what is not covered by a piece is bubble."""
    every = int(-(-14 // frame.pitch))
    rates = timeline.bubble_rates
    yield f'<text class="s" x="{frame.right + 8:g}" y="{frame.rows_top - 5:g}">bubble</text>'
    for row, rank in enumerate(bars.ranks):
        top = frame.row_top(row)
        yield f'<path class="tr" d="{_box(frame.left, top, frame.right - frame.left, frame.work)}"/>'
        if row % every == 0:
            middle = top + frame.work / 2 + 4
            name = shortened(timeline.rank_names[rank], LONGEST_NAME)
            yield f'<text class="s e" x="{frame.left - 8:g}" y="{middle:.4g}">{escape(name)}</text>'
            yield f'<text class="s" x="{frame.right + 8:g}" y="{middle:.4g}">{100 * rates[rank]:.1f} %</text>'


def _axis(frame: Frame) -> Iterator[str]:
    for moment, text in ticks(frame.end, 9):
        x = frame.x(moment)
        yield f'<path class="g" d="M{x:.1f} {frame.rows_top - 4:g}V{frame.bottom:g}"/>'
        yield f'<text class="s m" x="{x:.1f}" y="{frame.axis:g}">{text}</text>'


def _pieces(bars: Bars, frame: Frame) -> Iterator[str]:
    """Every event, a path for those of one colour; then the critical path, and numbers of micro-batches."""
    left = frame.left + bars.events.start * frame.scale
    width = np.maximum(bars.events.duration * frame.scale - 0.5, 0.35)
    top, height = frame.boxes(bars.row, bars.events.lane, bars.lanes)
    for hue, shade in sorted(set(zip(bars.hue.tolist(), bars.shade.tolist(), strict=True))):
        (these,) = np.nonzero((bars.hue == hue) & (bars.shade == shade))
        boxes = map(_box, *(column[these].tolist() for column in (left, top, width, height)))
        css = "hx" if HUES[hue].is_hatched else f"h{hue}-{shade}"
        yield f'<path class="{css}" d="{"".join(boxes)}"/>'
    critical = np.nonzero(bars.events.critical)[0].tolist()
    edges = (f"M{left[each]:.1f} {top[each] + height[each] + 1:.4g}h{width[each] + 0.5:.1f}" for each in critical)
    yield f'<path class="k" d="{"".join(edges)}"/>'
    (numbered,) = np.nonzero(_has_number(bars, width, height))
    for each in numbered.tolist():
        yield (
            f'<text class="n{bars.hue[each]}-{bars.shade[each]}" x="{left[each] + width[each] / 2:.1f}" '
            f'y="{top[each] + height[each] / 2 + 3.5:.4g}">{bars.events.microbatch[each]}</text>'
        )


def _has_number(bars: Bars, width: Places, height: Places) -> NDArray[np.bool_]:
    """Whether the number of its micro-batch fits on a piece, and on most pieces of its hue."""
    events = bars.events
    digits = np.floor(np.log10(np.maximum(events.microbatch, 1))) + 1
    can = (events.microbatch >= 0) & (events.lane == COMPUTE) & (height >= LEAST_HEIGHT_OF_NUMBERS)
    fits = can & (width >= DIGIT * digits + 2)
    for hue in np.unique(bars.hue).tolist():
        own = can & (bars.hue == hue)
        if HUES[hue].is_hatched or (own.any() and fits[own].mean() < MOST_FIT):
            fits &= bars.hue != hue
    return fits


def _columns(bars: Bars, frame: Frame, number: int) -> Iterator[str]:
    """Shares of each column, stacked; a path for each hue. A unit to the right is a column."""
    yield f'<g transform="translate({frame.left:g})scale({bars.end * frame.scale / number:.6g} 1)">'
    for lane in bars.lanes:
        shares = bars.shares(lane, number)
        height = frame.work if lane == COMPUTE else frame.thin
        upper = np.round(np.minimum(np.cumsum(shares, axis=1), 1.0) * height * PER_PIXEL) / PER_PIXEL
        lower = np.concatenate([np.zeros_like(upper[:, :1]), upper[:, :-1]], axis=1)
        for hue in np.nonzero((upper > lower).any(axis=(0, 2)))[0].tolist():
            boxes = "".join(
                _runs(frame.lane_top(row, lane, bars.lanes) + height, lower[row, hue], upper[row, hue])
                for row in range(len(bars.ranks))
            )
            yield f'<path class="{"hx" if HUES[hue].is_hatched else f"h{hue}-0"}" d="{boxes}"/>'
    yield "</g>"


def _runs(base: float, lower: NDArray[np.float64], upper: NDArray[np.float64]) -> str:
    """Boxes of neighbouring columns that look the same."""
    changes = np.nonzero((np.diff(lower) != 0) | (np.diff(upper) != 0))[0] + 1
    begins, ends = np.concatenate(([0], changes)), np.concatenate((changes, [len(lower)]))
    return "".join(
        f"M{first} {base - upper[first]:.5g}h{last - first}v{upper[first] - lower[first]:g}H{first}z"
        for first, last in zip(begins.tolist(), ends.tolist(), strict=True)
        if upper[first] > lower[first]
    )


def _box(left: float, top: float, width: float, height: float) -> str:
    return f"M{left:.1f} {top:.5g}h{width:.1f}v{height:.4g}h-{width:.1f}z"
