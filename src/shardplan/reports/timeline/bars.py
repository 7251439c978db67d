"""What pictures of a step draw: the events of the ranks that are shown, and shares of time where they are too many.

Their axis of time has round numbers in one unit. Every sort of work has a colour.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardplan.base.fields import dataclass
from shardplan.estimation.parts.layer_operators import LAUNCH, MEMORY, NETWORK, RATE
from shardplan.estimation.parts.terms import AFTER_PASSES
from shardplan.simulation.case import Seconds
from shardplan.simulation.pieces import Ints
from shardplan.simulation.timeline import (
    BACKWARD,
    COMPUTE,
    EVENT_KINDS,
    FORWARD,
    GATHERING,
    HIDDEN_GATHERING,
    HIDDEN_REDUCTION,
    INPUT_GRADIENT,
    KIND_OF_TERM,
    LANES,
    RECOMPUTATION,
    REDUCTION,
    SEND_BACKWARD,
    SEND_FORWARD,
    SHARDED,
    WEIGHT_GRADIENT,
    Events,
    StepTimeline,
)

WHITE, BLACK = "#ffffff", "#10151c"
"""Of numbers on a piece of work, whichever is easier to read."""
PALEST: Final = 0.4
"""Share of its hue that the last chunk has; the rest is white."""
STRONG_SHADES: Final = 6
"""Chunks that can be told apart; more of them share shades."""


class Hue(NamedTuple):
    """A sort of work."""

    label: str
    light: str
    """On light pages; hues differ in lightness too, so that the colour-blind can tell them apart."""
    dark: str
    """On dark pages."""
    is_hatched: bool = False


class Backdrop(NamedTuple):
    """What is not work."""

    paper: str
    text: str
    faint: str
    line: str
    track: str
    """Behind the pieces of a rank, where it waits."""
    area: str
    """Of memory."""
    focus: str
    """Around what the keyboard acts on."""
    bad: str
    """Of the memory that can be used."""


HUES: Final = (
    Hue("forward pass", "#2166ac", "#3d88d4"),
    Hue("recomputation", "#2166ac", "#3d88d4", is_hatched=True),
    Hue("backward pass", "#f0a030", "#e99a33"),
    Hue("input gradient", "#f0a030", "#e99a33"),
    Hue("weight gradient", "#3f9c7c", "#3fa886"),
    Hue("transfer between stages", "#8d5fa8", "#bb92d8"),
    Hue("exchange of states", "#b0457b", "#e583b3"),
    Hue("optimizer", "#59636e", "#aab5c0"),
    Hue("fixed time and stragglers", "#a3adb7", "#6d7883"),
)
"""In the order of legends."""
OF_KIND: Final = {
    FORWARD: 0,
    RECOMPUTATION: 1,
    BACKWARD: 2,
    INPUT_GRADIENT: 3,
    WEIGHT_GRADIENT: 4,
    SEND_FORWARD: 5,
    SEND_BACKWARD: 5,
    GATHERING: 6,
    SHARDED: 6,
    REDUCTION: 6,
    HIDDEN_GATHERING: 6,
    HIDDEN_REDUCTION: 6,
} | {KIND_OF_TERM[term.key]: [hue.label for hue in HUES].index(term.hue) for term in AFTER_PASSES}
"""Position in ``HUES`` by kind of event."""
BOUNDS: Final = {
    RATE: Hue(RATE, "#4c6377", "#8aa4ba"),
    MEMORY: Hue(MEMORY, "#d17b88", "#e29aa5"),
    NETWORK: Hue(NETWORK, "#8d5fa8", "#bb92d8"),
    LAUNCH: Hue(LAUNCH, "#c3cad1", "#56616d"),
}
"""Of what limits an operator."""
MEMORY_HUES: Final = {
    "framework": {"light": "#374151", "dark": "#c3ccd8"},
    "weights": {"light": "#27408b", "dark": "#4a6bd0"},
    "gradients": {"light": "#8a8a1f", "dark": "#b4b43c"},
    "optimizer": {"light": "#b07aa1", "dark": "#d0a3c4"},
    "buffers": {"light": "#7d2e3f", "dark": "#b05468"},
    "logits": {"light": "#b4a5ea", "dark": "#c9beff"},
    "activations": {"light": "#e9b949", "dark": "#f0d071"},
}
"""Of the parts of memory, as on the pages of the web app (``--m1`` to ``--m6`` and ``--c11`` of its style sheet)."""
STACKED: Final = tuple(MEMORY_HUES)
"""Parts from the bottom up: what stays the same first."""
LIGHT: Final = Backdrop(
    paper="#ffffff",
    text="#1f2328",
    faint="#59636e",
    line="#d0d7de",
    track="#eef1f4",
    area="#c3d3de",
    focus="#0a66c2",
    bad="#b3261e",
)
DARK: Final = Backdrop(
    paper="#0d1117",
    text="#e6edf3",
    faint="#9198a1",
    line="#30363d",
    track="#1b222b",
    area="#34495a",
    focus="#6cb6ff",
    bad="#ff8f86",
)
PAGES: Final = {"light": LIGHT, "dark": DARK}


def shades(hue: Hue, theme: str, number: int) -> list[str]:
    """Colours of the chunks of a rank, the first one strongest."""
    colour = hue.dark if theme == "dark" else hue.light
    steps = min(number, STRONG_SHADES)
    strengths = [1 - (1 - PALEST) * step / max(steps - 1, 1) for step in range(steps)]
    return [_mixed(colour, WHITE, strengths[chunk % steps]) for chunk in range(number)]


def ink_on(colour: str) -> str:
    """Black or white, with the better contrast."""
    return max((WHITE, BLACK), key=lambda ink: contrast(ink, colour))


def contrast(first: str, second: str) -> float:
    """Contrast ratio of two colours, from 1 to 21 (WCAG 2.1, section 1.4.3)."""
    low, high = sorted((_luminance(first), _luminance(second)))
    return (high + 0.05) / (low + 0.05)


def _mixed(colour: str, paper: str, strength: float) -> str:
    pairs = zip(_channels(colour), _channels(paper), strict=True)
    return "#" + "".join(f"{round(strength * one + (1 - strength) * other):02x}" for one, other in pairs)


def _luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.1)."""
    linear = [
        value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4
        for value in (channel / 255 for channel in _channels(colour))
    ]
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def _channels(colour: str) -> list[int]:
    return [int(colour[place : place + 2], 16) for place in (1, 3, 5)]


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


UNITS: Final = ((20.0, 1.0, "s"), (1e-4, 1e-3, "ms"), (0.0, 1e-6, "\u00b5s"))
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
