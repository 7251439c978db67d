"""Plans side by side: every term of each, and the change from the first."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from tests.examples import SMALL, cluster

from shardplan.answers.comparison import Side, compare, comparison_document
from shardplan.base.errors import InputError
from shardplan.estimation.estimate import estimate_plan
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.render.record import document_record
from shardplan.reports.plan_file import PlanFile

QUESTION = Question(
    model=SMALL, cluster=cluster(), num_accelerators=16, job=Job(sequence_length=2048, global_batch_size=64)
)


def side(plan: Plan, question: Question = QUESTION, label: str = "a") -> Side:
    return Side(label=label, file=PlanFile(question=question, estimates=(estimate_plan(question, plan),)), pick=1)


A, B = side(Plan(tp=2)), side(Plan(tp=4, pp=2, recompute="full"), label="b")


def test_terms_of_each_side_sum_to_its_step_time() -> None:
    rows = {row.name: row for row in compare([A, B]).rows if row.section == "time"}
    for index in range(2):
        terms = sum(row.values[index] for name, row in rows.items() if name != "step_time")
        assert math.isclose(terms, rows["step_time"].values[index], rel_tol=1e-3)


def test_changes_are_from_the_first() -> None:
    row = next(row for row in compare([A, B]).rows if row.name == "step_time")
    assert row.changes == (0.0, B.estimate.step_time - A.estimate.step_time)


def test_only_what_differs_is_shown_of_question_and_plan() -> None:
    comparison = compare([A, B])
    shown = {(row.section, row.name) for row in comparison.rows}
    assert {("plan", "tp"), ("plan", "pp"), ("plan", "recompute"), ("plan", "dp")} <= shown
    assert ("plan", "ep") not in shown
    assert "question" not in {section for section, _ in shown}
    assert comparison.is_one_question


def test_the_same_plan_twice_differs_in_nothing() -> None:
    comparison = compare([A, A])
    assert {row.section for row in comparison.rows} == {"time", "rates"}
    assert all(row.is_same for row in comparison.rows)


def test_other_questions_are_told_apart() -> None:
    other = replace(QUESTION, num_accelerators=32, job=replace(QUESTION.job, precision="fp8"))
    comparison = compare([A, side(Plan(tp=2), other)])
    assert not comparison.is_one_question
    assert {"num_accelerators", "precision"} <= {row.name for row in comparison.rows if row.section == "question"}


def test_the_fastest_fits() -> None:
    too_large = replace(A, file=replace(A.file, estimates=(replace(A.estimate, feasible=False, reason="too large"),)))
    fastest = 0 if A.estimate.step_time < B.estimate.step_time else 1
    assert compare([A, B]).fastest == fastest
    assert compare([too_large, B]).fastest == 1
    assert compare([too_large, too_large]).fastest is None


def test_one_plan_is_no_comparison() -> None:
    with pytest.raises(InputError, match="1 plan"):
        compare([A])
    with pytest.raises(InputError, match="plan 2 is asked for"):
        compare([A, replace(A, pick=2)])


def test_the_record_holds_every_row() -> None:
    comparison = compare([A, B])
    record = json.loads(json.dumps(document_record(comparison_document(comparison)), allow_nan=False))
    assert [plan["label"] for plan in record["plans"]] == ["a", "b"]
    assert len(record["rows"]) == len(comparison.rows)
    assert all(len(row["values"]) == len(row["changes"]) == 2 for row in record["rows"])
