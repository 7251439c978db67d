"""The front against brute force on small spaces, and laws of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.cli.commands import answer, run

import shardplan
from shardplan.decide.pareto import not_dominated
from shardplan.decide.searching import Searches
from shardplan.planner.priced_plans import priced_cells
from shardplan.planner.robustness import pessimistic_times

JOB: dict[str, Any] = {"sequence_length": 2048, "global_batch_size": 64}
ARGUMENTS = (
    "llama-3.2-1b", "--cluster", "dgx-h100", "--gpus", "8", "--sequence-length", "2048", "--limit", "pp=1,2",
)  # fmt: skip


def _by_brute_force(values: np.ndarray) -> set[tuple[float, ...]]:
    """Columns of which no other is as good in all rows and better in one."""
    columns = np.unique(values, axis=1)
    beaten = [
        bool(np.any(np.all(columns <= each[:, None], axis=0) & np.any(columns < each[:, None], axis=0)))
        for each in columns.T
    ]
    return {tuple(each) for each, is_beaten in zip(columns.T, beaten, strict=True) if not is_beaten}


@given(arrays(np.float64, st.tuples(st.just(3), st.integers(1, 40)), elements=st.integers(0, 6).map(float)))
def test_nothing_dominates_what_is_left_and_all_else_is_dominated(values: np.ndarray) -> None:
    chosen = values[:, not_dominated(values)]
    assert {tuple(column) for column in chosen.T} == _by_brute_force(values)
    assert len({tuple(column) for column in chosen.T}) == chosen.shape[1]


@pytest.mark.parametrize(
    ("model", "cluster", "count", "limit"),
    [
        ("llama-3.2-1b", "dgx-h100", 8, {"pp": [1, 2], "cp": [1], "micro_batch_size": [1, 4]}),
        ("llama-3.2-1b", "gb200-nvl72", 16, {"tp": [1, 2], "pp": [1, 2, 4], "cp": [1], "micro_batch_size": [1, 2]}),
        ("mixtral-8x7b", "dgx-h100", 64, {"tp": [2], "pp": [2], "cp": [1], "ep": [8], "micro_batch_size": [1, 2]}),
    ],
)
def test_the_front_is_that_of_every_plan_priced(model: str, cluster: str, count: int, limit: dict[str, Any]) -> None:
    found = shardplan.pareto(model, cluster, count, limit=limit, stack=None, **JOB)
    question = shardplan.question(model, cluster, count, stack=None, **JOB)
    survey = Searches(limit=limit).survey(question)
    every = priced_cells(question, survey.tables, [np.isfinite(table.best) for table in survey.tables])
    values = np.stack([every.step_time, every.peak_memory_bytes, pessimistic_times(question, every)])
    wanted = sorted(_by_brute_force(values))
    points = [(p.estimate.step_time, p.estimate.peak_memory_bytes, p.pessimistic_time) for p in found.points]
    assert len(points) == len(wanted)
    assert np.allclose(sorted(points), wanted, rtol=1e-9, atol=0)
    assert len(every.step_time) == found.num_plans_feasible
    assert found.num_plans_priced <= found.num_plans_feasible


def test_the_front_begins_with_the_fastest_plan() -> None:
    found = shardplan.pareto("llama-3.2-1b", "dgx-h100", 8, **JOB)
    alone = shardplan.search("llama-3.2-1b", "dgx-h100", 8, **JOB)
    assert alone.fastest is not None
    assert found.points[0].estimate.step_time == pytest.approx(alone.fastest.step_time)
    assert found.recommended is not None
    assert alone.recommended is not None
    assert found.recommended.plan == alone.recommended.plan
    assert all(each.estimate.feasible for each in found.points)
    assert all(each.pessimistic_time >= each.estimate.step_time for each in found.points)


def test_the_command_lists_the_front() -> None:
    record = answer("pareto", *ARGUMENTS)
    times = [point["step_time_s"] for point in record["points"]]
    assert times == sorted(times)
    shown = run("pareto", *ARGUMENTS)
    assert shown.exit_code == 0
    assert "Plans of the front" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80


def test_that_nothing_fits_is_an_answer() -> None:
    record = answer("pareto", "llama-3.1-405b", "--cluster", "dgx-h100", "--gpus", "8", status=1)
    assert record["points"] == []
    assert run("pareto", "llama-3.1-405b", "--cluster", "dgx-h100", "--gpus", "8").exit_code == 1
