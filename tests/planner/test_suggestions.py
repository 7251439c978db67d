"""Where nothing fits: what a suggestion shares with the search that it comes from is what a search of its own has."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.few import few
from tests.planner.small import TIME_OF_ALL, families_of, spaces
from tests.planner.test_runnable import asked as question_in

from shardplan.estimation.question import Question
from shardplan.frameworks.stack import load_stack
from shardplan.inputs.plan import Offload
from shardplan.planner.evaluation import evaluated
from shardplan.planner.layouts import KnownPipelines
from shardplan.planner.objective import SMALLEST
from shardplan.planner.pricing.tables import Tables
from shardplan.planner.search import search_question
from shardplan.planner.space import Space


@few(8)
@given(spaces(most=4000), st.sampled_from(("none", "optimizer", "activations")))
def test_plans_that_offload_something_else_have_prices_of_their_own(
    asked: tuple[Question, Space], offload: Offload
) -> None:
    question, space = asked
    for family in families_of(question, space):
        shared = Tables(question=question, family=family, known=KnownPipelines()).offloading(offload)
        alone = Tables(question=question, family=shared.family, known=KnownPipelines())
        assert shared.family.plan(0, 0, 1, 0).offload == offload
        for objective in (SMALLEST, TIME_OF_ALL):
            assert np.array_equal(evaluated(shared, objective).best, evaluated(alone, objective).best)


@pytest.mark.parametrize("stack", ["megatron-lm", "torchtitan", "deepspeed"])
def test_states_in_host_memory_lead_to_the_plan_that_is_found_with_them_there(stack: str) -> None:
    """The same plan with the same numbers; for frameworks without that there is no such suggestion."""
    framework, limit = load_stack(stack), {"tp": (4, 8), "cp": (1,)}
    question = question_in("llama-3.1-70b", framework, 8)
    result = search_question(question, limit=limit, stack=framework)
    assert not result.estimates
    suggested = [each.estimate for each in result.suggestions if "--fix offload=optimizer" in each.change]
    can_run = framework.can_run
    assert can_run is not None
    if "optimizer" not in (can_run.offload or ()):
        assert not suggested
        return
    alone = search_question(question, limit=limit, fix={"offload": "optimizer"}, stack=framework, suggestions=False)
    assert suggested[:1] == [alone.recommended]
