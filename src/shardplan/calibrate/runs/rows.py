"""Measured training runs: one row of a CSV file each, from published sources or from users.

An empty cell means that the source does not say. :mod:`shardplan.calibrate.runs.columns` declares the cells;
:mod:`shardplan.calibrate.runs.questions` makes plans of them.

A team is everything that one group published, across families, releases and models. Its runs share machines, software
and habits, so only constants that have seen none of a team's runs show what a new user may expect. A family that is not
in the table, such as one of a user's own file, is a team of its own.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass, given_fields
from shardplan.base.files import DATA, FileKind, read_document, read_text
from shardplan.calibrate.runs.cells import RowCell, Taken
from shardplan.calibrate.runs.columns import COLUMNS, MEMORIES, SEPARATORS, TIMES, header_of, separator_of

SHIPPED_RUNS: Final = DATA / "measured_runs" / "runs.csv"
RUNS: Final = FileKind(
    "the file of measured runs",
    32 * 2**20,
    "measured runs come in a CSV file with a header and a row for each run",
    "give CSV in UTF-8, as spreadsheets export it (in Excel: File, Save As, CSV UTF-8); `shardplan calibrate "
    "--template` prints a file to start from",
)
MOST_ROWS: Final = 50_000
RAN: Final = "ran"
OUT_OF_MEMORY: Final = "oom"
MOST_APART: Final = 0.05
"""Share by which two figures of one quantity may differ, since they are rounded, and averaged separately."""
LONGEST_CELL: Final = 4000
LONGEST_STEM: Final = 40


@dataclass(frozen=True, kw_only=True)
class MeasuredRun:
    """One measured training run: its columns (``COLUMNS`` says what each means), in SI units.

    None or an empty text: not stated.
    """

    id: str
    line: int
    """Line of the file on which the row ends."""
    folder: Path = field(repr=False)
    """Folder of the file; ``model`` is relative to it."""
    family: str
    source: str = field(repr=False)
    tier: str
    framework: str
    model: str
    accelerator: str
    num_accelerators: int
    scale_up_size: int | None
    inter_node_bandwidth: float | None
    """Bandwidth between nodes. [bytes/s]"""
    precision: str | None
    grad_dtype: str | None
    attention: str | None
    sequence_length: int
    global_batch_size: int
    micro_batch_size: int | None
    tp: int | None
    pp: int | None
    cp: int | None
    ep: int | None
    etp: int | None
    vp: int | None
    sharding: str | None
    sharding_degree: int | None
    sequence_parallel: bool | None
    recompute: str
    offload: str
    options: Mapping[str, str]
    step_time: float | None
    """Time of one step. [s]"""
    step_time_from: str
    peak_memory_bytes: float | None
    memory_kind: str
    notes: str = field(repr=False)
    software_date: str = ""
    result: str = ""
    dp: int | None = None
    flop_rate: float | None = None
    """Rate, if no time is stated. [FLOP/s]"""
    unknown: tuple[str, ...] = ()
    """Unknown columns of the file in which the row has a value."""
    taken: Mapping[str, Taken] = field(default_factory=dict)
    """Cells whose value has another name in the file, by column."""

    @property
    def ran(self) -> bool:
        """Whether it fitted in memory."""
        return self.result != OUT_OF_MEMORY


@dataclass(frozen=True, kw_only=True)
class UnreadableRun:
    """A row with a cell that cannot be read, and its readable values."""

    id: str
    """Name of the row, or its line if it has none."""
    line: int
    """Line of the file on which the row ends."""
    family: str
    tier: str
    step_time: float | None
    """Measured time of one optimizer step. [s]"""
    peak_memory_bytes: float | None
    """Measured peak of one accelerator. [bytes]"""
    result: str
    """How it ended, if that can be read."""
    errors: tuple[InputError, ...]
    """The error of each bad cell."""

    @property
    def error(self) -> InputError:
        """The first of them."""
        return self.errors[0]


@dataclass(frozen=True, kw_only=True)
class RunTable:
    """Rows of a file, in order."""

    runs: tuple[MeasuredRun, ...]
    unreadable: tuple[UnreadableRun, ...] = ()
    taken: tuple[str, ...] = ()
    """Notes on the whole file: columns that are read as others, and its separator."""


def read_runs(path: str | os.PathLike[str]) -> tuple[MeasuredRun, ...]:
    """Every run of a file of the measured-runs format, in order. Raises ``InputError`` for the first bad cell."""
    table = read_table(path)
    for row in table.unreadable:
        raise row.error
    return table.runs


def read_table(path: str | os.PathLike[str]) -> RunTable:
    """Rows of a file of the measured-runs format; rows with a bad cell are returned separately.

    Raises ``InputError`` if the file is no such table: no CSV, another separator, a missing column.
    """
    place = Path(path)
    text, label = read_text(place, RUNS), str(place)
    sign = separator_of(text, label)
    try:
        table = list(_numbered_rows(text, sign))
    except csv.Error as error:
        raise _bad_file(label, f"is not CSV: {error}") from None
    if not table:
        raise _bad_file(label, "is empty")
    header = header_of([name.strip() for name in table[0][1]], label)
    rows = [_row_of(header.columns, cells, line, place) for line, cells in table[1:] if any(map(str.strip, cells))]
    if not rows:
        raise _bad_file(label, "has a header and no rows")
    first: dict[str, int] = {}  # the first row with each id; later ones could not be told from it
    rows = [
        row if first.setdefault(row.id, row.line) == row.line else _repeated(row, first[row.id], label) for row in rows
    ]
    separated = () if sign == "," else (f"columns are separated by {SEPARATORS[sign]}",)
    named = () if "id" in header.columns else ("rows are named by their lines: there is no column id",)
    return RunTable(
        runs=tuple(row for row in rows if isinstance(row, MeasuredRun)),
        unreadable=tuple(row for row in rows if isinstance(row, UnreadableRun)),
        taken=(*separated, *header.taken, *named),
    )


@cache
def shipped_runs() -> tuple[MeasuredRun, ...]:
    """The published runs that ship with shardplan."""
    return read_runs(SHIPPED_RUNS)


def _bad_file(label: str, what: str) -> InputError:
    return InputError(f"{label} {what}", rule=RUNS.rule, hint=RUNS.hint)


def _numbered_rows(text: str, sign: str) -> Iterable[tuple[int, list[str]]]:
    """Every row with the line on which it ends."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=sign)
    for cells in reader:
        if reader.line_num > MOST_ROWS:
            raise csv.Error(f"more than {MOST_ROWS:,} lines")
        yield reader.line_num, cells


