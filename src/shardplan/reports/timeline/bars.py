"""What pictures of a step draw: the events of the ranks that are shown, and shares of time where they are too many.

Their axis of time has round numbers in one unit.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.fields import dataclass
from shardplan.reports.timeline.hues import HUES, OF_KIND
from shardplan.simulation.case import Seconds
from shardplan.simulation.pieces import Ints
from shardplan.simulation.timeline import COMPUTE, EVENT_KINDS, LANES, Events, StepTimeline


@dataclass(frozen=True, kw_only=True)
class Bars:
    """Events as they are drawn."""

    events: Events
    row: Ints
    """Of the ranks that are shown."""
    hue: Ints
    """Position in ``HUES``."""
    shade: Ints
    """Chunk of computation, else 0."""
    ranks: tuple[int, ...]
    """Those that are shown."""
    lanes: tuple[int, ...]
    """Those that have events; computation first."""
    num_chunks: int
    """Most chunks of a rank."""
    end: float
    """Of the last event. [s]"""

    @classmethod
    def of(cls, timeline: StepTimeline, most_ranks: int | None = None) -> Bars:
        """Of all ranks, or of ``most_ranks`` evenly among them."""
        events = timeline.events
        ranks = _shown(timeline.num_ranks, most_ranks)
        if len(ranks) < timeline.num_ranks:
            events = events.at(np.isin(events.rank, ranks))
        lanes = tuple(lane for lane in range(len(LANES)) if lane == COMPUTE or bool((events.lane == lane).any()))
        return cls(
            events=events,
            row=np.searchsorted(np.asarray(ranks), events.rank),
            hue=hues(events.kind),
            shade=np.where(events.lane == COMPUTE, np.maximum(events.chunk, 0), 0),
            ranks=ranks,
            lanes=lanes,
            num_chunks=max(int(events.chunk.max(initial=0)) + 1, 1),
            end=float(events.end.max(initial=0.0)),
        )

    def shares(self, lane: int, num_columns: int) -> NDArray[np.float64]:
        """Share of every column of time that each row spends on each hue; the columns divide the step evenly."""
        edges = np.linspace(0.0, self.end, num_columns + 1)
        found = np.zeros((len(self.ranks), len(HUES), num_columns))
        begins = np.searchsorted(self.row, np.arange(len(self.ranks) + 1)).tolist()
        for row, (first, last) in enumerate(pairwise(begins)):
            hue = np.where(self.events.lane[first:last] == lane, self.hue[first:last], -1)
            for each in np.unique(hue[hue >= 0]).tolist():
                (these,) = np.nonzero(hue == each)
                found[row, each] = np.diff(_covered(self.events.at(first + these), edges))
        return np.clip(found * num_columns / self.end, 0.0, 1.0) if self.end else found


def hues(kind: Ints) -> Ints:
    """Position in ``HUES`` of every kind of event."""
    table: Ints = np.array([OF_KIND[number] for number in range(len(EVENT_KINDS))])
    return table[kind]


def _shown(num_ranks: int, most: int | None) -> tuple[int, ...]:
    """All ranks, or so many, the first and the last among them."""
    if most is None or num_ranks <= most:
        return tuple(range(num_ranks))
    return tuple(np.unique(np.linspace(0, num_ranks - 1, most).round().astype(int)).tolist())


def _covered(events: Events, edges: Seconds) -> Seconds:
    """Seconds of the events before each of ``edges``: the sum of min(max(t - start, 0), duration)."""
    return _ramps(events.start, edges) - _ramps(events.end, edges)


def _ramps(begin: Seconds, edges: Seconds) -> Seconds:
    """Sum of max(t - begin, 0) at every edge t."""
    ordered = np.sort(begin)
    number = np.searchsorted(ordered, edges)
    ramps: Seconds = edges * number - np.concatenate(([0.0], np.cumsum(ordered)))[number]
    return ramps


UNITS: Final = ((20.0, 1.0, "s"), (1e-4, 1e-3, "ms"), (0.0, 1e-6, "us"))
"""From which length of the axis on, seconds in a unit, and its name."""
ROUND: Final = (1.0, 2.0, 5.0, 10.0)


def ticks(length: float, most: int) -> list[tuple[float, str]]:
    """Round moments from 0 to ``length`` [s], about ``most`` of them, and their texts; the first has the unit."""
    if not length > 0:
        return [(0.0, "0 ms")]
    seconds, unit = next((factor, name) for least, factor, name in UNITS if length >= least)
    step = _round_step(length / seconds / most)
    digits = max(-math.floor(math.log10(step) + 1e-9), 0)
    number = math.floor(length / seconds / step + 1e-9)
    return [
        (place * step * seconds, f"{place * step:,.{digits}f}{f' {unit}' if not place else ''}")
        for place in range(number + 1)
    ]


def _round_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next((each * power for each in ROUND if each * power >= least * (1 - 1e-9)), 10 * power)
