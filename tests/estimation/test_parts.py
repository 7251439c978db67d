"""The details of a priced plan: operators of a layer, bytes of chunks, what comes once a step."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from tests.simulation.test_plan import PLANS, question

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
    longest = once.after(passes.max() + 0 * busy)[0], once.stragglers(passes.max() + 0 * busy)[0]
    assert max(longest[0], once.after(busy).max()) == pytest.approx(priced.step_time, rel=1e-12)
    assert max(longest[1], once.stragglers(busy).max()) == pytest.approx(priced.breakdown["stragglers"], rel=1e-9)


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
