"""F6 and F7: training days over two quantities of the hardware."""

from __future__ import annotations

from collections.abc import Sequence

from shardplan.plotting.chart import Axis, Chart, Field, Panel, Series, Side
from shardplan.plotting.subramanian2024.shared import SOURCE, Row, values_of


def capacity_and_bandwidth(rows: Sequence[Row]) -> Chart:
    """F6."""
    panel = _panel(rows, "hbm_gb", "hbm_gb_per_s", "memory capacity [GB]", "memory bandwidth [GB/s]")
    title = "F6: days to train over capacity and bandwidth of the device memory"
    return _chart("F6", title, panel, f"All else is B200's, in domains of 8. {SOURCE}")


def flops_and_capacity(rows: Sequence[Row]) -> Chart:
    """F7."""
    panel = _panel(rows, "matrix_tflop_per_s", "hbm_gb", "matrix rate [TFLOP/s]", "memory capacity [GB]")
    note = "Bandwidth and vector rate grow with the capacity from A100 to B200-next; the network is B200's, in domains"
    title = "F7: days to train over matrix rate and capacity of the device memory"
    return _chart("F7", title, panel, f"{note} of 8. {SOURCE}")


def _chart(name: str, title: str, panel: Panel, note: str) -> Chart:
    return Chart(name=name, title=title, panels=(panel,), num_columns=1, note=note, panel_size=(760, 480))


def _panel(rows: Sequence[Row], x: str, y: str, x_title: str, y_title: str) -> Panel:
    """Cells as a field, systems as points on it."""
    cells = [row for row in rows if row["system"] is None]
    points = [row for row in rows if row["system"] is not None]
    xs, ys = sorted(values_of(cells, x)), sorted(values_of(cells, y))
    days = {(row[x], row[y]): row["days"] for row in cells}
    systems = Series(
        name="",
        x=[row[x] for row in points],
        y=[row[y] for row in points],
        kind="points",
        colour="#D55E00",
        marker="circle",
        labels=[f"{row['system']}: {row['days']:.2f}" for row in points],
        label_sides=[_side(row[x], row[y], xs, ys) for row in points],
    )
    field = Field(title="days", x=xs, y=ys, z=[[days.get((at, height)) for at in xs] for height in ys])
    return Panel(
        title="gpt3_1T, 1D, 8,192 accelerators",
        x=Axis(title=x_title),
        y=Axis(title=y_title),
        series=(systems,),
        field=field,
    )


def _side(x: float, y: float, xs: Sequence[float], ys: Sequence[float]) -> Side:
    """Towards the middle of the panel."""
    is_left, is_low = x < (xs[0] + xs[-1]) / 2, y < (ys[0] + ys[-1]) / 2
    if is_low:
        return "top right" if is_left else "top left"
    return "bottom right" if is_left else "bottom left"
