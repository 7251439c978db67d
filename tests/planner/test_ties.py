"""Ties and the recommended plan, against every plan of a space estimated one by one."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from statistics import quantiles
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import GB, LLAMA_70B, accelerator, cluster
from tests.few import few
from tests.planner.test_search import CANDIDATES, question, valid_plans
from tests.strategies import clusters, jobs, models

from shardplan.estimation.band import plan_factor
from shardplan.estimation.estimate import Estimate, estimate_plans, price_plans
from shardplan.estimation.perturbation import GROUPS, perturbed
from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.question import Question
from shardplan.estimation.ties import NORMAL_P90, tie_factor
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.profile import Profile
from shardplan.inputs.readers.catalog import load_cluster, load_model
from shardplan.planner.priced_plans import ROOM_FACTOR, priced_plans
from shardplan.planner.restrictions import Restrictions
from shardplan.planner.result import SearchResult
from shardplan.planner.robustness import ALIKE_TIME, EVIDENCE, complexity_of
from shardplan.planner.search import search_question
from shardplan.planner.space import declare
from shardplan.planner.survey import survey_of

Priced = Estimate | PricedPlan
LIMIT = {**CANDIDATES, "placement": ["tp-cp-ep-dp-pp"], "recompute_num_layers": [None]}


def lost_to_evidence(asked: Question, answer: Priced) -> float:
    """What a step may take longer because nobody measured a plan near to it."""
    factor = max(plan_factor(asked, answer.plan), 1.0)
    return answer.step_time * (tie_factor() ** math.sqrt(factor**2 - 1) - 1)


def pessimistic_times(asked: Question, answers: Sequence[Priced]) -> dict[Plan, float]:
    """Step times under every group of constants by itself, and away from evidence, joined as the docs say."""
    worse = times_by_group(asked, answers)
    return {
        each.plan: each.step_time
        + math.hypot(*(times[place] - each.step_time for times in worse.values()), lost_to_evidence(asked, each))
        for place, each in enumerate(answers)
    }


def times_by_group(asked: Question, answers: Sequence[Priced]) -> dict[str, list[float]]:
    """Step times with each group of constants in its worse tail."""
    plans = [each.plan for each in answers]
    return {group: [each.step_time for each in price_plans(perturbed(asked, group), plans)] for group in GROUPS}


def check(asked: Question, result: SearchResult) -> None:
    """What holds of every answer."""
    fastest, ties, best = result.estimates[0], result.ties, result.recommended
    assert ties is not None
    assert best is not None
    assert ties.factor == tie_factor()
    assert best.feasible
    is_slower = best.has_headroom and not ties.num_with_headroom
    assert fastest.step_time <= best.step_time <= fastest.step_time * (ROOM_FACTOR if is_slower else ties.factor)
    assert 0 <= ties.num_with_headroom <= ties.num_plans <= result.num_plans_feasible
    assert best.has_headroom or not ties.num_with_headroom
    if fastest.has_headroom and best.plan != fastest.plan:
        taken, first = pessimistic_times(asked, (best, fastest)).values()
        assert taken <= first * (1 + ALIKE_TIME)
    listed = [answer for answer in result.estimates if answer.step_time <= fastest.step_time * ties.factor]
    assert ties.robustness.keys() == {answer.plan for answer in (*listed, best)}
    times, by_group = pessimistic_times(asked, (*listed, best)), times_by_group(asked, (*listed, best))
    for place, answer in enumerate((*listed, best)):
        told = ties.robustness[answer.plan]
        lost_time = dict(told.lost_time)
        assert lost_time.pop(EVIDENCE) == pytest.approx(lost_to_evidence(asked, answer))
        for group, lost in lost_time.items():
            again = by_group[group][place] - answer.step_time
            assert lost == pytest.approx(max(again, 0.0), rel=1e-6, abs=1e-9 * answer.step_time)
        assert told.pessimistic_time == pytest.approx(times[answer.plan], rel=1e-7)


def _is_dominated(answer: Priced, others: Sequence[Priced]) -> bool:
    """Whether another is both faster and smaller."""
    return any(
        each.step_time < answer.step_time * (1 - 1e-9)
        and each.peak_memory_bytes < answer.peak_memory_bytes * (1 - 1e-9)
        for each in others
    )


@pytest.mark.parametrize(("memory", "has_room"), [(3.2 * GB, True), (1.7 * GB, False)])
def test_ties_are_those_of_all_plans_estimated_one_by_one(memory: float, has_room: bool) -> None:  # noqa: FBT001  # a parameter
    asked = question(memory=memory)
    result = search_question(asked, limit=LIMIT, top=4)
    plans = [p for p in valid_plans(asked, CANDIDATES) if p.sharding == "ddp" or p.tp * p.pp < asked.num_accelerators]
    priced = [each for each in price_plans(asked, plans) if each.fits]
    limit = tie_factor() * min(each.step_time for each in priced)
    tied = estimate_plans(asked, [each.plan for each in priced if each.step_time <= limit])
    roomy = [answer for answer in tied if answer.has_headroom]
    assert result.ties is not None
    assert result.ties.num_plans == len(tied) < len(priced)
    assert result.ties.num_with_headroom == len(roomy)
    assert bool(roomy) == has_room
    left = [answer for answer in roomy or tied if not _is_dominated(answer, priced)]
    times = pessimistic_times(asked, left)
    alike = [answer for answer in left if times[answer.plan] <= min(times.values()) * (1 + ALIKE_TIME)]
    layers = asked.model.num_hidden_layers
    assert result.recommended == min(alike, key=lambda one: (complexity_of(one.plan, layers), one.step_time))
    check(asked, result)


@few(5)
@given(st.data())
def test_what_holds_of_every_answer(data: st.DataObject) -> None:
    n = data.draw(st.sampled_from((1, 8, 24, 48)))
    asked = Question(
        model=data.draw(models()),
        cluster=data.draw(clusters()),
        num_accelerators=n,
        job=data.draw(jobs(n * data.draw(st.sampled_from((1, 4))))),
    )
    result = search_question(asked, top=3)
    if result.estimates:
        check(asked, result)
    else:
        assert result.ties is None
        assert result.recommended is None


def test_a_plan_that_memory_may_not_bear_gives_way_to_a_tie_that_it_bears() -> None:
    """Across capacities: where the fastest plan fills memory and another tie does not, the other is recommended."""
    gave_way = 0
    for memory in (3.0, 3.2, 3.4, 3.6, 3.8, 4.0):
        result = search_question(question(memory=memory * GB), limit=LIMIT, top=4)
        assert result.ties is not None
        assert result.recommended is not None
        if not result.estimates[0].has_headroom and result.ties.num_with_headroom:
            gave_way += 1
            assert result.recommended.has_headroom
            assert result.recommended.peak_memory_bytes < result.estimates[0].peak_memory_bytes
    assert gave_way


def test_the_list_and_its_order_are_as_they_were() -> None:
    """What ties changes neither the fastest plan, nor which are listed, nor how many."""
    result = search_question(question(memory=4 * GB), top=5)
    assert len(result.estimates) == 5
    times = [answer.step_time for answer in result.estimates]
    assert times == sorted(times)
    assert search_question(question(memory=4 * GB), top=1).estimates[0] == result.estimates[0]


def test_a_plan_at_a_cell_is_the_one_that_a_search_of_its_own_finds() -> None:
    """Tied plans are not priced again: they are what pricing the cell alone gives."""
    asked = question(memory=4 * GB)
    survey = survey_of(asked, declare(asked, Restrictions()))
    with_ties = survey.with_prices(())
    assert with_ties.priced is not None
    for fields in ({}, {"tp": 2}, {"pp": 2}, {"pp": 4, "micro_batch_size": 1}, {"recompute": "full"}):
        alone, known = survey.best_where(**fields), with_ties.best_where(**fields)
        assert alone is not None
        assert known is not None
        assert known.step_time == pytest.approx(alone.step_time, rel=1e-12)


def test_of_ties_a_measured_plan_is_recommended() -> None:
    """Llama 3.1 70B on 512 H200: of those that tie none is nearer to a measured run than the one that is taken."""
    asked = Question(
        model=load_model("llama-3.1-70b"),
        cluster=load_cluster("hgx-h200"),
        num_accelerators=512,
        job=Job(sequence_length=8192, global_batch_size=512),
    )
    result = search_question(asked, limit={"tp": [2, 4], "cp": [1, 4], "pp": [4], "recompute": ["none", "selective"]})
    fastest, best = result.estimates[0], result.recommended
    assert best is not None
    assert plan_factor(asked, best.plan) <= 1
    assert plan_factor(asked, best.plan) <= plan_factor(asked, fastest.plan)
    assert fastest.step_time < best.step_time <= fastest.step_time * tie_factor()


@pytest.mark.parametrize(
    ("plan", "complexity"),
    [
        (Plan(), (False, 0, 0, 1)),
        (Plan(tp=8, micro_batch_size=4), (False, 1, 0, 1)),
        (Plan(tp=8, pp=4, vp=2), (False, 3, 0, 2)),
        (Plan(pp=3), (True, 1, 0, 1)),
        (Plan(pp=2, stage_layers=(15, 17)), (True, 1, 0, 1)),
        (Plan(cp=2, recompute="full", overlap_dp=False, sharding="zero3"), (False, 1, 3, 1)),
    ],
)
def test_how_simple_a_plan_is(plan: Plan, complexity: tuple[bool, int, int, int]) -> None:
    """Of 32 layers."""
    assert complexity_of(plan, 32) == complexity


def test_without_plans_there_is_nothing_to_tie() -> None:
    assert priced_plans(question(), (), ()) is None


def test_sure_constants_leave_the_choice_to_memory_and_time() -> None:
    asked = question(memory=80 * GB)
    sure = {name: replace(constant, sd=None) for name, constant in asked.profile.constants.items()}
    result = search_question(replace(asked, given_profile=replace(asked.profile, constants=sure)), limit=LIMIT, top=3)
    assert result.ties is not None
    assert result.recommended is not None
    for robustness in result.ties.robustness.values():
        assert {time for group, time in robustness.lost_time.items() if group != EVIDENCE} == {0.0}
    assert result.recommended.step_time <= result.estimates[0].step_time * (1 + ALIKE_TIME)


def test_the_pessimistic_time_is_near_the_90th_percentile_of_sampled_constants() -> None:
    """Each group drawn at random from its posterior: the definition, without the linear shortcut."""
    asked = Question(
        model=LLAMA_70B, cluster=cluster(part=accelerator()), num_accelerators=64,
        job=Job(sequence_length=4096, global_batch_size=256),
    )  # fmt: skip
    result = search_question(asked, limit={"tp": [8], "pp": [4], "cp": [1], "sharding": ["zero1"]}, top=1)
    best, ties = result.recommended, result.ties
    assert best is not None
    assert ties is not None
    draw = random.Random(1)  # noqa: S311  # a sample, no secret
    times = [PricedPlan.of(_sampled(asked, draw), best.plan).step_time for _ in range(200)]
    spread = quantiles(times, n=10)[-1] - best.step_time
    assert spread == pytest.approx(ties.robustness[best.plan].pessimistic_time - best.step_time, rel=0.25)


def _sampled(asked: Question, draw: random.Random) -> Question:
    """Every group moved to a random place of its posterior instead of to its 90th percentile."""
    scales = {group: draw.gauss(0.0, 1.0) / NORMAL_P90 for group in GROUPS}
    origin = asked.profile.constants
    scaled: dict[str, Any] = dict(origin)
    for group, scale in scales.items():
        for name in GROUPS[group]:
            scaled[name] = replace(origin[name], sd=_times(origin[name].sd, scale))
    moved: Profile = replace(asked.profile, constants=scaled)
    for group in GROUPS:
        moved = perturbed(replace(asked, given_profile=moved), group).profile
    return replace(asked, given_profile=moved)


def _times(sd: Any, scale: float) -> Any:
    if sd is None:
        return None
    return {key: value * scale for key, value in sd.items()} if isinstance(sd, dict) else sd * scale
