"""Plans that experts ran: valid, runnable, near their measured times, and close to the best of their framework."""

from __future__ import annotations

from dataclasses import replace

import generate_experts as page
import pytest
from generate_experts import CLOSE, ExpertPlan, expert_plans, verdict

FAR = {"DeepSeek-V3, 2,048 H800, fp8", "Llama 3.1 405B, 512 TPU v5p"}
"""Plans whose time is predicted further off than 12 %."""


@pytest.fixture(scope="module")
def experts() -> tuple[ExpertPlan, ...]:
    return expert_plans()


def test_experts_plans_are_valid_and_run_on_their_framework(experts: tuple[ExpertPlan, ...]) -> None:
    for expert in experts:
        assert expert.broken_rule is None, expert.name
        assert expert.estimate is not None
        assert expert.estimate.refusals == (), expert.name
        assert expert.estimate.feasible, expert.name


def test_experts_plans_are_near_their_measured_times(experts: tuple[ExpertPlan, ...]) -> None:
    known = {expert.name: expert.error for expert in experts if expert.error is not None}
    assert len(known) >= 12
    assert {name for name, error in known.items() if abs(error) > CLOSE} == FAR


def test_the_page_says_what_speaks_for_a_better_plan(experts: tuple[ExpertPlan, ...]) -> None:
    for expert in experts:
        text = verdict(expert)
        assert text
        if expert.best is not None and not expert.is_tie and expert.estimate is not None and expert.estimate.feasible:
            assert "measured run" in text


def test_the_page_says_how_sure_it_is_that_a_plan_that_ran_does_not_fit(experts: tuple[ExpertPlan, ...]) -> None:
    for expert in experts:
        for is_sure in (False, True):
            said = verdict(_on_less_memory(expert, is_sure=is_sure))
            assert said.startswith("does not fit")
            assert ("the lower end of the band of its memory" in said) != is_sure
            assert ("it ran" in said) == (expert.measured is not None and not is_sure)


def _on_less_memory(expert: ExpertPlan, *, is_sure: bool) -> ExpertPlan:
    """The expert's plan where its memory, or even the lower end of that memory's band, does not fit."""
    estimate = expert.estimate
    assert estimate is not None
    usable = estimate.peak_memory_p10_bytes * (0.99 if is_sure else 1.0)
    short = replace(estimate, usable_memory_bytes=usable, feasible=False, reason="it needs more; much more")
    return replace(expert, estimate=short)


def test_the_page_is_current(monkeypatch: pytest.MonkeyPatch, experts: tuple[ExpertPlan, ...]) -> None:
    monkeypatch.setattr(page, "expert_plans", lambda: experts)
    assert page.main(["--check"]) == 0, "run docs/generate_experts.py"
