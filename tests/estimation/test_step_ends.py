"""Which stage ends the step of a plan, by hand-made times of the stages of three plans."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.estimation.test_pipelines import WHOLE

from shardplan.estimation.parts.once_a_step import OnceAStep
from shardplan.estimation.plan_columns import PlanColumns
from shardplan.estimation.plan_rows import PlanRows, StageRows
from shardplan.estimation.step import Step, WorkOfStages
from shardplan.estimation.times import StateTimes

ROWS = StageRows(stages=WHOLE, plan=np.array([0, 0, 0, 1, 1, 2, 2]), first=np.array([0, 3, 5]))
PASSES = np.array([10.0, 12.0, 11.0, 20.0, 20.0, 20.0, 21.0])
HEAD_STARTS = np.array([0.0, 3.0, 1.0, 0.0, 4.0, 0.0, 4.0])
ONCE = StateTimes(sharded=0.0, reduce=0.0, gather=0.0, update=np.array([1.0, 2.0, 9.0, 5.0, 2.0, 5.0, 2.0]))


def columns() -> PlanColumns:
    """Plans whose passes, head starts and ends are given."""
    nothing: Any = None
    work = WorkOfStages(
        question=nothing, numbers=nothing, around=nothing, kinds=[WHOLE], works=[], whole=WHOLE, whole_work=nothing,
        behind=nothing, longest=nothing, rows=ROWS,
    )  # fmt: skip
    vars(work)["head_starts"] = [HEAD_STARTS]
    step = Step(work=work, charges=[], sharding_time=0.0)
    vars(step).update(passes=[PASSES], states=[ONCE])
    every = PlanRows(
        stages_of=(), rounds_of=(), stages=ROWS, chunks=None, group_first=ROWS.first, group_plan=ROWS.first
    )
    found = PlanColumns(question=nothing, numbers=nothing, rows=every, prices=nothing)
    vars(found)["step"] = step
    return found


def test_a_step_ends_with_its_first_stage_or_with_one_that_needs_longer() -> None:
    """First stages end at 12 + 1, 20 + 5 and 21 + 5; others at 12 - 3 + 2, 11 - 1 + 9, 20 - 4 + 2 and 21 - 4 + 2."""
    ends = columns()
    assert np.asarray(ends.step.busiest).tolist() == [19, 25, 26]
    assert ends.slowest_row.tolist() == [2, 3, 6]
    assert ends.slowest.tolist() == [2, 0, 1]
    assert ends.last_row.tolist() == [2, 3, 5]
    assert ends.waiting.tolist() == [10, 20, 21]


def test_rows_of_plans() -> None:
    assert ROWS.each(2.0).tolist() == [2.0] * 7
    assert ROWS.largest(PASSES).tolist() == [12, 20, 21]
    assert ROWS.at_largest(PASSES).tolist() == [1, 3, 6]
    assert ROWS.at_largest(1.0).tolist() == [0, 3, 5]


def test_what_comes_once_a_step_is_slower_with_stragglers() -> None:
    once = OnceAStep(
        gather=np.array([1.0]), reduce=np.array([2.0]), update=np.array([4.0]), fixed=8.0, straggler_factor=1.25
    )
    assert once.after(np.array([25.0])).tolist() == [50.0]
    assert once.stragglers(np.array([25.0])).tolist() == pytest.approx([10.0])
