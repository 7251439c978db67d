"""Times of a pipeline's chunks: those of a rank sum to what its stage takes, and each pass has its share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.estimation.test_times import HIDDEN, LENGTH, LINK, priced
from tests.examples import deepseek_v3

from shardplan.estimation.layout import Chunk
from shardplan.estimation.parts.chunks import chunk_ranks, chunk_stages
from shardplan.inputs.plan import Plan

HANDOVER = 2 * LENGTH * HIDDEN / LINK
"""16-bit output of a stage over a slow link. [s]"""
HIDES: dict[str, Any] = {"pp_window": 1.0, "microbatch_time": 0.01}
CASES: list[dict[str, Any]] = [
    {"pp": 4, "profile": {"microbatch_time": 0.01}},
    {"pp": 4, "overlap_pp": True, "profile": HIDES},
    {"pp": 2, "vp": 2, "schedule": "interleaved", "overlap_pp": True, "recompute": "full", "profile": HIDES},
    {"pp": 2, "vp": 4, "schedule": "interleaved", "offload": "activations", "job": {"dropout": True}},
    {"pp": 2, "replicas": 2, "sharding": "zero3", "recompute": "full", "recompute_num_layers": 2},
    {"pp": 4, "vp": 2, "replicas": 2, "sharding": "zero3", "schedule": "zb-v", "profile": HIDES},
]


@pytest.mark.parametrize("case", CASES)
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
