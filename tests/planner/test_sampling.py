"""A sample of a space has the plans of the space, and their numbers."""

from __future__ import annotations

import numpy as np
import pytest

from shardplan.api.questions import ask
from shardplan.estimation.estimate import estimate_plans
from shardplan.planner.result import SearchResult
from shardplan.planner.search import search_question
from shardplan.validity.rules import check_plan

MOST = 400


@pytest.fixture(scope="module", params=["llama-3.1-8b", "mixtral-8x7b"])
def result(request: pytest.FixtureRequest) -> SearchResult:
    return search_question(ask(request.param, "dgx-h100", 64, stack=None).question, suggestions=False)


def test_plans_are_valid_different_and_no_more_than_asked_for(result: SearchResult) -> None:
    sample, asked = result.sample(MOST), result.question
    assert sample is not None
    plans = [sample.plan(index) for index in range(len(sample))]
    assert 0.9 * MOST <= len(set(plans)) == len(plans) <= MOST + len(sample.parts)
    for plan in plans:
        check_plan(plan, asked.model, asked.cluster, asked.num_accelerators, asked.job)


def test_numbers_are_those_of_the_estimate(result: SearchResult) -> None:
    sample = result.sample(MOST)
    assert sample is not None
    places = range(0, len(sample), 40)
    for place, estimate in zip(
        places, estimate_plans(result.question, [sample.plan(place) for place in places]), strict=True
    ):
        assert sample.step_time[place] == pytest.approx(estimate.step_time, rel=1e-9)
        assert sample.peak_memory_bytes[place] == pytest.approx(estimate.peak_memory_bytes, rel=1e-9)
        assert sample.fits[place] == estimate.feasible


def test_no_sampled_plan_that_fits_is_faster_than_the_best(result: SearchResult) -> None:
    sample = result.sample(MOST)
    assert sample is not None
    assert sample.step_time[sample.fits].min() >= result.estimates[0].step_time * (1 - 1e-9)


def test_the_same_seed_draws_the_same_plans(result: SearchResult) -> None:
    first, again = result.sample(MOST), result.sample(MOST)
    assert first is not None
    assert again is not None
    assert np.array_equal(first.step_time, again.step_time)
