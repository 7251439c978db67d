"""Searches that leave out plans, or their step times, against the search of every plan: the same answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.few import few
from tests.planner.small import CANDIDATES, limits, questions

from shardplan.errors import ShardplanError
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.readers.catalog import load_cluster, load_model
from shardplan.planner import search
from shardplan.planner.pruning import goals
from shardplan.planner.result import SearchResult
from shardplan.planner.search import search_question
from shardplan.planner.space import Space
from shardplan.planner.survey import Survey, survey_of
from shardplan.reports.explanation import explain

MEMORY = (1.0, 0.2, 0.05, 0.02, 0.01, 0.003)
"""Shares of the memory beyond context and communicators."""
COUNTS = {"num_plans_evaluated", "num_plans_feasible", "num_plans_pruned"}
SAME = [each.name for each in fields(SearchResult) if each.compare and each.name not in {*COUNTS, "search_time"}]
"""What a pruned search answers as the whole one does."""


@pytest.fixture
def small_pieces() -> Iterator[None]:
    """A limit is looked for among one plan at first, so that small spaces are pruned."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(goals, "FIRST", 1)
        patch.setattr(goals, "MORE", 2)
        yield


def search_of_every_plan(asked: Question, **more: Any) -> SearchResult:
    """The search with every plan priced, piece by piece."""

    def without_goal(question: Question, space: Space, **given: Any) -> Survey:
        return survey_of(question, space, known=given["known"])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "survey_of", without_goal)
        return search_question(asked, **more)


def all_three(asked: Question, **more: Any) -> tuple[SearchResult, SearchResult, SearchResult]:
    """Pruned, counted and whole."""
    return (
        search_question(asked, prune=True, **more),
        search_question(asked, **more),
        search_of_every_plan(asked, **more),
    )


def told(result: SearchResult, names: list[str]) -> dict[str, Any]:
    """What a search answers, but for how long it took and the rounding of sums in another order."""
    all_of_them = None if result.fewer is None else result.fewer.step_time_of_all
    rounded = None if all_of_them is None else round(all_of_them, 12)
    fewer = result.fewer and replace(result.fewer, search_time=0.0, step_time_of_all=rounded)
    return {name: fewer if name == "fewer" else getattr(result, name) for name in names}


def check_same(pruned: SearchResult, whole: SearchResult) -> None:
    """Everything but counts; these add up."""
    assert told(pruned, SAME) == told(whole, SAME)
    assert pruned.num_plans_valid == whole.num_plans_valid == whole.num_plans_evaluated
    assert pruned.num_plans_evaluated <= whole.num_plans_evaluated
    assert pruned.num_plans_feasible <= whole.num_plans_feasible
    if not whole.estimates:
        assert (pruned.num_plans_pruned, pruned.num_plans_feasible) == (0, 0)


@st.composite
def tight(draw: st.DrawFn) -> Question:
    """A small question, often with little memory."""
    asked = draw(questions())
    part, context = asked.cluster.accelerator, float(asked.profile.context_bytes)
    memory = context + draw(st.sampled_from(MEMORY)) * (part.memory_bytes - context)
    return replace(asked, cluster=replace(asked.cluster, accelerator=replace(part, memory_bytes=memory)))


def check_counts(counted: SearchResult, whole: SearchResult) -> None:
    """Everything, counts as well."""
    assert told(counted, [*SAME, *COUNTS]) == told(whole, [*SAME, *COUNTS])


WANTED = ("tp", "pp", "ep", "micro_batch_size", "sharding", "recompute")


@st.composite
def wishes(draw: st.DrawFn) -> list[Mapping[str, Any]]:
    """Values of one or two fields each, and none at all."""
    names = st.lists(st.sampled_from(WANTED), min_size=1, max_size=2, unique=True)
    found = [{name: draw(st.sampled_from(CANDIDATES[name])) for name in draw(names)} for _ in range(4)]
    return [*found, {"sharding": "zero3", "sharding_degree": None}, {}]


