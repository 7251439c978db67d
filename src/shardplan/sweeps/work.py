"""What a worker does: the rows of one chunk of questions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from shardplan.errors import ShardplanError
from shardplan.inputs.job import Job
from shardplan.planner.layouts import KnownPipelines
from shardplan.planner.related.alike import best_of_alike, estimates_of
from shardplan.sweeps.grid import TOGETHER, SweepGrid
from shardplan.sweeps.questions import PutPoint, put
from shardplan.sweeps.rows import Row, answered_row, asked_row, failed_row

KNOWN = KnownPipelines()
"""Pipelines of the models that this worker has been asked about lately."""


def rows_of(grid: SweepGrid, numbers: Sequence[int]) -> list[Row]:
    """A row for each of these questions, in their order. A question without an answer is a row with its reason."""
    points = [(number, grid.point(number)) for number in numbers]
    rows: list[Row] = []
    for _, group in groupby(points, key=lambda each: _apart(each[1])):
        rows += _answered(grid, [*group])
    return rows


def _apart(point: dict[str, Any]) -> list[tuple[str, Any]]:
    """The values that questions have in common which are answered together."""
    return [(name, value) for name, value in point.items() if name not in TOGETHER]


def _answered(grid: SweepGrid, points: Sequence[tuple[int, dict[str, Any]]]) -> Iterator[Row]:
    """Rows of questions that differ in memory and rates alone, which are answered together."""
    rows = {number: asked_row(grid, number, point) for number, point in points}
    puts: dict[int, PutPoint] = {}
    for number, point in points:
        try:
            puts[number] = put(point)
        except Exception as error:  # noqa: BLE001  # one question must not end a sweep
            rows[number] |= _failed(error)
    by_job: dict[Job, list[int]] = {}  # peaks of other number formats can change the usual precision
    for number, each in puts.items():
        by_job.setdefault(each.question.job, []).append(number)
    for numbers in by_job.values():
        for number, answer in zip(numbers, _answers([puts[each] for each in numbers]), strict=True):
            rows[number] |= answer
    return iter(rows.values())


def _answers(puts: Sequence[PutPoint]) -> Iterable[Row]:
    if not puts:
        return ()
    first, questions = puts[0], [each.question for each in puts]
    wanted = first.is_recommended
    try:
        found = best_of_alike(
            questions, restrictions=first.restrictions, stack=first.stack, known=KNOWN, to_take=wanted
        )
        plans = [each.to_take if wanted else each.fastest for each in found]
        answers = estimates_of(questions, plans, first.stack)
    except Exception as error:  # noqa: BLE001  # as above
        return [_failed(error)] * len(puts)
    pairs = zip(puts, answers, found, strict=True)
    return [answered_row(each, answer, known.num_plans) for each, answer, known in pairs]


def _failed(error: Exception) -> Row:
    if isinstance(error, ShardplanError):
        return failed_row("refused", f"{error.message} ({error.hint})" if error.hint else error.message)
    return failed_row("failed", f"{type(error).__name__}: {error}"[:500])
