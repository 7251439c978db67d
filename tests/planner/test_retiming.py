"""The best plans re-timed by the simulation: which ones, their order, and what the answer says."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cli.commands import FEW, SMALL, answer, run

from shardplan import search
from shardplan.base.errors import InputError
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.readers.catalog import load_cluster, load_model
from shardplan.physics.frameworks.usual_stack import usual_stack
from shardplan.physics.schedules.base import Pass
from shardplan.physics.schedules.interleaved import Interleaved
from shardplan.physics.schedules.registry import load_schedule
from shardplan.planner.result import SearchResult
from shardplan.planner.retiming import CLOSED_FORM_ERROR
from shardplan.planner.search import search_question
from shardplan.reports.plan_file import PlanFile, plan_file_from_record, plan_file_record
from shardplan.simulation.plan import simulate_plan


def asked() -> Question:
    return Question(
        model=load_model("llama-3.1-8b"),
        cluster=load_cluster("dgx-h100"),
        num_accelerators=32,
        job=Job(sequence_length=4096, global_batch_size=64),
    )


LIMIT = {"tp": (2, 4), "cp": (1,), "pp": (2, 4, 8), "sharding": ("zero1", "zero3"), "recompute": ("none", "full")}


def searched(**more: Any) -> SearchResult:
    return search_question(asked(), limit=LIMIT, stack=usual_stack("nvidia"), suggestions=False, **more)


def test_plans_have_the_times_of_the_simulation_and_its_order() -> None:
    result = searched(simulate_top=20)
    ties = result.ties
    assert ties is not None
    assert ties.retimed is not None
    times = [ties.time_of(each) for each in result.estimates]
    assert times == sorted(times)
    degrees, plain = ({(e.plan.tp, e.plan.pp) for e in each.estimates} for each in (result, searched()))
    assert degrees == plain
    for estimate in result.estimates:
        simulated = simulate_plan(asked(), estimate.plan, load_schedule(estimate.plan.effective_schedule))
        assert ties.retimed.step_time[estimate.plan] == pytest.approx(simulated.step_time, rel=1e-12)
        assert estimate.step_time == pytest.approx(simulated.closed_form_time, rel=1e-9)


def test_the_recommended_plan_is_chosen_after_the_simulation() -> None:
    """It ties with the fastest by simulated times, and its pessimistic time starts from its own."""
    result = searched(simulate_top=30)
    ties, best = result.ties, result.recommended
    assert ties is not None
    assert best is not None
    fastest = ties.time_of(result.estimates[0])
    assert fastest <= ties.time_of(best) <= fastest * ties.factor
    found = ties.robustness[best.plan]
    assert found.pessimistic_time >= ties.time_of(best)
    assert found.pessimistic_time <= min(each.pessimistic_time for each in ties.robustness.values()) * 1.0051


def test_the_choice_depends_on_the_question_alone() -> None:
    one, again = (searched(simulate_top=12) for _ in range(2))
    assert [e.plan for e in one.estimates] == [e.plan for e in again.estimates]
    assert one.ties is not None
    assert again.ties is not None
    assert one.ties == again.ties


def test_no_more_plans_are_simulated_than_are_asked_for() -> None:
    plain = searched()
    few = searched(simulate_top=2)
    assert few.ties is not None
    assert few.ties.retimed is not None
    assert few.ties.retimed.num_plans == 2
    assert len(few.ties.retimed.not_simulated) >= len(plain.estimates) - 2
    assert len(few.estimates) == len(plain.estimates)


def test_all_near_plans_are_simulated_where_there_is_room() -> None:
    result = searched(simulate_top=1000, top=1)
    plain = search_question(asked(), limit=LIMIT, stack=usual_stack("nvidia"), suggestions=False, top=1000)
    best = plain.estimates[0].step_time
    near = [each for each in plain.estimates if each.step_time <= best * (1 + CLOSED_FORM_ERROR)]
    assert result.ties is not None
    assert result.ties.retimed is not None
    assert result.ties.retimed.num_plans >= len(near)


def test_a_plan_that_cannot_be_simulated_keeps_its_time_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(self: Interleaved, *counts: int) -> tuple[tuple[Pass, ...], ...]:  # noqa: ARG001
        return ((Pass("F", 0, 0),),) * counts[0]

    monkeypatch.setattr(Interleaved, "events", lost)
    result = searched(simulate_top=20)
    assert result.ties is not None
    assert result.ties.retimed is not None
    kept = result.ties.retimed.not_simulated
    assert {each.plan for each in result.estimates if each.plan.vp > 1} <= kept.keys()
    assert all("is missing on rank" in why for plan, why in kept.items() if plan.vp > 1)
    for estimate in result.estimates:
        if estimate.plan in kept:
            assert result.ties.time_of(estimate) == estimate.step_time


def test_the_plan_file_keeps_it() -> None:
    result = searched(simulate_top=4)
    record = plan_file_record(PlanFile.of(result))
    assert record["simulated"] == {"num_plans": 4, "most": 4}
    assert all((e["simulated_step_time_s"] is None) != (e["not_simulated"] is None) for e in record["plans"])
    found = plan_file_from_record(record)
    assert found.search is not None
    assert found.search.ties == result.ties
    assert plan_file_record(found) == record


def test_the_command_line_and_python_say_the_same() -> None:
    record = answer("plan", *SMALL, *FEW, "--simulate-top", "3")
    python = search(
        "llama-3.2-1b", "dgx-h100", 8, global_batch_size=64, sequence_length=2048, simulate_top=3,
        limit={"pp": [1, 2], "cp": [1], "sharding": ["zero1", "zero3"]},
    )  # fmt: skip
    rows = python.to_rows()[: len(record["plans"])]
    assert [e["simulated_step_time_s"] for e in record["plans"]] == [row["simulated_step_time_s"] for row in rows]
    printed = run("plan", *SMALL, *FEW, "--simulate-top", "3", columns=200).output
    assert "simulated" in printed
    assert "3 plans were simulated" in printed
    assert "Not simulated" in printed
    assert "simulated" in python._repr_html_()


@pytest.mark.parametrize("most", [0, -1, 1001, 2.5, True, "50"])
def test_numbers_that_make_no_sense(most: Any) -> None:
    with pytest.raises(InputError, match="simulate_top is"):
        searched(simulate_top=most)


@pytest.mark.parametrize("given", ["0", "-3", "many", "1e9", ""])
def test_flags_that_make_no_sense(given: str) -> None:
    result = run("plan", *SMALL, "--simulate-top", given)
    assert result.exit_code == 2
    assert "--simulate-top" in result.output


@pytest.mark.parametrize("other", [("--stack", "all"), ("--method", "calculator")])
def test_other_searches_do_not_simulate(other: tuple[str, str]) -> None:
    result = run("plan", *SMALL, "--simulate-top", "5", *other)
    assert result.exit_code == 2
    assert "--simulate-top" in result.output


def test_progress_is_told_plan_by_plan() -> None:
    calls: list[tuple[int, int]] = []
    searched(simulate_top=5, simulated=lambda done, total: calls.append((done, total)))
    assert calls == [(number, 5) for number in range(1, 6)]


def test_without_a_pipeline_the_times_are_the_same() -> None:
    result = search_question(asked(), fix={"pp": 1}, stack=usual_stack("nvidia"), suggestions=False, simulate_top=5)
    assert result.ties is not None
    assert result.ties.retimed is not None
    for plan, time in result.ties.retimed.step_time.items():
        listed = [each.step_time for each in (*result.estimates, result.ties.recommended) if each.plan == plan]
        assert time == pytest.approx(listed[0], rel=1e-12)


def test_the_rest_of_the_answer_stays() -> None:
    """Ties of the whole space are counted by the closed form, and predictions are those of the estimate."""
    plain, simulated = searched(), searched(simulate_top=10)
    assert plain.ties is not None
    assert simulated.ties is not None
    assert plain.ties.retimed is None
    assert (plain.ties.num_plans, plain.ties.factor) == (simulated.ties.num_plans, simulated.ties.factor)
    same = {each.plan: each for each in plain.estimates}
    assert any(each.plan in same for each in simulated.estimates)
    assert all(each == same[each.plan] for each in simulated.estimates if each.plan in same)
