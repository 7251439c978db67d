"""Longest ways through a pipeline's chunks, and what its ranks hold together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.examples import deepseek_v3, llama

from shardplan.estimation import layout
from shardplan.estimation.layout import Chunk, pipeline_of, pipelines_of, whole_model
from shardplan.physics.schedules.base import PipelineSchedule
from shardplan.physics.schedules.registry import load_schedule
from shardplan.physics.workload.stage import Stage

MODEL = deepseek_v3(16, 3, num_mtp_layers=1)
"""Two kinds of layers and a prediction block."""


LOOPS = [load_schedule("interleaved"), load_schedule("breadth-first")]


@pytest.mark.parametrize("schedule", LOOPS, ids=lambda schedule: schedule.name)
def test_a_longest_way_is_one_through_the_chunks(schedule: PipelineSchedule) -> None:
    """No micro-batch counts a part more often than all chunks have it."""
    held, rounds = pipeline_of(MODEL, 5, 3, schedule=schedule.name)
    ((*ways,),) = rounds
    assert ways
    parts = [(*one.counts, one.has_embedding, one.has_head, one.num_mtp_layers) for one in held]
    whole = np.asarray(parts, dtype=np.float64).sum(axis=0)
    for way in ways:
        assert np.all(np.asarray(way.parts) >= 0)
        assert np.all(np.asarray(way.parts) <= whole + 1e-9)


def test_equal_chunks_have_no_way_that_is_longer_than_the_slowest_rank() -> None:
    """Nor have ranks of one chunk; of a head, the last rank alone has more."""
    dense = llama(64, 80, 4, 4, 128, vocab_size=128)
    assert pipeline_of(llama(64, 12, 4, 4, 128), 4, 3)[1] == ()
    assert pipeline_of(dense, 9, 1)[1] == ()
    assert pipeline_of(dense, 9, 8)[1] != ()


def test_pipelines_are_laid_out_together_as_alone() -> None:
    shapes = [(pp, vp, None, name) for pp in (2, 3, 5) for vp in (1, 2, 3) for name in (None, "breadth-first", "zb-v")]
    asked = [shape for shape in shapes if shape[1] > 1 and (shape[1] == 2 or shape[3] != "zb-v")]
    together = pipelines_of(MODEL, asked)
    assert together == [pipeline_of(MODEL, *shape[:3], schedule=shape[3]) for shape in asked]
    assert {len(rounds) for _, rounds in together} == {0, 1}


@pytest.mark.parametrize(
    ("schedule", "vp", "embeddings", "heads"),
    [
        (None, 1, (1, 0, 0, 0), (0, 0, 0, 1)),
        ("zb-v", 2, (1, 0, 0, 0), (1, 0, 0, 0)),
        ("dualpipe", 1, (0.5, 0, 0, 0.5), (0.5, 0, 0, 0.5)),
        ("dualpipe-v", 2, (1, 0, 0, 0), (1, 0, 0, 0)),
    ],
)
def test_ranks_hold_the_model_once(
    schedule: str | None, vp: int, embeddings: tuple[float, ...], heads: tuple[float, ...]
) -> None:
    """A V turns back at the last rank; in DualPipe both ends of the model are at both ends (2412.19437, figure 5)."""
    held, _ = pipeline_of(MODEL, 4, vp, schedule=schedule)
    assert tuple(stage.has_embedding for stage in held) == embeddings
    assert tuple(stage.has_head for stage in held) == heads
    assert tuple(stage.num_mtp_layers for stage in held) == heads
    assert sum(stage.num_layers for stage in held) == 16
    assert [sum(kind) for kind in zip(*(stage.counts for stage in held), strict=True)] == [3, 13]


NO_ENDS: dict[str, Any] = {"has_embedding": 0.0, "has_head": 0.0, "num_mtp_layers": 0.0}


def test_what_lies_behind_a_rank_is_what_the_ranks_after_it_hold() -> None:
    """DualPipe: 5, 5, 5 and 1 layers, of which both outer ranks hold half of the first and the last; 3 are dense."""
    model = deepseek_v3(16, 3, num_mtp_layers=2)
    held, _ = pipeline_of(model, 4, 1, schedule="dualpipe")
    within = Stage(rank=1, num_layers=5.0, counts=(0.0, 5.0), **NO_ENDS)
    outer = Stage(
        rank=0, num_layers=3.0, counts=(1.5, 1.5), has_embedding=0.5, has_head=0.5, num_mtp_layers=1.0, num_behind=1,
        behind=within,
    )  # fmt: skip
    assert held == (outer, within, replace(within, rank=2), replace(outer, rank=3))
    held, _ = pipeline_of(model, 4, 2, schedule="dualpipe-v")
    assert [stage.num_behind for stage in held] == [3, 2, 1, 0]
    for rank, stage in enumerate(held[:-1]):
        after = np.asarray([other.counts for other in held[rank + 1 :]], dtype=np.float64).sum(axis=0)
        assert stage.behind == Stage(rank=1, num_layers=after.sum(), counts=tuple(after.tolist()), **NO_ENDS)
    assert held[-1].behind is None
    assert all(stage.behind is None for stage in pipeline_of(model, 4, 2, schedule="zb-v")[0])


def test_breadth_first_ways_are_chunks_that_lie_p_or_more_apart() -> None:
    """Of 2, 1, 1 and 2 layers on two ranks the ends, 4 where ranks hold 3; interleaved ranks never wait for these."""
    dense = llama(64, 6, 4, 4, 128)
    ends = Chunk(counts=(4.0,), num_embeddings=1.0, num_heads=1.0)
    assert pipeline_of(dense, 2, 2, (2, 1, 1, 2), schedule="breadth-first")[1] == ((ends,),)
    assert pipeline_of(dense, 2, 2, (2, 1, 1, 2))[1] == ()
    two_kinds = deepseek_v3(6, 3, num_mtp_layers=3)
    ends = Chunk(counts=(2.0, 2.0), num_embeddings=1.0, num_heads=1.0, num_mtp_layers=3.0)
    assert pipeline_of(two_kinds, 2, 2, (2, 1, 1, 2), schedule="breadth-first")[1] == ((ends,),)


def test_ways_are_sought_for_each_kind_of_layer_being_the_longer_one() -> None:
    """Chunks of 2, 1 and 3 dense layers, then of 4, 1 and 2 others: the first, the last, and the third or the fourth.

    With dense layers five times as long the way is 25 + 2 and a rank's 25 + 1; else 2 + 4 + 2 and 1 + 4 + 2.
    """
    _, rounds = pipeline_of(deepseek_v3(13, 6), 2, 3, (2, 1, 3, 4, 1, 2), schedule="breadth-first")
    ways = [Chunk(counts=counts, num_embeddings=1.0, num_heads=1.0) for counts in ((2.0, 6.0), (5.0, 2.0))]
    assert rounds == (tuple(ways),)


def test_parts_count_by_their_active_parameters_and_each_kind_of_layer_five_times() -> None:
    """A prediction block is a layer, a head and the matrix that joins two vectors of the hidden size."""
    model = deepseek_v3(16, 3, num_mtp_layers=1)
    dense, sparse = (model.num_layer_parameters(kind, active=True) for kind in model.layer_kinds)
    head = 129280 * 7168
    block = sparse + 2 * 7168 * 7168 + head
    assert layout._ratios(model).tolist() == [
        [dense, sparse, 0, head, block], [5 * dense, sparse, 0, head, block], [dense, 5 * sparse, 0, head, block],
    ]  # fmt: skip
    assert layout._ratios(llama(64, 12, 4, 4, 128))[:, 1:3].tolist() == [[0, 128256 * 64]]


def test_a_chunk_holds_what_it_is_said_to_hold() -> None:
    chunk = Chunk(counts=(2.0, 1.0))
    assert chunk.parts == (2, 1, 0, 0, 0)
    full = Chunk.of((2.0, 1.0, 1.0, 0.5, 3.0))
    assert full.parts == (2, 1, 1, 0.5, 3)
    assert full.as_stage() == Stage(
        rank=0, num_layers=3, counts=(2, 1), has_embedding=1, has_head=0.5, num_mtp_layers=3
    )
    assert whole_model(MODEL) == Stage(
        rank=0, num_layers=16, counts=(3, 13), has_embedding=1, has_head=1, num_mtp_layers=1
    )
