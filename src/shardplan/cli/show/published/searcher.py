"""The searcher's configurations as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from shardplan.cli.layout import Column, Page
from shardplan.reports.texts.answer import percent
from shardplan.units import format_time

PARTS = {"compute_ms": "compute", "dp_ms": "dp time", "tp_ms": "tp time", "pp_ms": "pp time"}


def show(page: Page, record: Mapping[str, Any], *, top: int) -> None:
    """The fastest configuration, and the next ones with their parts."""
    cluster, best = record["case"]["cluster"], record["best"]
    page.line(
        f"searcher: {cluster['n_node']:,} nodes of {cluster['n_gpu_per_node']:,} GPUs, "
        f"{record['n_configs']:,} configurations",
        style="bold",
        indent=0,
    )
    verdict = f"dp {best['dp']}, tp {best['tp']}, pp {best['pp']}: {_time(best['total_ms'])} an iteration"
    page.line(Text("Fastest: ", style="bold green").append(verdict, "bold"), indent=0)
    order = sorted(record["configs"], key=lambda row: float(row["total_ms"]))  # stable: the first of equal ones wins
    rows = order[:top]
    page.heading("Configurations", f"fastest first; {len(rows)} of {len(order):,}")
    page.table(
        [
            *(Column(title=name, cells=[f"{row[name]:,}" for row in rows]) for name in ("dp", "tp", "pp")),
            Column(title="total", cells=[_time(row["total_ms"]) for row in rows]),
            *(
                Column(title=title, cells=[_time(row[name]) for row in rows], rank=number)
                for number, (name, title) in enumerate(PARTS.items(), start=1)
            ),
            Column(title="efficiency", cells=[percent(row["eff"]) for row in rows], rank=6),
        ],
        styles=["bold"],
    )
    page.heading("Wrong with it")
    page.bullets(record["notes"])


def _time(milliseconds: float) -> str:
    return format_time(milliseconds / 1000)
