"""Draws the record of ``scaling.py``: one figure for light pages, one for dark ones. Needs the extra ``bench``."""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator
from measure import Record


@dataclass(frozen=True, kw_only=True)
class Theme:
    """Colours of one figure. Those of lines are told apart by people who see red and green alike."""

    text: str
    faint: str
    grid: str
    lines: tuple[str, ...]


THEMES = {
    "light": Theme(text="#263238", faint="#607d8b", grid="#dfe5e8", lines=("#0072b2", "#3aa0d8", "#b34700", "#e08214")),
    "dark": Theme(text="#e3e8ee", faint="#93a3b1", grid="#3c4252", lines=("#7cc4f5", "#3d9bd9", "#f4a261", "#ffd08a")),
}
MARKERS = ("o", "s", "^", "D")
STYLE: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that the figure is the same wherever it is drawn
    "font.size": 10,
    "svg.fonttype": "path",
    "svg.hashsalt": "shardplan",
}
SECONDS = (0.01, 0.1, 1.0, 10.0)
SIZE = (9.2, 4.3)
"""Inches."""


def main() -> None:
    """Draws both figures."""
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("record", type=Path, help="what scaling.py --json wrote")
    flags.add_argument("folder", type=Path, help="where speed-scaling-light.svg and speed-scaling-dark.svg go")
    given = flags.parse_args()
    draw_all(json.loads(given.record.read_text(encoding="utf-8")), given.folder)


def draw_all(record: Record, folder: Path) -> None:
    """A figure for every theme."""
    for name, theme in THEMES.items():
        draw(record, theme, folder / f"speed-scaling-{name}.svg")


def draw(record: Record, theme: Theme, path: Path) -> None:
    """One figure of two panels: time against plans, time against accelerators."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=SIZE, layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08, wspace=0.06))
        FigureCanvasSVG(figure)
        left, right = figure.subplots(1, 2, sharey=True)
        _panel(left, theme, record["by_plans"], x="num_plans", title="More plans: a fixed time, then in proportion")
        _panel(
            right,
            theme,
            record["by_accelerators"],
            x="num_accelerators",
            title="More accelerators: hardly any more time",
        )
        _guide(left, theme, record["by_plans"])
        _axes(left, right, theme)
        handles, labels = left.get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, labelcolor=theme.text
        )
        figure.savefig(path, format="svg", transparent=True, metadata={"Date": None, "Creator": None})


def _panel(axes: Axes, theme: Theme, searches: Iterable[Record], *, x: str, title: str) -> None:
    groups = itertools.groupby(searches, key=lambda search: str(search["model"]))
    for (model, group), colour, marker in zip(groups, theme.lines, MARKERS, strict=False):
        points = list(group)
        axes.loglog(
            [point[x] for point in points],
            [point["search_s"] for point in points],
            color=colour, marker=marker, markersize=4.5, linewidth=1.8, label=model, zorder=3,
        )  # fmt: skip
    axes.set_title(title, loc="left", color=theme.text, fontsize=11, fontweight="bold", pad=10)


def _guide(axes: Axes, theme: Theme, searches: list[Record]) -> None:
    """Time in proportion to plans, through the largest search."""
    largest = max(searches, key=lambda search: int(search["num_plans"]))
    rate = largest["num_plans"] / largest["search_s"]
    plans = [rate * seconds for seconds in (0.05, 10.0)]
    axes.loglog(plans, [0.05, 10.0], color=theme.faint, linestyle=(0, (4, 3)), linewidth=1.2, zorder=2)
    axes.annotate(
        f"in proportion,\n{rate / 1e6:.0f} M plans/s",
        xy=(rate * 0.055, 0.055), xytext=(14, 0), textcoords="offset points",
        color=theme.faint, fontsize=9, va="center",
    )  # fmt: skip


def _axes(left: Axes, right: Axes, theme: Theme) -> None:
    left.set_xlabel("plans evaluated", color=theme.text)
    left.set_ylabel("search time", color=theme.text)
    right.set_xlabel("accelerators", color=theme.text)
    right.xaxis.set_major_locator(FixedLocator([64, 256, 1024, 4096, 16384, 65536]))
    right.xaxis.set_minor_locator(NullLocator())
    left.xaxis.set_major_locator(FixedLocator([10**power for power in (1, 3, 5, 7)]))
    left.xaxis.set_minor_locator(NullLocator())
    left.set_ylim(0.008, 20)
    for axes in (left, right):
        axes.yaxis.set_major_locator(FixedLocator(SECONDS))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} s"))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _count(value)))
        axes.grid(which="major", color=theme.grid, linewidth=0.8)
        axes.tick_params(which="both", length=0, colors=theme.faint)
        axes.set_axisbelow(True)
        for side in axes.spines.values():
            side.set_visible(False)


def _count(value: float) -> str:
    """10, 1,000, 1 M."""
    return f"{value / 1e6:,.0f} M" if value >= 1e6 else f"{value:,.0f}"


if __name__ == "__main__":
    main()
