"""The step as a whole: pipelines in their limits, stages that may be left out, and laws that hold for every plan."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import GB, accelerator, cluster, gpt, ideal_profile, llama, tier
from tests.strategies import Case, cases

from shardplan import estimate
from shardplan.estimation.charge import CHARGES, StateCharge, holds, least_peak_of, peak_of, state_charge
from shardplan.estimation.estimate import Estimate, estimate_plan
from shardplan.estimation.layout import pipeline_of, whole_model
from shardplan.estimation.load import Around, Loads, StageStates, StageWork
from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.pricing import price
from shardplan.estimation.question import Question
from shardplan.estimation.stage_memory import ActivationMemory, activation_memory, state_memory
from shardplan.estimation.step import Step, step_of, straggler_factor, whole_step
from shardplan.estimation.times import state_times, work_times
from shardplan.inputs.cluster import Cluster
from shardplan.inputs.job import Job
from shardplan.inputs.model import ModelConfig
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.software import Software
from shardplan.physics.schedules.registry import INTERLEAVED
from shardplan.physics.workload.stage import Stage, kinds_of_stage
from shardplan.simulation.plan import simulate_plan

FREE = cluster(
    tier("node", 8, 1e20, latency=0), tier("network", None, 1e20, latency=0), part=accelerator(memory_bandwidth=1e30)
)
"""Neither network nor memory take time: all that counts is arithmetic."""


def headless(num_layers: int) -> ModelConfig:
    """Layers whose embedding and head hardly count."""
    return gpt(4096, num_layers, 32, vocab_size=8)


def asked(model: ModelConfig, num_microbatches: int, plan: Plan, on: Cluster = FREE) -> Question:
    job = Job(sequence_length=2048, global_batch_size=num_microbatches * plan.micro_batch_size)
    return Question(
        model=model, cluster=on, num_accelerators=plan.model_parallel_degree, job=job, given_profile=ideal_profile()
    )


def estimated(model: ModelConfig, num_microbatches: int, *, on: Cluster = FREE, **fields: Any) -> Estimate:
    plan = Plan(**fields)
    return estimate_plan(asked(model, num_microbatches, plan, on), plan)


@pytest.mark.parametrize(("pp", "vp"), [(1, 1), (2, 1), (4, 1), (8, 1), (2, 4), (4, 2), (8, 2)])
@pytest.mark.parametrize("m", [16, 64])
def test_bubble_is_p_minus_one_over_v_m(pp: int, vp: int, m: int) -> None:
    """Bubble over work, (p - 1) / (v m), with equal stages and nothing else (arXiv 2104.04473, section 2.2)."""
    answer = estimated(headless(16), m, pp=pp, vp=vp)
    work = answer.step_time - answer.breakdown["bubble"]
    assert answer.breakdown["bubble"] / work == pytest.approx((pp - 1) / (vp * m), rel=1e-3, abs=1e-9)


@pytest.mark.parametrize(
    ("schedule", "vp", "bubble"),
    [
        ("zb-h1", 1, (7, 7, -7)), ("zb-h2", 1, (7, 7, -14)), ("zb-v", 2, (0, 7, -7)), ("dualpipe", 1, (3, 6, -3)),
        ("dualpipe-v", 2, (3.5, 7, -3.5)),
    ],
)  # fmt: skip
def test_schedules_that_split_the_backward_pass_fill_the_bubble(
    schedule: str, vp: int, bubble: tuple[float, float, float]
) -> None:
    """(p - 1)(F + B - W) and so on over M (F + B + W) (arXiv 2401.10241, table 2; 2412.19437, table 2).

    Attention has no weights. Causal, it has 2 s / 24 h of the FLOP of a layer's products, in B five halves of F's.
    """
    attention = 2 * 2048 / (24 * 4096)
    passes = (1 + attention, 1 + 5 / 2 * attention, 1)
    answer = estimated(headless(16), 32, pp=8, vp=vp, schedule=schedule)
    work = answer.step_time - answer.breakdown["bubble"]
    waits = sum(count * time for count, time in zip(bubble, passes, strict=True))
    assert answer.breakdown["bubble"] / work == pytest.approx(waits / (32 * sum(passes)), rel=3e-3)


@pytest.mark.parametrize("m", [1, 8])
def test_gpipe_has_the_bubble_of_one_f_one_b(m: int) -> None:
    for name in ("1f1b", "gpipe"):
        answer = estimated(headless(16), m, pp=4, schedule=name)
        assert answer.breakdown["bubble"] == pytest.approx(answer.step_time * 3 / (m + 3), rel=1e-3)


def test_a_longer_stage_sets_the_pace() -> None:
    """Of 10 layers on 4 stages two hold 3: M of theirs, and the first micro-batch's way through the 5 in front.

    Behind the second of them are 2 layers, there and back; less its own forward pass, a third of 3, 1 is left.
    """
    m, layer = 32, estimated(headless(1), 1).step_time
    answer = estimated(headless(10), m, pp=4)
    assert answer.stage_layers == (2, 3, 3, 2)
    assert answer.step_time == pytest.approx((3 * m + 5 + 1) * layer, rel=1e-3)
    assert answer.slowest_stage in {1, 2}


@pytest.mark.parametrize(
    "chunks", [(1, 2, 1, 2, 2, 1, 2, 1), (1, 1, 1, 1, 3, 3, 3, 3), (1, 1, 3, 3, 3, 3, 1, 1)], ids=str
)
def test_uneven_chunks_of_equal_ranks_wait_as_in_the_events(chunks: tuple[int, ...]) -> None:
    """Every rank holds as many layers, and yet the ranks wait for one another in each round."""
    model, plan = headless(sum(chunks)), Plan(pp=4, vp=2, stage_layers=chunks)
    question, layer = asked(model, 64, plan), estimated(headless(1), 1).step_time
    answer = estimate_plan(question, plan)
    assert answer.step_time > 1.06 * 64 * sum(chunks) / 4 * layer
    assert answer.step_time == pytest.approx(simulate_plan(question, plan, INTERLEAVED).step_time, rel=0.02)


def test_embedding_and_head_make_the_last_stage_slowest() -> None:
    model = gpt(4096, 16, 32, vocab_size=256_000)
    answer = estimated(model, 32, pp=4)
    assert answer.slowest_stage == 3
    shorter = estimated(model, 32, pp=4, stage_layers=(5, 4, 4, 3))
    assert shorter.step_time < answer.step_time


def test_one_micro_batch_passes_through_all_stages() -> None:
    """With m = 1 a pipeline takes as long as a single stage of all layers."""
    one = estimated(headless(16), 1).step_time
    assert estimated(headless(16), 1, pp=8).step_time == pytest.approx(one, rel=1e-3)


def test_all_arithmetic_takes_flop_over_peak() -> None:
    """An ideal machine runs at its peak, but for the fused backward kernel, which makes five products for four."""
    model = llama(4096, 8, 32, 8, 14336)
    answer = estimated(model, 8)
    attention = 6 * 8 * 4096 * 2048
    slower = 1 + (5 / 4 - 1) * 2 / 3 * attention / answer.model_flops_per_token
    assert answer.mfu == pytest.approx(1 / slower, rel=1e-9)
    assert estimated(model, 8, tp=8).mfu == pytest.approx(1 / slower, rel=1e-9)


# Stages that stand for a pipeline.


def steps(case: Case) -> tuple[Step, Step]:
    """The step from every stage, and from the kinds of stage alone."""
    question, plan = case.question, case.plan
    numbers = PlanNumbers.of(plan, question.num_accelerators, question.job)
    prices = price(question, numbers)
    pipeline, rounds = pipeline_of(question.model, plan.pp, plan.vp, plan.stage_layers)
    chunks = [[chunk.as_stage() for chunk in group] for group in rounds]

    def outcome(kinds: tuple[Stage, ...]) -> Step:
        return step_of(question, numbers, prices, kinds, whole_model(question.model), rounds=chunks)

    return outcome(pipeline), outcome(kinds_of_stage(pipeline))


@given(cases())
def test_kinds_of_stage_stand_for_all_stages(case: Case) -> None:
    every, kinds = steps(case)
    for name in ("step_time", "peak_memory_bytes", "fits"):
        assert getattr(kinds, name) == getattr(every, name), name


def test_a_loss_in_pieces_brings_no_gradients_to_a_stage_without_a_head() -> None:
    """Gradients of an embedding are written when the activations of its stage are gone."""
    model, plan = gpt(1024, 8, 8, vocab_size=500_000), Plan(pp=2, sharding="zero3")
    job = Job(sequence_length=2048, global_batch_size=64)
    plain, in_pieces = (
        estimate(model, FREE, 16, plan, job=replace(job, software=Software(fused_loss=fused)))
        for fused in (False, True)
    )
    assert in_pieces.memory[0] == plain.memory[0]
    assert in_pieces.memory[1]["buffers"] > plain.memory[1]["buffers"]


# Laws.


def faster_parts(factor: float) -> st.SearchStrategy[Any]:
    """A change of a cluster that can only help."""
    return st.sampled_from(("memory_bandwidth", "peak_flops", "host_link_bandwidth")).map(
        lambda name: lambda on: replace(on, accelerator=improved(on.accelerator, name, factor))
    )


def improved(part: Any, name: str, factor: float) -> Any:
    value = getattr(part, name)
    if isinstance(value, dict):
        return replace(part, **{name: {key: factor * peak for key, peak in value.items()}})
    return part if value is None else replace(part, **{name: factor * value})


def better_network(on: Cluster, *, bandwidth: float, latency: float) -> Cluster:
    tiers = [replace(one, bandwidth=bandwidth * one.bandwidth, latency=latency * one.latency) for one in on.tiers]
    return replace(on, tiers=tuple(tiers))


@given(cases(), st.floats(1, 1e6), st.floats(0, 1))
def test_a_better_network_never_slows_a_plan(case: Case, bandwidth: float, latency: float) -> None:
    question = case.question
    better = replace(question, cluster=better_network(question.cluster, bandwidth=bandwidth, latency=latency))
    before, after = PricedPlan.of(question, case.plan), PricedPlan.of(better, case.plan)
    assert after.step_time <= before.step_time * (1 + 1e-12)
    assert after.peak_memory_bytes == before.peak_memory_bytes


@given(cases(), st.floats(1, 100).flatmap(faster_parts))
def test_a_better_part_never_slows_a_plan(case: Case, improve: Any) -> None:
    """Approximate: offloaded activations, and windows that hide two communications in one or two micro-batches."""
    plan, job = case.plan, case.question.job
    if plan.offload == "activations":
        plan = replace(plan, offload="none", offload_num_layers=None)
    question = replace(case.question, job=replace(job, global_batch_size=3 * job.global_batch_size))
    before = PricedPlan.of(question, plan)
    assert before.numbers.num_microbatches > 2
    after = PricedPlan.of(replace(question, cluster=improve(question.cluster)), plan)
    assert after.step_time <= before.step_time * (1 + 1e-12)
    assert after.peak_memory_bytes == before.peak_memory_bytes


@given(cases(), st.floats(1, 10))
def test_more_memory_only_lets_more_fit(case: Case, factor: float) -> None:
    question = case.question
    part = improved(question.cluster.accelerator, "memory_bytes", factor)
    before = PricedPlan.of(question, case.plan)
    after = PricedPlan.of(replace(question, cluster=replace(question.cluster, accelerator=part)), case.plan)
    assert after.step_time == before.step_time
    assert after.fits >= before.fits


@given(cases(num_accelerators=1))
def test_one_accelerator_communicates_nothing(case: Case) -> None:
    answer = estimate_plan(case.question, case.plan)
    assert answer.communication == {}
    for name in ("tp", "cp", "ep", "dp", "pp"):
        assert answer.breakdown[f"{name}_communication"] == 0
    assert answer.breakdown["bubble"] == 0
    assert answer.breakdown["stragglers"] == 0


@given(cases(uniform=True))
def test_more_recomputation_never_needs_more_memory_nor_less_time(case: Case) -> None:
    policies = ("none", "core_attn", "core_attn,layernorm", "core_attn,layernorm,activation", "full")
    answers = [
        PricedPlan.of(case.question, replace(case.plan, recompute=policy, recompute_num_layers=None))
        for policy in policies
    ]
    for less, more in pairwise(answers):
        assert more.peak_memory_bytes <= less.peak_memory_bytes * (1 + 1e-12)
        assert more.step_time >= less.step_time * (1 - 1e-12) or case.plan.offload == "activations"


@given(cases(uniform=True).filter(lambda case: case.plan.offload != "activations"), st.integers(0, 12))
def test_recomputing_more_layers_never_needs_more_memory(case: Case, num_layers: int) -> None:
    answers = [
        estimate_plan(case.question, replace(case.plan, recompute="full", recompute_num_layers=count))
        for count in (num_layers, num_layers + 1)
    ]
    assert answers[1].peak_memory_bytes <= answers[0].peak_memory_bytes * (1 + 1e-12)
    assert answers[1].hfu * answers[1].step_time >= answers[0].hfu * answers[0].step_time * (1 - 1e-12)


@given(cases())
def test_times_and_memory_are_positive(case: Case) -> None:
    question, plan = case.question, case.plan
    numbers = PlanNumbers.of(plan, question.num_accelerators, question.job)
    prices = price(question, numbers)
    loads, around = Loads.of(prices), Around.of(question, numbers, prices)
    pipeline, _ = pipeline_of(question.model, plan.pp, plan.vp, plan.stage_layers)
    for stage in pipeline:
        work, states = StageWork.of(stage, loads.blocks), StageStates.of(stage, loads.states)
        charge = state_charge(question, numbers, stage, states)
        times = work_times(question, numbers, around, stage, work)
        records = (
            times,
            times.windows,
            activation_memory(question, numbers, around, stage, work),
            charge,
            state_memory(question, numbers, stage, states),
            state_times(question, times, charge),
            PricedPlan.of(question, plan).memory_of(int(stage.rank)),
        )
        for record in records:
            for field in fields(record):
                value = getattr(record, field.name)
                assert value is times.windows or float(value) >= 0, field.name


def test_zero_bandwidth_limit_is_all_communication() -> None:
    """Where links are hopelessly slow, halving their bandwidth doubles the step."""
    slow = cluster(tier("node", 8, 1e-3, latency=0), tier("network", None, 1e-3, latency=0))
    slower = better_network(slow, bandwidth=0.5, latency=1)
    model = llama(1024, 4, 8, 8, 4096)
    times = [estimated(model, 4, on=on, tp=8).step_time for on in (slow, slower)]
    assert times[1] == pytest.approx(2 * times[0], rel=1e-3)


def test_a_step_scales_with_its_micro_batches() -> None:
    model = headless(8)
    assert estimated(model, 64).step_time == pytest.approx(2 * estimated(model, 32).step_time, rel=1e-12)


def test_memory_of_a_known_plan() -> None:
    """GPT-3 on 1,024 A100 with tp 8 and pp 8 (arXiv 2104.04473): 175 B / 64 parameters of 18 bytes on each."""
    model = gpt(12288, 96, 96)
    answer = estimated(model, 64, on=cluster(part=accelerator(memory_bytes=80 * GB)), tp=8, pp=8, sharding="ddp")
    states = sum(answer.memory[3][part] for part in ("weights", "gradients", "optimizer"))
    assert states == pytest.approx(18 * 12 * 12 * 12288**2 / 8, rel=1e-3)


def test_one_accelerator_alone_waits_for_no_other() -> None:
    """Without arithmetic, memory or networks that take time, a step is its fixed time."""
    for number, constants in ((1, {"step_time_alone": 3.0}), (2, {"step_time": 5.0}), (8, {"step_time": 5.0})):
        profile = ideal_profile(**{"step_time": 7.0, "step_time_alone": 7.0} | constants)
        job = Job(sequence_length=128, global_batch_size=number)
        found = estimate(gpt(64, 2, 2, vocab_size=8), FREE, number, Plan(), job=job, profile=profile)
        assert found.step_time == pytest.approx(next(iter(constants.values())), rel=1e-3)
        assert found.breakdown["fixed"] == next(iter(constants.values()))


KEPT = ActivationMemory(
    activations=3.0, recomputed=1.0, loss=2.0, passing=1.0, on_host=0.0, waiting=1.5, frees_gradients=False,
    first_share=0.0,
)  # fmt: skip
"""Six bytes beside the states."""


@pytest.mark.parametrize(
    ("frees", "update", "peak", "least"),
    [
        # 14 bytes of states, half a byte of the framework, 4 of gradients; 6 of activations or those of the update
        (False, 0.0, 14.5 + 4 + 6, 14.5 + 4),
        (False, 5.0, 14.5 + 4 + 6, 14.5 + 4 + 5),
        (False, 7.0, 14.5 + 4 + 7, 14.5 + 4 + 7),
        # gradients that come as activations go: 4 beyond the 1.5 that wait and the 2 of the loss
        (True, 0.0, 14.5 + 0.5 + 6, 14.5),
        (True, 6.0, 14.5 + 4 + 6, 14.5 + 4 + 6),
    ],
)
def test_a_peak_is_that_of_activations_or_of_the_update(
    *, frees: bool, update: float, peak: float, least: float
) -> None:
    """A plan holds its stage where the memory is the peak, and not where it is a little less."""
    job = Job(sequence_length=128, global_batch_size=8, software=Software(frees_gradients=frees))
    charge = StateCharge(
        **dict.fromkeys(CHARGES, 0.0)
        | {"resident_bytes": 14.0, "gradient_bytes": 4.0, "fleeting_gradient_bytes": 4.0, "update_bytes": update}
    )
    kept = replace(KEPT, frees_gradients=frees)

    def asked(memory: float) -> Question:
        on = cluster(part=accelerator(memory_bytes=memory))
        profile = ideal_profile(framework_bytes=0.5)
        return Question(model=headless(2), cluster=on, num_accelerators=8, job=job, given_profile=profile)

    assert peak_of(asked(80.0), charge, kept) == peak
    assert least_peak_of(asked(80.0), charge) == least
    assert holds(asked(peak), charge, kept)
    assert not holds(asked(peak - 0.1), charge, kept)


@pytest.mark.parametrize(("num_accelerators", "factor"), [(1, 1.0), (4, 1.0), (8, 1.0), (64, 1.3), (1024, 1.7)])
def test_every_doubling_beyond_eight_has_a_slower_slowest_one(num_accelerators: int, factor: float) -> None:
    profile = ideal_profile(straggler_growth=0.1, step_time=2.0, step_time_alone=2.0)
    question = Question(
        model=headless(2), cluster=FREE, num_accelerators=num_accelerators, given_profile=profile,
        job=Job(sequence_length=128, global_batch_size=1024),
    )  # fmt: skip
    assert straggler_factor(question) == pytest.approx(factor)
    assert whole_step(question, 10.0) == pytest.approx(12 * factor)
