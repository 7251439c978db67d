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
from shardplan.frameworks.defaults import job_in_stack
from shardplan.frameworks.usual_stack import usual_stack
from shardplan.inputs.job import Job
from shardplan.planner.related.neighbours import (
    BATCH_SHARE,
    FEWEST,
    LEAST_GAIN,
    MOST_COUNTS,
    _batches,
    _counts,
    _layouts,
    _promising,
)
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
    assert _layouts(np.asarray([[number, batch]]), layers)[0] == counted


@given(st.integers(2, 100_000))
def test_counts_fill_nodes_and_leave_a_quarter_at_most(number: int) -> None:
    counts = [*_counts(question(number, 512))]
    assert all(FEWEST * number <= count < number for count in counts)
    assert len(counts) <= MOST_COUNTS + 1
    assert all(count % 8 == 0 for count in counts) or number < 32


@given(st.integers(1, 20_000), st.integers(1, 5_000))
def test_batches_are_near_and_suit_the_count(number: int, batch: int) -> None:
    odd = number // (number & -number)
    for size in _batches(number, batch):
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
    assert {(160, 360), (176, 352), (184, 368)} <= {*found}
    assert all(count < 191 for count, _ in found)


def test_a_round_count_needs_no_other() -> None:
    assert search_question(question(64, 512), stack=usual_stack("NVIDIA"), top=1).offers == ()


def test_restrictions_hold_for_offers() -> None:
    asked, stack = question(1022, 511), usual_stack("NVIDIA")
    assert stack is not None
    asked = replace(asked, job=job_in_stack(asked.job, stack)[0])
    result = search_question(asked, fix={"recompute": "full"}, stack=stack, top=1)
    assert all(offer.estimate.plan.recompute == "full" for offer in result.offers)
    assert search_question(question(1022, 511), fix={"dp": 511}, top=1).offers == ()


def test_many_questions_are_not_offered_others() -> None:
    asked = replace(question(24, 511), model=SMALL)
    assert all(result.offers == () for result in shardplan.search_many([asked]))
