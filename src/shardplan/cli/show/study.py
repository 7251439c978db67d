"""The study of arXiv 2410.00273 as text: how much was searched in what time, and the figures as tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from rich.text import Text

from shardplan.cli.layout import Column, Page
from shardplan.plotting.subramanian2024 import STRATEGY_NAMES
from shardplan.published.subramanian2024.figures import SIZE_CLASSES, Figure, model_over_measured
from shardplan.published.subramanian2024.study import StudyEntry
from shardplan.reports.methods.study import StudyReport
from shardplan.units import format_count, format_time

Row = Mapping[str, Any]

SHOWN_SIZES: Final = (1024, 4096, 16384)
"""Numbers of accelerators in the summary."""
MOST_CELLS: Final = 8
"""Columns and rows of a contour that are shown."""
SHARES: Final = {
    "comp_frac": "compute",
    "tp_comm_frac": "tp",
    "bubble_frac": "bubble",
    "dp_comm_frac": "dp",
    "mem_frac": "memory",
    "pp_comm_frac": "pp",
}
PARTS: Final = {
    "t_comp_s": "compute",
    "t_tp_comm_s": "tp",
    "t_bubble_s": "bubble",
    "t_dp_comm_s": "dp",
    "t_mem_s": "memory",
    "t_pp_comm_s": "pp",
}


def show_study(
    page: Page, report: StudyReport, *, system: tuple[str, int], written: Sequence[str], asked: bool
) -> None:
    """How much was searched, then a summary or the figures that were asked for."""
    corrected = ", ".join(sorted(report.corrected, key=lambda name: int(name[1:])))
    page.line("The study of arXiv 2410.00273", style="bold", indent=0)
    page.line("as published" if not corrected else f"corrected: {corrected}", style="dim", indent=0)
    page.console.print()
    workers = "one worker" if report.num_workers == 1 else f"{report.num_workers} workers"
    verdict = Text(f"{report.results.num_candidates:,} candidates", style="bold green")
    verdict.append(
        f" of {report.num_searches} searches enumerated, priced and ranked in {format_time(report.search_time)} "
        f"({format_count(round(report.candidates_per_second))} a second, {workers}).",
        style="bold",
    )
    page.line(verdict, indent=0)
    if asked:
        for figure in report.figures:
            TABLES[figure.name](page, figure, system)
    else:
        _show_summary(page, report)
    if written:
        page.heading("Written")
        page.bullets(written)
    page.heading("Next steps")
    page.line("Any figure as a table, or all of them as pages, pictures and tables; one search of it:")
    page.verbatim("shardplan study subramanian2024 --figure F3")
    page.verbatim("shardplan study subramanian2024 --out figures")
    page.verbatim("shardplan published subramanian2024 --model gpt3_1T --system B200 --strategy 1d --gpus 4096")


def _show_summary(page: Page, report: StudyReport) -> None:
    """Days to train by model, form of tensor parallelism and system."""
    for model in dict.fromkeys(entry.model for entry in report.results.entries):
        page.heading(f"Days to train {model}", "with the best configuration; from: smallest number that holds it")
        entries = [entry for entry in report.results.entries if entry.model == model and entry.best]
        none = [
            STRATEGY_NAMES[name]
            for name in STRATEGY_NAMES
            if not any(entry.strategy == name for entry in entries)
        ]  # fmt: skip
        page.table(
            [
                Column(title="", cells=[STRATEGY_NAMES[entry.strategy] for entry in entries], is_text=True),
                Column(title="system", cells=[f"{entry.system}, {entry.nvs}" for entry in entries], is_text=True),
                Column(title="from", cells=[f"{entry.best[0].num_gpus:,}" for entry in entries], rank=1),
                *(
                    Column(title=f"{size:,}", cells=[_days(entry, size) for entry in entries], rank=size == 1024)
                    for size in SHOWN_SIZES
                ),
            ]
        )
        for name in none:
            page.line(f"{name} fits nowhere.", style="yellow")


def _days(entry: StudyEntry, size: int) -> str:
    result = next((result for result in entry.best if result.num_gpus == size), None)
    days = None if result is None else entry.days(result)
    return "-" if days is None else f"{days:.3f}"


def _digits(value: float | None) -> str:
    """Four significant digits at most, none after the point from 1,000 on."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.{max(0, 2 - (value >= 100))}f}"


