"""The table of stages: what it says is what the estimate and the simulation say of the plan."""

from __future__ import annotations

from typing import Any

import pytest

from shardplan.answers.document import RowTable
from shardplan.answers.sections import stage_uses, stages_parts, truth_record
from shardplan.estimation.estimate import estimate_plan
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.readers.catalog import load_cluster, load_model
from shardplan.reports.truth import TruthLine, truth_of

QUESTION = Question(
    model=load_model("llama-3.1-8b"),
    cluster=load_cluster("dgx-h100"),
    num_accelerators=16,
    job=Job(global_batch_size=64, sequence_length=8192),
)


def truth(**plan: Any) -> TruthLine:
    """How a plan can be trusted."""
    return truth_of(QUESTION, estimate_plan(QUESTION, Plan(tp=2, sharding="zero1", **plan)))


@pytest.mark.parametrize("plan", [{"pp": 4}, {"pp": 4, "vp": 2}, {"pp": 2, "micro_batch_size": 2}])
def test_stages_are_those_of_the_estimate(plan: dict[str, int]) -> None:
    """All layers; the fullest stage; and on every stage passes and waiting make the same time."""
    told = truth(**plan)
    rows, estimate = stage_uses(told), told.estimate
    assert sum(row.num_layers for row in rows) == QUESTION.model.num_hidden_layers
    assert max(row.memory_bytes for row in rows) == pytest.approx(estimate.peak_memory_bytes)
    (slowest,) = (row for row in rows if row.is_slowest)
    assert slowest.waits == pytest.approx(estimate.breakdown["bubble"])
    whole = [(row.passes or 0.0) + (row.waits or 0.0) for row in rows]
    assert whole == pytest.approx([whole[0]] * len(rows))
    assert whole[0] < estimate.step_time


def test_equal_neighbours_are_one_row_on_a_terminal_and_none_in_records() -> None:
    """Stages 1 and 2 of four have the same layers; the last has the head and is the slowest."""
    told = truth(pp=4)
    (part,) = stages_parts(told)
    (table,) = part.blocks
    assert isinstance(table, RowTable)
    assert [row.stages for row in table.rows][-1] == "3"
    assert len(table.rows) <= 4
    assert [row.stages for row in truth_record(told)["stages"].rows] == ["0", "1", "2", "3"]


def test_without_a_pipeline_there_is_no_table() -> None:
    assert stages_parts(truth()) == []
    assert truth_record(None) == {}
