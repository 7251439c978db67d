"""F8: time of collectives by the paper's network model next to measurements, and how far apart they are."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shardplan.files import DATA
from shardplan.published.subramanian2024.communication import CollectiveKind, PaperCollective, collective_time
from shardplan.published.subramanian2024.corrections import FAITHFUL, Corrections
from shardplan.published.subramanian2024.inputs import load_system

Row = dict[str, Any]
Columns = dict[str, NDArray[np.float64]]

KINDS: Final[tuple[CollectiveKind, ...]] = ("all_gather", "reduce_scatter", "all_reduce")
SYSTEM: Final = ("A100", 4)
"""The paper's system that was measured: four accelerators of a node on fast links, an adapter each."""
MIB: Final = 2.0**20
SIZE_CLASSES: Final = {
    "up to 1 MiB": (0.0, MIB),
    "2 to 128 MiB": (2 * MIB, 128 * MIB),
    "from 256 MiB": (256 * MIB, 1e15),
}
"""Least and most bytes of each. [bytes]"""
_DATA: Final = DATA / "published" / "collectives-perlmutter.csv"


def collective_rows(corrected: Corrections = FAITHFUL) -> Iterator[Row]:
    """One row for every measurement: collective, nodes, accelerators of each, bytes, measured and modelled time."""
    system = load_system(*SYSTEM)
    for kind, of_kind in _measured().items():
        nodes, inside = of_kind["num_nodes"], of_kind["gpus_per_node"]
        call = PaperCollective(kind=kind, volume=of_kind["size_bytes"], size=nodes * inside, inside=inside, group="all")
        model = np.asarray(collective_time(call, system, corrected))
        measured = of_kind["time_us"] * 1e-6
        for number in range(len(model)):
            yield {
                "collective": kind,
                "num_nodes": int(nodes[number]),
                "gpus_per_node": int(inside[number]),
                "num_gpus": int(nodes[number] * inside[number]),
                "size_bytes": int(of_kind["size_bytes"][number]),
                "measured_s": float(measured[number]),
                "model_s": float(model[number]),
                "model_over_measured": float(model[number] / measured[number]),
            }


def model_over_measured(rows: Sequence[Row]) -> Iterator[Row]:
    """Median of modelled over measured time by collective, accelerators of a node, one node or several, and size."""
    for kind in KINDS:
        for gpus_per_node in (1, 2, 4):
            for is_one_node in (True, False):
                for size_class, (least, most) in SIZE_CLASSES.items():
                    ratios = [
                        row["model_over_measured"]
                        for row in rows
                        if (row["collective"], row["gpus_per_node"]) == (kind, gpus_per_node)
                        and (row["num_nodes"] == 1) == is_one_node
                        and least <= row["size_bytes"] <= most
                    ]
                    if ratios:
                        yield {
                            "collective": kind,
                            "gpus_per_node": gpus_per_node,
                            "nodes": "one" if is_one_node else "several",
                            "size": size_class,
                            "num_measurements": len(ratios),
                            "median": float(np.median(ratios)),
                            "least": min(ratios),
                            "most": max(ratios),
                        }


@cache
def _measured() -> dict[CollectiveKind, Columns]:
    """Columns of the measurements of every collective."""
    lines = [line for line in _DATA.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    rows = list(csv.DictReader(lines))
    names = ("num_nodes", "gpus_per_node", "size_bytes", "time_us")
    return {
        kind: {name: np.array([float(row[name]) for row in rows if row["collective"] == kind]) for name in names}
        for kind in KINDS
    }
