"""The plan that needs least memory against all plans of a space."""

from __future__ import annotations

from unittest import mock

from hypothesis import given
from hypothesis import strategies as st
from tests.few import few
from tests.planner.small import families_of, spaces

import shardplan
from shardplan.estimation.question import Question
from shardplan.planner.evaluation import evaluate
from shardplan.planner.listed import best_plans
from shardplan.planner.objective import SMALLEST
from shardplan.planner.ranking import best_cell
from shardplan.planner.related import causes
from shardplan.planner.space import Space


@few(8)
@given(spaces(most=4000), st.sampled_from((1, 64)))
def test_it_is_the_first_of_those_that_need_least(asked: tuple[Question, Space], first: int) -> None:
    """However few plans are looked at first."""
    question, space = asked
    tables = [evaluate(question, family, SMALLEST) for family in families_of(question, space)]
    cell = best_cell(tables)
    if cell is None:
        return
    ((plan, _),) = best_plans(cell.tables, [cell.position], SMALLEST)
    with mock.patch.object(causes, "FIRST", first):
        assert causes.lightest_plan([each.tables for each in tables]) == plan


def test_a_pruned_search_names_the_same_plan() -> None:
    """Of the software that may run it, the usual."""
    pruned, whole = (shardplan.search("llama-3.1-405b", "dgx-h100", 8, prune=prune).smallest for prune in (True, False))
    assert pruned is not None
    assert pruned == whole
    assert pruned.plan.cuda_graphs == "none"
