"""F8: time of collectives against their volume, model and measurement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from shardplan.plotting.chart import GREY, PALETTE, Axis, Chart, Panel, Series
from shardplan.plotting.subramanian2024.shared import SOURCE, Row, only, values_of

SHAPES: Final = ((8, 4), (16, 2), (32, 1))
"""Nodes and accelerators of each that are drawn: 32 accelerators."""
VOLUME: Final = Axis(title="volume [MiB]", scale="log10")
MIB: Final = 2.0**20


def measured_collectives(rows: Sequence[Row]) -> Chart:
    """Above times of 32 accelerators, below modelled over measured time of all measurements."""
    kinds = values_of(rows, "collective")
    names = [str(kind).replace("_", "-") for kind in kinds]
    times = [
        Panel(
            title=f"{name}, 32 accelerators",
            x=VOLUME,
            y=Axis(title="time [ms]", scale="log10"),
            series=tuple(_times(only(rows, collective=kind))),
        )
        for kind, name in zip(kinds, names, strict=True)
    ]
    ratios = [
        Panel(
            title=f"{name}, 2 to 512 accelerators",
            x=VOLUME,
            y=Axis(title="model over measurement", scale="log10", limits=(0.05, 10)),
            series=tuple(_ratios(only(rows, collective=kind))),
        )
        for kind, name in zip(kinds, names, strict=True)
    ]
    return Chart(
        name="F8",
        title="F8: collectives on Perlmutter (A100), model and measurement",
        panels=(*times, *ratios),
        num_columns=len(kinds),
        note=f"Measured with NCCL-tests by the paper's authors (transformer-perf-estimates, commit 54278b0). {SOURCE}",
    )


def _times(rows: Sequence[Row]) -> Iterator[Series]:
    for number, (nodes, inside) in enumerate(SHAPES):
        chosen = only(rows, num_nodes=nodes, gpus_per_node=inside)
        volumes = [row["size_bytes"] / MIB for row in chosen]
        name = f"{nodes} nodes of {inside}"
        colour = PALETTE[number]
        yield Series(name=f"{name}, model", x=volumes, y=[1e3 * row["model_s"] for row in chosen], colour=colour)
        measured = [1e3 * row["measured_s"] for row in chosen]
        yield Series(
            name=f"{name}, measured", x=volumes, y=measured, kind="points", colour=colour, marker="circle"
        )  # fmt: skip


def _ratios(rows: Sequence[Row]) -> Iterator[Series]:
    for number, inside in enumerate((4, 2, 1)):
        chosen = only(rows, gpus_per_node=inside)
        yield Series(
            name=f"nodes of {inside}, all sizes",
            x=[row["size_bytes"] / MIB for row in chosen],
            y=[row["model_over_measured"] for row in chosen],
            kind="points",
            colour=PALETTE[number],
            marker="triangle",
        )
    volumes = [row["size_bytes"] / MIB for row in rows]
    yield Series(name="", x=[min(volumes), max(volumes)], y=[1.0, 1.0], colour=GREY, is_dashed=True)
