"""Questions of decisions that are answered together: each answer is that of a search of its own."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

import shardplan
from shardplan.api.questions import ask
from shardplan.decide.searching import Answered, Searches
from shardplan.decide.sensitivity import scaled
from shardplan.estimation.question import Question
from shardplan.physics.frameworks.stack import Stack
from shardplan.planner.search import search_question

LIMIT = {"pp": (1, 2), "micro_batch_size": (1, 2)}


@cache
def _asked() -> tuple[list[Question], Stack | None]:
    """Other rates, too little memory, and another number of accelerators."""
    posed = ask(
        model="llama-3.2-1b", cluster="dgx-h100", num_accelerators=16, sequence_length=2048, global_batch_size=64
    )
    one = posed.question
    others = [scaled(one, name, by) for name, by in (("tiers.node.bandwidth", 0.1), ("memory_bytes", 0.02))]
    return [one, *others, replace(one, num_accelerators=8)], posed.stack


@cache
def _found() -> list[Answered]:
    questions, stack = _asked()
    return Searches(stack=stack, limit=LIMIT).answers(questions)


def test_answers_are_those_of_a_search_each() -> None:
    questions, stack = _asked()
    for question, answered in zip(questions, _found(), strict=True):
        result = search_question(question, top=1, limit=LIMIT, suggestions=False, stack=stack)
        fastest = result.estimates[0] if result.estimates else None
        assert answered.question == question
        for mine, other in ((answered.fastest, fastest), (answered.estimate, result.recommended)):
            assert (mine is None) == (other is None)
            if mine is not None and other is not None:
                assert (mine.plan, mine.assumptions, mine.framework) == (other.plan, other.assumptions, other.framework)
                assert mine.step_time == pytest.approx(other.step_time, rel=1e-12)


def test_without_a_plan_there_is_a_reason() -> None:
    of_memory = _found()[2]
    assert of_memory.estimate is None
    assert of_memory.reason is not None
    assert "valid plans fits in memory" in of_memory.reason


def test_what_cannot_be_asked_has_its_reason_in_each_answer() -> None:
    questions, stack = _asked()
    answers = Searches.of(stack=stack, fix={"tp": 3}).answers(questions)
    assert all(each.estimate is None and each.reason for each in answers)


def test_each_group_of_questions_is_counted() -> None:
    questions, stack = _asked()
    seen: list[tuple[int, int]] = []
    Searches(stack=stack, limit=LIMIT).answers(questions, lambda done, total: seen.append((done, total)))
    assert seen == [(0, 4), (3, 4)]


def test_a_stop_ends_all_questions() -> None:
    questions, stack = _asked()
    with pytest.raises(shardplan.SearchStopped):
        Searches(stack=stack, stop=lambda: True).answers(questions)
