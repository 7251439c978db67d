"""The whole study of arXiv 2410.00273: what it found, how long it took, its figures, as records."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from operator import itemgetter, methodcaller
from typing import Any, Final

from shardplan.answers.document import NONE, AnswerDocument, Bullets, Column, CommandLine, Line, Part, RowTable, Span
from shardplan.base.fields import dataclass
from shardplan.base.records import plain
from shardplan.base.units import format_count, format_time
from shardplan.methods.subramanian2024.figures import SIZE_CLASSES, Figure, figure, model_over_measured
from shardplan.methods.subramanian2024.inputs import Corrections
from shardplan.methods.subramanian2024.study import Study, StudyEntry, study
from shardplan.plotting.subramanian2024 import STRATEGY_NAMES, label_of, only, values_of

STUDIES: Final = ("subramanian2024",)
"""Methods whose paper's study can be repeated."""
SHOWN_SIZES: Final = (1024, 4096, 16384)
"""Numbers of accelerators in the summary."""
MOST_CELLS: Final = 8
"""Columns and rows of a contour that are shown."""
SHARES: Final = {
    "comp": "compute",
    "tp_comm": "tp",
    "bubble": "bubble",
    "dp_comm": "dp",
    "mem": "memory",
    "pp_comm": "pp",
}
"""Parts of the time in the order in which the paper stacks them."""
NEXT_STEPS: Final = (
    Line("Any figure as a table, or all of them as pages, pictures and tables; one search of it:"),
    CommandLine("shardplan published study subramanian2024 --figure F3"),
    CommandLine("shardplan published study subramanian2024 --out figures"),
    CommandLine("shardplan published subramanian2024 --model gpt3_1T --system B200 --strategy 1d --gpus 4096"),
)

Row = Mapping[str, Any]
Tables = Callable[[Figure, tuple[str, int]], Iterator[Part]]
"""The tables of a figure; the second is the system of F3."""


@dataclass(frozen=True, kw_only=True)
class StudyReport:
    """The study and those of its figures that were asked for."""

    results: Study
    search_time: float
    """Wall time of enumerating, pricing and ranking all candidates. [s]"""
    num_workers: int
    corrected: Corrections
    figures: tuple[Figure, ...]

    @property
    def candidates_per_second(self) -> float:
        """Of the wall time."""
        return self.results.num_candidates / self.search_time

    @property
    def num_searches(self) -> int:
        """Searches: model, strategy and system, each for every number of accelerators."""
        return len(self.results.entries)


def run_study(
    figures: Sequence[str],
    *,
    corrected: Corrections,
    executor: Executor | None = None,
    num_workers: int = 1,
) -> StudyReport:
    """Repeats the study; records of the ``figures`` named. Raises ``UnknownNameError`` for one it does not have."""
    started = time.perf_counter()
    results = study(corrected=corrected, executor=executor)
    search_time = time.perf_counter() - started
    return StudyReport(
        results=results,
        search_time=search_time,
        num_workers=num_workers,
        corrected=corrected,
        figures=tuple(figure(name, results, corrected=corrected) for name in figures),
    )


def study_document(
    report: StudyReport, *, system: tuple[str, int], written: Sequence[str], asked: bool
) -> AnswerDocument:
    """How much was searched, then a summary or the figures that were asked for; of which ``system`` F3 is."""
    results, corrected = report.results, sorted(report.corrected, key=lambda name: int(name[1:]))
    workers = "one worker" if report.num_workers == 1 else f"{report.num_workers} workers"
    rate = f"{format_count(round(report.candidates_per_second))} a second, {workers}"
    searched = f" of {report.num_searches} searches enumerated, priced and ranked in {format_time(report.search_time)}"
    shown = (part for figure in report.figures for part in TABLES[figure.name](figure, system))
    return AnswerDocument(
        name="study",
        head=[
            Line("The study of arXiv 2410.00273", tone="strong"),
            Line("as published" if not corrected else f"corrected: {', '.join(corrected)}", tone="quiet"),
        ],
        verdict=[
            Line((Span(f"{results.num_candidates:,} candidates", "good"), Span(f"{searched} ({rate}).", "strong")))
        ],
        parts=[
            *(shown if asked else _summary(report)),
            *([Part("Written", [Bullets(written)])] if written else []),
            Part("Next steps", NEXT_STEPS),
        ],
        record=lambda: {
            "method": STUDIES[0],
            "corrected": corrected,
            "num_candidates": results.num_candidates,
            "num_searches": report.num_searches,
            "search_time_s": report.search_time,
            "candidates_per_s": report.candidates_per_second,
            "num_workers": report.num_workers,
            "best": [_best(entry, number) for entry in results.entries for number in range(len(entry.best))],
            "figures": plain(report.figures),
        },
    )


def _best(entry: Any, number: int) -> dict[str, Any]:
    """The best configuration of one size, in the columns of the published results."""
    result, record = entry.best[number], entry.best_records[number]
    counts = {"num_candidates": result.num_candidates, "num_fitting": result.num_fitting}
    return {**record, **counts, "training_days": entry.days(result)}


