"""Memory of a stage from hand-made bytes of its parts, counted by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.estimation.test_pipelines import AROUND, WHOLE, WORK, numbers, question
from tests.estimation.test_times import HIDDEN, priced

from shardplan.estimation.question import Question
from shardplan.estimation.stage_memory import (
    ActivationMemory,
    StageMemory,
    StateMemory,
    _early,
    activation_memory,
    gradients_at_peak,
    host_holds,
    kept_outputs,
)
from shardplan.inputs.software import Software
from shardplan.physics.workload.layer import Parameters

KEPT = ActivationMemory(
    activations=30.0, recomputed=10.0, loss=4.0, passing=5.0, on_host=0.0, waiting=20.0, frees_gradients=True,
    first_share=0.25,
)  # fmt: skip
STATES = StateMemory(
    weights=2.0,
    gradients=40.0,
    optimizer=12.0,
    fleeting=40.0,
    early=1.0,
    whole=3.0,
    update=50.0,
    on_host=0.0,
    companion=0.0,
)
LAYERS = replace(
    WORK, sum=replace(WORK.sum, kept_bytes=100.0, freed_bytes=60.0), kept_of_layer=25.0, freed_of_part=15.0
)
"""Four layers that keep 100 bytes, of which recomputation frees 60, 15 of each."""


@pytest.mark.parametrize(
    ("gradients", "fleeting", "early", "changes", "expected"),
    [
        (40.0, 40.0, 1.0, {}, 20 - 4),  # what exceeds the activations that have gone, less the loss
        (40.0, 40.0, 1.0, {"waiting": 35.0}, 10 - 4),  # those of the first chunk, a quarter
        (40.0, 40.0, 12.0, {"waiting": 35.0}, 12 - 4),  # those of the head
        (40.0, 40.0, 1.0, {"loss": 30.0}, 0),
        (45.0, 40.0, 1.0, {}, 5 + 20 - 4),  # others stay
        (45.0, 40.0, 1.0, {"frees_gradients": False}, 45),
        (45.0, 0.0, 0.0, {}, 45),
        (45.0, 0.0, 10.0, {}, 45 + 10 - 4),
    ],
)
def test_gradients_at_the_peak(
    gradients: float, fleeting: float, early: float, changes: dict[str, Any], expected: float
) -> None:
    assert gradients_at_peak(gradients, fleeting, early, replace(KEPT, **changes)) == expected
    frees = np.array([True, False])
    both = gradients_at_peak(gradients, fleeting, early, replace(KEPT, frees_gradients=frees))
    if not changes:
        assert np.broadcast_to(both, 2).tolist() == [expected, gradients]


def test_the_parts_of_a_stage() -> None:
    """The update needs 50 bytes and the 24 gradients that are not there at the peak, 35 more than the activations."""
    found = StageMemory.of(STATES, KEPT, 7.0)
    assert (found.weights, found.gradients, found.optimizer, found.framework) == (2, 16, 12, 7)
    assert (found.activations, found.logits) == (30, 4)
    assert KEPT.total == 39
    assert found.buffers == 3 + 5 + (50 + 24 - 39)
    assert found.total == 2 + 16 + 12 + 30 + 4 + 43 + 7
    alone = StageMemory.of(replace(STATES, update=0.0), KEPT, 7.0)
    assert alone.buffers == 3 + 5
    assert alone.total == 2 + 16 + 12 + 30 + 4 + 8 + 7


def test_a_node_holds_its_share() -> None:
    """Nodes of eight with 80 bytes: ten for each accelerator."""
    asked = question()
    known = replace(asked, cluster=replace(asked.cluster, host_memory_bytes=80.0))
    assert [bool(host_holds(known, [needed, 0.0])) for needed in (0.0, 9.0, 10.0, 11.0)] == [True, True, True, False]
    assert not host_holds(known, [9.0, 11.0])
    assert host_holds(asked, [1e30]) is True
    assert host_holds(known, [0.0, 0.0]) is True


def held(plan: dict[str, Any], **changes: Any) -> ActivationMemory:
    """The second of four stages, which keeps three micro-batches."""
    asked = question(backward_gradients=0.2, logits_bytes={"gathered": 8.0, "gathered_alone": 8.0})
    asked = replace(asked, job=replace(asked.job, software=Software(loss_kernel="gathered")))
    stage = replace(WHOLE, **{"rank": 1, "num_layers": 4, "has_embedding": 0, "has_head": 0} | changes)
    around = replace(AROUND, output_bytes=2.0, logits=10.0)
    return activation_memory(asked, numbers(pp=4, **plan), around, stage, LAYERS)


FULL = {"recompute": "full"}
AWAY = {"offload": "activations"}


@pytest.mark.parametrize(
    ("plan", "waiting", "recomputed", "on_host"),
    [
        (FULL, 3 * 40, 15, 0),
        (FULL | {"recompute_num_layers": 1}, 3 * 85, 15, 0),
        (FULL | {"vp": 2}, 40 * 4.5, 15, 0),  # 2 (p - r - 1) + (v - 1) p + 1 chunks of 1 / v
        (FULL | AWAY, 40 * 3 / 4, 15, 3 * 40),  # of four layers two on their way and the last
        (FULL | AWAY | {"offload_num_layers": 1}, 40 * 3 * 3 / 4, 15, 3 * 40 / 4),
    ],
)
def test_activations_of_a_stage(plan: dict[str, Any], waiting: float, recomputed: float, on_host: float) -> None:
    found = held(plan)
    assert (found.waiting, found.recomputed, found.on_host) == pytest.approx((waiting, recomputed, on_host))
    assert found.activations == pytest.approx(waiting + recomputed)
    assert (found.passing, found.loss) == (0.2 * 25, 0)
    assert found.first_share == 1 / plan.get("vp", 1)
    assert not np.any(found.frees_gradients)


def test_recomputation_brings_back_no_more_than_it_freed() -> None:
    large = replace(LAYERS, freed_of_part=1000.0)
    stage = replace(WHOLE, rank=3, num_layers=4, has_head=0)
    found = activation_memory(question(), numbers(pp=4, **FULL), AROUND, stage, large)
    assert found.recomputed == 60
    stage = replace(stage, rank=1)
    assert activation_memory(question(), numbers(pp=4, **FULL), AROUND, stage, large).recomputed == 3 * 60


@pytest.mark.parametrize(
    ("ends", "loss"),
    [
        ({"has_head": 1}, 40 + (80 - 40 - 20)),
        ({"has_head": 1, "num_mtp_layers": 1}, 40 + (120 - 40 - 20)),
        ({"num_mtp_layers": 1}, 40 + (80 - 40 - 20)),
        ({}, 0),
    ],
)
def test_the_loss_counts_beyond_what_layers_bring_back(ends: dict[str, int], loss: float) -> None:
    """Ten logits of 8 bytes, of which 4 stay, and 4 for each further head; 15 + 5 bytes come when they are gone."""
    assert held(FULL, rank=3, **ends).loss == pytest.approx(loss)


@pytest.mark.parametrize(
    ("plan", "num_chunks", "kept"), [({}, 1, 0), ({"pp": 4}, 1, 6), ({"pp": 4, "vp": 2}, 2, 12), ({"pp": 4}, 0, 0)]
)
def test_outputs_that_a_framework_keeps(plan: dict[str, Any], num_chunks: int, kept: float) -> None:
    """Two bytes of every chunk of three micro-batches; one stage hands nothing on."""
    around, asked = replace(AROUND, output_bytes=2.0), question()

    def found(of: Question, at: Any) -> Any:
        return kept_outputs(of, at, around, num_chunks=num_chunks, in_flight=3)

    keeps, not_kept = (
        replace(asked, job=replace(asked.job, software=Software(stage_outputs=outputs))) for outputs in (True, False)
    )
    at = numbers(**plan)
    assert found(keeps, at) == kept
    assert found(not_kept, at) == 0
    if plan:
        assert found(keeps, replace(at, pp=np.array([1, 4]))).tolist() == [0, kept]


@pytest.mark.parametrize(
    ("plan", "rank", "frees"),
    [
        ({"pp": 4}, 1, False),
        ({"pp": 4, "vp": 2}, 1, False),
        ({"pp": 8, "vp": 2}, 1, True),  # one group of micro-batches
        ({"pp": 8}, 0, True),  # all eight in flight
        ({"pp": 8}, 1, False),
        ({"pp": 4, "schedule": "gpipe"}, 3, True),
        ({"pp": 4, "schedule": "zb-h1"}, 0, False),
    ],
)
def test_chunks_run_backward_in_turn_where_all_micro_batches_are_in_flight(
    plan: dict[str, Any], rank: int, *, frees: bool
) -> None:
    frees_gradients = Software(frees_gradients=True)
    stage = replace(WHOLE, rank=rank, num_layers=4, has_head=0)
    asked = question()
    for software, expected in (frees_gradients, frees), (Software(frees_gradients=False), False):
        of = replace(asked, job=replace(asked.job, software=software))
        found = activation_memory(of, numbers(**plan), AROUND, stage, LAYERS)
        assert bool(np.all(found.frees_gradients)) == expected


@pytest.mark.parametrize(
    ("heads", "blocks", "has_end"), [(0, 0, False), (1, 0, True), (0, 1, True), (1, 1, True), (0.5, 0, True)]
)
def test_the_first_gradients_are_those_of_the_head_or_of_a_layer(heads: float, blocks: float, *, has_end: bool) -> None:
    stage = replace(WHOLE, has_head=heads, num_mtp_layers=blocks)
    part, layer = Parameters(30.0, 8.0), Parameters(10.0, 4.0)
    found = _early(stage, part, layer)
    assert (float(found.dense), float(found.experts)) == ((30, 8) if has_end else (10, 4))


@pytest.mark.parametrize(
    ("plan", "replicas", "frees", "late"),
    [
        ({"sharding": "ddp"}, 1, True, True),
        ({"sharding": "ddp"}, 1, False, False),
        ({"sharding": "ddp"}, 2, True, False),
        ({"sharding": "zero2"}, 2, True, True),
    ],
)
def test_gradients_that_can_come_late(plan: dict[str, Any], replicas: int, *, frees: bool, late: bool) -> None:
    """All of a rank's where they are sharded or its own."""
    found = priced(1, replicas=replicas, job={"software": Software(frees_gradients=frees)}, **plan)
    states = found.columns.states_memory
    assert float(np.max(states.gradients)) > 0
    assert float(np.max(states.fleeting)) == (float(np.max(states.gradients)) if late else 0)
    share = float(np.max(states.early)) / float(np.max(states.gradients))
    assert share == pytest.approx(1 / 16 if late else 0, rel=0.01)


@pytest.mark.parametrize(("sharding", "bytes_of_a_parameter"), [("zero2", 4), ("zero3", 4 + 2 * 2)])
def test_whole_tensors_of_layers_beside_their_shards(sharding: str, bytes_of_a_parameter: int) -> None:
    """Fp32 gradients of a layer before they are scattered; gathered 16-bit weights of it and of the next."""
    found = priced(1, replicas=2, sharding=sharding).columns.states_memory
    assert float(np.max(found.whole)) == pytest.approx(bytes_of_a_parameter * 12 * HIDDEN**2, rel=1e-3)