def _system_name(row: Row) -> str:
    return str(row["system"]) if row["nvs"] is None else f"{row['system']}, {row['nvs']}"


def _heading(page: Page, figure: Figure, note: str = "") -> None:
    page.heading(f"{figure.name}: {figure.title}")
    if note:
        page.line(note, style="dim")


def _by_size(quantity: str, text: Callable[[float | None], str]) -> Callable[[Page, Figure, tuple[str, int]], None]:
    """A table of systems against numbers of accelerators for every model and form of tensor parallelism."""

    def show(page: Page, figure: Figure, system: tuple[str, int]) -> None:
        del system
        groups: dict[tuple[str, ...], list[Row]] = {}
        for row in figure.rows:
            if row[quantity] is not None:
                groups.setdefault((row["model"], row["strategy"], row.get("over", "")), []).append(row)
        _heading(page, figure)
        for (model, strategy, over), rows in groups.items():
            name = STRATEGY_NAMES[strategy] + (f" over {STRATEGY_NAMES[over]}" if over else "")
            page.console.print()
            page.line(f"{model}, {name}", style="bold")
            _pivot(page, rows, quantity, text)

    return show


def _pivot(page: Page, rows: Sequence[Row], quantity: str, text: Callable[[float | None], str]) -> None:
    names = list(dict.fromkeys(_system_name(row) for row in rows))
    sizes = sorted({row["num_gpus"] for row in rows})
    values = {(_system_name(row), row["num_gpus"]): row[quantity] for row in rows}
    page.table(
        [
            Column(title="system", cells=[name.removesuffix(", perfect scaling") for name in names], is_text=True),
            *(
                Column(
                    title=f"{size:,}", cells=[text(values.get((name, size))) for name in names], rank=_rank(size, sizes)
                )
                for size in sizes
            ),
        ]
    )


def _rank(size: int, sizes: Sequence[int]) -> int:
    """Where there is too little room every second number goes first, the smallest of the others next."""
    place = len(sizes) - 1 - sizes.index(size)
    return 0 if place == 0 else 100 - place % 2 * 50 + place


def _show_configurations(page: Page, figure: Figure, system: tuple[str, int]) -> None:
    """F3, of one system."""
    _heading(page, figure, f"{system[0]} in domains of {system[1]} (--system, --nvs)")
    for model in dict.fromkeys(row["model"] for row in figure.rows):
        for strategy, title in STRATEGY_NAMES.items():
            wanted = {"model": model, "strategy": strategy, "system": system[0], "nvs": system[1]}
            rows = [row for row in figure.rows if wanted.items() <= row.items()]
            if not rows:
                continue
            page.console.print()
            page.line(f"{model}, {title}", style="bold")
            degrees = ("tp", "pp", "dp") if strategy == "1d" else ("tp1", "tp2", "pp", "dp")
            page.table(
                [
                    Column(title="accelerators", cells=[f"{row['num_gpus']:,}" for row in rows]),
                    *(Column(title=name, cells=[f"{row[name]:,}" for row in rows]) for name in degrees),
                    Column(title="micro-b.", cells=[f"{row['num_microbatches']:,}" for row in rows], rank=1),
                    Column(title="GB", cells=[f"{row['memory_gb']:.2f}" for row in rows]),
                    Column(title="time", cells=[format_time(row["time_s"]) for row in rows]),
                    *(
                        Column(title=f"{title} %", cells=[f"{100 * row[name]:.1f}" for row in rows], rank=number)
                        for number, (name, title) in enumerate(SHARES.items(), start=2)
                    ),
                ]
            )


