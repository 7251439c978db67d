"""How far an estimate can be trusted: the same errors as the page on trust, amber where near runs lie outside."""

from __future__ import annotations

import math

import pytest

from shardplan.base.fields import replace
from shardplan.estimation.estimate import Estimate, estimate_plan
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.readers.catalog import load_cluster, load_model
from shardplan.physics.schedules.registry import load_schedule
from shardplan.reports.accuracy.known_runs import known_runs
from shardplan.reports.truth import Truth, truth_of
from shardplan.simulation.plan import simulate_plan

QUESTION = Question(
    model=load_model("llama-3.1-8b"),
    cluster=load_cluster("dgx-h100"),
    num_accelerators=16,
    job=Job(global_batch_size=64, sequence_length=8192),
)
PLAN = Plan(tp=2, pp=2, sharding="zero1")


def estimate(*errors: float) -> Estimate:
    """The plan, where the nearest runs were off by ``errors``: predicted over measured, less one."""
    made = estimate_plan(QUESTION, PLAN)
    near = (replace(run, left_out_error=error) for run, error in zip(made.evidence, errors, strict=False))
    return replace(made, not_measured=None, step_time_p10=made.step_time * 0.9, step_time_p90=made.step_time * 1.2,
                   evidence=tuple(near))  # fmt: skip


@pytest.mark.parametrize(
    ("errors", "sureness", "words"),
    [
        ((0.0, 0.0, 0.0), "sure", "nearest measured run +0.0 % off"),
        ((1 / 0.91 - 1, 0.05, 0.0), "sure", "nearest measured run +9.9 % off"),
        ((1 / 1.19 - 1,), "sure", "nearest measured run -16.0 % off"),
        ((1 / 0.89 - 1,), "unsure", "nearest measured run +12.4 % off, outside this band"),
        ((1 / 1.21 - 1,), "unsure", "nearest measured run -17.4 % off, outside this band"),
        ((0.0, 1 / 0.88 - 1), "sure", "nearest measured run +0.0 % off"),
        ((0.0, 0.69), "unsure", "nearest measured run +0.0 % off, another near one +69.0 %, outside this band"),
        ((), "sure", "no measured run is near"),
    ],
)
def test_runs_near_to_the_question_that_lie_outside_its_band_make_it_unsure(
    errors: tuple[float, ...], sureness: str, words: str
) -> None:
    """A band of -10 to +20 %: a run that took 9 % less than predicted is inside, one that took 21 % more is not."""
    truth = Truth(estimate=estimate(*errors), simulation=None)
    assert truth.sureness == sureness
    assert words in truth.text
    assert ("outside" in truth.text) == ("outside" in words)
    assert truth.record["sureness"] == sureness


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
