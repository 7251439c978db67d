"""Plans priced together as each alone, and what a plan sends and computes, counted by hand."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from tests.estimation.test_times import HIDDEN, LAYERS, LENGTH, priced

from shardplan.estimation.priced import PricedPlan
from shardplan.inputs.plan import Plan

PRODUCTS, SCORES = 24 * LENGTH * HIDDEN**2, 2 * LENGTH**2 * HIDDEN
"""FLOP of a layer's products and of causal attention for one sequence, forward (arXiv 2104.04473, section 5.1)."""


def test_plans_priced_together_are_as_each_alone() -> None:
    """Slowest and fullest stages are counted from a plan's own first one."""
    asked = priced(32, pp=8, replicas=2, profile={"microbatch_time": 1e-3}).question
    plans = [
        Plan(pp=4, stage_layers=(3, 4, 5, 4)),
        Plan(pp=8, stage_layers=(1, 2, 2, 2, 2, 2, 4, 1)),
        Plan(pp=2, recompute="full", recompute_num_layers=2),
        Plan(pp=2, vp=2, schedule="interleaved", offload="activations"),
    ]
    for one, found in zip(plans, PricedPlan.of_all(asked, plans), strict=True):
        alone = PricedPlan.of(asked, one)
        for name in ("slowest", "fullest", "step_time", "peak_memory_bytes", "fits", "shares", "breakdown"):
            assert getattr(found, name) == getattr(alone, name), name
        assert found.host_bytes.tolist() == alone.host_bytes.tolist()
        assert found.communication() == alone.communication()
        assert found.hardware_flops() == alone.hardware_flops()
        assert [found.memory_of(rank) for rank in range(one.pp)] == [alone.memory_of(rank) for rank in range(one.pp)]
        for record in ("once_a_step", "step_traffic", "chunk_times"):
            pairs = (
                (getattr(getattr(each, record), f.name) for each in (found, alone))
                for f in fields(getattr(alone, record))
            )
            assert all(np.array_equal(a, b) for a, b in pairs), record
    slow = PricedPlan.of_all(asked, plans)
    assert [each.slowest for each in slow[:2]] == [2, 6]


@pytest.mark.parametrize(
    ("plan", "again"),
    [
        ({}, 0),
        ({"pp": 4}, 0),
        ({"recompute": "full"}, 16),
        ({"pp": 4, "recompute": "full"}, 16),
        ({"pp": 4, "recompute": "full", "recompute_num_layers": 1}, 4),
        ({"pp": 4, "recompute": "full", "recompute_num_layers": 9}, 16),
    ],
)
def test_flops_that_are_executed(plan: dict[str, Any], again: int) -> None:
    """Three times the forward FLOP, what a fused kernel repeats left out, and the layers that run again."""
    sequences = 8
    trained = LAYERS * 3 * (PRODUCTS + SCORES)
    repeated = again * (PRODUCTS + SCORES)
    assert priced(8, **plan).hardware_flops() == pytest.approx(sequences * (trained + repeated), rel=1e-4)
    assert priced(8, replicas=2, **plan).hardware_flops() == pytest.approx(16 * (trained + repeated), rel=1e-4)


@pytest.mark.parametrize(("plan", "chunks"), [({"pp": 4}, 1), ({"pp": 4, "vp": 2, "schedule": "interleaved"}, 2)])
def test_stages_send_every_micro_batch_there_and_back(plan: dict[str, Any], chunks: int) -> None:
    """2 s h bytes of each chunk's output and as many of its gradient."""
    assert priced(8, **plan).communication()["pp"]["node"] == 8 * chunks * 2 * (2 * LENGTH * HIDDEN)


@pytest.mark.parametrize("schedule", ["1f1b", "dualpipe"])
def test_replicas_send_the_gradients_of_all_copies(schedule: str) -> None:
    """All-reduced fp32 gradients of 12 h^2 parameters of each of 8 layers; DualPipe holds two copies."""
    copies = 2 if schedule == "dualpipe" else 1
    found = priced(8, pp=2, replicas=2, sharding="ddp", schedule=schedule)
    whole = 4 * 12 * HIDDEN**2 * LAYERS / 2
    assert sum(found.communication()["dp"].values()) == pytest.approx(copies * whole, rel=1e-2)


def test_what_comes_once_a_step_travels_behind_a_chunks_work() -> None:
    """Without windows nothing does; with all of it the forward work of a micro-batch hides gathering, F of 3 F."""
    bare = priced(8, pp=2, replicas=2, sharding="zero1")
    traffic, once = bare.step_traffic, bare.once_a_step
    assert np.all(traffic.gather_time > 0)
    assert traffic.gather_time.tolist() == once.gather.tolist()
    assert traffic.reduce_time.tolist() == once.reduce.tolist()
    assert not np.any(traffic.gather_window)
    assert not np.any(traffic.reduce_window)
    hidden = priced(8, pp=2, replicas=2, sharding="zero1", profile={"dp_window": 1.0, "hidden_slowdown": 0.1})
    forward = LAYERS / 2 * (PRODUCTS + SCORES) / 1e15
    backward = LAYERS / 2 * (2 * PRODUCTS + 2.5 * SCORES) / 1e15
    traffic = hidden.step_traffic
    assert traffic.gather_window == pytest.approx(forward, rel=1e-3)
    assert traffic.reduce_window == pytest.approx(backward, rel=1e-3)
    assert traffic.least_share == 0.1


def test_transfers_and_exchanges_share_a_link_where_both_use_its_tier() -> None:
    assert priced(8, pp=4, replicas=2, sharding="zero1").step_traffic.shares_card
    assert not priced(8, replicas=8, sharding="zero1").step_traffic.shares_card
