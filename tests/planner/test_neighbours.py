"""Neighbouring counts of accelerators and batches."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import LLAMA_70B, SMALL, cluster

import shardplan
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.physics.frameworks.defaults import job_in_stack
from shardplan.physics.frameworks.usual_stack import usual_stack
from shardplan.planner.related.counts import (
    BATCH_SHARE,
    FEWEST,
    MOST_COUNTS,
    _counts,
    _fewest,
    batches_near,
    counts_of_batch,
    layouts_of,
    worth,
)
from shardplan.planner.related.neighbours import LEAST_GAIN, Neighbours, _promising, _rate
from shardplan.planner.scope import Scope
from shardplan.planner.search import search_question


def question(num_accelerators: int, global_batch_size: int) -> Question:
    job = Job(sequence_length=8192, global_batch_size=global_batch_size)
    return Question(model=LLAMA_70B, cluster=cluster(), num_accelerators=num_accelerators, job=job)


@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 12))
def test_layouts_are_those_counted_one_by_one(number: int, batch: int, layers: int) -> None:
    counted = sum(
        1.0 if layers % pp == 0 else 0.5
        for tp, cp, pp in product((1, 2, 4, 8, 16), (1, 2, 4, 8), range(1, layers + 1))
        if number % (tp * cp * pp) == 0 and batch % (number // (tp * cp * pp)) == 0
    )
    assert layouts_of(np.asarray([[number, batch]]), layers)[0] == counted


@given(st.integers(2, 100_000))
def test_counts_fill_nodes_and_leave_a_quarter_at_most(number: int) -> None:
    counts = [*_counts(question(number, 100_000))]
    assert all(FEWEST * number <= count < number for count in counts)
    assert len(counts) <= MOST_COUNTS + 1
    assert all(count % 8 == 0 for count in counts) or number < 32


@given(st.integers(1, 20_000), st.integers(1, 5_000))
def testbatches_near_are_near_and_suit_the_count(number: int, batch: int) -> None:
    odd = number // (number & -number)
    for size in batches_near(number, batch):
        assert size % odd == 0
        assert abs(size - batch) <= BATCH_SHARE * batch


def test_a_count_that_suits_nothing_is_offered_a_better_one() -> None:
    asked = question(1022, 511)
    stack = usual_stack("NVIDIA")
    result = search_question(asked, stack=stack, top=1)
    offer = result.offers[0]
    assert offer.num_accelerators % 8 == 0
    assert offer.gain > LEAST_GAIN
    other = replace(
        asked,
        num_accelerators=offer.num_accelerators,
        job=replace(asked.job, global_batch_size=offer.global_batch_size),
    )
    own = search_question(other, stack=stack, top=1).estimates[0]
    assert own.step_time == pytest.approx(offer.estimate.step_time, rel=1e-12)
    per_second = asked.job.tokens_per_step / result.estimates[0].step_time
    assert other.job.tokens_per_step / own.step_time / per_second - 1 == pytest.approx(offer.gain, rel=1e-12)
    assert offer.estimate.num_accelerators_used == offer.num_accelerators


def test_pairs_of_many_accelerators_and_layouts_are_searched() -> None:
    """Of 191 accelerators, a prime number, neither 191 with its one layout nor only the 160 with most layouts."""
    found = _promising(question(191, 370))
    assert {(160, 400), (176, 352), (184, 368)} <= {*found}
    assert all(count < 191 for count, _ in found)


@pytest.mark.parametrize(
    ("number", "batch", "wanted"), [(24, 368, (24, 384)), (237, 408, (224, 448)), (237, 408, (204, 408))]
)
def test_the_pair_that_trains_most_is_among_those_searched(number: int, batch: int, wanted: tuple[int, int]) -> None:
    """Batches and counts that a filter by growing numbers of layouts passed over, and counts that fill no node."""
    assert wanted in _promising(question(number, batch), has_plans=False)


def test_what_promises_most_is_searched_first() -> None:
    """So that of the other pairs few plans are priced."""
    asked = question(191, 370)
    found = np.asarray(_promising(asked))
    promises = worth(asked, found, layouts_of(found, asked.model.num_hidden_layers))
    assert (np.diff(promises) <= 0).all()


@given(st.integers(2, 5_000), st.integers(1, 5_000))
def test_counts_that_suit_a_batch_havelayouts_of(number: int, batch: int) -> None:
    asked = question(number, batch)
    counts = counts_of_batch(asked)
    assert all(_fewest(asked) <= count < number for count in counts)
    pairs = np.asarray([(count, batch) for count in counts]).reshape(-1, 2)
    assert (layouts_of(pairs, asked.model.num_hidden_layers) > 0).all()


def test_more_accelerators_than_a_batch_can_feed_are_left_out() -> None:
    """36,864 accelerators train 4,608 sequences faster than any number near 100,000."""
    asked = question(100_000, 4_608)
    assert _fewest(asked) < 36_864 < FEWEST * 100_000
    assert _fewest(question(100_000, 1_000_000)) == FEWEST * 100_000


def test_offers_are_the_same_whatever_is_left_out_on_the_way() -> None:
    """Plans that are slower than the best pair so far need no price."""
    asked, stack = question(191, 370), usual_stack("NVIDIA")
    searched = Neighbours(asked, Scope(stack=stack))
    found = searched.faster_than(0.0, _promising(asked))
    best = max(found, key=_rate)
    alone = [searched.faster_than(0.0, [pair]) for pair in _promising(asked)]
    assert _rate(best) == pytest.approx(max(_rate(each) for offers in alone for each in offers), rel=1e-12)


def test_where_nothing_fits_a_count_with_more_layouts_is_suggested() -> None:
    """97 is a prime number, which leaves 405 billion parameters few layouts: 96 do without a change, and train more."""
    result = shardplan.search("llama-3.1-405b", "dgx-h100", 97, top=1, use_all=True)
    assert result.estimates == ()
    assert result.num_plans_evaluated > 0
    changes = {each.change: each for each in result.suggestions}
    assert "--gpus 96" in result.suggestions[0].change
    offload = next(text for text in changes if text.endswith("--fix offload=optimizer"))
    both = changes[f"{offload}, use 96 accelerators: --gpus 96"]
    assert both.num_accelerators == both.estimate.num_accelerators_used == 96
    assert both.estimate.step_time < changes[offload].estimate.step_time
    assert all(each.estimate.feasible for each in result.suggestions)


def test_a_round_count_needs_no_other() -> None:
    assert search_question(question(64, 512), stack=usual_stack("NVIDIA"), top=1).offers == ()


def test_restrictions_hold_for_offers() -> None:
    asked, stack = question(1022, 511), usual_stack("NVIDIA")
    assert stack is not None
    asked = replace(asked, job=job_in_stack(asked.job, stack)[0])
    result = search_question(asked, fix={"recompute": "full"}, stack=stack, top=1)
    assert all(offer.estimate.plan.recompute == "full" for offer in result.offers)
    of_one_degree = search_question(question(1022, 511), fix={"dp": 511}, top=1).offers
    assert all(offer.estimate.plan.dp(1022) == 511 for offer in of_one_degree)


def test_many_questions_are_not_offered_others() -> None:
    asked = replace(question(24, 511), model=SMALL)
    assert all(result.offers == () for result in shardplan.search_many([asked]))
