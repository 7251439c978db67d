from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from tests.examples import GB, LLAMA_70B, SMALL, accelerator, cluster, deepseek_v3, ideal_profile, llama, mixtral, tier
from tests.strategies import Case, cases

from shardplan import estimate
from shardplan.base.errors import InputError, PlanError
from shardplan.estimation.estimate import Estimate, estimate_plan
from shardplan.estimation.question import Question
from shardplan.inputs.cluster import Accelerator
from shardplan.inputs.job import Job, Precision
from shardplan.inputs.plan import DEFAULT_PLACEMENT, Plan
from shardplan.inputs.readers.overrides import override
from shardplan.inputs.software import Software

JOB = Job(sequence_length=8192, global_batch_size=128)


def llama_on_64(**fields: Any) -> Estimate:
    return estimate(LLAMA_70B, cluster(), 64, Plan(tp=8, pp=4, vp=5, **fields), job=JOB)


@given(cases())
def test_the_parts_of_a_step_sum_to_it(case: Case) -> None:
    # The pipeline's sum leaves recomputation out of the work behind which activations are offloaded.
    both = case.plan.offload == "activations" and case.plan.recompute != "none"
    answer = estimate_plan(case.question, replace(case.plan, recompute="none") if both else case.plan)
    assert math.fsum(answer.breakdown.values()) == pytest.approx(answer.step_time, rel=1e-9)
    assert min(answer.breakdown.values()) >= 0


@given(cases())
def test_the_parts_of_memory_sum_to_the_peak(case: Case) -> None:
    answer = estimate_plan(case.question, case.plan)
    assert len(answer.memory) == case.plan.pp
    totals = [math.fsum(stage.values()) for stage in answer.memory]
    assert max(totals) == pytest.approx(answer.peak_memory_bytes, rel=1e-12)
    assert totals[answer.fullest_stage] == max(totals)


@given(cases())
def test_what_does_not_fit_has_a_reason(case: Case) -> None:
    answer = estimate_plan(case.question, case.plan)
    assert answer.feasible is (answer.peak_memory_bytes <= answer.usable_memory_bytes)
    assert answer.usable_memory_bytes <= case.question.cluster.accelerator.memory_bytes
    assert (answer.reason is None) is answer.feasible
    if answer.reason is not None:
        largest = max(answer.memory[answer.fullest_stage].items(), key=lambda part: part[1])[0]
        assert f"stage {answer.fullest_stage} " in answer.reason
        assert largest in answer.reason


@given(cases())
def test_communication_is_on_tiers_that_exist(case: Case) -> None:
    answer = estimate_plan(case.question, case.plan)
    names = [one.name for one in case.question.network.tiers]
    plan = case.plan
    ranks = {
        "tp": plan.tp, "cp": plan.cp, "ep": plan.ep, "etp": plan.etp, "pp": plan.pp,
        "dp": case.question.num_accelerators,
    }  # fmt: skip
    for dimension, by_tier in answer.communication.items():
        assert ranks[dimension] > 1
        assert list(by_tier) == names
        assert min(by_tier.values()) >= 0
        assert max(by_tier.values()) > 0


@given(cases())
def test_rates_follow_from_the_step_time(case: Case) -> None:
    question, answer = case.question, estimate_plan(case.question, case.plan)
    tokens = question.job.tokens_per_step
    rate = tokens / answer.step_time / question.num_accelerators
    assert answer.tokens_per_second_per_accelerator == pytest.approx(rate, rel=1e-12)
    assert answer.mfu == pytest.approx(rate * answer.model_flops_per_token / answer.peak_flops, rel=1e-12)
    assert 0 < answer.mfu < 1
    assert answer.step_time_p10 < answer.step_time < answer.step_time_p90
    assert sum(answer.stage_layers) == question.model.num_hidden_layers


def test_tensor_parallelism_in_a_node_sends_nothing_between_nodes() -> None:
    answer = llama_on_64()
    assert answer.communication["tp"]["network"] == 0
    assert answer.communication["tp"]["node"] > 0
    assert answer.communication["pp"] == {"node": 0, "network": answer.communication["pp"]["network"]}


def test_bytes_of_tensor_parallelism() -> None:
    """Five passes over b s h elements per block with sequence parallelism, two blocks a layer, and the head."""
    answer = llama_on_64()
    passes = 2 * 5 * 20 + (5 if answer.slowest_stage == 3 else 0)
    one = 2 * 8192 * 8192 * 7 / 8
    assert answer.num_microbatches == 64
    assert answer.communication["tp"]["node"] == pytest.approx(64 * passes * one, rel=1e-12)


def test_bytes_between_stages() -> None:
    """Every chunk hands b s h / t elements on and gets as many back (arXiv 2104.04473, section 4.1)."""
    answer = llama_on_64()
    assert answer.communication["pp"]["network"] == 2 * 64 * 5 * 2 * 8192 * 8192 / 8


