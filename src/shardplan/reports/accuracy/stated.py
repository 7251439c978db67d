"""The accuracy that README.md and ``shardplan validate`` state, in one sentence with the runs that are in and out."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from shardplan.calibration.errors import Errors, errors_of
from shardplan.calibration.validate import Validation
from shardplan.fields import dataclass
from shardplan.inputs.readers.residuals import read_residuals
from shardplan.reports.accuracy.record import left_out_validation
from shardplan.reports.accuracy.targets import TARGETS, ratio_of


@dataclass(frozen=True, kw_only=True)
class StatedAccuracy:
    """Errors on published runs by constants that never saw their family."""

    step_time: Errors
    """Of runs of tiers A and A-, of the families that constants are fitted to."""
    peak_memory: Errors
    """Of runs of all tiers of these families, without memory that contradicts itself."""

    @property
    def text(self) -> str:
        """The figures and the runs behind them."""
        time, memory = self.step_time, self.peak_memory
        return (
            f"a median error of {_percent(time.median, 1)} in step time (nine in ten within {_percent(time.p90, 0)}; "
            f"{time.n:,} runs of tiers A and A-) and of {_percent(memory.median, 1)} in peak memory "
            f"(nine in ten within {_percent(memory.p90, 0)}; {memory.n:,} runs of all tiers)"
        )

    def to_record(self) -> dict[str, Any]:
        """As plain values."""
        return {"step_time": asdict(self.step_time), "peak_memory": asdict(self.peak_memory)}


def stated_accuracy(published: Validation) -> StatedAccuracy:
    """Of the published runs under the shipped constants."""
    left_out = left_out_validation(published, read_residuals())
    by_label = {target.label: target for target in TARGETS}
    time, memory = by_label["step time, all"], by_label["peak memory, all tiers"]
    return StatedAccuracy(
        step_time=errors_of([ratio_of(one, time.quantity) for one in left_out.predictions if time.chosen(one)]),
        peak_memory=errors_of([ratio_of(one, memory.quantity) for one in left_out.predictions if memory.chosen(one)]),
    )


def _percent(share: float | None, decimals: int) -> str:
    return "-" if share is None else f"{100 * share:.{decimals}f} %"