def _summary(report: StudyReport) -> Iterator[Part]:
    """Days to train by model, form of tensor parallelism and system."""
    for model in dict.fromkeys(entry.model for entry in report.results.entries):
        entries = [entry for entry in report.results.entries if entry.model == model and entry.best]
        columns = (
            Column("", "", lambda entry: STRATEGY_NAMES[entry.strategy], is_text=True),
            Column("", "system", lambda entry: f"{entry.system}, {entry.nvs}", is_text=True),
            Column("", "from", lambda entry: entry.best[0].num_gpus, "{:,}".format, rank=1),
            *(
                Column("", f"{size:,}", partial(_days, size), "{:.3f}".format, rank=size == 1024)
                for size in SHOWN_SIZES
            ),
        )
        none = [name for name in STRATEGY_NAMES if not any(entry.strategy == name for entry in entries)]
        nowhere = [Line(f"{STRATEGY_NAMES[name]} fits nowhere.", tone="doubt") for name in none]
        note = "with the best configuration; from: smallest number that holds it"
        yield Part(f"Days to train {model}", [RowTable(entries, columns), *nowhere], note)


def _days(size: int, entry: StudyEntry) -> float | None:
    result = next((result for result in entry.best if result.num_gpus == size), None)
    return None if result is None else entry.days(result)


def _digits(value: float) -> str:
    """Four significant digits at most, none after the point from 1,000 on."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.{max(0, 2 - (value >= 100))}f}"


def _headed(figure: Figure, *notes: Line) -> Part:
    """The heading of a figure."""
    return Part(f"{figure.name}: {figure.title}", notes)


def _by_size(quantity: str, text: Callable[[float], str]) -> Tables:
    """A table of systems against numbers of accelerators for every model and form of tensor parallelism."""

    def parts(figure: Figure, system: tuple[str, int]) -> Iterator[Part]:
        del system
        yield _headed(figure)
        for (model, strategy, over), rows in _groups(figure.rows, quantity).items():
            name = STRATEGY_NAMES[strategy] + (f" over {STRATEGY_NAMES[over]}" if over else "")
            yield Part("", [Line(f"{model}, {name}", tone="strong"), _pivot(rows, quantity, text)])

    return parts


def _groups(rows: Sequence[Row], quantity: str) -> dict[tuple[str, str, str], list[Row]]:
    """Rows with that quantity, by model and form of tensor parallelism, and over which other one."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if row[quantity] is not None:
            groups.setdefault((row["model"], row["strategy"], row.get("over", "")), []).append(row)
    return groups


def _pivot(rows: Sequence[Row], quantity: str, text: Callable[[float], str]) -> RowTable:
    sizes = sorted({row["num_gpus"] for row in rows})
    systems: dict[str, dict[Any, Any]] = {}
    for row in rows:
        systems.setdefault(label_of(row, "{}, {}"), {})[row["num_gpus"]] = row[quantity]
    columns = (
        Column("", "system", itemgetter("system"), is_text=True),
        *(Column("", f"{size:,}", methodcaller("get", size), text, rank=_rank(size, sizes)) for size in sizes),
    )
    found = [{"system": name.removesuffix(", perfect scaling"), **values} for name, values in systems.items()]
    return RowTable(found, columns)


def _rank(size: int, sizes: Sequence[int]) -> int:
    """Where there is too little room every second number goes first, the smallest of the others next."""
    place = len(sizes) - 1 - sizes.index(size)
    return 0 if place == 0 else 100 - place % 2 * 50 + place


def _best_configurations(figure: Figure, system: tuple[str, int]) -> Iterator[Part]:
    """F3, of one system."""
    yield _headed(figure, Line(f"{system[0]} in domains of {system[1]} (--system, --nvs)", tone="quiet"))
    of_system = only(figure.rows, system=system[0], nvs=system[1])
    for model in values_of(figure.rows, "model"):
        for strategy, title in STRATEGY_NAMES.items():
            rows = only(of_system, model=model, strategy=strategy)
            degrees = ("tp", "pp", "dp") if strategy == "1d" else ("tp1", "tp2", "pp", "dp")
            columns = (
                Column("", "accelerators", itemgetter("num_gpus"), "{:,}".format),
                *(Column("", name, itemgetter(name), "{:,}".format) for name in degrees),
                Column("", "micro-b.", itemgetter("num_microbatches"), "{:,}".format, rank=1),
                Column("", "GB", itemgetter("memory_gb"), "{:.2f}".format),
                Column("", "time", itemgetter("time_s"), format_time),
                *(
                    Column("", f"{title} %", itemgetter(f"{name}_frac"), lambda at: f"{100 * at:.1f}", rank=number)
                    for number, (name, title) in enumerate(SHARES.items(), start=2)
                ),
            )
            if rows:
                yield Part("", [Line(f"{model}, {title}", tone="strong"), RowTable(rows, columns)])


