"""A much larger batch is offered where there are too few sequences for the accelerators, and only there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.examples import LLAMA_70B, cluster

import shardplan
from shardplan.estimation.estimate import Estimate, estimate_plan
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.physics.frameworks.usual_stack import usual_stack
from shardplan.planner.related.neighbours import LEAST_GAIN_OF_LARGER, MOST_TOKENS, NEXT_GAIN, larger_batch
from shardplan.planner.search import search_question
from shardplan.reports.recommendation import offer_text


def question(global_batch_size: int, sequence_length: int = 8192) -> Question:
    job = Job(sequence_length=sequence_length, global_batch_size=global_batch_size)
    return Question(model=LLAMA_70B, cluster=cluster(), num_accelerators=512, job=job)


def best(asked: Question) -> Estimate:
    return search_question(asked, stack=usual_stack("NVIDIA"), top=1, offers=False).estimates[0]


def test_few_sequences_on_many_accelerators_are_offered_more_and_the_gain_is_that_of_a_search() -> None:
    asked = question(16)
    result = search_question(asked, stack=usual_stack("NVIDIA"), top=1)
    offer = max(result.offers, key=lambda each: each.global_batch_size)
    factor = offer.global_batch_size / 16
    assert factor in (2, 4, 8, 16)
    assert offer.num_accelerators == 512
    other = replace(asked, job=replace(asked.job, global_batch_size=offer.global_batch_size))
    own = best(other)
    assert own.step_time == pytest.approx(offer.estimate.step_time, rel=1e-12)
    assert offer.gain == pytest.approx(factor * result.estimates[0].step_time / own.step_time - 1)
    assert offer.gain >= LEAST_GAIN_OF_LARGER
    assert [each.gain for each in result.offers] == sorted((each.gain for each in result.offers), reverse=True)
    assert f"--global-batch-size {offer.global_batch_size}" in offer_text(asked, offer)
    assert "if the model learns as well from" in offer_text(asked, offer)


def test_a_mixture_with_one_sequence_for_each_replica_is_offered_the_batch_that_pays() -> None:
    """MiniMax-M2.5 on 2,304 GB300: 144 sequences leave each replica one. Twice the offered batch gains little more."""
    asked: dict[str, Any] = {
        "sequence_length": 32_768,
        "precision": "mxfp8",
        "top": 1,
        "limit": {"cp": [1], "etp": [1]},
    }

    def searched(batch: int) -> shardplan.SearchAnswer:
        return shardplan.search("minimax-m2.5", "gb300-nvl72", 2304, global_batch_size=batch, **asked)

    few = searched(144)
    offer = few.offers[0]
    batch = offer.global_batch_size
    assert batch > 2 * 144
    assert offer.gain > 2 * LEAST_GAIN_OF_LARGER
    many, twice = searched(batch), searched(2 * batch)
    assert offer.estimate.step_time * 0.97 <= many.estimates[0].step_time <= offer.estimate.step_time  # more software
    assert all(each.global_batch_size <= batch for each in many.offers)
    gain = 2 * many.estimates[0].step_time / twice.estimates[0].step_time - 1
    assert 0 < gain < min(1.2 * NEXT_GAIN, offer.gain / 2)  # what a doubling promises is found without a search


def never(_batch: int, _within: float) -> Estimate | None:
    raise AssertionError("nothing is to be searched")


def test_nothing_is_searched_where_replicas_have_many_sequences_or_the_step_is_computation() -> None:
    asked = question(512)
    many = estimate_plan(asked, Plan(tp=8, pp=2))
    assert 2 * many.plan.dp(512) * many.plan.pp < 512
    assert larger_batch(asked, many, never) is None
    computing = replace(many, plan=Plan(tp=1, pp=1), breakdown={"matmul": many.step_time})
    assert larger_batch(asked, computing, never) is None


@pytest.mark.parametrize("batch", [16, MOST_TOKENS // 8192 // 2, MOST_TOKENS // 8192])
def test_no_more_tokens_a_step_than_makers_train_on(batch: int) -> None:
    asked = question(batch)
    waiting = replace(estimate_plan(question(512), Plan(tp=8)), breakdown={"host": 1.0}, plan=Plan(tp=8, pp=64))
    looked: list[int] = []

    def none(size: int, _within: float) -> Estimate | None:
        looked.append(size)
        return None

    assert larger_batch(asked, waiting, none) is None
    assert all(size * 8192 <= MOST_TOKENS for size in looked)
    assert bool(looked) == (2 * batch * 8192 <= MOST_TOKENS and batch <= 2 * 64)
