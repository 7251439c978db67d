"""Corners of the estimate in which a simpler formula would be wrong."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from tests.estimation.test_step import headless, improved
from tests.examples import LLAMA_70B, SMALL, accelerator, cluster, gpt, ideal_profile, llama, mixtral, tier

from shardplan import estimate
from shardplan.base.errors import InputError
from shardplan.estimation.estimate import estimate_plan
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.layers import MLP, Attention, Layer, MixtureOfExperts
from shardplan.inputs.plan import Plan
from shardplan.inputs.plan_numbers import PlanNumbers, Setting
from shardplan.inputs.readers.catalog import load_cluster
from shardplan.physics.costs.collectives import collective_bytes, groups_of, sharding_groups
from shardplan.physics.costs.network import Network
from shardplan.physics.validity import broken_rule
from shardplan.physics.workload.communication import Shard
from shardplan.physics.workload.layer import layer_block


def batch_of(plan: Plan, n: int, gbs: int | None = None) -> PlanNumbers:
    return PlanNumbers.of(plan, n, Job(sequence_length=4096, global_batch_size=gbs or n))


# Tiers whose used domains do not nest: negative bytes.
@pytest.mark.parametrize("n", [5000, 13000])
def test_no_tier_sends_a_negative_number_of_bytes(n: int) -> None:
    on = load_cluster("meta-grandteton-roce")
    network = Network.of(on, n, ideal_profile())
    assert all(outer % inner == 0 for inner, outer in zip(network.sizes[:-1], network.sizes[1:-1], strict=False))
    group = groups_of(batch_of(Plan(tp=8), n), network)["tp"]
    assert all(part >= 0 for part in collective_bytes("all_gather", 1e9, group))


# The pipeline's sum leaves recomputation out of the work behind which activations are offloaded.
def test_parts_sum_to_the_step_with_offloaded_activations() -> None:
    job = Job(sequence_length=2048, global_batch_size=8)
    plan = Plan(recompute="selective", offload="activations")
    answer = estimate(headless(8), cluster(), 1, plan, job=replace(job, attention="unfused"))
    assert math.fsum(answer.breakdown.values()) == pytest.approx(answer.step_time, rel=1e-9)


# A sharding degree that is no product of whole inner digits: groups of another size than memory is divided by.
@pytest.mark.parametrize(("cp", "dp", "degree"), [(2, 3, 3), (4, 3, 6), (4, 6, 8), (2, 9, 6)])
def test_shards_lie_on_as_many_ranks_as_the_degree_says(cp: int, dp: int, degree: int) -> None:
    plan = Plan(cp=cp, sharding="zero3", sharding_degree=degree)
    n = cp * dp
    groups = sharding_groups(batch_of(plan, n, dp), Network.of(cluster(), n, ideal_profile()))
    assert groups["shard"].size == degree
    assert groups["shard"].size * groups["replica"].size == n


# SUMMA: the left factor of the row-parallel products (proj, fc2) has the full inner width, not a column's share.
def test_grid_broadcasts_whole_rows_of_both_factors() -> None:
    """arXiv 2410.00273 (SUMMA linear): broadcast X = M k and W = k n / m1 with the full k of every linear layer."""
    rows = 2
    job = Job(sequence_length=2048, global_batch_size=1)
    plan = Plan(tp=8, tp_kind="summa", tp_rows=rows)
    shard = Shard.of(8192, job, PlanNumbers.of(plan, 8, job))
    block = layer_block(LLAMA_70B.layers[0], shard)
    m = 2048 / rows
    inner = {"qkv": 8192, "proj": 64 * 128, "mlp_fc1": 8192, "mlp_fc2": 28672}
    sent = {c.name: c.bytes for c in block.collectives if c.kind == "broadcast" and c.dimension == "tp"}
    for name, k in inner.items():
        assert sent[f"{name}_x"] == pytest.approx(2 * m * k), name


# Dropout masks: behind the embedding there is one, behind the final norm none (arXiv 2205.05198, section 4.3).
def test_masks_outside_the_layers() -> None:
    s, h, layers, pp = 2048, 1024, 8, 4
    job = Job(sequence_length=s, global_batch_size=64, attention="unfused", dropout=True)
    model = gpt(h, layers, 8)
    question = Question(model=model, cluster=cluster(), num_accelerators=pp, job=job, given_profile=ideal_profile())
    answer = estimate_plan(question, Plan(pp=pp))
    per_layer = s * h * (34 + 5 * 8 * s / h)
    assert answer.memory[0]["activations"] == pytest.approx(layers * per_layer + s * h * pp, rel=1e-12)
    assert answer.memory[-1]["activations"] == pytest.approx(layers / pp * per_layer + 4 * s * h, rel=1e-12)


# One pass hides two communications: with one or two micro-batches a faster part is slower.
def test_a_faster_part_is_not_slower() -> None:
    on = cluster(tier("node", 8, 1, latency=0), tier("network", None, 0.05, latency=0))
    job = Job(sequence_length=4096, global_batch_size=16)
    plan = Plan(sharding="hsdp", sharding_degree=8)
    model = llama(2048, 4, 16, 16, 8192, vocab_size=1000)
    profile = ideal_profile(fsdp_window=0.64, dp_window=0.8)
    times = []
    for peak in 3e12, 4e12, 5e12:
        part = accelerator(peak_flops={"bf16": peak})
        question = Question(
            model=model, cluster=replace(on, accelerator=part), num_accelerators=16, job=job, given_profile=profile
        )
        times.append(estimate_plan(question, plan).step_time)
    assert times == sorted(times, reverse=True), times


# Hostile values: only InputError may come out of the constructors.
HOSTILE: dict[str, Any] = {
    "tokens 1e400": lambda: Job(sequence_length=1, global_batch_size=1, tokens=10**400),
    "dropout text": lambda: Job(sequence_length=1, global_batch_size=1, dropout="yes"),  # type: ignore[arg-type]
    "dropout nan": lambda: Job(sequence_length=1, global_batch_size=1, dropout=math.nan),  # type: ignore[arg-type]
    "stage_layers number": lambda: Plan(stage_layers=5),  # type: ignore[arg-type]
    "stage_layers mapping": lambda: Plan(stage_layers={1: 2}),  # type: ignore[arg-type]
    "stage_layers empty": lambda: Plan(stage_layers=()),
    "placement digits": lambda: Plan(placement="tp:" + "9" * 5000 + "-tp-cp-ep-dp-pp"),
    "huge degree": lambda: Plan(tp=10**5000),
    "huge length": lambda: Job(sequence_length=10**5000, global_batch_size=1),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_values_are_input_errors(name: str) -> None:
    with pytest.raises(InputError):
        HOSTILE[name]()


def test_a_plan_with_a_list_of_layers_can_be_hashed() -> None:
    hash(Plan(pp=2, stage_layers=[1, 1]))  # type: ignore[arg-type]


# The hint names a batch that can never be valid where the group is smaller than pp.
def test_interleaving_hint_is_valid_for_small_groups() -> None:
    job = Job(sequence_length=4096, global_batch_size=64)
    s = Setting.of(LLAMA_70B, cluster(), 32, job)
    plan = Plan(tp=8, pp=4, vp=5, microbatch_group_size=3)
    rule = broken_rule(s, plan)
    assert rule is not None
    hint = rule.hint(s, plan)
    if "global batch size to " in hint:
        size = int(hint.split("global batch size to ")[1].split(",")[0])
        s = Setting.of(LLAMA_70B, cluster(), 32, replace(job, global_batch_size=size))
        assert broken_rule(s, plan) is None, hint


# Recomputing one layer never needs more memory: it brings back what it freed, not the largest layer.
def test_recomputing_one_of_unlike_layers() -> None:
    light = Layer(mixer=Attention(num_heads=8, num_kv_heads=8, head_dim=64), mlp=None, num_norms=1)
    heavy = Layer(mixer=None, mlp=MLP(intermediate_size=65536, gated=False), num_norms=1)
    model = replace(SMALL, layers=(light,) * 6 + (heavy,))
    job = Job(sequence_length=4096, global_batch_size=8)
    question = Question(model=model, cluster=cluster(), num_accelerators=8, job=job)
    none, one = (
        estimate_plan(question, Plan(recompute="full", recompute_num_layers=count)).peak_memory_bytes
        for count in (0, 1)
    )
    assert one <= none


# Limits of data that files may hold.
def test_casts_can_be_free() -> None:
    job = Job(sequence_length=4096, global_batch_size=8, precision="fp8")
    profile = ideal_profile(cast_bytes=0.0)
    estimate(LLAMA_70B, cluster(), 8, Plan(), job=job, profile=profile)


# Experts with tensor but without sequence parallelism: every tensor rank would dispatch the same tokens.
def test_tokens_are_dispatched_once() -> None:
    """Megatron-LM refuses it ("During training, performance may degrade if MoE and tensor parallelism are enabled
    without also enabling sequence parallelism"): either a rule of validity, or FLOP that are not multiplied by tp."""
    job = Job(sequence_length=4096, global_batch_size=64)
    s = Setting.of(mixtral(), cluster(), 64, job)
    plan = Plan(tp=4, ep=8, sequence_parallel=False)
    if broken_rule(s, plan) is None:
        answer = estimate(mixtral(), cluster(), 64, plan, job=job)
        assert answer.hfu == pytest.approx(answer.mfu, rel=0.05)


def unused() -> tuple[Any, ...]:
    return improved, MixtureOfExperts
