"""What states add to a step at least: never more than they do, and all of it where nothing is left open."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.few import few
from tests.planner.small import TIME_OF_ALL, families_of, spaces
from tests.planner.test_evaluation import listed
from tests.planner.test_many import question

from shardplan.estimation.estimate import estimate_plan
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan
from shardplan.planner.evaluation import evaluate
from shardplan.planner.listed import outcomes
from shardplan.planner.objective import SMALLEST
from shardplan.planner.pruning.bounds import ROUNDING, bound_and_promise
from shardplan.planner.pruning.states import least_of_states
from shardplan.planner.restrictions import Restrictions
from shardplan.planner.space import Space, declare


def _with_network(asked: Question, factor: float) -> Question:
    """The same with other bandwidths."""
    tiers = tuple(replace(tier, bandwidth=factor * tier.bandwidth) for tier in asked.cluster.tiers)
    return replace(asked, cluster=replace(asked.cluster, tiers=tiers))


@few(10)
@given(spaces(most=4000), st.sampled_from((1.0, 0.03, 0.001)))
def test_no_step_is_shorter_than_its_passes_and_what_states_add_at_least(
    asked: tuple[Question, Space], factor: float
) -> None:
    question = _with_network(asked[0], factor)
    for family in families_of(question, asked[1]):
        table = evaluate(question, family, TIME_OF_ALL)
        plans, _ = listed(table)
        passes, _ = bound_and_promise(table.tables)
        states = least_of_states(table.tables, np.inf)
        once = np.where(
            table.tables.layouts.vp[plans.layouts] > 1, _of(states.several, plans), _of(states.single, plans)
        )
        least = passes[plans.slots, plans.points] + _of(states.sharded, plans) + once
        assert np.all(least <= outcomes(question, table.tables, plans).step_time * (1 + ROUNDING))


@few(6)
@given(spaces(most=4000), st.sampled_from((0.0, 0.3, 0.8)))
def test_states_that_take_too_much_memory_are_told_apart(asked: tuple[Question, Space], share: float) -> None:
    """No kind of sharding under which a plan fits is left out."""
    question, space = asked
    for family in families_of(question, space):
        table = evaluate(question, family, SMALLEST)
        least = table.best.min(axis=1)
        most = float(np.quantile(least[np.isfinite(least)], share))
        found = least_of_states(table.tables, most)
        assert np.all(np.isfinite(found.least[least <= most]))
        assert np.all(np.isinf(found.least[~family.shards]))
        assert np.all(np.isinf(least_of_states(table.tables, 0.0).least))


def _of(values: np.ndarray, plans: Any) -> np.ndarray:
    """Of listed plans."""
    return values[plans.shardings, plans.points]


@pytest.mark.parametrize("sharding", ["ddp", "zero1"])
def test_all_that_a_slower_network_adds_is_known_where_replicas_alone_use_it(sharding: str) -> None:
    """No pipeline, and exchanges longer than what hides them."""
    plan, times, bounds = Plan(tp=4, sharding=sharding), [], []  # type: ignore[arg-type]  # one of the words
    for network in (0.5, 0.25):
        asked = question(16, network=network)
        space = declare(
            asked, Restrictions(fix={"tp": (4,), "pp": (1,), "micro_batch_size": (1,), "sharding": (sharding,)})
        )
        (family,) = families_of(asked, space)
        times.append(estimate_plan(asked, plan).step_time)
        bounds.append(float(least_of_states(evaluate(asked, family).tables, np.inf).least.min()))
    assert bounds[1] - bounds[0] == pytest.approx(times[1] - times[0], rel=1e-9)
    assert bounds[0] > 0.5 * times[0]