def _show_hand_picked(page: Page, figure: Figure, system: tuple[str, int]) -> None:
    """F5."""
    del system
    first = figure.rows[0]
    _heading(page, figure, f"{first['num_gpus']:,} {first['system']}, domain {first['nvs']}; seconds")
    for model, strategy in dict.fromkeys((row["model"], row["strategy"]) for row in figure.rows):
        rows = [row for row in figure.rows if (row["model"], row["strategy"]) == (model, strategy)]
        page.console.print()
        page.line(f"{model}, {STRATEGY_NAMES[strategy]}", style="bold")
        tensor = ("tp",) if rows[0]["tp1"] is None else ("tp1", "tp2")
        page.table(
            [
                Column(title="", cells=[row["configuration"] for row in rows], is_text=True),
                *(Column(title=name, cells=[f"{row[name]:,}" for row in rows]) for name in (*tensor, "pp")),
                Column(title="dp", cells=[f"{row['dp']:,}" for row in rows], rank=7),
                Column(title="time", cells=[f"{row['time_s']:.2f}" for row in rows]),
                Column(title="GB", cells=[f"{row['memory_gb']:.1f}" for row in rows]),
                *(
                    Column(title=title, cells=[f"{row[name]:.2f}" for row in rows], rank=number)
                    for number, (name, title) in enumerate(PARTS.items(), start=1)
                ),
            ]
        )


def _contour(x: str, y: str, x_title: str, y_title: str) -> Callable[[Page, Figure, tuple[str, int]], None]:
    """Days on a grid, thinned out, and the points of systems."""

    def show(page: Page, figure: Figure, system: tuple[str, int]) -> None:
        del system
        cells = [row for row in figure.rows if row["system"] is None]
        days = [row["days"] for row in cells if row["days"] is not None]
        points = [f"{row['system']} {row['days']:.2f}" for row in figure.rows if row["system"] is not None]
        _heading(page, figure, "gpt3_1T, 1D, 8,192 accelerators")
        page.line(f"{min(days):.2f} to {max(days):.2f} days; {', '.join(points)}")
        columns, rows = (_thinned(sorted({row[name] for row in cells})) for name in (x, y))
        values = {(row[x], row[y]): row["days"] for row in cells}
        page.console.print()
        page.line(f"{y_title} down, {x_title} across", style="dim")
        page.table(
            [
                Column(title="", cells=[f"{height:,.0f}" for height in rows]),
                *(
                    Column(
                        title=f"{at:,.0f}",
                        cells=[_digits(values.get((at, height))) for height in rows],
                        rank=0 if place in (0, len(columns) - 1) else 1 + place % 2,
                    )
                    for place, at in enumerate(columns)
                ),
            ]
        )

    return show


def _thinned(values: Sequence[float]) -> list[float]:
    """Some of them, first and last among these."""
    if len(values) <= MOST_CELLS:
        return list(values)
    step = (len(values) - 1) / (MOST_CELLS - 1)
    return [values[round(place * step)] for place in range(MOST_CELLS)]


def _show_collectives(page: Page, figure: Figure, system: tuple[str, int]) -> None:
    """F8: medians of modelled over measured time."""
    del system
    _heading(page, figure, f"{len(figure.rows):,} measurements on Perlmutter, 2 to 512 A100")
    page.line("Median of modelled over measured time; below 1 the model is too fast", style="dim")
    medians = list(model_over_measured(figure.rows))
    groups = list(dict.fromkeys((row["collective"], row["gpus_per_node"], row["nodes"]) for row in medians))
    found = {(row["collective"], row["gpus_per_node"], row["nodes"], row["size"]): row["median"] for row in medians}
    page.table(
        [
            Column(title="collective", cells=[group[0].replace("_", "-") for group in groups], is_text=True),
            Column(title="of a node", cells=[str(group[1]) for group in groups]),
            Column(title="nodes", cells=[group[2] for group in groups], is_text=True),
            *(
                Column(title=size, cells=[f"{found[(*group, size)]:.2f}" for group in groups], rank=number)
                for number, size in enumerate(SIZE_CLASSES)
            ),
        ]
    )


TABLES: Final[dict[str, Callable[[Page, Figure, tuple[str, int]], None]]] = {
    "F1": _by_size("days", _digits),
    "F2": _by_size("relative", _digits),
    "F3": _show_configurations,
    "F4": _by_size("ratio", lambda value: "-" if value is None else f"{value:.3f}"),
    "F5": _show_hand_picked,
    "F6": _contour("hbm_gb", "hbm_gb_per_s", "memory capacity [GB]", "bandwidth [GB/s]"),
    "F7": _contour("matrix_tflop_per_s", "hbm_gb", "matrix rate [TFLOP/s]", "memory capacity [GB]"),
    "F8": _show_collectives,
}
