"""The scaling curve: step time with its band, tokens per second, and what an added accelerator brings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from shardplan.plotting.chart import GREY, PALETTE, Axis, Chart, Panel, Series

SIZES: Final = Axis(title="accelerators", scale="log2")


def scale_chart(record: Mapping[str, Any]) -> Chart:
    """The chart of a record of ``scale``."""
    points = [point for point in record["points"] if point["plan"] is not None]
    sizes = [point["num_accelerators"] for point in points]
    return Chart(
        name="scale",
        title=f"{record['model']} on {record['cluster']}: one job on more accelerators",
        panels=(_times(sizes, points), _rates(sizes, points), _gains(sizes, points, record["least_gain"])),
        num_columns=3,
        note="Each point is the plan to take at its size, at one global batch of "
        f"{record['job']['global_batch_size']:,} sequences. Marginal efficiency: the tokens per second that each added "
        "accelerator brings, over those of one accelerator at the smallest size. Predicted by shardplan.",
        panel_size=(440, 380),
    )


def _times(sizes: Sequence[int], points: Sequence[Mapping[str, Any]]) -> Panel:
    """Step time, its band, and the degrees of every plan."""
    ends = [
        Series(name="80 % band", x=sizes, y=[point[key] for point in points], colour=GREY, is_dashed=True)
        for key in ("step_time_p10_s", "step_time_p90_s")
    ]
    time = Series(
        name="step time",
        x=sizes,
        y=[point["step_time_s"] for point in points],
        marker="circle",
        labels=[_degrees(point["plan"]["plan"]) for point in points],
        label_sides=["bottom left" if number % 2 else "top right" for number in range(len(points))],
    )
    return Panel(
        title="step time, with tp x cp x pp", x=SIZES, y=Axis(title="step time [s]", scale="log10"),
        series=(*ends, time),
    )  # fmt: skip


def _degrees(plan: Mapping[str, Any]) -> str:
    return f"{plan['tp']} x {plan['cp']} x {plan['pp']}"


def _rates(sizes: Sequence[int], points: Sequence[Mapping[str, Any]]) -> Panel:
    first = points[0]["tokens_per_s"] / sizes[0] if points else 0.0
    rates = [point["tokens_per_s"] for point in points]
    series = (
        Series(name="ideal", x=sizes, y=[first * size for size in sizes], colour=GREY),
        Series(name="tokens per second", x=sizes, y=rates, colour=PALETTE[2], marker="circle"),
    )
    return Panel(title="tokens per second", x=SIZES, y=Axis(title="tokens/s", scale="log10"), series=series)


def _gains(sizes: Sequence[int], points: Sequence[Mapping[str, Any]], least: float) -> Panel:
    later = [(s, 100 * p["marginal_efficiency"]) for s, p in zip(sizes, points, strict=True) if _has_gain(p)]
    series = [
        Series(name="efficiency", x=sizes, y=[100 * p["efficiency"] for p in points], marker="circle"),
        Series(
            name="marginal efficiency", x=[s for s, _ in later], y=[y for _, y in later],
            colour=PALETTE[3], marker="square",
        ),
        Series(name="least that pays", x=[*sizes[:1], *sizes[-1:]], y=[100 * least] * 2, colour=GREY, is_dashed=True),
    ]  # fmt: skip
    shown = tuple(each for each in series if each.x)
    top = max((y for each in shown for y in each.y), default=100.0)
    return Panel(title="efficiency", x=SIZES, y=Axis(title="[%]", limits=(0.0, 1.1 * top)), series=shown)


def _has_gain(point: Mapping[str, Any]) -> bool:
    return point["marginal_efficiency"] is not None
