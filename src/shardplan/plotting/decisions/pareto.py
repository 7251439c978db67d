"""The Pareto front: step time against memory headroom, and against the step where things are worse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from shardplan.plotting.chart import PALETTE, Axis, Chart, Panel, Series

TIME: Final = Axis(title="step time [s]")
SLOWEST: Final = 3.0
"""Plans slower than the fastest by more than this are not drawn."""


def pareto_chart(record: Mapping[str, Any]) -> Chart:
    """The chart of a record of ``pareto``."""
    longest = SLOWEST * min((each["step_time_s"] for each in record["points"]), default=0.0)
    points = [each for each in record["points"] if each["step_time_s"] <= longest]
    marked = [point for point in points if point["recommended"]]
    return Chart(
        name="pareto",
        title=f"{record['model']} on {record['num_accelerators']:,} accelerators ({record['cluster']}): "
        f"{len(record['points']):,} plans of the front",
        panels=(
            _panel(points, marked, Axis(title="memory headroom [GB]"), _headroom, has_labels=True),
            _panel(points, marked, Axis(title="longer where things are worse [%]"), _lost, has_labels=False),
        ),
        num_columns=2,
        note=f"No plan of {record['num_plans_feasible']:,} that fit is better than one of these in step time, memory "
        "and step time where network, overlap and host are worse and plans that nobody measured are slower. "
        f"{_left_out(len(record['points']) - len(points))}Predicted by shardplan.",
        panel_size=(560, 400),
    )


def _left_out(number: int) -> str:
    return f"{number:,} plans that take more than {SLOWEST:g} times as long are not drawn. " if number else ""


def _headroom(point: Mapping[str, Any]) -> float:
    return float(point["headroom_bytes"]) / 1e9


def _lost(point: Mapping[str, Any]) -> float:
    return 100 * (float(point["pessimistic_time_s"]) / float(point["step_time_s"]) - 1)


def _panel(points: Sequence[Any], marked: Sequence[Any], axis: Axis, height: Any, *, has_labels: bool) -> Panel:
    kinds = (
        ("front", points, PALETTE[0], "circle", False),
        ("plan to take", marked, PALETTE[3], "square", has_labels),
    )
    series = tuple(
        Series(
            name=name,
            x=[each["step_time_s"] for each in shown],
            y=[height(each) for each in shown],
            kind="points",
            colour=colour,
            marker=marker,  # type: ignore[arg-type]  # one of the markers
            labels=[_degrees(each["plan"]["plan"]) for each in shown] if is_labelled else (),
        )
        for name, shown, colour, marker, is_labelled in kinds
        if shown
    )
    return Panel(title=axis.title.partition(" [")[0], x=TIME, y=axis, series=series)


def _degrees(plan: Mapping[str, Any]) -> str:
    return f"tp {plan['tp']}, cp {plan['cp']}, pp {plan['pp']}"
