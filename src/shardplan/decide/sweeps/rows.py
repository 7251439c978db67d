"""Answers as rows of a table: one for each question, with the same columns and types in every chunk.

A worker answers one chunk of questions. Polars writes the rows as Parquet: an optional extra, checked when a sweep
begins.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from importlib import import_module
from itertools import groupby
from typing import Any, Final, Literal, get_args, get_type_hints

from shardplan.base.errors import InputError, ShardplanError
from shardplan.base.fields import described
from shardplan.base.records import keys, plain
from shardplan.decide.sweeps.grid import TOGETHER, GridQuestion, SweepGrid, question_at
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.parts.terms import IN_FILES
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.planner.family import KnownPipelines
from shardplan.planner.related.together import best_together, estimates_of

Cell = Literal["int", "float", "bool", "text"]
Row = dict[str, Any]
Outcome = Literal["fits", "nothing fits", "refused", "failed"]
"""Result of a question: ``refused`` is a question that breaks a rule, ``failed`` a defect or a dead worker."""

FAILED: Final[Outcome] = "failed"
NUMBER: Final = "question"
"""The column with the number of a question, from 0, in the grid's order."""
DEFAULT_COLUMNS: Final[Mapping[str, Cell]] = {
    **dict.fromkeys(("num_accelerators", "sequence_length", "global_batch_size"), "int"),
    **dict.fromkeys(("precision", "accelerator_name"), "text"),
}
"""Columns of a question whose fields the grid leaves open."""
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
    values = {
        name: [each[place] for each in axis.values] for axis in grid.axes for place, name in enumerate(axis.fields)
    }
    asked: dict[str, Cell] = {NUMBER: "int"}
    asked |= {each.column: _type_of(values[each.name]) for each in grid.fields}
    asked |= {name: cell for name, cell in DEFAULT_COLUMNS.items() if name not in asked}
    answered: dict[str, Cell] = {"outcome": "text", "reason": "text", "num_plans_evaluated": "int"}
    terms: dict[str, Cell] = {f"{term.key}_s": "float" for term in IN_FILES}
    return asked | answered | estimate_columns() | terms | plan_columns()


def _type_of(values: Sequence[Any]) -> Cell:
    """Type of a column of the grid; values of several types are text."""
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
    """The columns of a question."""
    return {NUMBER: number} | {field.column: as_cell(point[field.name]) for field in grid.fields}


def failed_row(outcome: Outcome, reason: str) -> Row:
    """The columns of a question without an answer."""
    return {"outcome": outcome, "reason": reason}


def answered_row(asked: GridQuestion, estimate: Estimate | None, num_plans: int) -> Row:
    """The columns of an answer: its plan, or that nothing fits."""
    question = asked.question
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
    kinds: dict[Cell, type] = {cell: kind for kind, cell in CELLS.items()}
    return {
        name: [None if (value := row.get(name)) is None else kinds[cell](value) for row in rows]
        for name, cell in schema.items()
    }


ROW_GROUP: Final = 65_536
"""Rows of a group in the final table."""
TYPES: Final = {"int": "Int64", "float": "Float64", "bool": "Boolean", "text": "String"}


def polars() -> Any:
    """The polars module. Raises InputError if it is not installed."""
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
    """The frame in the content of an intact Parquet file."""
    return polars().read_parquet(io.BytesIO(content), use_pyarrow=False)


KNOWN = KnownPipelines()
"""Pipelines of the models that this worker has searched lately."""


def rows_of(grid: SweepGrid, numbers: Sequence[int]) -> list[Row]:
    """A row for each of these questions, in their order. A question without an answer is a row with its reason."""
    points = [(number, grid.point(number)) for number in numbers]
    rows: list[Row] = []
    for _, group in groupby(points, key=lambda each: [pair for pair in each[1].items() if pair[0] not in TOGETHER]):
        rows += _rows_together(grid, [*group])
    return rows


def _rows_together(grid: SweepGrid, points: Sequence[tuple[int, dict[str, Any]]]) -> Iterator[Row]:
    """Rows of questions that differ only in memory and rates, answered together."""
    rows = {number: asked_row(grid, number, point) for number, point in points}
    asked_questions: dict[int, GridQuestion] = {}
    for number, point in points:
        try:
            asked_questions[number] = question_at(point)
        except Exception as error:  # noqa: BLE001  # one question must not end a sweep
            rows[number] |= _failed(error)
    by_job: dict[Job, list[int]] = {}  # peaks of other number formats can change the usual precision
    for number, each in asked_questions.items():
        by_job.setdefault(each.question.job, []).append(number)
    for numbers in by_job.values():
        for number, answer in zip(numbers, _answer_columns([asked_questions[each] for each in numbers]), strict=True):
            rows[number] |= answer
    return iter(rows.values())


def _answer_columns(asked_questions: Sequence[GridQuestion]) -> Iterable[Row]:
    first, questions = asked_questions[0], [each.question for each in asked_questions]
    wanted = first.is_recommended
    try:
        found = best_together(questions, replace(first.scope, known=KNOWN), with_recommended=wanted)
        plans = [each.recommended if wanted else each.fastest for each in found]
        answers = estimates_of(questions, plans, first.scope.stack)
    except Exception as error:  # noqa: BLE001  # as above
        return [_failed(error)] * len(asked_questions)
    rows = zip(asked_questions, answers, found, strict=True)
    return [answered_row(each, answer, known.num_plans) for each, answer, known in rows]


def _failed(error: Exception) -> Row:
    if isinstance(error, ShardplanError):
        return failed_row("refused", f"{error.message} ({error.hint})" if error.hint else error.message)
    return failed_row(FAILED, f"{type(error).__name__}: {error}"[:500])
