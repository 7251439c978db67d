"""Charts of sweeps: the rows that were asked for, at their places, in units that people read."""

from __future__ import annotations

from typing import Any

import pytest

from shardplan.base.errors import InputError
from shardplan.plotting.sweeps import SweepPlot, column_meant, sweep_chart


def _row(gpus: int, memory: float, step_time: float | None) -> dict[str, Any]:
    band = {f"step_time_{tenth}_s": None if step_time is None else factor * step_time
            for tenth, factor in (("p10", 0.9), ("p90", 1.2))}  # fmt: skip
    return {"num_accelerators": gpus, "memory_bytes": memory * 1e9, "step_time_s": step_time} | band


ROWS = [
    _row(gpus, memory, None if memory < 50 and gpus < 16 else 80 / gpus) for gpus in (8, 16, 64) for memory in (40, 80)
]
VARIED = ("num_accelerators", "memory_bytes")


def test_a_line_for_each_colour_with_its_band() -> None:
    chart = sweep_chart(ROWS, VARIED, SweepPlot(x="gpus", y="step_time", colour="memory"), where={})
    (panel,) = (panel for panel, _, _ in chart.placed)
    named = {series.name: list(zip(series.x, series.y, strict=True)) for series in panel.series if not series.is_dashed}
    assert named == {"memory 40 GB": [(16, 5), (64, 1.25)], "memory 80 GB": [(8, 10), (16, 5), (64, 1.25)]}
    bands = [series for series in panel.series if series.is_dashed]
    assert [list(each.y) for each in bands[-2:]] == [[9, 4.5, 1.125], [12, 6, 1.5]]
    assert (panel.x.title, panel.y.title, panel.x.scale) == ("accelerators", "step time [s]", "log2")
    assert "Questions without a value here: 1." in chart.note


def test_a_panel_for_each_value_of_the_facet() -> None:
    chart = sweep_chart(ROWS, VARIED, SweepPlot(x="gpus", y="step_time", facet="memory"), where={})
    assert sorted(panel.title for panel, _, _ in chart.placed) == ["memory 40 GB", "memory 80 GB"]


def test_rows_are_chosen_in_the_units_of_the_command_line() -> None:
    chart = sweep_chart(ROWS, VARIED, SweepPlot(x="gpus", y="step_time"), where={"memory": "80"})
    (panel,) = (panel for panel, _, _ in chart.placed)
    assert len(panel.series[0].x) == 3


def test_rows_that_share_a_place_are_not_drawn_over_each_other() -> None:
    with pytest.raises(InputError, match="memory_bytes vary too") as error:
        sweep_chart(ROWS, VARIED, SweepPlot(x="gpus", y="step_time"), where={})
    assert "--where memory_bytes=40 (or 80)" in error.value.hint


@pytest.mark.parametrize(
    ("name", "column"), [("gpus", "num_accelerators"), ("step-time", "step_time_s"), ("memory_bytes", "memory_bytes")]
)
def test_columns_go_by_the_names_of_flags(name: str, column: str) -> None:
    assert column_meant(name, [*ROWS[0]]) == column
