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
from tests.planner.small import alike, families_of, limits, spaces
from tests.planner.test_many import LIMIT, question

from shardplan.errors import ShardplanError
from shardplan.estimation.question import Question
from shardplan.planner.layouts import KnownPipelines
from shardplan.planner.listed import with_chunks
from shardplan.planner.pricing.cutting import pieces_of
from shardplan.planner.pricing.pairs import Pairs, least_times
from shardplan.planner.pricing.tables import Tables
from shardplan.planner.pruning.bounds import ROUNDING, least_of_exchanges
from shardplan.planner.related.alike import best_of_alike, estimates_of
from shardplan.planner.related.side_by_side import MOST_SYSTEMS, Slice
from shardplan.planner.restrictions import Restrictions
from shardplan.planner.search import search_question
from shardplan.planner.space import Space


def _alone(asked: Question, limit: dict[str, list[Any]]) -> tuple[object, object, int]:
    """Of a search of its own: the fastest plan, the plan to take and how many there are."""
    found = search_question(asked, top=1, limit=limit, suggestions=False, use_all=True)
    return (found.estimates[0] if found.estimates else None), found.recommended, found.num_plans_evaluated


def _together(asked: list[Question], limit: dict[str, list[Any]]) -> list[tuple[object, object, int]]:
    """The same of questions that are answered together."""
    found = best_of_alike(asked, restrictions=Restrictions(limit=limit), to_take=True)
    fastest, to_take = (estimates_of(asked, plans, None) for plans in zip(*(each[:2] for each in found), strict=True))
    for plan, estimate in [*zip((each.fastest for each in found), fastest, strict=True)]:
        assert (plan is None) == (estimate is None)
        if plan is not None and estimate is not None:
            assert plan.step_time == pytest.approx(estimate.step_time, rel=1e-12)
            assert plan.peak_memory_bytes == pytest.approx(estimate.peak_memory_bytes, rel=1e-12)
    alone = best_of_alike(asked, restrictions=Restrictions(limit=limit))
    assert [each.fastest for each in alone] == [each.fastest for each in found]
    assert {each.to_take for each in alone} == {None}
    return [*zip(fastest, to_take, (each.num_plans for each in found), strict=True)]


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
        patch.setattr("shardplan.planner.pricing.cutting.CELLS", 16)
        patch.setattr("shardplan.planner.pricing.cutting.FEW", 4)
        found = _together(asked, limit)
    assert found == expected


def test_capacities_and_networks_decide() -> None:
    """Every network has several fastest plans, and one capacity in which nothing fits; more networks than at a time."""
    capacities, networks = (80.0, 12.0, 6.0, 3.0, 1.5), [2.0 + 3 * n for n in range(MOST_SYSTEMS + 1)]
    asked = [_of_size(question(network=network), memory) for network in networks for memory in capacities]
    found = _together(asked, LIMIT)
    for number in (0, 1, 2, 3, 4, 41, 42, len(asked) - 3, len(asked) - 1):
        assert found[number] == _alone(asked[number], LIMIT)
    fastest = [each for each, *_ in found[: len(capacities)]]
    assert len({getattr(each, "plan", None) for each in fastest}) > 2
    assert fastest[-1] is None


@pytest.mark.parametrize("cells", [64, 4096])
def test_what_bounds_leave_out_is_slower(monkeypatch: pytest.MonkeyPatch, cells: int) -> None:
    """Of a space of thousands of plans in pieces, of which earlier ones bound later ones."""
    monkeypatch.setattr("shardplan.planner.pricing.cutting.CELLS", cells)
    monkeypatch.setattr("shardplan.planner.pricing.cutting.FEW", 4)
    limit = LIMIT | {"tp": [1, 2, 4, 8], "micro_batch_size": [1, 2, 4], "sharding": ["ddp", "zero1", "zero3"]}
    asked = [_of_size(question(64, network=n), memory) for n in (0.5, 5, 50) for memory in (80.0, 6.0, 2.5)]
    assert _together(asked, limit) == [_alone(each, limit) for each in asked]


def _of_size(asked: Question, memory: float) -> Question:
    part = replace(asked.cluster.accelerator, memory_bytes=memory * GB)
    return replace(asked, cluster=replace(asked.cluster, accelerator=part))


@few(6)
@given(spaces(most=2000))
def test_no_plan_is_faster_than_its_bounds(case: tuple[Question, Space]) -> None:
    """Micro-batches on a mean stage, their exchanges alone, and those on the slowest with the bubble."""
    asked, space = case
    for family in families_of(asked, space):
        tables = Tables(question=asked, family=family, known=KnownPipelines())
        exchanges = least_of_exchanges(tables)
        for at, pieces in pieces_of(tables):
            least = tables.least_passes_at(at.points, at.slots)
            for sharding, step in ((sharding, piece.step(sharding)) for piece in pieces for sharding in at.shardings):
                assert np.all(least <= step.busiest * (1 + 1e-12))
                assert np.all(exchanges[sharding, at.points] <= step.step_time * (1 + 1e-12))
                assert np.all(step.work.least_busy <= step.busiest)


WORSE = st.tuples(st.sampled_from((1.0, 0.5, 0.03)), st.sampled_from((1.0, 4.0, 30.0)))
"""Factors on bandwidth and latency."""


def _on(asked: Question, bandwidth: float, latency: float) -> Question:
    """``asked`` with these factors on the rates of its outermost tier."""
    *inner, tier = asked.cluster.tiers
    tier = replace(tier, bandwidth=tier.bandwidth * bandwidth, latency=tier.latency * latency)
    return replace(asked, cluster=replace(asked.cluster, tiers=(*inner, tier)))


@few(8)
@given(spaces(most=1000), st.lists(WORSE, min_size=1, max_size=3))
def test_no_pipeline_is_faster_than_on_the_best_network(
    case: tuple[Question, Space], worse: list[tuple[float, float]]
) -> None:
    """Whatever its sharding."""
    asked, space = case
    beside = Slice.of([*(_on(asked, *each) for each in worse), asked])
    assert beside.best is not None
    for family in families_of(asked, space):
        tables = Tables(question=beside.joint, family=family, known=KnownPipelines())
        slots, points = np.nonzero(family.recomputes)
        plans, _ = with_chunks(tables, np.zeros_like(slots), slots, points)
        times = [
            least_times(tables, Pairs(np.full(len(plans), system), plans.slots, plans.layouts, plans.points))
            for system in range(len(beside.of_systems))
        ]
        assert np.all(times[beside.best] <= np.asarray(times) * (1 + ROUNDING))


def test_the_best_network_is_the_best_in_every_respect() -> None:
    """Or there is none; on other accelerators plans take another time."""
    asked = question(64)
    assert Slice.of([_on(asked, 0.5, 1.0), _on(asked, 2.0, 0.5), asked]).best == 1
    assert Slice.of([_on(asked, 2.0, 2.0), asked]).best is None
    part = replace(asked.cluster.accelerator, memory_bandwidth=asked.cluster.accelerator.memory_bandwidth / 2)
    other = replace(asked, cluster=replace(asked.cluster, accelerator=part))
    assert Slice.of([_on(asked, 2.0, 0.5), other]).best is None