def _repeated(row: MeasuredRun | UnreadableRun, first: int, label: str) -> UnreadableRun:
    error = InputError(
        f"{label}, line {row.line}: id '{row.id:.80}' is in line {first} already",
        rule="every run has an id of its own",
        hint="rename one of the two",
    )
    if isinstance(row, UnreadableRun):
        return replace(row, errors=(error, *row.errors))
    kept = {name: getattr(row, name) for name in given_fields(UnreadableRun) if name != "errors"}
    return UnreadableRun(**kept, errors=(error,))


def _row_of(header: Sequence[str], cells: list[str], line: int, path: Path) -> MeasuredRun | UnreadableRun:
    """A row, or everything that is wrong with it."""
    stated = {name: cell.strip() for name, cell in zip(header, cells, strict=False)}
    if "id" not in header:
        stated["id"] = f"{path.stem[:LONGEST_STEM]}, line {line}"

    def cell(column: str) -> RowCell:
        text = stated.get(column, "")
        found = RowCell(path, line, stated.get("id", ""), column, text, COLUMNS[column].is_required)
        if len(text) > LONGEST_CELL:
            raise replace(found, text=text[:40] + " ...").wrong(f"at most {LONGEST_CELL} characters")
        return found

    if len(cells) > len(header):
        error = InputError(
            f"{path}, line {line}: {len(cells)} cells for {len(header)} columns",
            rule="a row has a cell for each column",
            hint="quote cells that contain commas",
        )
        return _unreadable(stated, line, path, [error])
    read: dict[str, Any] = {}
    wrong: list[InputError] = []
    for name, column in COLUMNS.items():
        try:
            read[name] = column.read(cell(name)) if column.is_required or stated.get(name) else column.kind.empty
        except InputError as error:
            wrong.append(error)
    taken = {name: value for name, value in read.items() if isinstance(value, Taken)}
    values = read | {name: value.value for name, value in taken.items()}
    try:
        values |= {} if wrong else _measured(values, cell)
    except InputError as error:
        wrong.append(error)
    if wrong:
        return _unreadable(stated, line, path, wrong)
    fields = {column.field: values[name] for name, column in COLUMNS.items() if column.field}
    unknown = tuple(name for name, text in stated.items() if name and name not in COLUMNS and text)
    return MeasuredRun(line=line, folder=path.parent, unknown=unknown, taken=taken, **fields)


