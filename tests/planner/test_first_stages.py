"""What the first stage of a pipeline says of memory: never more than a plan needs, and all of it without a pipeline."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from tests.few import few
from tests.planner.small import families_of, spaces
from tests.planner.test_many import question

from shardplan.estimation.question import Question
from shardplan.planner.evaluation import evaluate
from shardplan.planner.objective import SMALLEST
from shardplan.planner.pruning.bounds import ROUNDING, FirstStages
from shardplan.planner.restrictions import Restrictions
from shardplan.planner.space import Space, declare


@few(20)
@given(spaces(most=4000))
def test_no_plan_needs_less(asked: tuple[Question, Space]) -> None:
    question, space = asked
    for family in families_of(question, space):
        table = evaluate(question, family, SMALLEST)
        needed = table.best.min(axis=0)
        least = FirstStages(table.tables).least_memory()
        assert np.all(least <= needed * (1 + ROUNDING))
        assert np.all(np.isfinite(needed) <= np.isfinite(least))


@pytest.mark.parametrize("offload", ["none", "optimizer"])
def test_without_a_pipeline_it_is_what_a_plan_needs(offload: str) -> None:
    asked = question(16)
    (family,) = families_of(asked, declare(asked, Restrictions(fix={"pp": (1,), "offload": (offload,)})))
    table = evaluate(asked, family, SMALLEST)
    assert FirstStages(table.tables).least_memory() == pytest.approx(table.best.min(axis=0), rel=1e-9)
