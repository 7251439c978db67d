"""Which plan is recommended, in words: every number of the sentence is one of the estimates."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from tests.planner.test_search import question
from tests.planner.test_ties import LIMIT

from shardplan.base.units import format_bytes
from shardplan.estimation.perturbation import GROUPS
from shardplan.inputs.plan import Plan
from shardplan.planner.result import SearchResult
from shardplan.planner.robustness import EVIDENCE, Robustness, Ties
from shardplan.planner.search import search_question
from shardplan.reports.recommendation import WORSE, Recommendation, reason, recommendation, ties_sentence


@cache
def searched() -> SearchResult:
    """A search whose fastest plan has headroom."""
    result = search_question(question(), limit=LIMIT, top=3)
    assert result.estimates[0].has_headroom
    return result


def against_the_fastest(
    *, time: float = 1.0, memory: float = 1.0, lost: float = 0.03, lost_by_fastest: float = 0.03, full: bool = False
) -> Recommendation:
    """The second plan of the list as the recommended one, its quantities as multiples of the fastest's.

    ``full``: whether the memory of the fastest does not fit at the upper end of its band.
    """
    fastest, other = searched().estimates[:2]
    usable = fastest.usable_memory_bytes
    peak, p90 = 0.6 * usable, (1.1 if full else 0.7) * usable
    fastest = replace(fastest, peak_memory_bytes=peak, peak_memory_p90_bytes=p90)
    best = replace(
        other,
        step_time=time * fastest.step_time,
        peak_memory_bytes=memory * peak,
        peak_memory_p90_bytes=0.7 * memory * usable,
    )

    def robustness(share: float, step_time: float) -> Robustness:
        lost_time = dict.fromkeys(WORSE, 0.0) | {"network": share * step_time}
        return Robustness(lost_time=lost_time, pessimistic_time=(1 + share) * step_time)

    ties = Ties(
        factor=1.1,
        num_plans=2,
        num_with_headroom=1,
        taken=(best,),
        robustness={
            fastest.plan: robustness(lost_by_fastest, fastest.step_time),
            best.plan: robustness(lost, best.step_time),
        },
    )
    return recommendation(ties, (fastest, best))


@pytest.mark.parametrize(
    ("quantities", "words"),
    [
        ({"memory": 0.5}, "as fast as the fastest, and needs {less} less"),
        ({"time": 1.01, "memory": 0.5}, "1.0 % slower than the fastest, but needs {less} less"),
        (
            {"time": 1.02, "lost": 0.03, "lost_by_fastest": 0.11},
            "2.0 % slower than the fastest, but loses 3.0 % instead of 11.0 % if the network is slower than assumed",
        ),
        (
            {"time": 1.006, "memory": 0.5, "lost": 0.03, "lost_by_fastest": 0.11},
            (
                "0.6 % slower than the fastest, but needs {less} less and loses 3.0 % instead of 11.0 % if the network "
                "is slower than assumed"
            ),
        ),
        (
            {"time": 1.02, "full": True},
            (
                "2.0 % slower than the fastest, but fits even at the upper end of its memory band ({p90} of {usable}; "
                "the fastest would need {fastest_p90})"
            ),
        ),
        (
            {"memory": 1.2, "lost_by_fastest": 0.11},
            "needs {more} more, but loses 3.0 % instead of 11.0 % if the network is slower than assumed",
        ),
        (
            {"time": 1.01, "memory": 0.5, "lost": 0.03, "lost_by_fastest": 0.031},
            "1.0 % slower than the fastest, but needs {less} less",
        ),
        (
            {"time": 1.0009},
            "0.1 % slower than the fastest, but takes least time if all that is uncertain is worse than assumed",
        ),
    ],
)
def test_the_reason_says_what_is_lost_and_what_is_gained(quantities: dict[str, Any], words: str) -> None:
    found = against_the_fastest(**quantities)
    usable, saved = found.fastest.usable_memory_bytes, found.memory_saved
    numbers = {
        "less": format_bytes(saved),
        "more": format_bytes(-saved),
        "usable": format_bytes(usable),
        "p90": format_bytes(found.estimate.peak_memory_p90_bytes),
        "fastest_p90": format_bytes(found.fastest.peak_memory_p90_bytes),
    }
    assert reason(found) == words.format(**numbers)
    assert found.place == 2


def test_the_fastest_needs_no_reason() -> None:
    ties, estimates = searched().ties, searched().estimates
    assert ties is not None
    same = recommendation(replace(ties, taken=(estimates[0],)), estimates)
    assert same.is_fastest
    assert same.place == 1
    assert same.time_lost == same.memory_saved == 0
    assert "most robust" in reason(same)


def test_a_plan_that_is_not_listed_has_no_place() -> None:
    ties, estimates = searched().ties, searched().estimates
    assert ties is not None
    fastest, other = estimates[:2]
    robustness = {**ties.robustness, other.plan: ties.robustness[fastest.plan]}
    found = recommendation(replace(ties, taken=(other,), robustness=robustness), [fastest])
    assert found.place is None
    assert found.time_lost == pytest.approx(other.step_time / fastest.step_time - 1)


def test_every_group_has_its_words() -> None:
    assert list(WORSE) == [*GROUPS, EVIDENCE]


@pytest.mark.parametrize(
    ("best", "fastest", "words"),
    [
        (Plan(tp=2), Plan(tp=2, pp=2), "as fast as the fastest, and is simpler: it splits fewer dimensions"),
        (Plan(tp=2), Plan(tp=2, recompute="full"), "as fast as the fastest, and is simpler: it has fewer switches"),
        (Plan(pp=4), Plan(pp=3), "as fast as the fastest, and is simpler: it has stages of equal layers"),
        (Plan(tp=4), Plan(tp=2), "as fast as the fastest, and takes least time if all that is uncertain is worse"),
        (Plan(tp=4, pp=2), Plan(tp=2), "as fast as the fastest, and takes least time if all that is uncertain"),
    ],
)
def test_a_simpler_plan_that_is_alike_is_recommended_for_it(best: Plan, fastest: Plan, words: str) -> None:
    found = against_the_fastest()
    simpler, usual = (replace(found.fastest, plan=plan, stage_layers=(8,)) for plan in (best, fastest))
    assert reason(replace(found, estimate=simpler, fastest=usual, memory_saved=0.0)).startswith(words)


def test_a_measured_plan_is_recommended_for_it() -> None:
    ties, (fastest, other, *_) = searched().ties, searched().estimates
    assert ties is not None
    lost = dict.fromkeys(WORSE, 0.0)
    robustness = {
        fastest.plan: Robustness(lost_time=lost | {EVIDENCE: 0.05 * fastest.step_time}, pessimistic_time=1.0),
        other.plan: Robustness(lost_time=lost, pessimistic_time=1.0),
    }
    like = replace(fastest, plan=other.plan)
    found = recommendation(replace(ties, taken=(like,), robustness=robustness), [fastest, like])
    words = "as fast as the fastest, and loses 0.0 % instead of 5.0 % if unmeasured plans take longer than estimated"
    assert reason(found) == words


@pytest.mark.parametrize(
    ("roomy", "words"),
    [(40, "all of them still fit"), (7, "7 of them still fit"), (1, "1 of them still fits"), (0, "none of them still")],
)
def test_ties_are_counted_and_explained(roomy: int, words: str) -> None:
    ties = searched().ties
    assert ties is not None
    text = ties_sentence(replace(ties, factor=1.0979, num_plans=40, num_with_headroom=roomy), 12_345)
    assert "within 10 % are too close to call, by measured pairs of configurations" in text
    assert "40 of the 12,345 plans that fit tie with the fastest" in text
    assert words in text


def test_a_plan_that_nothing_comes_near_says_so() -> None:
    ties = searched().ties
    assert ties is not None
    alone = ties_sentence(replace(ties, factor=1.0979, num_plans=1), 12_345)
    assert alone == "No other plan comes within 10 % of the fastest."
