"""The figures of the study of arXiv 2410.00273, from their records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from shardplan.plotting.chart import Chart
from shardplan.plotting.subramanian2024.collectives import measured_collectives
from shardplan.plotting.subramanian2024.configurations import best_configurations, hand_picked
from shardplan.plotting.subramanian2024.contours import capacity_and_bandwidth, flops_and_capacity
from shardplan.plotting.subramanian2024.scaling import throughput_per_gpu, time_ratios, training_days
from shardplan.plotting.subramanian2024.shared import Row, only
from shardplan.published.subramanian2024.figures import Figure

CHARTS: Final[dict[str, Callable[[Sequence[Row]], Chart]]] = {
    "F1": training_days,
    "F2": throughput_per_gpu,
    "F3": best_configurations,
    "F4": time_ratios,
    "F5": hand_picked,
    "F6": capacity_and_bandwidth,
    "F7": flops_and_capacity,
    "F8": measured_collectives,
}


def chart_of(figure: Figure, *, system: str = "B200", nvs: int = 8) -> Chart:
    """The chart of a figure's records; ``system`` and ``nvs``: of which F3 shows the configurations."""
    rows = only(figure.rows, system=system, nvs=nvs) if figure.name == "F3" else figure.rows
    return CHARTS[figure.name](rows)
