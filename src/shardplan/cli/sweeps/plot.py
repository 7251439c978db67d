"""``shardplan plot``: the results of a sweep as a page or a picture."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from shardplan.cli.flags.flag import flag
from shardplan.errors import InputError
from shardplan.outputs.target import HTML, PNG, JsonTarget

_option = partial(flag, panel="Plot")

FolderArgument = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a sweep that is complete.")]
XFlag = Annotated[str | None, _option("Field of the grid along the axis: gpus, inter_node_bandwidth.", metavar="FIELD")]
YFlag = Annotated[str | None, _option("Quantity: step_time, mfu, tokens_per_s_per_accelerator.", metavar="COLUMN")]
ColourFlag = Annotated[str | None, _option("A line for each value of this field.", metavar="FIELD")]
FacetFlag = Annotated[str | None, _option("A panel for each value of this field.", metavar="FIELD")]
WhereFlag = Annotated[
    list[str] | None, _option("Draw these rows only: memory=80. Can be repeated.", metavar="FIELD=VALUE")
]
OutFlag = Annotated[Path | None, _option("File: .html for a page, .png for a picture.", metavar="FILE", panel="Output")]
ForceFlag = Annotated[bool, flag("Replace a file that shardplan did not write.", "--force", panel="Output")]


def plot(
    *,
    results: FolderArgument,
    x: XFlag = None,
    y: YFlag = None,
    colour: ColourFlag = None,
    facet: FacetFlag = None,
    where: WhereFlag = None,
    out: OutFlag = None,
    force: ForceFlag = False,
) -> int:
    """Draw the results of a sweep."""
    missing = [flag for flag, value in (("--x gpus", x), ("--y step_time", y), ("--out FILE", out)) if value is None]
    if missing or x is None or y is None or out is None:
        raise InputError(
            f"missing: {', '.join(missing)}", rule="a plot has an x, a y and a file", hint=f"add {' '.join(missing)}"
        )
    kind = {".html": HTML, ".png": PNG}.get(out.suffix.lower())
    if kind is None:
        raise InputError(
            f"--out is a file of the kind '{out.suffix}'",
            rule="a plot is a page or a picture",
            hint="end --out in .html or .png",
        )
    target = JsonTarget(str(out), "--out", kind=kind, is_forced=force)
    target.check(results)
    from shardplan.plotting.page import html_page
    from shardplan.plotting.picture import png_picture
    from shardplan.plotting.sweeps import SweepPlot, assignments, read_results, sweep_chart

    chosen = assignments(where or ())
    rows, varied = read_results(results)
    chart = sweep_chart(rows, varied, SweepPlot(x=x, y=y, colour=colour, facet=facet), where=chosen)
    target.write_bytes(html_page(chart).encode() if kind is HTML else png_picture(chart))
    sys.stdout.write(f"{out}\n")
    return 0
