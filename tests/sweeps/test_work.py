"""Rows: the answers of a search, whatever the order and the grouping in which they are found."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from tests.sweeps.small import SMALL

from shardplan.decide.sweeps.grid import GridQuestion, grid_of, question_at
from shardplan.decide.sweeps.rows import as_columns, rows_of, schema_of
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.parts.terms import TERMS
from shardplan.planner.ranking import different_cells
from shardplan.planner.related.together import best_together
from shardplan.planner.scope import Scope
from shardplan.planner.search import search_question

GRID = grid_of(SMALL)
CHOICES: dict[str, Any] = {"fix": {"cp": 1, "pp": 1, "sharding": "zero1", "recompute": "none"}, "limit": {"tp": [1, 2]}}


def fastest(asked: GridQuestion) -> tuple[Estimate | None, int]:
    """The fastest of all plans, whatever software runs it, and their number."""
    survey = Scope.of(stack=asked.scope.stack, **CHOICES).survey(asked.question)
    cells = different_cells(survey.tables, 1)
    return (survey.estimate(cells[0]) if cells else None), survey.num_evaluated


def test_a_row_is_the_fastest_plan_of_a_search() -> None:
    for row in rows_of(GRID, range(GRID.num_questions)):
        asked = question_at(GRID.point(row["question"]))
        best, num_plans = fastest(asked)
        assert row["num_plans_evaluated"] == num_plans
        if best is None:
            assert row["outcome"] == "nothing fits"
            continue
        assert (row["step_time_s"], row["tp"]) == (pytest.approx(best.step_time, rel=1e-12), best.plan.tp)
        assert row["peak_memory_bytes"] <= row["usable_memory_bytes"]
        assert sum(row[f"{key}_s"] for key in TERMS) == pytest.approx(row["step_time_s"], rel=1e-9)


def test_a_row_has_the_recommended_plan_if_the_grid_asks_for_it() -> None:
    grid = grid_of(SMALL | {"gpus": 8, "global_batch_size": 16, "memory": [6, 80], "plan": ["fastest", "recommended"]})
    assert grid.group_size == 2  # both capacities; each kind of plan apart
    rows = {(row["memory_bytes"], row["plan"]): row for row in rows_of(grid, range(4))}
    for number in range(4):
        point, asked = grid.point(number), question_at(grid.point(number))
        result = search_question(
            asked.question, top=1, suggestions=False, stack=asked.scope.stack, use_all=True, **CHOICES
        )
        wanted = result.recommended if point["plan"] == "recommended" else fastest(asked)[0]
        row = rows[point["memory"], point["plan"]]
        assert row["num_plans_evaluated"] == result.num_plans_evaluated
        assert (row["outcome"] == "fits") == (wanted is not None)
        if wanted is not None:
            assert row["step_time_s"] == pytest.approx(wanted.step_time, rel=1e-12)
            assert row["micro_batch_size"] == wanted.plan.micro_batch_size


@pytest.mark.parametrize("memories", [(80, 20, 12, 9, 6, 4), (4, 6, 9, 12, 20, 80)])
def test_the_fastest_plans_of_several_capacities_are_those_of_each_alone(memories: tuple[float, ...]) -> None:
    grid = grid_of(SMALL | {"gpus": 8, "global_batch_size": 16, "memory": [*memories], "limit.tp": [[1, 2, 4, 8]]})
    asked_questions = [question_at(grid.point(number)) for number in range(len(memories))]
    together = best_together([each.question for each in asked_questions], asked_questions[0].scope)
    alone = [best_together([each.question], asked_questions[0].scope)[0] for each in asked_questions]
    assert [each.num_plans for each in together] == [each.num_plans for each in alone]
    times, expected = ([inf if a.fastest is None else a.fastest.step_time for a in each] for each in (together, alone))
    assert times == pytest.approx(expected, rel=1e-12)
    assert inf in times
    assert len(set(times)) > 2  # it is a question in which memory decides


def test_rates_of_the_accelerator_are_written_as_on_the_command_line() -> None:
    rates = {"peak_flops": ["bf16=500", {"bf16": "2PFLOP/s"}], "memory_bandwidth": [1000, "4TB/s"]}
    grid = grid_of(SMALL | {"gpus": 8, "global_batch_size": 16, "memory": 80} | rates)
    assert grid.group_size == grid.num_questions == 4
    for row in rows_of(grid, range(4)):
        asked = question_at(grid.point(row["question"]))
        assert asked.question.cluster.accelerator.peak("bf16") in {5e14, 2e15}
        assert asked.question.cluster.accelerator.memory_bandwidth in {1e12, 4e12}
        best, _ = fastest(asked)
        assert best is not None
        assert (row["step_time_s"], row["micro_batch_size"]) == (best.step_time, best.plan.micro_batch_size)


def test_a_question_that_breaks_a_rule_is_a_row_with_the_reason() -> None:
    grid = grid_of(SMALL | {"memory": [0.1, 80], "gpus": 8, "global_batch_size": 16})
    refused, fits = rows_of(grid, range(2))
    assert (refused["outcome"], fits["outcome"]) == ("refused", "fits")
    assert "memory" in refused["reason"]


def test_a_defect_is_a_row_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("shardplan.decide.sweeps.rows.best_together", broken)
    rows = rows_of(GRID, range(3))
    assert {(row["outcome"], row["reason"]) for row in rows} == {("failed", "ZeroDivisionError: by zero")}


def test_rows_have_the_same_columns_whatever_became_of_them() -> None:
    columns = as_columns(GRID, rows_of(GRID, range(4)))
    assert list(columns) == list(schema_of(GRID))
    assert {len(values) for values in columns.values()} == {4}
