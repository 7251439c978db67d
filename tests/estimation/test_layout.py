"""Longest ways through a pipeline's chunks, and what its ranks hold together."""

from __future__ import annotations

import numpy as np
import pytest
from tests.examples import deepseek_v3, llama

from shardplan.estimation.layout import pipeline_of, pipelines_of
from shardplan.schedules.base import PipelineSchedule
from shardplan.schedules.registry import load_schedule

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
