"""Where the seconds of a step and the bytes of its fullest stage go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shardplan.base.fields import dataclass
from shardplan.base.units import format_bytes
from shardplan.estimation.parts.terms import MEMORY
from shardplan.reports.texts.answer import band_name

if TYPE_CHECKING:
    from shardplan.estimation.estimate import Estimate

SMALLEST_SHARE: Final = 5e-5
"""A term below this share of the step is left out of the split."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """One part of a whole."""

    name: str
    value: float
    """Seconds or bytes."""
    share: float
    """Of the whole."""


@dataclass(frozen=True, kw_only=True)
class MemoryBar:
    """Memory of the fullest stage against what can be used."""

    stage: int
    num_stages: int
    parts: tuple[Share, ...]
    """Shares are of the usable memory."""
    used_bytes: float
    usable_bytes: float

    @property
    def free_bytes(self) -> float:
        """What is left; negative where it does not fit."""
        return self.usable_bytes - self.used_bytes


def step_split(estimate: Estimate) -> tuple[Share, ...]:
    """Terms of the step time on the slowest stage, largest first."""
    shares = (
        Share(name=name, value=time, share=time / estimate.step_time) for name, time in estimate.breakdown.items()
    )
    return tuple(sorted((s for s in shares if s.share >= SMALLEST_SHARE), key=lambda s: -s.value))


def memory_bar(estimate: Estimate) -> MemoryBar:
    """Parts of the fullest stage's memory."""
    parts = estimate.memory[estimate.fullest_stage]
    usable = estimate.usable_memory_bytes
    return MemoryBar(
        stage=estimate.fullest_stage,
        num_stages=len(estimate.memory),
        parts=tuple(Share(name=name, value=parts[name], share=parts[name] / usable) for name in MEMORY if parts[name]),
        used_bytes=estimate.peak_memory_bytes,
        usable_bytes=usable,
    )


def memory_use(estimate: Estimate) -> str:
    """Memory of the fullest stage against what can be used, and what is missing."""
    bar = memory_bar(estimate)
    stage = f"; stage {bar.stage}" if bar.num_stages > 1 else ""
    missing = f", {format_bytes(-bar.free_bytes)} too much" if bar.free_bytes < 0 else ""
    used = f"{format_bytes(bar.used_bytes)} of {format_bytes(bar.usable_bytes)} usable{_memory_band(estimate)}"
    return f"{used}{missing}{stage}"


def _memory_band(estimate: Estimate) -> str:
    """The two ends of the memory's band."""
    low, high = estimate.peak_memory_p10_bytes, estimate.peak_memory_p90_bytes
    basis = band_name(estimate.peak_memory_basis)
    return f" ({format_bytes(low)} to {format_bytes(high)}, {basis})" if low < high else ""
