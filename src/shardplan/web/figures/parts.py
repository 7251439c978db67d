"""Parts of a whole with a tone each: what the bars of pages show, each term in the same tone everywhere."""

from __future__ import annotations

from typing import Final

from shardplan.estimation.estimate import Estimate
from shardplan.estimation.parts.terms import MEMORY, TERMS
from shardplan.fields import dataclass
from shardplan.reports.breakdown import MemoryBar, Share, step_split
from shardplan.reports.texts.answer import percent
from shardplan.units import format_bytes, format_time

REST: Final = "t12"
"""Class of the style sheet."""
LEAST_SHARE: Final = 0.004
"""Terms of the step below this share are one part of the bar."""


@dataclass(frozen=True, kw_only=True)
class BarPart:
    """One of them."""

    label: str
    text: str
    share: float
    """From 0 to 1."""
    tone: str


def memory_parts(bar: MemoryBar) -> list[BarPart]:
    """What fills the memory; shares are of what can be used, or of what is needed where that is more."""
    whole = max(bar.used_bytes, bar.usable_bytes)
    return [
        BarPart(
            label=part.name,
            text=format_bytes(part.value),
            share=part.value / whole,
            tone=MEMORY[part.name].tone,
        )
        for part in bar.parts
    ]


def step_parts(estimate: Estimate, whole: float | None = None) -> list[BarPart]:
    """Where the seconds of the step go; shares are of ``whole`` seconds, or of the step."""
    whole, order = whole or estimate.step_time, [*TERMS]
    shares = step_split(estimate)
    shown = [share for share in shares if share.share >= LEAST_SHARE]
    rest = sum(share.value for share in shares if share.share < LEAST_SHARE)
    shown.sort(key=lambda share: order.index(share.name))
    parts = [_term(share, estimate.step_time, whole) for share in shown]
    if rest > 0:
        parts.append(BarPart(label="the rest", text=format_time(rest), share=rest / whole, tone=REST))
    return parts


def _term(share: Share, step: float, whole: float) -> BarPart:
    return BarPart(
        label=TERMS[share.name].label,
        text=f"{format_time(share.value)}, {percent(share.value / step)}",
        share=share.value / whole,
        tone=TERMS[share.name].tone,
    )
