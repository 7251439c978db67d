"""The study "Nodes, racks and tori": pictures and tables from its sweep.

shardplan sweep docs/studies/nodes-racks-tori.yaml --out results/nodes-racks-tori
python docs/studies/nodes_racks_tori.py results/nodes-racks-tori
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from study import Row, plan_of, rows_of, table_of, write_picture, write_tables

from shardplan.plotting.chart import PALETTE, Axis, Chart, Panel, Scale, Series

NAMES = {"nodes-of-8": "nodes of 8", "racks-of-72": "racks of 72", "torus": "torus"}
COLOURS = dict(zip(NAMES, PALETTE, strict=False))
WITH_EXPERTS = ("deepseek-v3",)
"""Models that are not shown on the torus: their all-to-all travels several hops there, which the formulas of
collectives do not count."""
WIDE = 4.0
"""Ratio of the largest to the smallest step from which its axis is logarithmic."""
OTHERS = ("racks-of-72", "torus")
"""What nodes of 8 are held against."""
USUAL = 50e9
"""Bandwidth between domains at which tables compare. [bytes/s]"""
OUTER = Axis(title="bandwidth between domains [GB/s per accelerator]", scale="log2")


Cases = dict[tuple[str, int], dict[str, list[Row]]]
"""Rows by model and size, and by the kind of domain; each ascending in the bandwidth between domains."""


def main(folder: str) -> None:
    """Writes pictures and tables."""
    cases = _cases(rows_of(folder))
    write_picture(_steps(cases))
    write_tables("nodes-racks-tori.md", {"usual": _usual(cases), "needed": _needed(cases)})


def _cases(rows: Sequence[Row]) -> Cases:
    found: Cases = {}
    for row in sorted(rows, key=lambda each: each["inter_node_bandwidth_bytes_per_s"]):
        kind = Path(row["cluster"]).stem
        if not (kind == "torus" and row["model"] in WITH_EXPERTS):
            found.setdefault((row["model"], row["num_accelerators"]), {}).setdefault(kind, []).append(row)
    return dict(sorted(found.items(), key=lambda each: (each[0][0] in WITH_EXPERTS, *each[0])))


def _steps(cases: Cases) -> Chart:
    panels = tuple(_panel(f"{model}, {size:,}", kinds) for (model, size), kinds in cases.items())
    return Chart(
        name="nodes-racks-tori",
        title="Fastest step against the network between domains; dashed: 8 of 10 comparable runs",
        panels=panels,
        num_columns=len({size for _, size in cases}),
        panel_size=(380, 290),
    )


def _panel(title: str, kinds: Mapping[str, Sequence[Row]]) -> Panel:
    series = tuple(each for kind, rows in sorted(kinds.items()) for each in _lines(rows, kind))
    values = [value for each in series for value in each.y]
    scale: Scale = "log2" if max(values) > WIDE * min(values) else "linear"
    return Panel(title=title, x=OUTER, y=Axis(title="step [s]", scale=scale), series=series)


def _lines(rows: Sequence[Row], kind: str) -> Iterator[Series]:
    at = [row["inter_node_bandwidth_bytes_per_s"] / 1e9 for row in rows]
    for column, name in (("step_time_s", NAMES[kind]), ("step_time_p10_s", ""), ("step_time_p90_s", "")):
        values = [row[column] for row in rows]
        yield Series(
            name=name,
            x=at,
            y=values,
            colour=COLOURS[kind],
            marker="circle" if name else "none",
            is_dashed=not name,
        )


def _at(rows: Sequence[Row], bandwidth: float) -> Row:
    return next(row for row in rows if row["inter_node_bandwidth_bytes_per_s"] == bandwidth)


def _usual(cases: Cases) -> str:
    header = ("model, accelerators", "domains", "step [s]", "against nodes of 8", "MFU", "fastest plan")
    rows = []
    for (model, size), kinds in cases.items():
        base = _at(kinds["nodes-of-8"], USUAL)["step_time_s"]
        for kind, found in kinds.items():
            row, name = _at(found, USUAL), NAMES[kind]
            step = row["step_time_s"]
            rows.append(
                (
                    f"{model}, {size:,}",
                    name,
                    f"{step:.2f}",
                    f"{100 * (step / base - 1):+.1f} %",
                    f"{100 * row['mfu']:.1f} %",
                    plan_of(row),
                )
            )
    return table_of(header, rows)


def _needed(cases: Cases) -> str:
    """Bandwidth between domains with which nodes of 8 are as fast as the others with the usual one."""
    needs, losses = (f"as fast as {NAMES[kind]}" for kind in OTHERS), (f"lost: {name}" for name in NAMES.values())
    header = ("model, accelerators", *needs, *losses)
    rows = []
    for (model, size), kinds in cases.items():
        needed = [_bandwidth_for(kinds["nodes-of-8"], kinds.get(kind)) for kind in OTHERS]
        lost = [_lost(kinds[kind]) if kind in kinds else "-" for kind in NAMES]
        rows.append((f"{model}, {size:,}", *needed, *lost))
    return table_of(header, rows)


def _lost(rows: Sequence[Row]) -> str:
    """How much longer the step takes with the slowest network than with the fastest."""
    return f"{100 * (rows[0]['step_time_s'] / rows[-1]['step_time_s'] - 1):.1f} %"


def _bandwidth_for(rows: Sequence[Row], others: Sequence[Row] | None) -> str:
    """Between two questions of the sweep the logarithm of the step is taken to be straight in that of the bandwidth."""
    if others is None:
        return "-"
    other = _at(others, USUAL)
    bandwidth = [row["inter_node_bandwidth_bytes_per_s"] / 1e9 for row in rows]
    steps = [row["step_time_s"] for row in rows]
    if other["step_time_s"] < min(steps):
        return f"above {bandwidth[-1]:g} GB/s"
    if other["step_time_s"] >= max(steps):
        return f"{bandwidth[0]:g} GB/s or less"
    falling = np.minimum.accumulate(np.log(steps))
    found = np.exp(np.interp(-np.log(other["step_time_s"]), -falling, np.log(bandwidth)))
    return f"{found:.0f} GB/s"


if __name__ == "__main__":
    main(*sys.argv[1:])
