"""The recommended plan, and the forms of plans that something shows to run."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.examples import GB
from tests.few import few
from tests.planner.brute_force import meaning, priced
from tests.planner.small import alike, limits
from tests.planner.test_brute_force import Space, spaces
from tests.planner.test_search import question
from tests.planner.test_software import MEGATRON, asked, every_plan, limited
from tests.planner.test_ties import LIMIT, Priced, pessimistic_times

import shardplan
from shardplan.base.errors import ShardplanError
from shardplan.estimation.estimate import estimate_plan, price_plans
from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.question import Question
from shardplan.estimation.ties import tie_factor
from shardplan.inputs.plan import Plan
from shardplan.physics.frameworks.runnable import all_tested
from shardplan.planner.priced_plans import ROOM_FACTOR, has_headroom
from shardplan.planner.related.together import best_together
from shardplan.planner.restrictions import Restrictions
from shardplan.planner.result import SearchResult
from shardplan.planner.robustness import ALIKE_TIME, Tested, complexity_of
from shardplan.planner.scope import Scope
from shardplan.planner.search import search_question
from shardplan.planner.space import declare
from shardplan.planner.survey import survey_of
from shardplan.reports.plan_file import PlanFile, plan_file_from_record, plan_file_record
from shardplan.reports.recommendation import against_fastest, reason, recommendation

SAME = 1e-9
"""Share by which numbers differ that are the same."""


def is_tested(plan: Plan) -> bool:
    """By chance, two of three."""
    return zlib.crc32(repr(plan).encode()) % 3 != 0


def by_chance(plans: Sequence[Plan]) -> NDArray[np.bool_]:
    """As the search asks."""
    return np.asarray([is_tested(plan) for plan in plans], dtype=bool)


def holding(asked: Question, needed: float) -> Question:
    """The same on accelerators of which tensors can fill so much."""
    part, context = asked.cluster.accelerator, float(asked.profile.context_bytes)
    memory = context + (part.memory_bytes - context) * needed / float(asked.usable_memory)
    return replace(asked, cluster=replace(asked.cluster, accelerator=replace(part, memory_bytes=memory * (1 + 1e-9))))


@st.composite
def tight(draw: st.DrawFn) -> tuple[Question, Space, list[PricedPlan]]:
    """A small space on accelerators that one of its fast plans fills, or nearly; with the answers of those that fit."""
    space = draw(spaces())
    answers = sorted(priced(space.question, space.limit), key=lambda each: each.step_time)
    assume(len(answers) > 1)
    most = answers[0].step_time * draw(st.sampled_from((1.2, 2.0)))
    near = [each for each in answers if each.step_time <= most]
    filling = draw(st.sampled_from(near))
    is_p90 = draw(st.sampled_from((True, False)))
    needed = p90_bytes(space.question, filling) if is_p90 else filling.peak_memory_bytes
    asked = holding(space.question, needed)
    return asked, space, [each for each in answers if each.peak_memory_bytes <= float(asked.usable_memory)]


def p90_bytes(asked: Question, answer: Priced) -> float:
    """The upper end of the band of its memory."""
    return estimate_plan(asked, answer.plan).peak_memory_p90_bytes


def is_safe(asked: Question, answer: Priced) -> bool:
    """Whether it fits at the upper end of the band of its memory."""
    return p90_bytes(asked, answer) <= float(asked.usable_memory)


def dominates(one: Priced, other: Priced) -> bool:
    """Whether it is both faster and smaller."""
    is_faster = one.step_time < other.step_time * (1 - SAME)
    return is_faster and one.peak_memory_bytes < other.peak_memory_bytes * (1 - SAME)


def left_by_the_rule(asked: Question, fitting: Sequence[PricedPlan], tested: bool) -> list[PricedPlan]:  # noqa: FBT001  # a column
    """What memory, the record and being dominated leave, from every plan that fits."""
    fastest = min(each.step_time for each in fitting)
    tied = [each for each in fitting if each.step_time <= fastest * tie_factor()]
    safe = [each for each in fitting if each.step_time <= fastest * ROOM_FACTOR and is_safe(asked, each)]
    first = min((each.step_time for each in safe), default=0.0)
    safe_ties = [each for each in safe if each.step_time <= max(first, fastest) * tie_factor()]
    left = [each for each in tied if is_safe(asked, each)] or safe_ties or tied
    left = [each for each in left if not tested or is_tested(each.plan)] or left
    return [each for each in left if not any(dominates(other, each) for other in left)]


@few(10, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(tight(), st.booleans())
def test_the_recommended_plan_is_that_of_the_rule(
    case: tuple[Question, Space, list[PricedPlan]],
    has_record: bool,  # noqa: FBT001  # drawn
) -> None:
    asked, space, fitting = case
    tested = by_chance if has_record else None
    result = search_question(asked, limit=space.limit, tested=tested, suggestions=False, use_all=True)
    best = result.recommended
    assert best is not None
    check_listed(asked, result, fitting, tested=has_record)
    left = left_by_the_rule(asked, fitting, has_record)
    times = pessimistic_times(asked, left)
    most = min(times.values()) * (1 + ALIKE_TIME)
    assert best.plan in times
    assert times[best.plan] <= most * (1 + SAME)
    layers = asked.model.num_hidden_layers
    simplest = min(complexity_of(plan, layers) for plan, time in times.items() if time <= most * (1 - SAME))
    assert complexity_of(best.plan, layers) <= simplest


def check_listed(asked: Question, result: SearchResult, fitting: Sequence[PricedPlan], *, tested: bool) -> None:
    """What a user sees of the rule, from the answer and from every plan that fits."""
    best, fastest = result.recommended, result.estimates[0]
    assert best is not None
    near = [each for each in fitting if each.step_time <= fastest.step_time * ROOM_FACTOR * (1 - SAME)]
    assert best.has_headroom or not any(is_safe(asked, each) for each in near)
    alike = [each for each in result.estimates if each.has_headroom or not best.has_headroom]
    known = [each for each in alike if not tested or is_tested(each.plan)]
    assert not any(dominates(each, best) for each in (known if tested else alike))
    if tested and not is_tested(best.plan):
        tied = [each for each in known if each.step_time <= best.step_time]
        assert not tied


@few(4, suppress_health_check=[HealthCheck.too_slow])
@given(alike(), limits())
def test_questions_asked_together_follow_the_same_rule(asked: list[Question], limit: dict[str, list[Any]]) -> None:
    """Also with a record, and where plans that have headroom are slower than ties."""
    try:
        plans = [survey_of(one, declare(one, Restrictions(limit=limit))).best_where() for one in asked[:1]]
    except ShardplanError:
        return
    if plans[0] is not None:
        needed = plans[0].peak_memory_bytes
        asked = [*asked[:4], *(holding(asked[0], needed * share) for share in (1.0, 0.95, 1.03))]
    for tested in (None, by_chance):
        together = best_together(asked, Scope(limit=limit), with_recommended=True, tested=tested)
        for one, found in zip(asked, together, strict=True):
            check_same(one, limit, tested, None if found.recommended is None else found.recommended.plan)
        (alone,) = best_together(asked[-1:], Scope(limit=limit), with_recommended=True, tested=tested)
        assert alone.recommended == together[-1].recommended


def check_same(one: Question, limit: dict[str, list[Any]], tested: Tested | None, plan: Plan | None) -> None:
    """The plan is that of a search of its own that leaves no accelerator idle, as questions asked together do."""
    result = search_question(one, limit=limit, top=1, suggestions=False, tested=tested, use_all=True)
    assert (None if result.recommended is None else result.recommended.plan) == plan


def slower_with_room() -> SearchResult:
    """A question of which no tie has headroom, and a slower plan has."""
    for memory in np.linspace(1.5, 4.0, 51):
        result = search_question(question(memory=float(memory) * GB), limit=LIMIT, top=4)
        if result.ties is not None and not result.ties.num_with_headroom and result.ties.recommended.has_headroom:
            return result
    pytest.fail("none of these questions has one")


def test_a_plan_with_room_is_taken_from_beyond_the_ties() -> None:
    """It says what it would lose as ties do; a file keeps it, and that it is not a tie."""
    result = slower_with_room()
    ties, best, fastest = result.ties, result.recommended, result.estimates[0]
    assert ties is not None
    assert best is not None
    assert ties.factor < best.step_time / fastest.step_time <= ROOM_FACTOR
    assert ties.robustness[best.plan].pessimistic_time >= best.step_time
    record = plan_file_record(PlanFile.of(result))
    plan = record["recommended"]["plan"]
    assert not plan["is_tie"]
    assert plan["robustness"]
    assert "fits even at the upper end of its memory band" in record["recommended"]["reason"]
    assert plan_file_from_record(record).pick("recommended") == best


def test_a_pruned_search_and_the_simulation_find_it_too() -> None:
    asked = slower_with_room().question
    whole = search_question(asked, limit=LIMIT, top=4)
    pruned = search_question(asked, limit=LIMIT, top=4, prune=True)
    assert whole.recommended == pruned.recommended
    simulated = search_question(asked, limit=LIMIT, top=4, simulate_top=200).recommended
    assert simulated is not None
    assert simulated.has_headroom


def test_what_no_record_shows_is_taken_where_all_is_like_that() -> None:
    """With one answer for every plan, the record changes nothing."""
    asked = question(memory=3.2 * GB)
    plain = search_question(asked, limit=LIMIT, top=4).recommended
    for same in (True, False):

        def tested(plans: Sequence[Plan], answer: bool = same) -> NDArray[np.bool_]:  # noqa: FBT001  # bound here
            return np.full(len(plans), answer)

        assert search_question(asked, limit=LIMIT, top=4, tested=tested).recommended == plain


def test_the_record_is_asked_of_few_plans() -> None:
    """Of those that may be recommended, not of all that tie."""
    asked_of: list[Plan] = []

    def tested(plans: Sequence[Plan]) -> NDArray[np.bool_]:
        asked_of.extend(plans)
        return np.ones(len(plans), dtype=bool)

    result = search_question(question(memory=80 * GB), top=4, tested=tested)
    assert result.ties is not None
    assert 0 < len(asked_of) < result.ties.num_plans
    assert len(set(asked_of)) == len(asked_of)


FP8: dict[str, Any] = {"routing": "balanced", "precision": "fp8", "sequence_length": 4096, "stack": "megatron-lm"}
QWEN = ("qwen3-235b-a22b", "dgx-h100", 256)
"""Its fastest plans use HybridEP next to overlapped experts in a pipeline, which no run shows in fp8."""


def forms_left_by_the_rule(question: Question, fitting: list[PricedPlan]) -> list[PricedPlan]:
    """What memory, the record of Megatron-LM and being dominated leave, of every plan under all software."""
    first = min(each.step_time for each in fitting)
    roomy = has_headroom(question, np.asarray([each.peak_memory_bytes for each in fitting])).tolist()
    safe = [each for each, has_room in zip(fitting, roomy, strict=True) if has_room]
    tied, safe_ties = ([each for each in some if each.step_time <= first * tie_factor()] for some in (fitting, safe))
    near = [each for each in safe if each.step_time <= first * ROOM_FACTOR]
    slower = min((each.step_time for each in near), default=0.0) * tie_factor()
    left = safe_ties or [each for each in near if each.step_time <= slower] or tied
    shown = all_tested(MEGATRON, question.setting, [each.plan for each in left])
    left = [each for each, is_shown in zip(left, shown, strict=True) if is_shown] or left
    return [each for each in left if not any(dominates(other, each) for other in left)]


@few(6, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(moe=st.booleans(), data=st.data())
def test_the_recommended_plan_is_that_of_the_rule_for_every_plan_under_all_software(
    *, moe: bool, data: st.DataObject
) -> None:
    """But for software that gains less than half a percent, which the answer leaves out.

    Of plans that are one in other words the record is asked about the simplest, as the search does.
    """
    question, limit = data.draw(asked(moe=moe, most=8)), data.draw(limited(moe=moe))
    simplest = {meaning(question, plan): plan for plan in reversed(every_plan(question, limit))}
    assume(simplest)
    fitting = [each for each in price_plans(question, [*simplest.values()]) if each.fits]
    assume(fitting)
    found = search_question(question, limit=limit, stack=MEGATRON, top=1, suggestions=False, use_all=True).recommended
    assert found is not None
    times = pessimistic_times(question, forms_left_by_the_rule(question, fitting))
    shown, others = (all_tested(MEGATRON, question.setting, plans) for plans in ([found.plan], [*times]))
    assert shown[0] == others.any()
    (taken,) = pessimistic_times(question, [found]).values()
    assert taken <= min(times.values()) * (1 + ALIKE_TIME) ** 2 * (1 + SAME)


def test_a_mixture_in_fp8_is_answered_with_a_plan_that_runs_show() -> None:
    """The fastest plan is untested and has room in memory, so that nothing but the record speaks against it."""
    asked = shardplan.question("deepseek-v3", "dgx-h100", 256, **FP8 | {"routing": "learned"})
    answer, pruned = (search_question(asked, stack=MEGATRON, offers=False, prune=each) for each in (False, True))
    taken, fastest = answer.recommended, answer.estimates[0]
    assert taken is not None
    assert not all_tested(MEGATRON, asked.setting, [fastest.plan]).any()
    assert taken.untested == ()
    assert taken.step_time <= fastest.step_time * tie_factor()
    assert pruned.recommended == taken
    assert answer.ties is not None
    found = recommendation(answer.ties, answer.estimates)
    assert against_fastest(found) == "no test or recipe shows that it runs"
    assert "a test, recipe or run shows that it works" in reason(found)


@pytest.mark.parametrize("shares", [(1.0,), (1.0, 0.5, 0.25)])
def test_questions_asked_together_take_the_same_plans(shares: tuple[float, ...]) -> None:
    """On networks of which some are slower."""
    asked = shardplan.question(*QWEN, **FP8)
    limit: dict[str, list[Any]] = {"tp": [1, 2], "pp": [2, 4]}
    inner, *outer = asked.cluster.tiers
    networks = [(inner, *(replace(tier, bandwidth=tier.bandwidth * share) for tier in outer)) for share in shares]
    questions = [replace(asked, cluster=replace(asked.cluster, tiers=tiers)) for tiers in networks]
    together = best_together(questions, Scope(limit=limit, stack=MEGATRON), with_recommended=True)
    for each, answer in zip(questions, together, strict=True):
        alone = search_question(each, limit=limit, stack=MEGATRON, suggestions=False, use_all=True).recommended
        assert alone is not None
        assert answer.recommended is not None
        assert answer.recommended.plan == alone.plan
        assert answer.recommended.step_time == pytest.approx(alone.step_time, rel=SAME)