@pytest.mark.usefixtures("small_pieces")
@few(8)
@given(tight(), limits(), st.sampled_from((1, 2, 3, 10, 24)), wishes())
def test_the_answer_is_that_of_a_search_of_every_plan(
    asked: Question, limit: dict[str, list[Any]], top: int, wanted: list[Mapping[str, Any]]
) -> None:
    """Listed plans, ties, the plan to take, and the best plans with given values, before and after another.

    Where plans are counted, too, with the memory of all but the step times of few: then counts are the same as well.
    """
    try:
        whole = search_of_every_plan(asked, top=top, limit=limit, suggestions=False, use_all=True)
    except ShardplanError as error:
        with pytest.raises(type(error)):
            search_question(asked, top=top, limit=limit, suggestions=False, prune=True, use_all=True)
        return
    pruned = search_question(asked, top=top, limit=limit, suggestions=False, prune=True, use_all=True)
    check_same(pruned, whole)
    assert [*pruned.best_of_each(wanted)] == [*whole.best_of_each(wanted)]
    assert pruned.best_where(**wanted[0]) == whole.best_where(**wanted[0])
    counted = search_question(asked, top=top, limit=limit, suggestions=False, use_all=True)
    check_counts(counted, whole)
    assert [*counted.best_of_each(wanted)] == [*whole.best_of_each(wanted)]
    if whole.estimates:
        fastest = whole.estimates[0].step_time
        for within in (fastest * 0.98, fastest * (1 + 1e-9)):  # of too short a time there is no plan; else all the same
            limited: dict[str, Any] = {"top": top, "limit": limit, "within": within}
            short = search_question(asked, **limited, suggestions=False, prune=True, use_all=True)
            if within < fastest:
                assert (short.estimates, short.recommended) == ((), None)
            else:
                check_same(short, whole)


def question(name: str, number: int, job: Job) -> Question:
    """Of the catalogue."""
    return Question(model=load_model(name), cluster=load_cluster("dgx-h100"), num_accelerators=number, job=job)


QUESTIONS = (
    ("llama-3.1-8b", 64, Job(sequence_length=8192, global_batch_size=128)),
    ("qwen3-30b-a3b", 24, Job(sequence_length=4096, global_batch_size=96)),
)


@pytest.mark.parametrize(("name", "number", "job"), QUESTIONS)
def test_a_question_of_usual_size(name: str, number: int, job: Job) -> None:
    """Dense and experts: the answer with its reasons and its picture; most plans are left out."""
    asked = question(name, number, job)
    limit = {"micro_batch_size": [1, 2, 4], "placement": ["tp-cp-ep-dp-pp"], "etp": [1], "vp": [1, 2, 4]}
    pruned, counted, whole = all_three(asked, limit=limit)
    check_same(pruned, whole)
    assert explain(pruned) == explain(whole)
    assert pruned.num_plans_pruned > 0.5 * whole.num_plans_evaluated
    one, other = pruned.sample(50), whole.sample(50)
    assert one is not None
    assert other is not None
    check_counts(counted, whole)
    assert explain(counted) == explain(whole)
    assert [one.plan(n) for n in range(len(one))] == [other.plan(n) for n in range(len(other))]
    assert (one.step_time == other.step_time).all()


def test_where_nothing_fits_every_plan_is_looked_at() -> None:
    """Suggestions and the smallest plan are those of the whole search."""
    asked = question("llama-3.1-70b", 4, Job(sequence_length=4096, global_batch_size=16))
    limit = {"micro_batch_size": [1], "tp": [1, 2, 4]}
    pruned, counted, whole = all_three(asked, limit=limit, suggestions=False)
    check_same(pruned, whole)
    check_counts(counted, whole)
    assert not whole.estimates


@pytest.mark.parametrize("most", [3, 20])
@pytest.mark.usefixtures("small_pieces")
def test_simulated_plans_are_the_same(most: int) -> None:
    """Plans that are simulated are within the ties or listed, and none of these is left out."""
    asked = question(*QUESTIONS[0])
    limit = {"micro_batch_size": [1, 2], "vp": [1, 2], "placement": ["tp-cp-ep-dp-pp"], "tp": [2, 4], "pp": [2, 4]}
    pruned, counted, whole = all_three(asked, limit=limit, simulate_top=most, top=4)
    check_same(pruned, whole)
    check_counts(counted, whole)
