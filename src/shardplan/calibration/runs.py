"""Measured training runs: one row of a CSV file each, as published sources state them or as users write their own.

An empty cell means that the source does not say. Every cell is checked here; what it means for a plan is the business
of :mod:`shardplan.calibration.questions`.
"""

from __future__ import annotations

import csv
import io
import math
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, get_args

from shardplan.errors import InputError, UnknownNameError, nearest_names
from shardplan.inputs.job import PRECISIONS, AttentionKernel, GradDtype
from shardplan.inputs.plan import RECOMPUTE_MODULES, RECOMPUTE_PRESETS, Sharding

__all__ = ["COLUMNS", "SHIPPED_RUNS", "MeasuredRun", "read_runs", "shipped_runs"]

SHIPPED_RUNS: Final = Path(__file__).parent.parent / "data" / "measured_runs" / "runs.csv"
MOST_BYTES: Final = 32 * 2**20
MOST_ROWS: Final = 50_000
LONGEST_CELL: Final = 4000


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredRun:
    """One measured training run; None or an empty text: not stated."""

    id: str
    """Unique name of the row."""
    line: int
    """Line of the file on which the row ends."""
    folder: Path = field(repr=False)
    """Folder of the file: ``model`` is relative to it."""
    family: str
    """Runs of one origin (one team, one line of software)."""
    source: str = field(repr=False)
    """Where it was published."""
    tier: str
    """``A``: all that matters is stated; ``A-``: one minor field inferred; ``B``: one that matters is missing."""
    framework: str
    """Training framework."""
    model: str
    """Name of a built-in model, or path of a ``config.json``."""
    accelerator: str
    """Accelerator of the catalogue."""
    num_accelerators: int
    """World size."""
    scale_up_size: int | None
    """Accelerators of one fast domain."""
    inter_node_bandwidth: float | None
    """Between domains, per accelerator and direction. [bytes/s]"""
    precision: str | None
    """Number format of the matrix products."""
    grad_dtype: str | None
    """Number format of accumulated gradients."""
    attention: str | None
    """Attention kernel."""
    sequence_length: int
    """Tokens of a sequence."""
    global_batch_size: int
    """Sequences of a step."""
    micro_batch_size: int | None
    """Sequences of a micro-batch, per model replica."""
    tp: int | None
    pp: int | None
    cp: int | None
    ep: int | None
    etp: int | None
    vp: int | None
    sharding: str | None
    """What data parallelism shards."""
    sharding_degree: int | None
    """Ranks over which it shards."""
    sequence_parallel: bool | None
    """Whether passes between matrix products are split over tensor-parallel ranks."""
    recompute: str
    """Policy or comma list of modules."""
    offload: str
    """What lives in host memory."""
    options: Mapping[str, str]
    """Everything else that was stated."""
    step_time: float | None
    """Measured time of one optimizer step. [s]"""
    step_time_from: str
    """Figure from which it was computed: ``step``, ``tokens`` or ``flops``."""
    peak_memory_bytes: float | None
    """Measured peak of one accelerator. [bytes]"""
    memory_kind: str
    """What that counts: ``allocated``, ``reserved`` or ``process``."""
    notes: str = field(repr=False)
    """Remarks."""
    unknown: tuple[str, ...] = ()
    """Columns of the file that the format does not know and in which the row has a value."""


def read_runs(path: str | os.PathLike[str]) -> tuple[MeasuredRun, ...]:
    """Every run of a file of the measured-runs format, in order. Raises ``InputError`` for the first bad cell."""
    place = Path(path)
    text = _text(place)
    label = str(place)
    try:
        table = list(_numbered(text))
    except csv.Error as error:
        raise _bad_file(label, f"is not CSV: {error}") from None
    if not table:
        raise _bad_file(label, "is empty")
    header = [name.strip() for name in table[0][1]]
    _check_header(header, label)
    runs = [_run_of(header, cells, line, place) for line, cells in table[1:] if any(cell.strip() for cell in cells)]
    if not runs:
        raise _bad_file(label, "has a header and no rows")
    _check_unique(runs, label)
    return tuple(runs)


@cache
def shipped_runs() -> tuple[MeasuredRun, ...]:
    """The published runs that ship with shardplan."""
    return read_runs(SHIPPED_RUNS)


