"""The figures of the accuracy report: predicted against measured, error against world size, memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from shardplan.reports.svg import Cloud, Scatter

Point = Mapping[str, Any]
Ticks = tuple[tuple[float, str], ...]
KINDS = {"dense": "dense", "moe": "mixture of experts"}
SECONDS = ((0.05, "50 ms"), (0.5, "0.5 s"), (5.0, "5 s"), (50.0, "50 s"), (500.0, "500 s"))
WORLD = ((1.0, "1"), (8.0, "8"), (64.0, "64"), (512.0, "512"), (4096.0, "4,096"), (32768.0, "32,768"))
RATIOS = ((0.25, "1/4"), (0.5, "1/2"), (0.8, "0.8"), (1.0, "1"), (1.25, "1.25"), (2.0, "2"), (4.0, "4"))
GIGABYTES = ((5e9, "5 GB"), (10e9, "10 GB"), (20e9, "20 GB"), (40e9, "40 GB"), (80e9, "80 GB"), (160e9, "160 GB"))
FEWEST = 5
"""Runs of a class of world size for which its median is drawn."""


def accuracy_figures(record: Mapping[str, Any]) -> dict[str, Scatter]:
    """Figures of a record by name: left-out predictions where it has them, else predictions as they are."""
    points: Sequence[Point] = record["points"]
    is_left_out = any(point["left_out_step_time_s"] is not None for point in points)
    who = "left_out" if is_left_out else "predicted"
    end = " (team left out)" if is_left_out else ""
    times = _clouds(points, "measured_step_time_s", f"{who}_step_time_s")
    memories = _clouds(points, "measured_peak_memory_bytes", f"{who}_peak_memory_bytes")
    ratios = _ratio_clouds(points, f"{who}_step_time_s")
    seconds = _reaching(SECONDS, times, 10, lambda value: f"{value:g} s")
    gigabytes = _reaching(GIGABYTES, memories, 2, lambda value: f"{value / 1e9:g} GB")
    shares = _reaching(RATIOS, ratios, 2, lambda value: f"{value:g}" if value >= 1 else f"1/{1 / value:g}", axes=(1,))
    return {
        "time": Scatter(
            title=f"Step time: predicted{end} against measured",
            x_label="measured step time",
            y_label="predicted step time",
            x_ticks=seconds,
            y_ticks=seconds,
            clouds=times,
            lines=_diagonals(seconds[0][0], seconds[-1][0]),
        ),
        "scale": Scatter(
            title=f"Step time: predicted{end} / measured by world size",
            x_label="accelerators; the line is the median",
            y_label="predicted / measured",
            x_ticks=_reaching(WORLD, ratios, 8, lambda value: f"{value:,.0f}", axes=(0,)),
            y_ticks=shares,
            clouds=ratios,
            lines=((_medians(points, f"{who}_step_time_s"), False),),
        ),
        "memory": Scatter(
            title=f"Peak memory: predicted{end} against measured",
            x_label="measured peak of one accelerator",
            y_label="predicted peak",
            x_ticks=gigabytes,
            y_ticks=gigabytes,
            clouds=memories,
            lines=_diagonals(gigabytes[0][0], gigabytes[-1][0]),
        ),
    }


def _reaching(
    ticks: Ticks, clouds: Sequence[Cloud], factor: float, label: Callable[[float], str], axes: tuple[int, ...] = (0, 1)
) -> Ticks:
    """``ticks`` and as many more, each ``factor`` further, as the points need, so that none lies off its axis."""
    values = [point[axis] for cloud in clouds for point in cloud.points for axis in axes]
    longer = list(ticks)
    while values and min(values) < longer[0][0]:
        longer.insert(0, (longer[0][0] / factor, label(longer[0][0] / factor)))
    while values and max(values) > longer[-1][0]:
        longer.append((longer[-1][0] * factor, label(longer[-1][0] * factor)))
    return tuple(longer)


def _diagonals(low: float, high: float) -> list[tuple[list[tuple[float, float]], bool]]:
    """Equality, and 20 % on either side of it (dashed)."""
    return [
        ([(low, low), (high, high)], False),
        ([(low, 1.2 * low), (high / 1.2, high)], True),
        ([(1.2 * low, low), (high, high / 1.2)], True),
    ]


def _of_kinds(points: Sequence[Point], place: Callable[[Point], tuple[float, float] | None]) -> list[Cloud]:
    found = {kind: [place(point) for point in points if point["kind"] == kind] for kind in KINDS}
    return [Cloud(label=KINDS[kind], points=[one for one in places if one]) for kind, places in found.items()]


def _clouds(points: Sequence[Point], x: str, y: str) -> list[Cloud]:
    return _of_kinds(points, lambda point: (point[x], point[y]) if point[x] and point[y] else None)


def _ratio(point: Point, predicted: str) -> float | None:
    measured, guess = point["measured_step_time_s"], point[predicted]
    return guess / measured if measured and guess else None


def _ratio_clouds(points: Sequence[Point], predicted: str) -> list[Cloud]:
    def place(point: Point) -> tuple[float, float] | None:
        ratio = _ratio(point, predicted)
        return None if ratio is None else (point["num_accelerators"], ratio)

    return _of_kinds(points, place)


def _medians(points: Sequence[Point], predicted: str) -> list[tuple[float, float]]:
    """Median ratio of every power of two of the world size that has a few runs."""
    classes: dict[int, list[float]] = {}
    for point in points:
        ratio = _ratio(point, predicted)
        if ratio is not None:
            classes.setdefault(round(np.log2(point["num_accelerators"])), []).append(ratio)
    return [(2.0**power, float(np.median(some))) for power, some in sorted(classes.items()) if len(some) >= FEWEST]