def test_bytes_of_data_parallelism() -> None:
    """zero1: fp32 gradients scattered and bf16 weights gathered, over dp ranks in different nodes."""
    model = llama(8192, 80, 64, 8, 28672, vocab_size=256)
    answer = estimate(model, cluster(), 64, Plan(tp=8, pp=4, vp=5), job=JOB)
    held = (model.num_parameters - 2 * 256 * 8192) / 32
    assert answer.communication["dp"]["network"] == pytest.approx((4 + 2) * held / 2, rel=2e-3)


def test_time_to_train_is_steps_times_step_time() -> None:
    job = replace(JOB, tokens=15.6e12)
    answer = estimate(LLAMA_70B, cluster(), 64, Plan(tp=8, pp=4), job=job)
    assert answer.time_to_train == pytest.approx(15.6e12 / (128 * 8192) * answer.step_time)
    assert llama_on_64().time_to_train is None


def test_money_is_the_price_of_all_accelerators_for_that_time() -> None:
    """By hand: accelerators x hours x price; accelerators share the price of their node, which goes first."""
    priced = replace(cluster(), price_per_hour=32.0)
    job = replace(JOB, tokens=15.6e12)
    of_node = estimate(LLAMA_70B, priced, 64, Plan(tp=8, pp=4, vp=5), job=job)
    assert of_node.time_to_train is not None
    assert of_node.money == pytest.approx(64 * of_node.time_to_train / 3600 * 32.0 / priced.accelerators_per_node)
    of_user = estimate(LLAMA_70B, override(priced, {"price": 2.5}), 64, Plan(tp=8, pp=4, vp=5), job=job)
    assert of_user.money == pytest.approx(64 * of_node.time_to_train / 3600 * 2.5)
    assert estimate(LLAMA_70B, priced, 64, Plan(tp=8, pp=4, vp=5), job=JOB).money is None


def test_peak_is_that_of_the_precision() -> None:
    formats: dict[Precision, float] = {"bf16": 1000e12, "fp8": 2000e12}
    for precision, peak in formats.items():
        job = replace(JOB, precision=precision)
        answer = estimate(LLAMA_70B, cluster(), 64, Plan(tp=8, pp=4), job=job)
        assert (answer.peak_format, answer.peak_flops) == (precision, peak)


def test_fp8_is_faster_than_bf16() -> None:
    precisions: tuple[Precision, ...] = ("fp8", "bf16", "fp32")
    jobs = [replace(JOB, precision=precision) for precision in precisions]
    times = [estimate(LLAMA_70B, cluster(), 64, Plan(tp=8, pp=4), job=job).step_time for job in jobs]
    assert times == sorted(times)


def test_a_broken_rule_is_a_plan_error() -> None:
    with pytest.raises(PlanError, match="128"):
        estimate(LLAMA_70B, cluster(), 64, Plan(tp=8, pp=16), job=JOB)


def test_a_plan_that_does_not_fit_is_an_answer() -> None:
    answer = estimate(LLAMA_70B, cluster(), 64, Plan(tp=2), job=JOB)
    assert not answer.feasible
    assert answer.reason is not None
    assert "GB" in answer.reason
    assert "too much" in answer.reason


@pytest.mark.parametrize("n", [0, -8, 1.5, True, "64", None, math.nan, 10**8, 10**400])
def test_refuses_what_is_no_number_of_accelerators(n: Any) -> None:
    with pytest.raises(InputError, match="number of accelerators"):
        Question(model=SMALL, cluster=cluster(), num_accelerators=n, job=JOB)


def test_refuses_a_memory_that_the_context_alone_fills() -> None:
    with pytest.raises(InputError, match="context and communicators alone take"):
        Question(model=SMALL, cluster=cluster(part=accelerator(memory_bytes=1e9)), num_accelerators=8, job=JOB)


@pytest.mark.parametrize(
    "constants",
    [
        {"memory_pass_latency": 1e308},
        {"memory_pass_factor": {"fused": 0.0}},
        {"step_time": math.inf},
        {"framework_bytes": math.nan},
    ],
)
def test_what_cannot_be_computed_is_said_in_words(constants: dict[str, Any]) -> None:
    question = Question(model=SMALL, cluster=cluster(), num_accelerators=8, job=JOB)
    strange = replace(question, given_profile=replace(question.profile, **constants))
    with pytest.raises(InputError, match="not a finite number"):
        estimate_plan(strange, Plan())


def test_refuses_a_precision_that_the_part_lacks() -> None:
    with pytest.raises(InputError, match="nvfp4"):
        Question(model=SMALL, cluster=cluster(), num_accelerators=8, job=replace(JOB, precision="nvfp4"))


def test_constants_can_be_given() -> None:
    plan = Plan(tp=8, pp=4)
    ideal = estimate(LLAMA_70B, cluster(), 64, plan, job=JOB, profile=ideal_profile())
    assert ideal.step_time < estimate(LLAMA_70B, cluster(), 64, plan, job=JOB).step_time
    assert ideal.breakdown["fixed"] == ideal.breakdown["host"] == 0


