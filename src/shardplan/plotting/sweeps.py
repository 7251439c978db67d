"""Results of a sweep as a chart: one quantity against another, a colour and a panel for each value of a field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from shardplan.base.errors import InputError, UnknownNameError, shown
from shardplan.base.fields import dataclass
from shardplan.decide.sweeps.folder import open_folder
from shardplan.inputs.words import field_meant
from shardplan.plotting.chart import PALETTE, SECOND_PALETTE, Axis, Chart, Marker, Panel, Scale, Series

COLOURS: Final = (*PALETTE[:6], PALETTE[7], *SECOND_PALETTE)
MOST_PANELS: Final = 24
WIDE: Final = 8.0
"""Ratio of the largest to the smallest value above which an axis is logarithmic."""
SHOWN_UNITS: Final = {
    "_bytes_per_s": (1e9, "GB/s"),
    "_bytes": (1e9, "GB"),
    "_flops_per_s": (1e12, "TFLOP/s"),
    "_s": (1, "s"),
}
"""Displayed units of columns by the end of their name: their size in SI units, and their name."""

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class SweepPlot:
    """What to draw of a sweep."""

    x: str
    y: str
    colour: str | None = None
    facet: str | None = None


def read_results(path: Path) -> tuple[list[Row], tuple[str, ...]]:
    """Rows of a finished sweep in its folder, and the columns that its grid varies. Raises InputError."""
    folder = open_folder(path)
    if not folder.results.exists():
        raise InputError(
            f"the sweep in '{path}' is not complete: {folder.num_done:,} of {folder.grid.num_questions:,} questions",
            rule="a sweep that is drawn is complete",
            hint=f"shardplan sweep --out {path} --resume",
        )
    varied = {name for axis in folder.grid.axes if len(axis.values) > 1 for name in axis.fields}
    columns = tuple(field.column for field in folder.grid.fields if field.name in varied)
    return folder.table().to_dicts(), columns


def column_meant(name: str, columns: Sequence[str]) -> str:
    """The column called ``name``: by its own name, without its unit, or by another name of the field."""
    wanted = name.removeprefix("--").replace("-", "_").lower()
    for each in (wanted, field_meant(wanted) or wanted):
        found = [column for column in columns if column == each or column in {f"{each}{unit}" for unit in SHOWN_UNITS}]
        if found:
            return found[0]
    raise UnknownNameError("column", name[:60], columns, hint="columns are fields of the grid and of the plan")


def sweep_chart(rows: Sequence[Row], varied: Sequence[str], plot: SweepPlot, *, where: Mapping[str, str]) -> Chart:
    """The chart. Raises InputError for unknown columns, and if several rows share a place in it."""
    columns = [*rows[0]] if rows else []
    x, y = column_meant(plot.x, columns), column_meant(plot.y, columns)
    colour, facet = (None if name is None else column_meant(name, columns) for name in (plot.colour, plot.facet))
    chosen = _chosen(rows, {column_meant(name, columns): value for name, value in where.items()})
    kept = [row for row in chosen if row[x] is not None and _is_number(row[y])]
    _check_places(kept, varied, [name for name in (x, colour, facet) if name is not None])
    groups = _values(kept, facet)
    if len(groups) > MOST_PANELS:
        raise InputError(f"{facet} has {len(groups)} values", rule=f"at most {MOST_PANELS} panels", hint="add --where")
    names = dict(zip(_values(kept, colour), COLOURS * (len(kept) + 1), strict=False))
    panels = tuple(_panel(kept, x, y, (colour, names), (facet, group)) for group in groups)
    lost = len(chosen) - len(kept)
    return Chart(
        name="sweep",
        title=f"{_title(y)} against {_title(x)}",
        panels=panels,
        num_columns=min(len(panels), 3),
        note="The plan of every question. Dashed: a tenth of comparable measured runs lie beyond. Computed by "
        f"shardplan.{f' Questions without a value here: {lost:,}.' if lost else ''}",
        panel_size=(620, 420) if len(panels) == 1 else (420, 320),
    )


def _panel(
    rows: Sequence[Row], x: str, y: str, colour: tuple[str | None, Mapping[Any, str]], facet: tuple[str | None, Any]
) -> Panel:
    names = {value: "" if colour[0] is None else _text(colour[0], value) for value in colour[1]}
    inside = [row for row in rows if facet[0] is None or row[facet[0]] == facet[1]]
    series = [
        each
        for value, drawn in colour[1].items()
        for each in _series(
            [row for row in inside if colour[0] is None or row[colour[0]] == value], x, y, names[value], drawn
        )
    ]
    return Panel(
        title="" if facet[0] is None else _text(facet[0], facet[1]),
        x=_axis(x, [value for each in series for value in each.x]),
        y=_axis(y, [value for each in series for value in each.y]),
        series=tuple(series),
    )


def _series(rows: Sequence[Row], x: str, y: str, name: str, colour: str) -> Iterator[Series]:
    """One line, and those of its band if there is one."""
    if not rows:
        return
    if all(_is_number(row[x]) for row in rows):
        rows = sorted(rows, key=lambda row: row[x])
    at = [row[x] / _unit(x)[0] if _is_number(row[x]) else str(row[x]) for row in rows]
    stem = next((y.removesuffix(unit) for unit in SHOWN_UNITS if y.endswith(unit)), y)
    for column, is_band in ((y, False), *((y.replace(stem, f"{stem}_{tenth}", 1), True) for tenth in ("p10", "p90"))):
        if column in rows[0]:
            values = [row[column] / _unit(y)[0] for row in rows]
            legend = "" if is_band else name
            marker: Marker = "none" if is_band else "circle"
            yield Series(name=legend, x=at, y=values, colour=colour, marker=marker, is_dashed=is_band)


def _chosen(rows: Sequence[Row], where: Mapping[str, str]) -> list[Row]:
    """Rows with these values. Raises InputError if there are none."""
    found = [row for row in rows if all(_is_value(name, row[name], text) for name, text in where.items())]
    if not found:
        values = "; ".join(f"{name}: {', '.join(_texts(rows, name)[:12])}" for name in where)
        raise InputError("no row has the values of --where", rule="--where chooses rows", hint=values)
    return found


def _is_value(column: str, value: Any, text: str) -> bool:
    if not _is_number(value):
        return str(value) == text
    try:
        number = float(text)
    except ValueError:
        return False
    return any(abs(value - number * unit) <= 1e-9 * abs(value) for unit in (1.0, _unit(column)[0]))


def _check_places(rows: Sequence[Row], varied: Sequence[str], drawn: Sequence[str]) -> None:
    """Refuses to draw several rows at one place. Raises InputError."""
    if not rows:
        raise InputError("no row has a value to draw", rule="a chart has points", hint="choose other columns or rows")
    places = {tuple(row[name] for name in drawn) for row in rows}
    if len(places) < len(rows):
        others = [name for name in varied if name not in drawn and len(_texts(rows, name)) > 1]
        listed = "; ".join(
            f"--where {name}={_texts(rows, name)[0]} (or {', '.join(_texts(rows, name)[1:6])})" for name in others
        )
        raise InputError(
            f"{len(rows):,} rows share {len(places):,} places: {', '.join(others)} vary too",
            rule="every row has a place of its own in the chart",
            hint=f"draw them by --colour or --facet, or choose one value: {listed}",
        )


def _values(rows: Sequence[Row], column: str | None) -> list[Any]:
    found = [None] if column is None else [*dict.fromkeys(row[column] for row in rows)]
    return sorted(found) if all(_is_number(value) for value in found) else found


def _texts(rows: Sequence[Row], column: str) -> list[str]:
    found = _values(rows, column)
    return [f"{value / _unit(column)[0]:g}" if _is_number(value) else str(value) for value in found]


def _text(column: str, value: Any) -> str:
    if not _is_number(value):
        return str(value)
    size, unit = _unit(column)
    return f"{_stem(column)} {value / size:g} {unit}".strip()


def _unit(column: str) -> tuple[float, str]:
    return next((shown for end, shown in SHOWN_UNITS.items() if column.endswith(end)), (1.0, ""))


def _stem(column: str) -> str:
    stem = next((column.removesuffix(end) for end in SHOWN_UNITS if column.endswith(end)), column)
    return "accelerators" if stem == "num_accelerators" else stem.replace("_", " ")


def _title(column: str) -> str:
    unit = _unit(column)[1]
    return f"{_stem(column)} [{unit}]" if unit else _stem(column)


def _axis(column: str, values: Sequence[Any]) -> Axis:
    return Axis(title=_title(column), scale=_scale(values))


def _scale(values: Sequence[Any]) -> Scale:
    if any(not _is_number(value) for value in values):
        return "names"
    least, most = min(values, default=0), max(values, default=0)
    if least <= 0 or most / least < WIDE:
        return "linear"
    return "log2" if most / least < 1000 else "log10"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def assignments(texts: Sequence[str]) -> dict[str, str]:
    """``field=value`` by field. Raises InputError."""
    for text in texts:
        if not all(part.strip() for part in text.partition("=")):
            raise InputError(
                f"--where is {shown(text)}; it takes FIELD=VALUE",
                rule="--where takes FIELD=VALUE",
                hint="--where memory=80",
            )
    return {text.partition("=")[0].strip(): text.partition("=")[2].strip() for text in texts}
