"""Questions that differ in memory and rates, answered together: each answer is that of its own search."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import GB
from tests.few import few
from tests.planner.small import families_of, limits, questions, spaces
from tests.planner.test_many import LIMIT, question

from shardplan.errors import ShardplanError
from shardplan.estimation.question import Question
from shardplan.planner.layouts import KnownPipelines
from shardplan.planner.pricing.pieces import pieces_of
from shardplan.planner.pricing.tables import Tables
from shardplan.planner.related.alike import MOST_SYSTEMS, best_of_alike
from shardplan.planner.related.leaders import Leaders
from shardplan.planner.restrictions import Restrictions
from shardplan.planner.search import search_question
from shardplan.planner.space import Space

FACTORS = (1.0, 0.03, 0.3, 4.0, 30.0)
"""Of bandwidths and latencies."""
FULL = (1.0, 0.4, 0.1, 0.03, 0.01)
"""Shares of the memory beyond context and communicators."""


@st.composite
def alike(draw: st.DrawFn) -> list[Question]:
    """A question with other capacities, networks and rates of the accelerator, in any order."""
    asked = draw(questions())
    tiers = draw(st.lists(st.lists(st.sampled_from(FACTORS), min_size=6, max_size=6), min_size=1, max_size=3))
    shares = draw(st.lists(st.sampled_from(FULL), min_size=1, max_size=4, unique=True))
    return draw(st.permutations([_changed(asked, factors, share) for factors in tiers for share in shares]))


def _changed(asked: Question, factors: list[float], share: float) -> Question:
    """``factors``: of bandwidth and latency of the innermost tier, and of those around it; of memory and peaks."""
    cluster, context = asked.cluster, float(asked.profile.context_bytes)
    tiers = tuple(
        replace(tier, bandwidth=tier.bandwidth * factors[2 * (n > 0)], latency=tier.latency * factors[2 * (n > 0) + 1])
        for n, tier in enumerate(cluster.tiers)
    )
    memory = context + share * (cluster.accelerator.memory_bytes - context)
    part = replace(
        cluster.accelerator,
        memory_bytes=memory,
        memory_bandwidth=cluster.accelerator.memory_bandwidth * factors[4],
        peak_flops={name: peak * factors[5] for name, peak in cluster.accelerator.peak_flops.items()},
    )
    return replace(asked, cluster=replace(cluster, accelerator=part, tiers=tiers))


def _alone(asked: Question, limit: dict[str, list[Any]]) -> tuple[object, int]:
    found = search_question(asked, top=1, limit=limit, suggestions=False)
    return (found.estimates[0] if found.estimates else None), found.num_plans_evaluated


@few(10)
@given(alike(), limits())
def test_each_answer_is_that_of_a_search(asked: list[Question], limit: dict[str, list[Any]]) -> None:
    """Plan, ties broken alike, every number and every sentence."""
    try:
        expected = [_alone(each, limit) for each in asked]
    except ShardplanError as error:
        with pytest.raises(type(error)):
            best_of_alike(asked, restrictions=Restrictions(limit=limit))
        return
    with pytest.MonkeyPatch.context() as patch:  # many small pieces, so that earlier ones bound later ones
        patch.setattr("shardplan.planner.pricing.pieces.CELLS", 16)
        patch.setattr("shardplan.planner.pricing.pieces.FEW", 4)
        found = best_of_alike(asked, restrictions=Restrictions(limit=limit))
    assert [(each.estimate, each.num_plans_evaluated) for each in found] == expected


def test_capacities_and_networks_decide() -> None:
    """Every network has several fastest plans, and one capacity in which nothing fits; more networks than at a time."""
    capacities, networks = (80.0, 12.0, 6.0, 3.0, 1.5), [2.0 + 3 * n for n in range(MOST_SYSTEMS + 1)]
    asked = [_of_size(question(network=network), memory) for network in networks for memory in capacities]
    found = best_of_alike(asked, restrictions=Restrictions(limit=LIMIT))
    for number in (0, 1, 2, 3, 4, 41, 42, len(asked) - 3, len(asked) - 1):
        assert (found[number].estimate, found[number].num_plans_evaluated) == _alone(asked[number], LIMIT)
    plans = [each.estimate and each.estimate.plan for each in found[: len(capacities)]]
    assert len(set(plans)) > 2
    assert plans[-1] is None


@pytest.mark.parametrize("cells", [64, 4096])
def test_what_bounds_leave_out_is_slower(monkeypatch: pytest.MonkeyPatch, cells: int) -> None:
    """Of a space of thousands of plans in pieces, of which earlier ones bound later ones."""
    monkeypatch.setattr("shardplan.planner.pricing.pieces.CELLS", cells)
    monkeypatch.setattr("shardplan.planner.pricing.pieces.FEW", 4)
    limit = LIMIT | {"tp": [1, 2, 4, 8], "micro_batch_size": [1, 2, 4], "sharding": ["ddp", "zero1", "zero3"]}
    asked = [_of_size(question(64, network=n), memory) for n in (0.5, 5, 50) for memory in (80.0, 6.0, 2.5)]
    found = best_of_alike(asked, restrictions=Restrictions(limit=limit))
    assert [(each.estimate, each.num_plans_evaluated) for each in found] == [_alone(each, limit) for each in asked]


def _of_size(asked: Question, memory: float) -> Question:
    part = replace(asked.cluster.accelerator, memory_bytes=memory * GB)
    return replace(asked, cluster=replace(asked.cluster, accelerator=part))


def test_of_equal_plans_the_first_leads() -> None:
    """One network, two capacities: by time, then family, point, sharding and slot."""
    leaders = Leaders(1, 2)
    at: dict[str, Any] = {"family": 0, "slots": np.asarray([0, 1]), "points": np.asarray([4, 7])}
    leaders.look_at(np.asarray([[[3.0, 2.0], [2.0, 2.0]]]), np.asarray([[0, 0], [1, 0]]), sharding=1, **at)
    assert leaders.best(0, 0) == (0, 7, 1, 0)
    assert leaders.best(0, 1) == (0, 4, 1, 1)
    leaders.look_at(np.asarray([[[3.0, 2.0], [2.0, 2.0]]]), np.asarray([[2, 0], [2, 2]]), sharding=0, **at)
    assert leaders.best(0, 0) == (0, 7, 0, 0)
    assert leaders.may_lead(np.asarray([[[2.0, 2.1]]]), np.asarray([[1, 0]])).tolist() == [[[True, False]]]
    assert Leaders(1, 1).best(0, 0) is None


@few(6)
@given(spaces(most=2000))
def test_no_plan_is_faster_than_its_bounds(case: tuple[Question, Space]) -> None:
    """Micro-batches on a mean stage, and those on the slowest with the bubble."""
    asked, space = case
    for family in families_of(asked, space):
        tables = Tables(question=asked, family=family, known=KnownPipelines())
        for at, pieces in pieces_of(tables):
            least = tables.least_passes_at(at.points, at.slots)
            for step in (piece.step(sharding, "times") for piece in pieces for sharding in at.shardings):
                assert np.all(least <= step.busiest * (1 + 1e-12))
                assert np.all(step.work.least_busy <= step.busiest)
