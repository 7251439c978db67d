"""The tornado: the best step time with every parameter worse and better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shardplan.plotting.chart import PALETTE, Axis, Chart, Panel, Series

NAMES: Final = Axis(title="", scale="names")


def sensitivity_chart(record: Mapping[str, Any]) -> Chart:
    """The chart of a record of ``sensitivity``."""
    best, factor, rows = record["best_step_time_s"], record["factor"], record["parameters"]
    ends = (("lower", f"divided by {factor:g}", PALETTE[3]), ("upper", f"multiplied by {factor:g}", PALETTE[2]))
    labels = [row["label"] for row in rows]
    bars = tuple(
        Series(
            name=title,
            x=labels,
            y=[_change(row[f"{end}_best_step_time_s"], best) for row in rows],
            starts=[0.0] * len(rows),
            kind="bars",
            colour=colour,
        )
        for end, title, colour in ends
    )
    tornado = Panel(title="change of the best step time", x=NAMES, y=Axis(title="[%]"), series=bars, is_horizontal=True)
    elastic = Series(
        name="elasticity",
        x=labels,
        y=[row["elasticity"] or 0.0 for row in rows],
        starts=[0.0] * len(rows),
        kind="bars",
        colour=PALETTE[0],
    )
    return Chart(
        name="sensitivity",
        title=f"{record['model']} on {record['num_accelerators']:,} accelerators ({record['cluster']}): "
        "which hardware parameter pays",
        panels=(
            tornado,
            Panel(
                title="elasticity", x=NAMES, y=Axis(title="% of step time per % of the parameter"),
                series=(elastic,), is_horizontal=True,
            ),
        ),
        num_columns=2,
        note="The fastest plan is searched again at every point. A bar is missing where nothing fits. Predicted by "
        "shardplan.",
        panel_size=(600, 380),
    )  # fmt: skip


def _change(time: float | None, best: float) -> float:
    return 0.0 if time is None else 100 * (time / best - 1)
