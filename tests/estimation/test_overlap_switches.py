"""What runs beside computation can be switched off: then it shows whole, and no step gets faster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies import Case, cases, without_losses

from shardplan import estimate
from shardplan.calibration.runs.option_words import OVERLAPS
from shardplan.estimation.charge import state_charge
from shardplan.estimation.load import Around, Loads, StageStates, StageWork
from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.pricing import price
from shardplan.estimation.times import state_times, work_times
from shardplan.frameworks.stack import list_stacks, load_stack
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.readers.catalog import load_cluster, load_model
from shardplan.workload.stage import stages

NONE: Mapping[str, Any] = OVERLAPS["none"]
ALL: Mapping[str, Any] = dict.fromkeys(NONE, True)
PARTIAL: list[Mapping[str, Any]] = [{**NONE, name: True} for name in NONE] + [{**ALL, name: False} for name in NONE]


@given(cases(), st.sampled_from(PARTIAL))
def test_overlap_never_slows_a_step(case: Case, some: Mapping[str, Any]) -> None:
    """But for what products lose where they are cut into panels, and what the host loses to layers in two streams.

    Work that hides one exchange no longer hides another: the bubble of unequal chunks may grow by a thousandth.
    """
    whole = without_losses(case.question)
    none, part, everything = (
        PricedPlan.of(whole, replace(case.plan, **switches)).step_time for switches in (NONE, some, ALL)
    )
    assert none * (1 + 1e-3) >= part >= everything * (1 - 1e-3)


@given(cases())
def test_nothing_of_the_states_is_hidden_without_overlap(case: Case) -> None:
    question, plan = case.question, replace(case.plan, **NONE)
    numbers = PlanNumbers.of(plan, question.num_accelerators, question.job)
    prices = price(question, numbers)
    loads, around = Loads.of(prices), Around.of(question, numbers, prices)
    for stage in stages(question.model, plan.pp, plan.vp, plan.stage_layers):
        load = StageStates.of(stage, loads.states)
        charge = state_charge(question, numbers, stage, load)
        work = work_times(question, numbers, around, stage, StageWork.of(stage, loads.blocks))
        times = state_times(question, work, charge)
        assert times.sharded == pytest.approx(load.sum.sharding_time, rel=1e-12)
        assert times.reduce == pytest.approx(load.sum.reduce_time, rel=1e-12)
        assert times.gather == pytest.approx(load.sum.gather_time, rel=1e-12)
        assert work.transfer == 2 * plan.vp * prices.handover.time


@pytest.mark.parametrize("stack", list_stacks())
@pytest.mark.parametrize("cluster", ["dgx-h100", "dgx-b200", "gb200-nvl72"])
def test_every_stack_can_run_without_overlap(stack: str, cluster: str) -> None:
    """A weak-scaling step of a dense 70B model, from 64 to 16,384 accelerators: slower without, by a bounded factor."""
    chosen, model, on = load_stack(stack), load_model("llama-3.1-70b"), load_cluster(cluster)
    fields = chosen.plan_fields() | {"sharding": "zero1", "offload": "none"}
    times = []
    for n in (64, 1024, 16384):
        job = Job(sequence_length=8192, global_batch_size=n, **chosen.job_fields("bf16"))
        plan = Plan(**fields | {"tp": 4, "pp": 4, "vp": 5})
        none, part, everything = (
            estimate(model, on, n, replace(plan, **switches), job=job).step_time
            for switches in (NONE, {**NONE, "overlap_dp": True}, ALL)
        )
        assert none > part > everything
        times.append(none)
    assert times[2] < 1.25 * times[0]  # latencies and stragglers of thousands stay small beside the work
