"""Bounds of plans hold for every plan, and searches that leave plans out answer as those that do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.few import few
from tests.planner.small import (
    CANDIDATES,
    TIME_OF_ALL,
    evaluate,
    families_of,
    limits,
    plans_of,
    questions,
    spaces,
)
from tests.planner.test_evaluation import listed
from tests.planner.test_together import question

from shardplan.base.errors import ShardplanError
from shardplan.estimation.estimate import estimate_plan
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.readers.catalog import load_cluster, load_model
from shardplan.planner import scope, survey
from shardplan.planner.evaluation import outcomes
from shardplan.planner.points import families
from shardplan.planner.pricing.pieces import SMALLEST
from shardplan.planner.pruning.bounds import ROUNDING, FirstStages, bound_and_promise, least_of_states
from shardplan.planner.pruning.computing import Computed, FastEnough
from shardplan.planner.restrictions import Restrictions
from shardplan.planner.result import SearchResult
from shardplan.planner.search import search_question
from shardplan.planner.space import Space, declare
from shardplan.planner.survey import Goal, Survey, survey_of
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
        patch.setattr(survey, "FIRST", 1)
        patch.setattr(survey, "MORE", 2)
        yield


def search_of_every_plan(asked: Question, **more: Any) -> SearchResult:
    """The search with every plan priced, piece by piece."""

    def without_goal(catalogue_question: Question, space: Space, *_goals: Goal, **given: Any) -> Survey:
        return survey_of(catalogue_question, space, known=given["known"])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scope, "survey_of", without_goal)
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
    """A small catalogue_question, often with little memory."""
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
    """Listed plans, ties, the recommended plan, and the best plans with given values, before and after another.

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


def catalogue_question(name: str, number: int, job: Job) -> Question:
    """Of the catalogue."""
    return Question(model=load_model(name), cluster=load_cluster("dgx-h100"), num_accelerators=number, job=job)


QUESTIONS = (
    ("llama-3.1-8b", 64, Job(sequence_length=8192, global_batch_size=128)),
    ("qwen3-30b-a3b", 24, Job(sequence_length=4096, global_batch_size=96)),
)


@pytest.mark.parametrize(("name", "number", "job"), QUESTIONS)
def test_a_question_of_usual_size(name: str, number: int, job: Job) -> None:
    """Dense and experts: the answer with its reasons and its picture; most plans are left out."""
    asked = catalogue_question(name, number, job)
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
    asked = catalogue_question("llama-3.1-70b", 4, Job(sequence_length=4096, global_batch_size=16))
    limit = {"micro_batch_size": [1], "tp": [1, 2, 4]}
    pruned, counted, whole = all_three(asked, limit=limit, suggestions=False)
    check_same(pruned, whole)
    check_counts(counted, whole)
    assert not whole.estimates


@pytest.mark.parametrize("most", [3, 20])
@pytest.mark.usefixtures("small_pieces")
def test_simulated_plans_are_the_same(most: int) -> None:
    """Plans that are simulated are within the ties or listed, and none of these is left out."""
    asked = catalogue_question(*QUESTIONS[0])
    limit = {"micro_batch_size": [1, 2], "vp": [1, 2], "placement": ["tp-cp-ep-dp-pp"], "tp": [2, 4], "pp": [2, 4]}
    pruned, counted, whole = all_three(asked, limit=limit, simulate_top=most, top=4)
    check_same(pruned, whole)
    check_counts(counted, whole)


@few(20)
@given(spaces(most=4000))
def test_no_plan_needs_less(asked: tuple[Question, Space]) -> None:
    question, space = asked
    for family in families_of(question, space):
        table = evaluate(question, family, SMALLEST)
        needed = table.best.min(axis=0)
        least = FirstStages(table.tables).least_memory()
        assert np.all(least <= needed * (1 + ROUNDING))
        assert np.all(np.isfinite(needed) <= np.isfinite(least))


@pytest.mark.parametrize("offload", ["none", "optimizer"])
def test_without_a_pipeline_it_is_what_a_plan_needs(offload: str) -> None:
    asked = question(16)
    (family,) = families_of(asked, declare(asked, Restrictions(fix={"pp": (1,), "offload": (offload,)})))
    table = evaluate(asked, family, SMALLEST)
    assert FirstStages(table.tables).least_memory() == pytest.approx(table.best.min(axis=0), rel=1e-9)


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


@few(20)
@given(spaces(most=4000), st.sampled_from((0.0, 0.02, 0.3, 1.0)))
def test_degrees_with_which_plans_only_compute_too_long_are_left_out_before_all_else(
    asked: tuple[Question, Space], share: float
) -> None:
    """Every plan that takes no longer than some plan of the space is still there, and no other has come in."""
    question, space = asked
    tables = [evaluate(question, family, TIME_OF_ALL) for family in families_of(question, space)]
    times = np.sort(
        np.concatenate([np.empty(0), *(outcomes(question, t.tables, listed(t)[0]).step_time for t in tables)])
    )
    within = float(times[round(share * (len(times) - 1))]) if len(times) else 1.0
    fast = FastEnough(within, Computed())
    few_degrees = replace(space, axes={**space.axes, "tp": space.axes["tp"][:1]})  # what is known grows on the way
    assert all(family.num_plans() for family in families(question, few_degrees, Counter(), fast))
    left = {plan for family in families(question, space, Counter(), fast) for plan in plans_of(family)}
    for table in tables:
        plans, _ = listed(table)
        of_table = [plans.plan(table.tables, index) for index in range(len(plans))]
        is_fast = outcomes(question, table.tables, plans).step_time <= within
        assert {plan for plan, kept in zip(of_table, is_fast, strict=True) if kept} <= left
        left -= {*of_table}
    assert not left


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
