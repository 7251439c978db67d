"""The study "What pays": pictures and tables from its sweep.

shardplan sweep docs/studies/what-pays.yaml --out results/what-pays
python docs/studies/what_pays.py results/what-pays
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from study import Row, plan_of, rows_of, table_of, write_picture, write_tables

from shardplan.plotting.chart import PALETTE, Axis, Chart, Panel, Series

FACTOR = 1.25
PARAMETERS = {
    "peak_flops": "matrix peak",
    "memory_bandwidth_bytes_per_s": "memory bandwidth",
    "intra_node_bandwidth_bytes_per_s": "bandwidth in the node",
    "inter_node_bandwidth_bytes_per_s": "bandwidth between nodes",
    "memory_bytes": "memory capacity",
}
"""Columns that the grid varies, and what they are called."""
SIZE = Axis(title="accelerators", scale="log2")


class Paying(NamedTuple):
    """What one per cent more of a parameter takes off the best step. [%]"""

    gain: float
    worse: float
    """Of the last quarter that is taken away."""
    better: float
    """Of the first quarter that is added."""


def main(folder: str) -> None:
    """Writes pictures and tables."""
    cases = _cases(rows_of(folder))
    write_picture(_gains(cases))
    write_picture(_steps(cases))
    write_tables("what-pays.md", {"gains": _table(cases), "plans": _plans(cases)})


Case = tuple[str, int]
Cases = dict[Case, tuple[Row, dict[str, Paying]]]


def _cases(rows: Sequence[Row]) -> Cases:
    """By model and size: the row of the cluster as it is, which comes first, and what pays."""
    groups: dict[Case, list[Row]] = {}
    for row in rows:
        groups.setdefault((row["model"], row["num_accelerators"]), []).append(row)
    return {case: (group[0], {name: _paying(group, name) for name in PARAMETERS}) for case, group in groups.items()}


def _paying(group: Sequence[Row], name: str) -> Paying:
    """From the rows that differ in this parameter alone: first the smaller value, then the larger."""
    base, (less, more) = group[0], [row for row in group if row[name] != group[0][name]]
    worse, better = (math.log(a["step_time_s"] / b["step_time_s"]) for a, b in ((less, base), (base, more)))
    return Paying(*(each / math.log(FACTOR) for each in ((worse + better) / 2, worse, better)))


def _gains(cases: Cases) -> Chart:
    panels = tuple(
        Panel(title=name, x=SIZE, y=Axis(title="gain [% per %]"), series=tuple(_lines(cases, column)))
        for column, name in PARAMETERS.items()
    )
    return Chart(
        name="what-pays-gains",
        title="What one per cent more of a parameter takes off the best step; dashed: a quarter less, a quarter more",
        panels=panels,
        num_columns=3,
        panel_size=(380, 300),
    )


def _lines(cases: Cases, column: str) -> Iterator[Series]:
    for model, colour in zip(_models(cases), PALETTE, strict=False):
        sizes = [size for name, size in cases if name == model]
        found = [cases[model, size][1][column] for size in sizes]
        yield Series(name=model, x=sizes, y=[each.gain for each in found], colour=colour, marker="circle")
        for ends in ([each.worse for each in found], [each.better for each in found]):
            yield Series(name="", x=sizes, y=ends, colour=colour, is_dashed=True)


def _steps(cases: Cases) -> Chart:
    """Throughput of the cluster as it is, with its band."""
    series = []
    for model, colour in zip(_models(cases), PALETTE, strict=False):
        rows = [row for (name, _), (row, _) in cases.items() if name == model]
        sizes = [row["num_accelerators"] for row in rows]
        mfu = [100 * row["mfu"] for row in rows]
        series.append(Series(name=model, x=sizes, y=mfu, colour=colour, marker="circle"))
        for end in ("p10", "p90"):
            ends = [100 * row["mfu"] * row["step_time_s"] / row[f"step_time_{end}_s"] for row in rows]
            series.append(Series(name="", x=sizes, y=ends, colour=colour, is_dashed=True))
    panel = Panel(title="", x=SIZE, y=Axis(title="MFU of the fastest plan [%]"), series=tuple(series))
    title = "dgx-h100 as it is: MFU with its band"
    return Chart(name="what-pays-mfu", title=title, panels=(panel,), num_columns=1, panel_size=(620, 380))


def _models(cases: Cases) -> list[str]:
    return [*dict.fromkeys(model for model, _ in cases)]


def _table(cases: Cases) -> str:
    header = ("model, accelerators", *PARAMETERS.values(), "sum of the rates")
    rows = []
    for (model, size), (_, paying) in cases.items():
        rates = sum(each.gain for name, each in paying.items() if name != "memory_bytes")
        gains = [f"{each.gain:.2f}" for each in paying.values()]
        rows.append((f"{model}, {size:,}", *gains, f"{rates:.2f}"))
    return table_of(header, rows)


def _plans(cases: Cases) -> str:
    header = (
        "model, accelerators",
        "step [s]",
        "8 of 10 runs [s]",
        "MFU",
        "bubble",
        "exchange",
        "fastest plan",
    )
    exchanges = [f"{name}_communication_s" for name in ("tp", "cp", "ep", "dp", "pp")]
    rows = [
        (
            f"{model}, {size:,}",
            f"{row['step_time_s']:.2f}",
            f"{row['step_time_p10_s']:.2f} to {row['step_time_p90_s']:.2f}",
            f"{100 * row['mfu']:.1f} %",
            f"{100 * row['bubble_s'] / row['step_time_s']:.1f} %",
            f"{100 * sum(row[each] for each in exchanges) / row['step_time_s']:.1f} %",
            plan_of(row),
        )
        for (model, size), (row, _) in cases.items()
    ]
    return table_of(header, rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
