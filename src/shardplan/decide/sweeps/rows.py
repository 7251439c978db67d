"""Answers as rows of a table: one for each question, with the same columns and types in every chunk.

Polars writes them as Parquet: an optional extra, looked for when a sweep begins.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from importlib import import_module
from typing import Any, Final, Literal, get_args, get_type_hints

from shardplan.base.errors import InputError
from shardplan.base.fields import described
from shardplan.base.records import keys, plain
from shardplan.decide.sweeps.grid import PutPoint, SweepGrid
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.parts.terms import IN_FILES
from shardplan.inputs.plan import Plan

Cell = Literal["int", "float", "bool", "text"]
Row = dict[str, Any]
Outcome = Literal["fits", "nothing fits", "refused", "failed"]
"""What became of a question: ``refused`` is a question that breaks a rule, ``failed`` a defect or a dead worker."""

FAILED: Final[Outcome] = "failed"
NUMBER: Final = "question"
"""The column with the number of a question, from 0, in the grid's order."""
COUNTS_OF_QUESTION: Final = ("num_accelerators", "sequence_length", "global_batch_size")
NAMES_OF_QUESTION: Final = ("precision", "accelerator_name")
"""What a question has where the grid leaves it open."""
LEFT_OUT: Final = ("assumptions", "evidence", "refusals", "reason", "feasible", "flops_convention", "stage_layers")
CELLS: Final[Mapping[type, Cell]] = {bool: "bool", int: "int", float: "float", str: "text"}


@cache
def estimate_columns() -> dict[str, Cell]:
    """Columns of an estimate that are one number or text each, by key."""
    hints = get_type_hints(Estimate)
    found = {key: _cell_of(hints[name]) for name, key in keys(Estimate).items() if name not in LEFT_OUT}
    return {key: cell for key, cell in found.items() if cell is not None}


@cache
def plan_columns() -> dict[str, Cell]:
    """Columns of a plan."""
    hints = get_type_hints(Plan)
    return {each.name: _cell_of(hints[each.name]) or "text" for each in fields(Plan) if each.name in described(Plan)}


def schema_of(grid: SweepGrid) -> dict[str, Cell]:
    """Every column with its type, in order."""
    number: dict[str, Cell] = {NUMBER: "int"}
    asked = number | _grid_columns(grid)
    counts: dict[str, Cell] = dict.fromkeys(COUNTS_OF_QUESTION, "int")
    names: dict[str, Cell] = dict.fromkeys(NAMES_OF_QUESTION, "text")
    asked |= {name: cell for name, cell in (counts | names).items() if name not in asked}
    answered: dict[str, Cell] = {"outcome": "text", "reason": "text", "num_plans_evaluated": "int"}
    terms: dict[str, Cell] = {f"{term.key}_s": "float" for term in IN_FILES}
    return asked | answered | estimate_columns() | terms | plan_columns()


def _grid_columns(grid: SweepGrid) -> dict[str, Cell]:
    """Columns of the fields of a grid; a field whose values are of several types is text."""
    values = {
        name: [each[place] for each in axis.values] for axis in grid.axes for place, name in enumerate(axis.fields)
    }
    return {field.column: _type_of(values[field.name]) for field in grid.fields}


def _type_of(values: Sequence[Any]) -> Cell:
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        return "float"
    return CELLS.get(kinds.pop(), "text") if len(kinds) == 1 else "text"


def _cell_of(hint: Any) -> Cell | None:
    if hint in CELLS:
        return CELLS[hint]
    options = [each for each in get_args(hint) if each is not type(None)]
    if options and all(isinstance(each, str) for each in options):  # a choice
        return "text"
    return _cell_of(options[0]) if len(options) == 1 else None


def asked_row(grid: SweepGrid, number: int, point: Mapping[str, Any]) -> Row:
    """The question of a row."""
    return {NUMBER: number} | {field.column: as_cell(point[field.name]) for field in grid.fields}


def failed_row(outcome: Outcome, reason: str) -> Row:
    """A question that has no answer."""
    return {"outcome": outcome, "reason": reason}


def answered_row(put: PutPoint, estimate: Estimate | None, num_plans: int) -> Row:
    """The answer to a question: its plan, or that nothing fits."""
    question = put.question
    row: Row = {name: getattr(question.job, name) for name in ("sequence_length", "global_batch_size", "precision")}
    row |= {"num_accelerators": question.num_accelerators, "accelerator_name": question.cluster.accelerator.name}
    row |= {"num_plans_evaluated": num_plans}
    if estimate is None:
        why = "none of them fits in memory" if num_plans else "no plan is valid for this number and batch"
        return row | failed_row("nothing fits", f"{num_plans:,} valid plans; {why}" if num_plans else why)
    names = {key: name for name, key in keys(Estimate).items()}
    row |= {key: as_cell(getattr(estimate, names[key])) for key in estimate_columns()}
    row |= {f"{name}_s": float(time) for name, time in estimate.breakdown.items()}
    return row | {name: as_cell(getattr(estimate.plan, name)) for name in plan_columns()} | {"outcome": "fits"}


def as_cell(value: object) -> Any:
    """A number, a text or None; lists and mappings as text."""
    value = plain(value)
    if isinstance(value, list):
        return ",".join(str(part) for part in value)
    if isinstance(value, dict):
        return ",".join(f"{name}={part}" for name, part in value.items())
    return value


def as_columns(grid: SweepGrid, rows: Sequence[Row]) -> dict[str, list[Any]]:
    """Rows as columns, each value of its column's type."""
    schema = schema_of(grid)
    return {name: [_typed(row.get(name), cell) for row in rows] for name, cell in schema.items()}


def _typed(value: Any, cell: Cell) -> Any:
    if value is None:
        return None
    return {"int": int, "float": float, "bool": bool, "text": str}[cell](value)


ROW_GROUP: Final = 65_536
"""Rows of a group in the final table."""
TYPES: Final = {"int": "Int64", "float": "Float64", "bool": "Boolean", "text": "String"}


def polars() -> Any:
    """The library. Raises InputError where it is not installed."""
    try:
        return import_module("polars")
    except ImportError:
        raise InputError(
            "polars is not installed, which writes and reads the tables of a sweep",
            rule="sweeps need the extra 'sweep'",
            hint="pip install 'shardplan[sweep]'",
        ) from None


def frame_of(grid: SweepGrid, rows: Sequence[Row]) -> Any:
    """Rows as a frame."""
    library = polars()
    schema = {name: getattr(library, TYPES[cell]) for name, cell in schema_of(grid).items()}
    return library.DataFrame(as_columns(grid, rows), schema=schema)


def parquet_of(frame: Any) -> bytes:
    """A frame as the content of a Parquet file; equal frames give equal bytes."""
    written = io.BytesIO()
    frame.rechunk().write_parquet(written, compression="zstd", row_group_size=ROW_GROUP)
    return written.getvalue()


def joined(contents: Sequence[bytes]) -> Any:
    """The rows of all chunks in the grid's order."""
    return polars().concat([frame_in(content) for content in contents]).sort(NUMBER)


def frame_in(content: bytes) -> Any:
    """The frame in the content of a Parquet file that is as it was written."""
    return polars().read_parquet(io.BytesIO(content), use_pyarrow=False)
