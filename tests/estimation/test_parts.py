"""The parts of a priced plan: chunks, operators of a layer and their roofline, what comes once a step."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.estimation.test_times import HIDDEN, LENGTH, LINK, priced
from tests.examples import deepseek_v3
from tests.simulation.test_plan import PLANS, question

from shardplan.estimation.layout import Chunk
from shardplan.estimation.parts.chunks import chunk_ranks, chunk_stages
from shardplan.estimation.parts.layer_operators import LAUNCH, MEMORY, NETWORK, RATE, layer_operators
from shardplan.estimation.priced import PricedPlan
from shardplan.estimation.question import Question
from shardplan.inputs.plan import Plan

CASES = [
    ("llama-3.1-8b", Plan(tp=2, pp=4), 16),
    ("qwen3-32b", Plan(tp=4, pp=2, cp=2, vp=2), 16),
    ("deepseek-v3", Plan(pp=16, ep=8, overlap_ep=True), 256),
]


@pytest.mark.parametrize(("model", "plan", "num_accelerators"), CASES)
def test_exposed_times_of_a_layer_sum_to_its_price(model: str, plan: Plan, num_accelerators: int) -> None:
    asked = question(model, batch=1024, num_accelerators=num_accelerators)
    priced = PricedPlan.of(asked, plan)
    kind = Counter(asked.model.layer_pattern).most_common(1)[0][0]
    cost = priced.prices.blocks.layers[kind]
    for direction, total in (("forward", cost.forward.total), ("backward", cost.backward.total)):
        rows = [row for row in priced.layer_operators if row.direction == direction]
        assert sum(row.exposed_time for row in rows) == pytest.approx(float(total), rel=1e-9)
        assert all(0 <= row.exposed_time <= row.time * (1 + 1e-9) for row in rows)
        assert {row.bound for row in rows} <= {RATE, MEMORY, NETWORK, LAUNCH}


def bounds(asked: Question) -> dict[str, str]:
    return {row.name: row.bound for row in layer_operators(asked, PricedPlan.of(asked, Plan(tp=2)).prices)}


def test_what_limits_an_operator_follows_the_machine() -> None:
    """Large products wait for the rate of the tensor cores; with a thousandth of the bandwidth they wait for memory."""
    asked = question()
    assert bounds(asked)["mlp_fc1"] == RATE
    assert bounds(asked)["norm"] == MEMORY
    slow = replace(asked.cluster.accelerator, memory_bandwidth=asked.cluster.accelerator.memory_bandwidth / 1000)
    assert bounds(replace(asked, cluster=replace(asked.cluster, accelerator=slow)))["mlp_fc1"] == MEMORY
    late = replace(asked.profile, memory_pass_latency=1.0)
    assert bounds(replace(asked, given_profile=late))["norm"] == LAUNCH


@pytest.mark.parametrize("plan", PLANS)
def test_what_comes_once_makes_the_step_of_the_estimate(plan: Plan) -> None:
    """The first rank ends after the longest of all passes, and every other one before by its head start."""
    priced = PricedPlan.of(question(), plan)
    once, columns = priced.once_a_step, priced.columns
    passes = np.broadcast_to(columns.step.passes[0], (plan.pp,))
    busy = passes - columns.step.work.head_starts[0]
    busy[0] = passes.max()
    assert once.after(busy).max() == pytest.approx(priced.step_time, rel=1e-12)
    stretched = once.after_passes(busy)["stragglers"]
    assert stretched == pytest.approx([priced.breakdown["stragglers"]] * len(stretched), rel=1e-9)


@pytest.mark.parametrize("plan", [*PLANS, Plan(tp=2, pp=4, recompute="full"), Plan(tp=2, pp=4, offload="activations")])
def test_parts_of_the_memory_are_those_of_the_estimate(plan: Plan) -> None:
    """Activations that all wait on the host take nothing on the device but for two layers on their way."""
    priced = PricedPlan.of(question(), plan)
    parts = priced.memory_parts
    total = sum(float(np.sum(getattr(parts, name))) for name in ("weights", "gradients", "optimizer", "framework"))
    estimated = [priced.memory_of(rank) for rank in range(plan.pp)]
    assert total == pytest.approx(sum(m.weights + m.gradients + m.optimizer + m.framework for m in estimated), rel=1e-9)
    assert np.all(parts.kept == 0 if plan.offload == "activations" else parts.kept > 0)
    assert np.all(parts.moving > 0 if plan.offload == "activations" else parts.moving == 0)
    assert float(parts.loss.max()) == pytest.approx(max(float(m.logits) for m in estimated), rel=1e-9)


HANDOVER = 2 * LENGTH * HIDDEN / LINK
"""16-bit output of a stage over a slow link. [s]"""
HIDES: dict[str, Any] = {"pp_window": 1.0, "microbatch_time": 0.01}
CHUNK_CASES: list[dict[str, Any]] = [
    {"pp": 4, "profile": {"microbatch_time": 0.01}},
    {"pp": 4, "overlap_pp": True, "profile": HIDES},
    {"pp": 2, "vp": 2, "schedule": "interleaved", "overlap_pp": True, "recompute": "full", "profile": HIDES},
    {"pp": 2, "vp": 4, "schedule": "interleaved", "offload": "activations", "job": {"dropout": True}},
    {"pp": 2, "replicas": 2, "sharding": "zero3", "recompute": "full", "recompute_num_layers": 2},
    {"pp": 4, "vp": 2, "replicas": 2, "sharding": "zero3", "schedule": "zb-v", "profile": HIDES},
]


@pytest.mark.parametrize("case", CHUNK_CASES)
def test_chunks_of_a_rank_share_the_times_of_its_stage(case: dict[str, Any]) -> None:
    """Forward passes and input gradients have half of what comes between passes each, in equal parts."""
    found = priced(8, **case)
    plan, chunks, times = found.plan, found.chunk_times, found.columns.step.work.times[0]
    sharded = np.broadcast_to(found.columns.step.states[0].sharded, plan.pp)
    ranks = chunk_ranks(plan, found.numbers)

    def of_ranks(values: Any) -> Any:
        """Sums over the chunks of every rank."""
        return pytest.approx(np.bincount(ranks, values), rel=1e-12)

    def every(values: Any) -> Any:
        return np.broadcast_to(values, plan.pp)

    between = (times.transfer + times.offload + times.overhead + sharded) / 2
    assert every(times.forward + between) == of_ranks(chunks.forward)
    assert every(times.backward - times.weight_gradient + between) == of_ranks(chunks.input_gradient)
    assert every(times.weight_gradient) == of_ranks(chunks.weight_gradient)
    assert every(times.backward + times.forward - times.plain) == of_ranks(chunks.recomputed)
    assert every(times.transfer / 2) == of_ranks(chunks.sending)
    assert every(sharded / 2) == of_ranks(chunks.exchanging)
    assert chunks.transfer == pytest.approx(HANDOVER - chunks.sending)  # type: ignore[operator]  # of a plan, known
    for values in (chunks.sending, chunks.exchanging):
        assert np.all(values == np.asarray(values)[np.unique(ranks, return_index=True)[1]][ranks])


def test_what_shows_of_a_transfer_keeps_the_rank_busy_and_the_rest_is_on_its_way() -> None:
    """Without overlap all of it is sent by the rank itself."""
    alone, hidden = (priced(8, pp=4, overlap_pp=overlap, profile=HIDES).chunk_times for overlap in (False, True))
    assert alone.sending == pytest.approx(HANDOVER)
    assert alone.transfer == pytest.approx(0.0)
    assert np.all(hidden.transfer > HANDOVER / 10)
    assert np.all(priced(8, pp=4, vp=2, schedule="interleaved").chunk_times.transfer >= 0)


def test_chunks_hold_the_layers_in_order_and_the_ends_at_the_ends() -> None:
    model = deepseek_v3(8, 3, num_mtp_layers=2)
    question = replace(priced(8).question, model=model)
    first, second, third, last = chunk_stages(question, Plan(pp=2, vp=2, stage_layers=(2, 2, 3, 1)))
    assert first == Chunk(counts=(2, 0), num_embeddings=1).as_stage()
    assert second == Chunk(counts=(1, 1)).as_stage()
    assert third == Chunk(counts=(0, 3)).as_stage()
    assert last == Chunk(counts=(0, 1), num_heads=1, num_mtp_layers=2).as_stage()


@pytest.mark.parametrize(
    ("schedule", "ranks"), [("interleaved", [0, 1, 0, 1]), ("zb-v", [0, 1, 1, 0]), ("dualpipe-v", [0, 1, 1, 0])]
)
def test_chunks_lie_on_the_ranks_of_the_schedule(schedule: str, ranks: list[int]) -> None:
    found = priced(8, pp=2, vp=2, schedule=schedule)
    assert chunk_ranks(found.plan, found.numbers).tolist() == ranks
