"""Parts of a whole with a tone each: what the bars of a page show."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from shardplan.fields import dataclass

TONES: Final = ("t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t1-soft", "t2-soft")
"""Classes of the style sheet, in the order in which they are used."""


@dataclass(frozen=True, kw_only=True)
class BarPart:
    """One of them."""

    label: str
    text: str
    share: float
    """From 0 to 1."""
    tone: str


def bar_parts(parts: Iterable[tuple[str, str, float]]) -> list[BarPart]:
    """Label, text and share of each, with tones in turn."""
    return [
        BarPart(label=label, text=text, share=share, tone=TONES[number % len(TONES)])
        for number, (label, text, share) in enumerate(parts)
    ]
