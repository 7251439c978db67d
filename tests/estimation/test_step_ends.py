"""Which stage ends the step of a plan, by hand-made times of the stages of three plans."""

from __future__ import annotations

import numpy as np
import pytest
from tests.estimation.test_pipelines import WHOLE

from shardplan.estimation.parts.once_a_step import OnceAStep
from shardplan.estimation.parts.step_ends import StepEnds
from shardplan.estimation.plan_rows import StageRows

ROWS = StageRows(stages=WHOLE, plan=np.array([0, 0, 0, 1, 1, 2, 2]), first=np.array([0, 3, 5]))
ENDS = StepEnds(
    rows=ROWS,
    passes=np.array([10.0, 12.0, 11.0, 20.0, 20.0, 20.0, 21.0]),
    head_start=np.array([0.0, 3.0, 1.0, 0.0, 4.0, 0.0, 4.0]),
    once=np.array([1.0, 2.0, 9.0, 5.0, 2.0, 5.0, 2.0]),
)


def test_a_step_ends_with_its_first_stage_or_with_one_that_needs_longer() -> None:
    """First stages end at 12 + 1, 20 + 5 and 21 + 5; others at 12 - 3 + 2, 11 - 1 + 9, 20 - 4 + 2 and 21 - 4 + 2."""
    assert ENDS.busy.tolist() == [19, 25, 26]
    assert ENDS.slowest.tolist() == [2, 3, 6]
    assert ENDS.last.tolist() == [2, 3, 5]
    assert ENDS.waiting.tolist() == [10, 20, 21]


def test_rows_of_plans() -> None:
    assert ROWS.each(2.0).tolist() == [2.0] * 7
    assert ROWS.largest(ENDS.passes).tolist() == [12, 20, 21]
    assert ROWS.at_largest(ENDS.passes).tolist() == [1, 3, 6]
    assert ROWS.at_largest(1.0).tolist() == [0, 3, 5]


def test_what_comes_once_a_step_is_slower_with_stragglers() -> None:
    parts = {name: np.array([value]) for name, value in (("gather", 1.0), ("reduce", 2.0), ("update", 4.0))}
    once = OnceAStep(**parts, fixed={"fixed": 8.0}, straggler_factor=1.25)
    assert once.after(np.array([25.0])).tolist() == [50.0]
    assert once.stragglers(np.array([25.0])).tolist() == pytest.approx([10.0])