def _hand_picked(figure: Figure, system: tuple[str, int]) -> Iterator[Part]:
    """F5."""
    del system
    first = figure.rows[0]
    note = f"{first['num_gpus']:,} {first['system']}, domain {first['nvs']}; seconds"
    yield _headed(figure, Line(note, tone="quiet"))
    for model, strategy in dict.fromkeys((row["model"], row["strategy"]) for row in figure.rows):
        rows = only(figure.rows, model=model, strategy=strategy)
        tensor = ("tp",) if rows[0]["tp1"] is None else ("tp1", "tp2")
        columns = (
            Column("", "", itemgetter("configuration"), is_text=True),
            *(Column("", name, itemgetter(name), "{:,}".format) for name in (*tensor, "pp")),
            Column("", "dp", itemgetter("dp"), "{:,}".format, rank=7),
            Column("", "time", itemgetter("time_s"), "{:.2f}".format),
            Column("", "GB", itemgetter("memory_gb"), "{:.1f}".format),
            *(
                Column("", title, itemgetter(f"t_{name}_s"), "{:.2f}".format, rank=number)
                for number, (name, title) in enumerate(SHARES.items(), start=1)
            ),
        )
        yield Part("", [Line(f"{model}, {STRATEGY_NAMES[strategy]}", tone="strong"), RowTable(rows, columns)])


def _contour(x: str, y: str, x_title: str, y_title: str) -> Tables:
    """Days on a grid, thinned out, and the points of systems."""

    def parts(figure: Figure, system: tuple[str, int]) -> Iterator[Part]:
        del system
        cells = only(figure.rows, system=None)
        days = [row["days"] for row in cells if row["days"] is not None]
        points = [f"{row['system']} {row['days']:.2f}" for row in figure.rows if row["system"] is not None]
        yield _headed(
            figure,
            Line("gpt3_1T, 1D, 8,192 accelerators", tone="quiet"),
            Line(f"{min(days):.2f} to {max(days):.2f} days; {', '.join(points)}"),
        )
        across, down = (_thinned(sorted({row[name] for row in cells})) for name in (x, y))
        days_at = {height: {row[x]: row["days"] for row in cells if row[y] == height} for height in down}
        columns = (
            Column("", "", itemgetter(0), "{:,.0f}".format),
            *(
                Column("", f"{at:,.0f}", lambda row: row[1], partial(_cell, at), rank=_contour_rank(place, len(across)))
                for place, at in enumerate(across)
            ),
        )
        yield Part(
            "", [Line(f"{y_title} down, {x_title} across", tone="quiet"), RowTable(list(days_at.items()), columns)]
        )

    return parts


def _cell(at: float, days: Mapping[float, float | None]) -> str:
    value = days.get(at)
    return NONE if value is None else _digits(value)


def _contour_rank(place: int, count: int) -> int:
    """The ends stay; of the others every second one goes first."""
    return 0 if place in (0, count - 1) else 1 + place % 2


def _thinned(values: Sequence[float]) -> list[float]:
    """Some of them, first and last among these."""
    if len(values) <= MOST_CELLS:
        return list(values)
    step = (len(values) - 1) / (MOST_CELLS - 1)
    return [values[round(place * step)] for place in range(MOST_CELLS)]


def _collectives(figure: Figure, system: tuple[str, int]) -> Iterator[Part]:
    """F8: medians of modelled over measured time."""
    del system
    medians = list(model_over_measured(figure.rows))
    groups: dict[tuple[str, int, str], dict[str, float]] = {}
    for row in medians:
        groups.setdefault((row["collective"], row["gpus_per_node"], row["nodes"]), {})[row["size"]] = row["median"]
    rows = [(*group, of_size) for group, of_size in groups.items()]
    columns = (
        Column("", "collective", lambda row: row[0].replace("_", "-"), is_text=True),
        Column("", "of a node", itemgetter(1)),
        Column("", "nodes", itemgetter(2), is_text=True),
        *(
            Column("", size, lambda row: row[3], partial(_median, size), rank=number)
            for number, size in enumerate(SIZE_CLASSES)
        ),
    )
    head = _headed(
        figure,
        Line(f"{len(figure.rows):,} measurements on Perlmutter, 2 to 512 A100", tone="quiet"),
        Line("Median of modelled over measured time; below 1 the model is too fast", tone="quiet"),
    )
    yield head._replace(blocks=[*head.blocks, RowTable(rows, columns)])


def _median(size: str, medians: Mapping[str, float]) -> str:
    return f"{medians[size]:.2f}"


TABLES: Final[dict[str, Tables]] = {
    "F1": _by_size("days", _digits),
    "F2": _by_size("relative", _digits),
    "F3": _best_configurations,
    "F4": _by_size("ratio", "{:.3f}".format),
    "F5": _hand_picked,
    "F6": _contour("hbm_gb", "hbm_gb_per_s", "memory capacity [GB]", "bandwidth [GB/s]"),
    "F7": _contour("matrix_tflop_per_s", "hbm_gb", "matrix rate [TFLOP/s]", "memory capacity [GB]"),
    "F8": _collectives,
}