def _unreadable(stated: Mapping[str, str], line: int, path: Path, errors: Sequence[InputError]) -> UnreadableRun:
    """The readable values of a row, for the list of skipped rows."""

    def readable(column: str) -> Any:
        try:
            value = COLUMNS[column].read(RowCell(path, line, "", column, stated.get(column, "")))
        except InputError:
            return None
        return value.value if isinstance(value, Taken) else value

    return UnreadableRun(
        id=stated.get("id", "")[:LONGEST_CELL] or f"line {line}",
        line=line,
        family=readable("family"),
        tier=readable("tier") or "",
        step_time=readable("step_time_s"),
        peak_memory_bytes=readable("peak_memory_gb"),
        result=readable("result") or "",
        errors=tuple(errors),
    )


def _measured(values: Mapping[str, Any], cell: Callable[[str], RowCell]) -> dict[str, Any]:
    """The measurements of a row: a step time or a rate that gives one, a peak memory, or that memory was full.

    Raises ``InputError`` if two cells contradict each other, or if nothing is stated.
    """
    stated = [name for name in (*TIMES, *MEMORIES) if values[name] is not None]
    if values["result"] == OUT_OF_MEMORY and stated:
        raise cell(stated[0]).wrong(f"empty where the result is {OUT_OF_MEMORY}")
    if values["result"] != OUT_OF_MEMORY and not stated:
        raise cell("step_time_s").wrong(
            "given where peak_memory_gb is not (or a rate such as tokens_per_second), unless the result is "
            f"{OUT_OF_MEMORY}"
        )
    tokens = values["sequence_length"] * values["global_batch_size"]
    total, each = values["tokens_per_second"], values["tokens_per_second_per_accelerator"]
    times = {
        "step_time_s": values["step_time_s"],
        "step_time_ms": values["step_time_ms"],
        "tokens_per_second": total and tokens / total,
        "tokens_per_second_per_accelerator": each and tokens / (each * values["num_accelerators"]),
    }
    step_time, named = _only_value(times, cell)
    memory, _ = _only_value({name: values[name] for name in MEMORIES}, cell)
    rate = None if step_time is not None else values["tflops_per_accelerator"]
    how = "tokens" if named.startswith("tokens") else "flops" if rate is not None else ""
    return {
        "step_time_s": step_time,
        "peak_memory_gb": memory,
        "tflops_per_accelerator": rate,
        "step_time_from": values["step_time_from"] or how,
    }


def _only_value(found: Mapping[str, float | None], cell: Callable[[str], RowCell]) -> tuple[float | None, str]:
    """The first value, and its column. Raises ``InputError`` if another one contradicts it."""
    stated = {name: value for name, value in found.items() if value}
    if not stated:
        return None, ""
    first, *others = stated
    for other in others:
        if abs(stated[other] / stated[first] - 1) > MOST_APART:
            raise cell(other).wrong(f"what {first} says: {stated[other]:.4g} against {stated[first]:.4g} in its unit")
    return stated[first], first


FAMILIES: Final = SHIPPED_RUNS.parent / "families.yaml"
FIRST_SIGHT: Final = SHIPPED_RUNS.parent / "first_sight.csv"
"""Errors of published runs when they were first predicted, by the version before it saw them."""
QUANTITIES: Final = ("step_time", "peak_memory_bytes")
"""Measured quantities."""


def team_of(family: str) -> str:
    """The team that published a family; the family itself if it is not in the table."""
    return _teams().get(family, family)


@cache
def compared_only() -> Mapping[str, tuple[str, ...]]:
    """Families with measurements that the shipped constants are only compared with, and which these are."""
    rows = ((family, row) for families in _families_table().values() for family, row in families.items())
    return {family: tuple(row["compared"]) for family, row in rows if "compared" in row}


def is_fitted(run: MeasuredRun) -> bool:
    """Whether the shipped constants are fitted to all measurements of a published run."""
    return run.family not in compared_only()


def is_only_compared(family: str) -> bool:
    """Whether the shipped constants are fitted to none of the measurements of a published family."""
    return set(compared_only().get(family, ())) == set(QUANTITIES)


def first_errors(run: str) -> dict[str, float | None]:
    """Errors (logarithm) of a published run at first sight, if on record: ``first_time`` and ``first_memory``."""
    return dict(_first_errors_table().get(run, {}))


@cache
def _first_errors_table() -> Mapping[str, Mapping[str, float | None]]:
    names = {"first_time": "log_time_ratio", "first_memory": "log_memory_ratio"}
    with FIRST_SIGHT.open(encoding="utf-8", newline="") as file:
        return {
            row["id"]: {name: float(row[column]) if row[column] else None for name, column in names.items()}
            for row in csv.DictReader(file)
        }


@cache
def _families_table() -> Mapping[str, Mapping[str, Any]]:
    found: Mapping[str, Mapping[str, Any]] = read_document(FAMILIES)["teams"]
    return found


@cache
def _teams() -> Mapping[str, str]:
    return {family: team for team, families in _families_table().items() for family in families}
