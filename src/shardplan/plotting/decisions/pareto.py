"""The Pareto front: step time against memory headroom, and against the step where things are worse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from shardplan.plotting.chart import Chart
from shardplan.plotting.panels import PALETTE, Axis, Panel, Series

TIME: Final = Axis(title="step time [s]", scale="log2")


def pareto_chart(record: Mapping[str, Any]) -> Chart:
    """The chart of a record of ``pareto``."""
    points = record["points"]
    marked = [point for point in points if point["recommended"]]
    return Chart(
        name="pareto",
        title=f"{record['model']} on {record['num_accelerators']:,} accelerators ({record['cluster']}): "
        f"{len(points):,} plans of the front",
        panels=(
            _panel(points, marked, "memory headroom", Axis(title="memory headroom [GB]"), _headroom),
            _panel(points, marked, "step time where things are worse", Axis(title="longer by [%]"), _lost),
        ),
        num_columns=2,
        note=f"No plan of {record['num_plans_feasible']:,} that fit is better than one of these in step time, memory "
        "and step time where network, overlap and host are worse and plans that nobody measured are slower. "
        "Predicted by shardplan.",
        panel_size=(560, 400),
    )


def _headroom(point: Mapping[str, Any]) -> float:
    return float(point["headroom_bytes"]) / 1e9


def _lost(point: Mapping[str, Any]) -> float:
    return 100 * (float(point["pessimistic_time_s"]) / float(point["step_time_s"]) - 1)


def _panel(points: Sequence[Any], marked: Sequence[Any], title: str, axis: Axis, height: Any) -> Panel:
    kinds = (
        ("front", points, PALETTE[0], "circle", False),
        ("plan to take", marked, PALETTE[3], "square", True),
    )
    series = tuple(
        Series(
            name=name,
            x=[each["step_time_s"] for each in shown],
            y=[height(each) for each in shown],
            kind="points",
            colour=colour,
            marker=marker,  # type: ignore[arg-type]  # one of the markers
            labels=[_degrees(each["plan"]["plan"]) for each in shown] if has_labels else (),
        )
        for name, shown, colour, marker, has_labels in kinds
        if shown
    )
    return Panel(title=title, x=TIME, y=axis, series=series)


def _degrees(plan: Mapping[str, Any]) -> str:
    return f"tp {plan['tp']}, cp {plan['cp']}, pp {plan['pp']}"
