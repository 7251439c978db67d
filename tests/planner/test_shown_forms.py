"""The plan to take where a record shows some software and not the fastest: against every plan under all software."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st
from tests.few import few
from tests.planner.test_recommended import dominates
from tests.planner.test_software import MEGATRON, asked, every_plan, limited
from tests.planner.test_ties import pessimistic_time

import shardplan
from shardplan.estimation.estimate import estimate_plans, price_plans
from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.question import Question
from shardplan.estimation.ties import tie_factor
from shardplan.frameworks.tested import all_tested
from shardplan.planner.related.alike import best_of_alike
from shardplan.planner.restrictions import Restrictions
from shardplan.planner.robustness import ALIKE_TIME
from shardplan.planner.search import search_question
from shardplan.planner.tied import ROOM_FACTOR, has_headroom
from shardplan.reports.recommendation import against_fastest, reason, recommendation

SAME = 1e-9
FP8: dict[str, Any] = {"precision": "fp8", "sequence_length": 4096, "stack": "megatron-lm"}
QWEN = ("qwen3-235b-a22b", "dgx-h100", 256)
"""Its fastest plans use HybridEP next to overlapped experts in a pipeline, which no run shows in fp8."""


def left_by_the_rule(question: Question, fitting: list[PricedPlan]) -> list[PricedPlan]:
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
def test_the_plan_to_take_is_that_of_the_rule_for_every_plan_under_all_software(
    *, moe: bool, data: st.DataObject
) -> None:
    """But for software that gains less than half a percent, which the answer leaves out."""
    question, limit = data.draw(asked(moe=moe, most=8)), data.draw(limited(moe=moe))
    plans = every_plan(question, limit)
    assume(plans)
    fitting = [each for each in price_plans(question, plans) if each.fits]
    assume(fitting)
    found = search_question(question, limit=limit, stack=MEGATRON, top=1, suggestions=False, use_all=True).recommended
    assert found is not None
    left = [each.plan for each in left_by_the_rule(question, fitting)]
    assert all_tested(MEGATRON, question.setting, [found.plan])[0] == all_tested(MEGATRON, question.setting, left).any()
    least = min(pessimistic_time(question, each) for each in estimate_plans(question, left))
    assert pessimistic_time(question, found) <= least * (1 + ALIKE_TIME) ** 2 * (1 + SAME)


def test_a_mixture_in_fp8_is_answered_with_a_plan_that_runs_show() -> None:
    asked = shardplan.question(*QWEN, **FP8)
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
    together = best_of_alike(questions, restrictions=Restrictions(limit=limit), stack=MEGATRON, to_take=True)
    for question, answer in zip(questions, together, strict=True):
        alone = search_question(question, limit=limit, stack=MEGATRON, suggestions=False, use_all=True).recommended
        assert alone is not None
        assert answer.to_take is not None
        assert answer.to_take.plan == alone.plan
        assert answer.to_take.step_time == pytest.approx(alone.step_time, rel=SAME)
        assert alone.untested == ()
