"""Colours of a step, on light pages and on dark ones: a hue for each sort of work, a shade for each chunk."""

from __future__ import annotations

from typing import Final, NamedTuple

from shardplan.estimation.parts.layer_operators import LAUNCH, MEMORY, NETWORK, RATE
from shardplan.estimation.parts.terms import AFTER_PASSES
from shardplan.simulation.timeline import (
    BACKWARD,
    FORWARD,
    GATHERING,
    HIDDEN_GATHERING,
    HIDDEN_REDUCTION,
    INPUT_GRADIENT,
    KIND_OF_TERM,
    RECOMPUTATION,
    REDUCTION,
    SEND_BACKWARD,
    SEND_FORWARD,
    SHARDED,
    WEIGHT_GRADIENT,
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


HUES: Final = (
    Hue("forward pass", "#2166ac", "#3d88d4"),
    Hue("recomputation", "#2166ac", "#3d88d4", is_hatched=True),
    Hue("backward pass", "#f0a030", "#e99a33"),
    Hue("input gradient", "#f0a030", "#e99a33"),
    Hue("weight gradient", "#3f9c7c", "#3fa886"),
    Hue("transfer between ranks", "#8d5fa8", "#bb92d8"),
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
LIGHT: Final = Backdrop(
    paper="#ffffff",
    text="#1f2328",
    faint="#59636e",
    line="#d0d7de",
    track="#eef1f4",
    area="#c3d3de",
    focus="#0a66c2",
)
DARK: Final = Backdrop(
    paper="#0d1117",
    text="#e6edf3",
    faint="#9198a1",
    line="#30363d",
    track="#1b222b",
    area="#34495a",
    focus="#6cb6ff",
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
