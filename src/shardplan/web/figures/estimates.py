"""An estimate as texts and bars: what every page that shows a plan needs."""

from __future__ import annotations

from typing import Any

from shardplan.estimation.estimate import Estimate
from shardplan.reports.breakdown import memory_bar, step_split, term_label
from shardplan.units import format_bytes, format_count, format_time
from shardplan.web.figures.parts import bar_parts


def estimate_texts(estimate: Estimate) -> dict[str, Any]:
    """Step time with its band, rates, bars of time and memory."""
    bar = memory_bar(estimate)
    whole = max(bar.used_bytes, bar.usable_bytes)
    split = step_split(estimate)
    per_second = estimate.tokens_per_second_per_accelerator * estimate.num_accelerators_used
    return {
        "feasible": estimate.feasible,
        "reason": estimate.reason or "",
        "refusals": [str(each) for each in estimate.refusals],
        "step": format_time(estimate.step_time),
        "band": f"{format_time(estimate.step_time_p10)} to {format_time(estimate.step_time_p90)}",
        "basis": estimate.step_time_basis,
        "mfu": f"{100 * estimate.mfu:.1f} %",
        "peak": f"{format_count(estimate.peak_flops / 1e12)} TFLOP/s dense {estimate.peak_format}",
        "rate": f"{format_count(per_second)} tokens/s",
        "split": bar_parts([(term_label(each.name), format_time(each.value), each.share) for each in split]),
        "memory": {
            "parts": bar_parts([(each.name, format_bytes(each.value), each.value / whole) for each in bar.parts]),
            "end": bar.usable_bytes / whole,
            "text": f"{format_bytes(bar.used_bytes)} of {format_bytes(bar.usable_bytes)} usable",
            "stage": f"stage {bar.stage + 1} of {bar.num_stages}" if bar.num_stages > 1 else "",
        },
    }