def test_assumptions_are_stated() -> None:
    def of(model: Any, on: Any, n: int) -> str:
        job = Job(sequence_length=4096, global_batch_size=n, routing="balanced")
        return " ".join(estimate(model, on, n, Plan(), job=job, stack=None).assumptions)

    rack = cluster(tier("rack", 72, 900), tier("network", None, 50))
    assert "routed evenly" in of(mixtral(2), cluster(), 8)
    uneven = Job(sequence_length=4096, global_batch_size=8, routing="1.25")
    texts = estimate(mixtral(2), cluster(), 8, Plan(ep=8), job=uneven, stack=None).assumptions
    assert any("1.25 times the mean" in text for text in texts)
    assert any("one copy of a token" in text for text in texts)
    apart = replace(uneven, software=Software(moe_dispatcher="alltoall"))
    texts = estimate(mixtral(2), cluster(), 8, Plan(ep=8), job=apart).assumptions
    assert any("every copy of a token" in text for text in texts)
    assert "64 of the 72" in of(SMALL, rack, 512)
    assert "more than the largest known" in of(SMALL, replace(cluster(), max_num_accelerators=64), 128)
    plain = of(SMALL, cluster(part=accelerator(name="h100-sxm-80gb")), 8)
    assert plain.startswith("plan fields at their defaults: tp 1, ")
    assert plain.endswith(f"placement {DEFAULT_PLACEMENT}")


def test_uneven_routing_takes_time_and_memory_but_no_flop() -> None:
    even, uneven = (
        estimate(mixtral(4), cluster(), 64, Plan(ep=8, sharding="zero1"), job=replace(JOB, routing=routing))
        for routing in ("balanced", "1.5")
    )
    for part in ("matmul", "memory_bound", "ep_communication"):
        assert uneven.breakdown[part] > even.breakdown[part]
    assert uneven.memory[0]["activations"] > even.memory[0]["activations"]
    assert uneven.memory[0]["weights"] == even.memory[0]["weights"]
    assert uneven.hfu * uneven.step_time == pytest.approx(even.hfu * even.step_time)


def test_bands_say_what_they_are_made_of() -> None:
    def of(part: Accelerator) -> Estimate:
        job = Job(sequence_length=4096, global_batch_size=8)
        return estimate(SMALL, cluster(part=part), 8, Plan(), job=job)

    known, new = of(accelerator(name="h100-sxm-80gb")), of(accelerator(generation="gaudi"))
    assert known.step_time_basis == known.peak_memory_basis == "in 8 of 10 comparable runs"
    assert known.step_time_note is known.peak_memory_note is None
    assert new.step_time_basis.startswith("a guess from")
    assert new.step_time_note is not None
    assert "no measured run covers Part or its generation" in new.step_time_note
    assert new.peak_memory_note is not None
    assert "no measured peak memory covers" in new.peak_memory_note


@pytest.mark.parametrize(
    ("n", "says"),
    [
        (1022, "1,022 accelerators fill 127 of the domains of 8 (node) and a rest of 6"),
        (1009, "1,009 accelerators fill 126 of the domains of 8 (node) and a rest of 1"),
        (44, "44 accelerators fill 5 of the domains of 8 (node) and a rest of 4"),
        (100, "100 accelerators fill 12 of the domains of 8 (node) and a rest of 4"),
        (64, None),
        (5, None),
    ],
)
def test_worlds_that_do_not_fill_nodes_are_said(n: int, says: str | None) -> None:
    job = replace(JOB, global_batch_size=n)
    lines = estimate(SMALL, cluster(), n, Plan(), job=job).assumptions
    assert (
        [says in line for line in lines if "accelerators" in line] == [True]
        if says
        else not any("accelerators" in line for line in lines)
    )


def test_bands_are_wider_for_parts_that_no_run_covers() -> None:
    widths = []
    for model, part in (SMALL, accelerator()), (SMALL, accelerator(generation="gaudi")):
        job = Job(sequence_length=4096, global_batch_size=8)
        answer = estimate(model, cluster(part=part), 8, Plan(), job=job)
        widths.append(answer.step_time_p90 / answer.step_time_p10)
    assert widths == sorted(widths)


def test_offloaded_optimizer_frees_the_device_and_takes_time() -> None:
    there, away = (llama_on_64(sharding="ddp", offload=offload) for offload in ("none", "optimizer"))
    assert away.memory[0]["optimizer"] == 0
    assert away.peak_memory_bytes < there.peak_memory_bytes
    assert away.breakdown["optimizer"] > there.breakdown["optimizer"]


def test_deepseek_v3_fits_its_own_cluster() -> None:
    """2,048 H800 with pp 16 and ep 64 (arXiv 2412.19437, section 3.2), here with whole layers recomputed."""
    part = accelerator(memory_bytes=80 * GB)
    job = Job(sequence_length=4096, global_batch_size=15360, precision="fp8")
    plan = Plan(pp=16, ep=64, recompute="full")
    answer = estimate(deepseek_v3(num_mtp_layers=1), cluster(part=part), 2048, plan, job=job)
    assert answer.feasible
    assert answer.num_microbatches == 120
    assert answer.communication["ep"]["network"] > answer.communication["ep"]["node"]
