"""Plans that experts ran: valid, runnable, near their measured times, and close to the best of their framework."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from shardplan.reports.experts import CLOSE, ExpertPlan, expert_plans, verdict

DOCS = Path(__file__).parents[2] / "docs"
FAR = {"Llama 3.1 405B, 512 TPU v5p"}
"""Plans whose time is predicted further off than 12 %."""
TOO_LARGE = {
    "Llama 3.1 405B, 16,384 H100, 8,192 tokens",
    "Llama 3.1 405B, 16,384 H100, 131,072 tokens",
    "Nemotron-4 340B, 128 H100",
}
"""Plans that ran and are predicted not to fit."""


@pytest.fixture(scope="module")
def experts() -> tuple[ExpertPlan, ...]:
    return expert_plans()


def test_experts_plans_are_valid_and_run_on_their_framework(experts: tuple[ExpertPlan, ...]) -> None:
    for expert in experts:
        assert expert.broken_rule is None, expert.name
        assert expert.estimate is not None
        assert expert.estimate.refusals == (), expert.name
        assert expert.estimate.feasible == (expert.name not in TOO_LARGE), expert.name


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
        if expert.name in TOO_LARGE:
            assert expert.estimate is not None
            assert expert.estimate.peak_memory_p10_bytes <= expert.estimate.usable_memory_bytes, expert.name
            assert ("it ran" in verdict(expert)) == (expert.measured is not None)
            assert "the lower end of the band of its memory" in verdict(expert)


def test_the_page_is_current(monkeypatch: pytest.MonkeyPatch, experts: tuple[ExpertPlan, ...]) -> None:
    specification = importlib.util.spec_from_file_location("generate_experts", DOCS / "generate_experts.py")
    assert specification is not None
    assert specification.loader is not None
    program = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(program)
    monkeypatch.setattr(program, "expert_plans", lambda: experts)
    assert program.main(["--check"]) == 0, "run docs/generate_experts.py"
