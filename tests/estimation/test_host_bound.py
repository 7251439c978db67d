"""Steps that wait for the host: kernels are so small that launching them takes longer than running them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from tests.examples import accelerator, cluster, llama, tier

from shardplan import estimate
from shardplan.inputs.job import Job
from shardplan.inputs.plan import Plan

PEAKS = (2e12, 4e12, 1e13, 2e13, 1e14)
SMALL = llama(128, 4, 4, 4, 512, vocab_size=512)


def step_time(peak: float, network: float, sharding: Any) -> float:
    """Of 16 accelerators with four micro-batches each, which are bound by their host at the highest peaks."""
    on = cluster(
        tier("node", 8, network, latency=0), tier("network", None, network, latency=0),
        part=accelerator(peak_flops={"bf16": peak}),
    )  # fmt: skip
    job = Job(sequence_length=512, global_batch_size=64)
    return estimate(SMALL, on, 16, Plan(sharding=sharding), job=job).step_time


@pytest.mark.parametrize("sharding", ["ddp", "zero1"])
@pytest.mark.parametrize("network", [0.05, 0.2, 1])
def test_a_faster_part_never_slows_a_plan(sharding: Any, network: float) -> None:
    times = [step_time(peak, network, sharding) for peak in PEAKS]
    assert all(faster <= slower * (1 + 1e-12) for slower, faster in pairwise(times))


@pytest.mark.parametrize("sharding", ["zero2", "zero3"])
@pytest.mark.parametrize("network", [0.05, 0.2, 1])
def test_a_faster_part_never_slows_a_plan_with_traffic_in_every_micro_batch(sharding: Any, network: float) -> None:
    times = [step_time(peak, network, sharding) for peak in PEAKS]
    assert all(faster <= slower * (1 + 1e-12) for slower, faster in pairwise(times))
