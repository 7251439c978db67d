"""Parts of a whole with a tone each: what the bars of pages show, each term in the same tone everywhere."""

from __future__ import annotations

from typing import Final

from shardplan.estimation.estimate import Estimate
from shardplan.fields import dataclass
from shardplan.reports.breakdown import MemoryBar, Share, step_split, term_label
from shardplan.reports.texts.answer import percent
from shardplan.units import format_bytes, format_time

OTHER: Final = "t7"
REST: Final = "t12"
MEMORY_TONES: Final = {
    "weights": "t1", "gradients": "t2", "optimizer": "t3", "activations": "t4", "logits": "t5", "buffers": "t6",
    "framework": "t7",
}  # fmt: skip
TERM_TONES: Final = {
    "matmul": "t1", "attention": "t1-soft", "memory_bound": "t2", "recompute": "t2-soft", "host": "t9",
    "tp_communication": "t4", "cp_communication": "t3", "ep_communication": "t8", "dp_communication": "t6",
    "pp_communication": "t5", "offload": "t10", "optimizer": "t11", "fixed": "t12", "stragglers": "t12", "bubble": "t7",
}  # fmt: skip
"""Classes of the style sheet, in the order in which terms are drawn."""
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
            tone=MEMORY_TONES.get(part.name, OTHER),
        )
        for part in bar.parts
    ]


def step_parts(estimate: Estimate, whole: float | None = None) -> list[BarPart]:
    """Where the seconds of the step go; shares are of ``whole`` seconds, or of the step."""
    whole, order = whole or estimate.step_time, [*TERM_TONES]
    shares = step_split(estimate)
    shown = [share for share in shares if share.share >= LEAST_SHARE]
    rest = sum(share.value for share in shares if share.share < LEAST_SHARE)
    shown.sort(key=lambda share: order.index(share.name) if share.name in order else len(order))
    parts = [_term(share, estimate.step_time, whole) for share in shown]
    if rest > 0:
        parts.append(BarPart(label="the rest", text=format_time(rest), share=rest / whole, tone=REST))
    return parts


def _term(share: Share, step: float, whole: float) -> BarPart:
    return BarPart(
        label=term_label(share.name),
        text=f"{format_time(share.value)}, {percent(share.value / step)}",
        share=share.value / whole,
        tone=TERM_TONES.get(share.name, OTHER),
    )
