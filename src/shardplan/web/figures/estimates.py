"""An estimate as texts and bars: what every page that shows a plan needs."""

from __future__ import annotations

from typing import Any

from shardplan.estimation.estimate import Estimate
from shardplan.reports.breakdown import memory_bar
from shardplan.units import format_bytes, format_count, format_time
from shardplan.web.figures.parts import memory_parts, step_parts


def estimate_texts(estimate: Estimate) -> dict[str, Any]:
    """Step time with its band, rates, bars of time and memory."""
    bar = memory_bar(estimate)
    whole = max(bar.used_bytes, bar.usable_bytes)
    return {
        "feasible": estimate.feasible,
        "reason": estimate.reason or "",
        "refusals": [str(each) for each in estimate.refusals],
        "step": format_time(estimate.step_time),
        "band": f"{format_time(estimate.step_time_p10)} to {format_time(estimate.step_time_p90)}",
        "basis": estimate.step_time_basis,
        "mfu": f"{100 * estimate.mfu:.1f} %",
        "peak": f"{format_count(estimate.peak_flops / 1e12)} TFLOP/s dense {estimate.peak_format}",
        "rate": format_count(estimate.tokens_per_second),
        "split": step_parts(estimate),
        "memory": {
            "parts": memory_parts(bar),
            "end": bar.usable_bytes / whole,
            "text": f"{format_bytes(bar.used_bytes)} of {format_bytes(bar.usable_bytes)} usable",
            "used": format_bytes(bar.used_bytes),
            "usable": f"of {format_bytes(bar.usable_bytes)} usable",
            "stage": f"stage {bar.stage}" if bar.num_stages > 1 else "",
        },
    }
