"""What waits on the host: all or some layers' activations, optimizer states, and whether a node holds them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import GB, cluster, ideal_profile, llama

from shardplan import estimate
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.question import Question
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan
from shardplan.planner.search import search_question

MODEL = llama(4096, 32, 32, 8, 14336)
JOB = Job(sequence_length=4096, global_batch_size=64)


def estimated(host_memory: float | None = None, hidden: float = 0.0, **plan: Any) -> Estimate:
    site = replace(cluster(), host_memory_bytes=host_memory)
    profile = ideal_profile(offload_window=hidden)
    return estimate(MODEL, site, 8, Plan(**plan), job=JOB, profile=profile)


def kept(**plan: Any) -> float:
    return estimated(**plan).memory[0]["activations"]


def test_every_offloaded_layer_frees_a_layer_but_for_two_on_their_way() -> None:
    """Half of 32 layers leave 16 and the two that travel; all of them the two."""
    whole = kept()
    assert kept(offload="activations", offload_num_layers=16) == pytest.approx(whole * 18 / 32)
    assert kept(offload="activations") == pytest.approx(whole * 2 / 32)
    assert kept(offload="activations", offload_num_layers=32) == kept(offload="activations")
    assert kept(offload="activations", offload_num_layers=0) == whole


@given(st.integers(0, 40))
def test_offloading_more_layers_needs_less_memory_and_more_time(count: int) -> None:
    fewer, more = (estimated(offload="activations", offload_num_layers=count + one) for one in (0, 1))
    assert more.peak_memory_bytes <= fewer.peak_memory_bytes * (1 + 1e-12)
    assert more.step_time >= fewer.step_time * (1 - 1e-12)


def test_transfers_of_some_layers_take_their_share_of_the_time() -> None:
    whole, half = (estimated(offload="activations", offload_num_layers=count) for count in (32, 16))
    assert half.breakdown["offload"] == pytest.approx(whole.breakdown["offload"] / 2)


@pytest.mark.parametrize(
    ("plan", "what"),
    [
        ({"offload": "activations"}, "activations"),
        ({"offload": "optimizer", "sharding": "ddp"}, "optimizer states"),
    ],
)
def test_a_node_must_hold_what_its_accelerators_offload(plan: dict[str, Any], what: str) -> None:
    free, ample, little = (estimated(size, recompute="full", **plan) for size in (None, 5000 * GB, 5 * GB))
    assert free.feasible == ample.feasible is True
    assert not little.feasible
    assert little.reason is not None
    assert f"of {what} for each accelerator in host memory" in little.reason
    assert "in a node of 8 with 5.00 GB" in little.reason


def test_host_memory_is_shared_by_the_accelerators_of_a_node() -> None:
    """Optimizer states and 16-bit or 32-bit gradients of all parameters on every one of eight (ddp)."""
    need = 8 * (12 + 4) * MODEL.num_parameters
    plan: dict[str, Any] = {"offload": "optimizer", "sharding": "ddp", "recompute": "full"}
    assert estimated(need * 1.001, **plan).feasible
    assert not estimated(need * 0.999, **plan).feasible


def test_a_stated_bandwidth_of_the_host_sets_the_time_of_updates() -> None:
    """Twice the states' and gradients' bytes, on one of eight accelerators that share a node."""
    part = cluster().accelerator
    times = []
    for bandwidth in (320 * GB, 640 * GB):
        site = replace(cluster(part=part), host_memory_bandwidth=bandwidth)
        plan = Plan(offload="optimizer", sharding="ddp")
        answer = estimate(MODEL, site, 8, plan, job=JOB, profile=ideal_profile())
        times.append(answer.breakdown["optimizer"])
    assert times[0] - times[1] == pytest.approx(2 * (12 + 4) * MODEL.num_parameters / (80 * GB))


def test_search_leaves_out_what_the_host_cannot_hold() -> None:
    question = Question(
        model=MODEL, cluster=replace(cluster(), host_memory_bytes=10 * GB), num_accelerators=8, job=JOB,
        given_profile=ideal_profile(),
    )  # fmt: skip
    fix = {"offload": ["optimizer"], "sharding": ["ddp"]}
    assert not search_question(question, fix=fix).num_plans_feasible
