"""How far an estimate can be trusted: the same errors as the page on trust, amber where near runs lie outside."""

from __future__ import annotations

import math

import pytest

from shardplan.base.fields import replace
from shardplan.estimation.estimate import estimate_plan
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.readers.catalog import load_cluster, load_model
from shardplan.physics.schedules.registry import load_schedule
from shardplan.reports.accuracy.known_runs import known_runs
from shardplan.reports.truth import TruthLine, truth_of
from shardplan.simulation.plan import simulate_plan

QUESTION = Question(
    model=load_model("llama-3.1-8b"),
    cluster=load_cluster("dgx-h100"),
    num_accelerators=16,
    job=Job(global_batch_size=64, sequence_length=8192),
)
PLAN = Plan(tp=2, pp=2, sharding="zero1")


INSIDE, ABOVE, BELOW = 1 / 1.19 - 1, 1 / 1.21 - 1, 1 / 0.89 - 1
"""Errors (predicted over measured, less one) of runs that a band of -10 to +20 % holds, and of those it does not."""


def line(*errors: float) -> TruthLine:
    """The plan, where the nearest runs were off by ``errors``."""
    made = estimate_plan(QUESTION, PLAN)
    near = tuple(
        replace(made.evidence[0], id=f"run-{place}", left_out_error=error) for place, error in enumerate(errors)
    )
    told = replace(made, not_measured=None, step_time_p10=made.step_time * 0.9, step_time_p90=made.step_time * 1.2,
                   evidence=near[:3])  # fmt: skip
    return TruthLine(estimate=told, simulation=None, near=near)


@pytest.mark.parametrize(
    ("errors", "sureness", "words"),
    [
        ((0.0,) * 10, "sure", "nearest measured run 0.0 % off · 10 of the nearest 10 inside"),
        ((INSIDE, *[1 / 0.91 - 1] * 9), "sure", "nearest measured run -16.0 % off · 10 of the nearest 10 inside"),
        ((0.0, *[ABOVE] * 2, *[BELOW] * 2, *[0.0] * 5), "sure", "· 6 of the nearest 10 inside"),
        ((0.0, *[ABOVE] * 2, *[BELOW] * 3, *[0.0] * 4), "unsure", "· 5 of the nearest 10 inside"),
        ((1 / 0.82 - 1, *[0.0] * 9), "sure", "nearest measured run +22.0 % off · 9 of the nearest 10 inside"),
        ((1 / 0.80 - 1, *[0.0] * 9), "unsure", "nearest measured run +25.0 % off, far outside"),
        ((1 / 1.45 - 1, *[0.0] * 9), "unsure", "nearest measured run -31.0 % off, far outside"),
        ((0.0, 0.69, *[0.0] * 8), "unsure", "0.0 % off, another near one +69.0 %, far outside"),
        ((), "sure", "no measured run is near"),
    ],
)
def test_near_runs_that_deny_the_band_make_it_unsure(errors: tuple[float, ...], sureness: str, words: str) -> None:
    """A band of -10 to +20 % that states to hold 8 of 10: 6 of 10 may be chance, and a run twice as far out is not."""
    truth = line(*errors)
    assert truth.sureness == sureness
    assert words in truth.text
    assert truth.record["sureness"] == sureness
    assert len(truth.record["missed_runs"]) == sum(error in (ABOVE, BELOW) or abs(error) > 0.2 for error in errors)


def test_as_many_runs_are_asked_as_are_said() -> None:
    truth = truth_of(QUESTION, estimate_plan(QUESTION, PLAN))
    assert len(truth.near) == len({run.id for run in truth.near}) == truth.record["num_near_runs"] == 10
    assert truth.near[:3] == truth.estimate.evidence


def test_the_error_of_the_nearest_run_is_that_of_the_page_on_trust() -> None:
    made = estimate_plan(QUESTION, PLAN)
    told = {one.run.id: one.step_time for one in known_runs()}
    for run in made.evidence:
        assert run.unseen_error == pytest.approx(math.expm1(told[run.id] or 0.0))


def test_the_step_is_simulated_unless_it_is_too_long() -> None:
    made = estimate_plan(QUESTION, PLAN)
    simulated = simulate_plan(QUESTION, PLAN, load_schedule(made.plan.effective_schedule)).step_time
    assert truth_of(QUESTION, made).simulated == pytest.approx(simulated)
    long = Question(model=QUESTION.model, cluster=QUESTION.cluster, num_accelerators=16,
                    job=Job(global_batch_size=400_000, sequence_length=8192))  # fmt: skip
    truth = truth_of(long, estimate_plan(long, PLAN))
    assert truth.simulated is None
    assert "not simulated" in truth.text


def test_a_cited_run_far_outside_is_doubt_unless_its_cause_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardplan.reports.truth.is_explained", lambda run: run.id == "run-1")
    assert line(0.0, 0.69, *[0.0] * 8).sureness == "sure"
    assert line(0.0, 0.0, 0.69, *[0.0] * 7).sureness == "unsure"
    assert line(0.0, 0.0, 0.0, 0.69, *[0.0] * 6).sureness == "sure"  # not cited
    assert line(0.69, *[0.0] * 9).sureness == "unsure"
