"""What an explanation says is what the estimate says."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import pytest
from tests.examples import SMALL, accelerator, cluster, mixtral

from shardplan.base.errors import PlanError
from shardplan.estimation.estimate import estimate_plan
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.planner.result import SearchResult
from shardplan.planner.search import search_question
from shardplan.reports.explanation import Explanation, explain, explanation_record


@cache
def searched(memory: float = 12e9, *, moe: bool = False) -> SearchResult:
    job = Job(sequence_length=2048, global_batch_size=64)
    model = mixtral(4) if moe else SMALL
    part = accelerator(memory_bytes=4 * memory if moe else memory)
    return search_question(Question(model=model, cluster=cluster(part=part), num_accelerators=16, job=job), top=3)


def explained(result: SearchResult) -> Explanation:
    explanation = explain(result)
    assert explanation is not None
    return explanation


@pytest.mark.parametrize("moe", [False, True])
def test_no_alternative_is_better_than_the_fastest(*, moe: bool) -> None:
    fastest = searched(moe=moe).estimates[0].step_time
    for each in explained(searched(moe=moe)).alternatives:
        if each.best is not None:
            assert each.best.estimate.step_time >= fastest
            assert each.best.missing_bytes == 0
            assert all(getattr(each.best.estimate.plan, name) == value for name, value in each.change.items())


@pytest.mark.parametrize("moe", [False, True])
def test_alone_means_that_nothing_but_the_change_differs(*, moe: bool) -> None:
    result = searched(moe=moe)
    best = explained(result).best
    assert best == result.recommended
    for each in explained(result).alternatives:
        if each.alone is None:
            assert each.broken_rule
            if "pp" not in each.change:
                with pytest.raises(PlanError):
                    estimate_plan(result.question, replace(best.plan, **each.change))
        else:
            assert each.alone.also_changed(best.plan, each.change).keys() <= {"vp", "schedule"}
            assert each.alone.estimate == estimate_plan(result.question, each.alone.estimate.plan)
            assert each.alone.time_lost == each.alone.estimate.step_time - best.step_time
            assert bool(each.alone.missing_bytes) == (not each.alone.estimate.feasible)


def test_degrees_are_halved_and_doubled() -> None:
    plan = explained(searched()).best.plan
    changes = [each.change for each in explained(searched()).alternatives]
    for name in ("tp", "pp", "micro_batch_size"):
        assert {name: 2 * getattr(plan, name)} in changes
        if getattr(plan, name) > 1:
            assert {name: getattr(plan, name) // 2} in changes
    assert any(change.get("sharding") in ("zero3", "zero1") for change in changes)


@pytest.mark.parametrize(("size", "others"), [(1, {3}), (3, {1, 9}), (9, {3, 18})])
def test_odd_degrees_move_to_the_candidates_next_to_half_and_double(size: int, others: set[int]) -> None:
    question = replace(searched(80e9).question, num_accelerators=1, job=Job(sequence_length=2048, global_batch_size=9))
    result = search_question(question, top=1)
    assert result.space["micro_batch_size"] == (1, 3, 9)
    best = estimate_plan(question, replace(result.estimates[0].plan, micro_batch_size=size))
    assert result.ties is not None
    alternatives = explained(replace(result, ties=replace(result.ties, taken=(best,)))).alternatives
    assert {each.change.get("micro_batch_size") for each in alternatives} - {None} == others


def test_sharding_over_all_ranks_is_the_alternative_to_hybrid_sharding() -> None:
    result = search_question(searched(80e9).question, top=1, fix={"sharding": ("hsdp",), "sharding_degree": (4,)})
    alternatives = {each.name: each for each in explained(result).alternatives}
    for name in ("ZeRO-3", "ZeRO-1") if explained(result).best.plan.pp == 1 else ("ZeRO-1",):
        alone = alternatives[name].alone
        assert alone is not None
        assert alone.estimate.plan.sharding_degree is None


def test_without_replicas_no_kind_of_sharding_is_an_alternative() -> None:
    question = replace(searched(80e9).question, num_accelerators=1, job=Job(sequence_length=2048, global_batch_size=4))
    names = {each.name for each in explained(search_question(question, top=1)).alternatives}
    assert not any("ZeRO" in name for name in names)


def test_an_alternative_of_the_same_time_is_as_fast() -> None:
    result = searched(80e9)
    for each in explained(result).alternatives:
        if each.best is not None:
            lost = each.best.time_lost
            assert each.outcome == ("as fast" if lost == 0 else "slower" if lost > 0 else "faster")


def test_experts_have_alternatives_where_there_are_experts() -> None:
    assert any("ep" in each.change for each in explained(searched(moe=True)).alternatives)
    assert not any("ep" in each.change for each in explained(searched()).alternatives)


def test_memory_limits_where_a_faster_plan_does_not_fit() -> None:
    tight, ample = explained(searched(2.5e9)), explained(searched(80e9))
    assert tight.blocked
    needed = [each.alone.missing_bytes for each in tight.blocked if each.alone is not None]
    assert needed == sorted(needed)
    assert needed[0] > 0
    assert not ample.blocked


def test_compute_and_losses_are_shares_of_the_step() -> None:
    explanation = explained(searched())
    breakdown = explanation.best.breakdown
    assert explanation.compute.value == pytest.approx(breakdown["matmul"] + breakdown["attention"])
    assert explanation.losses[0].value == max(v for k, v in breakdown.items() if k not in ("matmul", "attention"))


def test_nothing_is_explained_where_nothing_fits() -> None:
    assert explain(replace(searched(), estimates=(), ties=None)) is None


def test_a_value_outside_the_space_is_said_to_be_outside() -> None:
    question = searched(80e9).question
    result = search_question(question, top=1, fix={"tp": (2,), "pp": (1,), "micro_batch_size": (1,)})
    outcomes = {each.name: each.outcome for each in explained(result).alternatives}
    assert outcomes["tp 2 -> 4"] == "not searched"
    assert outcomes["pp 1 -> 2"] == "not searched"
    fixed = explained(search_question(question, top=1, fix={"recompute": "full"}))
    found = {each.name: each.is_searched for each in fixed.alternatives}
    assert found["no recomputation"] is False
    assert found["tp 1 -> 2"] is True


def test_a_change_that_breaks_a_rule_names_it() -> None:
    question = replace(searched(80e9).question, num_accelerators=1, job=Job(sequence_length=2048, global_batch_size=4))
    alternatives = {each.name: each for each in explained(search_question(question, top=1)).alternatives}
    assert alternatives["tp 1 -> 2"].outcome == "breaks a rule"
    assert "divides the accelerators" in str(alternatives["tp 1 -> 2"].broken_rule)


def test_the_record_is_plain_and_says_the_same() -> None:
    explanation = explained(searched(2.5e9))
    record = json.loads(json.dumps(explanation_record(explanation), allow_nan=False))
    assert record["memory_limits"] is True
    assert len(record["alternatives"]) == len(explanation.alternatives)
    for each, written in zip(explanation.alternatives, record["alternatives"], strict=True):
        assert written["outcome"] == each.outcome
        assert (written["alone"] is None) == (each.alone is None)
        if each.best is not None:
            assert written["best"]["time_lost_s"] == each.best.time_lost
            assert Plan(**{**written["best"]["plan"], "stage_layers": None}) == each.best.estimate.plan
