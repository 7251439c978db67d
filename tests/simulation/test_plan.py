"""Simulated plans and published simulations, next to the closed form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.examples import cluster, gpt, tier
from tests.simulation.cases import even, passes, pipeline, step
from tests.simulation.published_rows import rows, simulated

from shardplan.base.errors import ShardplanError
from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.inputs.readers.catalog import load_cluster, load_model
from shardplan.physics.schedules.base import ChunkTimes, Pipeline
from shardplan.physics.schedules.registry import load_any_schedule
from shardplan.simulation.case import run
from shardplan.simulation.pieces import NOTHING
from shardplan.simulation.plan import pipeline_of, simulate_plan, simulate_priced
from shardplan.simulation.step import Disturbance, SimulatedStep, closed_form_step_time, simulate


def question(model: str = "llama-3.1-8b", batch: int = 64, num_accelerators: int = 16, **job: Any) -> Question:
    return Question(
        model=load_model(model),
        cluster=load_cluster("dgx-h100"),
        num_accelerators=num_accelerators,
        job=Job(sequence_length=4096, global_batch_size=batch, **job),
    )


PLANS = [
    Plan(tp=2, pp=4), Plan(tp=2, pp=4, vp=2), Plan(tp=2, pp=8, vp=2, recompute="full"), Plan(tp=2, pp=4, vp=4),
    Plan(tp=2, pp=4, schedule="gpipe"), Plan(tp=2, pp=4, schedule="zb-h1"),
    Plan(tp=2, pp=4, vp=2, schedule="zb-v"), Plan(tp=2, pp=4, schedule="dualpipe"),
    Plan(tp=2, pp=4, vp=2, schedule="dualpipe-v"), Plan(tp=2, pp=4, vp=2, schedule="breadth-first"),
]  # fmt: skip
every_plan = pytest.mark.parametrize(
    "plan", PLANS, ids=[f"{plan.effective_schedule}-{plan.pp}-{plan.vp}" for plan in PLANS]
)


@every_plan
def test_chunks_have_the_prices_of_their_stages(plan: Plan) -> None:
    """All chunks of the model together take what the estimate takes for all stages; nothing is priced twice."""
    priced = PricedPlan.of(question(), plan)
    times = priced.chunk_times
    total = float(np.sum(times.forward + times.input_gradient + times.weight_gradient))
    assert total == pytest.approx(float(priced.columns.step.work.everyone.passes.total), rel=1e-9)


def test_a_slow_link_to_the_host_holds_up_the_shorter_pass_more() -> None:
    """As much travels in either pass, and a pass hides what it takes: together what the estimate counts."""
    plan = Plan(tp=2, pp=4, offload="activations", recompute="full")
    asked = question()
    part = replace(asked.cluster.accelerator, host_link_bandwidth=1e9)
    slow = PricedPlan.of(replace(asked, cluster=replace(asked.cluster, accelerator=part)), plan)
    fast = PricedPlan.of(asked, replace(plan, offload="none"))
    waits = {
        name: float(np.sum(getattr(slow.chunk_times, name) - getattr(fast.chunk_times, name)))
        for name in ("forward", "input_gradient")
    }
    assert sum(waits.values()) == pytest.approx(
        float(np.sum(slow.columns.of_stages(slow.columns.step.work.times[0].offload, 0)))
    )
    assert waits["forward"] > waits["input_gradient"] > 0


@pytest.mark.parametrize("batch", [8, 24, 128])
@pytest.mark.parametrize("layers", [(8, 8, 8, 8), (7, 9, 9, 7), (6, 9, 9, 8), (10, 8, 8, 6)])
def test_the_closed_form_of_one_f_one_b_is_exact_for_stages_of_a_model(layers: tuple[int, ...], batch: int) -> None:
    """Stages of different length, two ends of different weight, fewer micro-batches than ranks; free transfers."""
    priced = PricedPlan.of(question(batch=batch), Plan(tp=2, pp=4, stage_layers=layers))
    times = replace(priced.chunk_times, transfer=np.zeros(4))
    schedule, at = load_any_schedule("1f1b"), pipeline_of(priced)
    closed = closed_form_step_time(schedule, at, times)
    assert simulate(schedule, at, times).step_time == pytest.approx(closed, rel=1e-12)
    assert priced.breakdown["bubble"] >= 0


@every_plan
@pytest.mark.parametrize("overlaps", [True, False])
def test_the_closed_form_is_near(plan: Plan, *, overlaps: bool) -> None:
    plan = replace(plan, overlap_pp=overlaps)
    simulated = simulate_plan(question(), plan, load_any_schedule(plan.effective_schedule))
    assert simulated.closed_form_time == PricedPlan.of(question(), plan).step_time
    assert simulated.step_time == pytest.approx(simulated.closed_form_time, rel=0.05)


def test_without_a_pipeline_both_are_the_same() -> None:
    simulated = simulate_plan(question(), Plan(tp=8), load_any_schedule("1f1b"))
    assert simulated.step_time == pytest.approx(simulated.closed_form_time, rel=1e-12)
    assert simulated.step.bubble_rate == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "llama-3.1-70b", "qwen3-32b"])
def test_the_closed_form_over_plans_with_free_transfers(model: str) -> None:
    """Mean difference below 1 %, worst below 5 %."""
    asked, differences = question(model, batch=128, num_accelerators=64), []
    plans = [
        Plan(tp=tp, pp=pp, vp=vp, schedule=schedule)
        for tp in (2, 8)
        for pp in (2, 4, 8)
        for vp, schedule in ((1, None), (2, None), (1, "zb-h1"), (2, "zb-v"))
        if asked.job.global_batch_size * tp * pp // 64 >= 2 * pp
    ]
    for priced in PricedPlan.of_all(asked, plans):
        times = replace(priced.chunk_times, transfer=0.0 * priced.chunk_times.transfer)
        simulated = simulate_priced(priced, load_any_schedule(priced.plan.effective_schedule), times=times)
        differences.append(simulated.step_time / priced.step_time - 1)
    assert np.mean(np.abs(differences)) < 0.01
    assert np.max(np.abs(differences)) < 0.05


@pytest.mark.parametrize(("vp", "schedule"), [(1, "1f1b"), (1, "gpipe"), (2, "interleaved"), (2, "breadth-first")])
def test_exposed_exchanges_of_sharded_weights_fill_the_pipeline_too(vp: int, schedule: str) -> None:
    """With equal stages the bubble is p - 1 micro-batches over v, of exposed exchanges as of computation."""
    slow = cluster(tier("node", 8, 5, latency=0), tier("network", None, 1, latency=0))
    asked = Question(
        model=gpt(4096, 16, 32, vocab_size=8),
        cluster=slow,
        num_accelerators=16,
        job=Job(sequence_length=2048, global_batch_size=32),
    )
    plan = Plan(pp=4, vp=vp, schedule=schedule, sharding="zero3")
    simulated = simulate_plan(asked, plan, load_any_schedule(schedule))
    priced = PricedPlan.of(asked, plan)
    assert priced.breakdown["dp_communication"] > 0.5 * priced.step_time
    assert simulated.step_time == pytest.approx(priced.step_time, rel=5e-3)


def test_a_stage_with_little_work_waits_for_its_weights_in_its_idle_time() -> None:
    """61 layers in 32 stages: the first has one layer, hides least of its exchange and works least."""
    asked = question("deepseek-v3", batch=4096, num_accelerators=512)
    plan = Plan(tp=2, pp=32, ep=8, sharding="zero3", recompute="full")
    simulated = simulate_plan(asked, plan, load_any_schedule("1f1b"))
    assert simulated.step_time == pytest.approx(simulated.closed_form_time, rel=0.02)


def test_schedules_that_plans_cannot_name() -> None:
    """Their layout is that of the schedule by which estimates price them."""
    plan = Plan(tp=2, pp=4, vp=2)
    times = {name: simulate_plan(question(), plan, load_any_schedule(name)) for name in ("v-half", "v-min", "zb-v")}
    assert times["v-min"].step_time > times["v-half"].step_time > times["zb-v"].step_time
    assert times["v-min"].closed_form_time is times["v-half"].closed_form_time is None
    with pytest.raises(ShardplanError, match="zb-1p cannot run the plan"):
        simulate_plan(question(), plan, load_any_schedule("zb-1p"))


def test_a_slow_rank_slows_the_step() -> None:
    plan, schedule = Plan(tp=2, pp=4), load_any_schedule("1f1b")
    calm = simulate_plan(question(), plan, schedule)
    slow = simulate_plan(question(), plan, schedule, disturbance=Disturbance(slowdown={1: 1.3}))
    assert calm.step_time < slow.step_time < 1.35 * calm.step_time


def only_firsts_go_round(at: Pipeline, whole: SimulatedStep) -> SimulatedStep:
    """The same passes where only the first micro-batch of p waits for its way from the last rank to the first, or back.

    The authors compute table 5 so (efficiency.py of their repository, branch arxiv: ``_rk == 0 and v > 0``).
    """
    pieces = whole.pieces
    goes_round = (pieces.edge != NOTHING) & ((pieces.edge + 1) % at.pp == 0)
    after = np.where(goes_round & (pieces.microbatch % at.pp > 0), NOTHING, pieces.after)
    start, end = run(replace(pieces, after=after), whole.took, whole.transfer)
    return SimulatedStep(pieces=pieces, start=start, end=end, took=whole.took, transfer=whole.transfer)


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "zb-h2"])
def test_bubble_rates_of_the_zero_bubble_paper(name: str) -> None:
    """All four printed digits of every cell (arXiv 2401.10241, table 5, from the times of table 9)."""
    of_schedule = [row for row in rows("zero_bubble_table_5") if row["schedule"] == name]
    assert len(of_schedule) == 9
    rates = [simulated(row)[1].bubble_rate for row in of_schedule]
    assert [round(rate, 4) for rate in rates] == [float(row["bubble_rate"]) for row in of_schedule]


def test_interleaving_of_the_zero_bubble_paper() -> None:
    """All four printed digits as the authors compute it; p of the 2 (p v - 1) exposed transfers are lost so."""
    of_schedule = [row for row in rows("zero_bubble_table_5") if row["schedule"] == "interleaved"]
    assert len(of_schedule) == 9
    for row in of_schedule:
        at, whole = simulated(row)
        printed, theirs = float(row["bubble_rate"]), only_firsts_go_round(at, whole)
        assert round(theirs.bubble_rate, 4) == printed
        assert whole.step_time - theirs.step_time == pytest.approx(at.pp * float(row["transfer_ms"]))
        assert whole.bubble_rate == pytest.approx(printed, abs=0.004)


def test_measured_steps_with_unequal_stages() -> None:
    """Stage times in, step time out: mean error at most 1.5 %, none above 3 %."""
    errors = []
    for row in rows("unequal_stages"):
        forward, backward = (
            np.array([float(time) for time in row[f"{name}_us"].split()]) * 1e-6 for name in ("forward", "backward")
        )
        zero = np.zeros_like(forward)
        times = ChunkTimes(forward=forward, input_gradient=backward, weight_gradient=zero, transfer=zero)
        ran = step("1f1b", pipeline(len(forward), int(row["num_microbatches"])), times)
        errors.append(ran.step_time / float(row["step_time_s"]) - 1)
    assert len(errors) == 4
    assert np.mean(np.abs(errors)) < 0.015
    assert np.max(np.abs(errors)) < 0.03


def test_drawing_of_dualpipe() -> None:
    """8 ranks, 20 micro-batches, all passes one unit: 66 units, 6 idle, 9 in flight (deepseek-ai/DualPipe, README)."""
    at = pipeline(8, 20)
    drawn = step("dualpipe", at, even(passes(), at))
    assert drawn.step_time == 66
    assert max(rank.span - rank.busy_time for rank in drawn.ranks) == 6
    assert {rank.peak_in_flight for rank in drawn.ranks} == {9}


@pytest.mark.parametrize("pp", [2, 4, 8])
def test_activations_of_the_zero_bubble_paper(pp: int) -> None:
    """Whole activations of rank i, from 1: p - i + 1 (1F1B, ZB-H1) and 2 p - 2 i + 1 (ZB-H2) (table 2)."""
    at = pipeline(pp, 4 * pp)
    kept = {
        name: [rank.peak_in_flight for rank in step(name, at, even(passes(), at)).ranks]
        for name in ("1f1b", "zb-h1", "zb-h2")
    }
    assert kept["1f1b"] == kept["zb-h1"] == [pp - rank for rank in range(pp)]
    assert kept["zb-h2"] == [2 * (pp - rank) - 1 for rank in range(pp)]