def _text(path: Path) -> str:
    label = str(path)
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise _bad_file(label, "is a directory" if stat.S_ISDIR(found.st_mode) else "is not a regular file")
        if found.st_size > MOST_BYTES:
            raise _bad_file(label, f"has {found.st_size:,} bytes, more than {MOST_BYTES:,}")
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise _bad_file(label, "does not exist") from None
    except OSError as error:
        raise _bad_file(label, f"cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise _bad_file(label, "is not text in UTF-8") from None
    except InputError:
        raise
    except ValueError as error:  # a path with a null character
        raise _bad_file(repr(label), f"is not a path: {error}") from None


def _bad_file(label: str, what: str) -> InputError:
    return InputError(
        f"{label} {what}",
        rule="measured runs come in a CSV file with a header and a row for each run",
        hint="see the measured-runs format in the documentation",
    )


def _numbered(text: str) -> Iterable[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    for cells in reader:
        if reader.line_num > MOST_ROWS:
            raise csv.Error(f"more than {MOST_ROWS:,} lines")
        yield reader.line_num, cells


def _check_header(header: list[str], label: str) -> None:
    """Columns may be missing or unknown, but not repeated, nor unknown and spelt almost like a missing one."""
    for name in header:
        if name and header.count(name) > 1:
            raise InputError(f"{label}: column '{name:.60}' is repeated", rule="a column stands once", hint="drop one")
    for name in REQUIRED:
        if name not in header:
            near = nearest_names(name, [other for other in header if other not in COLUMNS], most=1)
            raise InputError(
                f"{label}: there is no column '{name}'" + (f"; is '{near[0]:.60}' meant?" if near else ""),
                rule=f"measured runs have the columns {', '.join(REQUIRED)}",
                hint=f"add a column {name}",
            )
    for name in header:
        near = nearest_names(name, [known for known in COLUMNS if known not in header], most=1)
        if name not in COLUMNS and near:
            raise UnknownNameError(f"column in {label}", name[:60], [known for known in COLUMNS if known not in header])


def _check_unique(runs: list[MeasuredRun], label: str) -> None:
    first: dict[str, int] = {}
    for run in runs:
        if run.id in first:
            raise InputError(
                f"{label}, line {run.line}: id '{run.id:.80}' stands in line {first[run.id]} already",
                rule="every run has an id of its own",
                hint="rename one of the two",
            )
        first[run.id] = run.line


@dataclass(frozen=True, slots=True)
class _Cell:
    """One cell and where it stands."""

    path: Path
    line: int
    row: str
    column: str
    text: str

    def wrong(self, allowed: str) -> InputError:
        """What a user reads about a bad cell."""
        shown = self.text if self.text.isprintable() else repr(self.text)[1:-1]
        return InputError(
            f"{self.path}, line {self.line}, run '{self.row:.80}': {self.column} is '{shown[:100]}'; "
            f"it must be {allowed}",
            rule=f"{self.column} is {allowed}",
            hint=f"correct {self.column}, or leave the cell empty where it is not stated"
            if self.column not in REQUIRED
            else f"correct {self.column}",
        )


def _run_of(header: list[str], cells: list[str], line: int, path: Path) -> MeasuredRun:
    if len(cells) > len(header):
        raise InputError(
            f"{path}, line {line}: {len(cells)} cells for {len(header)} columns",
            rule="a row has a cell for each column",
            hint="quote cells that contain commas",
        )
    stated = {name: cell.strip() for name, cell in zip(header, cells, strict=False)}
    row = stated.get("id", "")

    def cell(column: str) -> _Cell:
        found = _Cell(path, line, row, column, stated.get(column, ""))
        if len(found.text) > LONGEST_CELL:
            raise _Cell(path, line, row, column, found.text[:40] + " ...").wrong(f"at most {LONGEST_CELL} characters")
        return found

    values: dict[str, Any] = {FIELDS.get(name, name): read(cell(name)) for name, read in COLUMNS.items()}
    if values["step_time"] is None and values["peak_memory_bytes"] is None:
        raise _Cell(path, line, row, "step_time_s", "").wrong("given where peak_memory_gb is not")
    unknown = tuple(name for name in header if name and name not in COLUMNS and stated.get(name))
    return MeasuredRun(line=line, folder=path.parent, unknown=unknown, **values)


def _words(cell: _Cell) -> str:
    return cell.text


def _required_words(cell: _Cell) -> str:
    if not cell.text:
        raise cell.wrong("given")
    return cell.text


def _one_of(choices: Iterable[str]) -> Callable[[_Cell], str | None]:
    known = tuple(choices)

    def read(cell: _Cell) -> str | None:
        if cell.text and cell.text.lower() not in known:
            near = nearest_names(cell.text, known, most=1)
            raise cell.wrong(f"one of {', '.join(known)}" + (f" (did you mean {near[0]}?)" if near else ""))
        return cell.text.lower() or None

    return read


def _tier(cell: _Cell) -> str:
    if cell.text not in ("", "A", "A-", "B"):
        raise cell.wrong("A, A- or B")
    return cell.text


def _or_empty(read: Callable[[_Cell], str | None]) -> Callable[[_Cell], str]:
    return lambda cell: read(cell) or ""


def _number(cell: _Cell, least: float, most: float, unit: str) -> float | None:
    if not cell.text:
        return None
    try:
        value = float(cell.text)
    except ValueError:
        value = math.nan
    if not least <= value <= most or "_" in cell.text:
        raise cell.wrong(f"a number from {least:g} to {most:g}{unit}")
    return value


def _count(cell: _Cell) -> int | None:
    """Whole numbers, also as a spreadsheet writes them (``8.0``)."""
    if not cell.text:
        return None
    try:
        value = float(cell.text)
    except ValueError:
        value = math.nan
    if not 1 <= value <= 1e9 or value != int(value) or "_" in cell.text:
        raise cell.wrong("a whole number from 1 to 1,000,000,000")
    return int(value)


def _required_count(cell: _Cell) -> int:
    value = _count(cell)
    if value is None:
        raise cell.wrong("a whole number from 1 to 1,000,000,000")
    return value


def _bandwidth(cell: _Cell) -> float | None:
    value = _number(cell, 0.001, 100_000, " GB/s")
    return None if value is None else value * 1e9


def _step_time(cell: _Cell) -> float | None:
    return _number(cell, 1e-6, 1e6, " s")


def _memory(cell: _Cell) -> float | None:
    value = _number(cell, 0.001, 100_000, " GB")
    return None if value is None else value * 1e9


def _yes_or_no(cell: _Cell) -> bool | None:
    known = {"yes": True, "no": False, "true": True, "false": False, "": None}
    if cell.text.lower() not in known:
        raise cell.wrong("yes or no")
    return known[cell.text.lower()]


MODULES: Final = (*RECOMPUTE_MODULES, "moe_act")
POLICIES: Final = (*RECOMPUTE_PRESETS, "minimal")


def _recompute(cell: _Cell) -> str:
    """A policy, or modules in the order given; ``moe_act`` is another name of the experts' ``activation``."""
    if cell.text.lower() in ("", *POLICIES):
        return cell.text.lower()
    modules = [part.strip() for part in cell.text.split(",")]
    for module in modules:
        if module not in MODULES:
            near = nearest_names(module, (*POLICIES, *MODULES), most=1)
            guess = f" (did you mean {near[0]}?)" if near else ""
            raise cell.wrong(f"one of {', '.join(POLICIES)}, or a comma list of {', '.join(MODULES)}{guess}")
    return ",".join(dict.fromkeys("activation" if module == "moe_act" else module for module in modules))


def _options(cell: _Cell) -> dict[str, str]:
    """``key=value`` pairs between semicolons."""
    read: dict[str, str] = {}
    for part in cell.text.split(";"):
        if not part.strip():
            continue
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not key or key in read:
            raise cell.wrong("key=value pairs between semicolons, each key once")
        read[key] = value
    return read


COLUMNS: Final[Mapping[str, Callable[[_Cell], Any]]] = {
    "id": _required_words,
    "family": _words,
    "source": _words,
    "tier": _tier,
    "framework": _words,
    "model": _required_words,
    "accelerator": _required_words,
    "num_accelerators": _required_count,
    "scale_up_size": _count,
    "inter_node_gb_s": _bandwidth,
    "precision": _one_of(PRECISIONS),
    "grad_dtype": _one_of(get_args(GradDtype)),
    "attention": _one_of(get_args(AttentionKernel)),
    "sequence_length": _required_count,
    "global_batch_size": _required_count,
    "micro_batch_size": _count,
    "tp": _count,
    "pp": _count,
    "cp": _count,
    "ep": _count,
    "etp": _count,
    "vp": _count,
    "sharding": _one_of(get_args(Sharding)),
    "sharding_degree": _count,
    "sequence_parallel": _yes_or_no,
    "recompute": _recompute,
    "offload": _or_empty(_one_of(("none", "optimizer", "activations"))),
    "options": _options,
    "step_time_s": _step_time,
    "step_time_from": _or_empty(_one_of(("step", "tokens", "flops"))),
    "peak_memory_gb": _memory,
    "memory_kind": _or_empty(_one_of(("allocated", "reserved", "process"))),
    "notes": _words,
}
"""Reader of every column."""

FIELDS: Final[Mapping[str, str]] = {
    "inter_node_gb_s": "inter_node_bandwidth",
    "step_time_s": "step_time",
    "peak_memory_gb": "peak_memory_bytes",
}
"""Fields whose unit is converted, by column."""

REQUIRED: Final = ("id", "model", "accelerator", "num_accelerators", "sequence_length", "global_batch_size")
