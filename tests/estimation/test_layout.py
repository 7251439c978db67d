"""Rounds of a pipeline's chunks against their definition, and what its ranks hold together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.examples import deepseek_v3

from shardplan.estimation.layout import pipeline_of, rounds_of

MODEL = deepseek_v3(16, 3, num_mtp_layers=1)
"""Two kinds of layers and a prediction block."""


@st.composite
def chunk_counts(draw: st.DrawFn) -> NDArray[np.int64]:
    """Layers of two kinds in every chunk, in rounds that may be alike: kinds x chunks per rank x ranks."""
    ranks = draw(st.integers(2, 4))
    chunk = st.tuples(st.integers(0, 2), st.integers(0, 2))
    two = draw(st.lists(st.lists(chunk, min_size=ranks, max_size=ranks), min_size=2, max_size=2))
    rounds = draw(st.lists(st.sampled_from(two), min_size=2, max_size=6))
    return np.moveaxis(np.asarray(rounds), 2, 0)


@given(chunk_counts(), st.lists(st.integers(1, 100), min_size=5, max_size=5))
def test_the_ranks_wait_in_every_round_for_the_slowest_chunk(counts: NDArray[np.int64], times: list[int]) -> None:
    """Whatever a layer of either kind, an embedding, a head and a prediction block take."""
    ends = np.zeros((3, *counts.shape[1:]), dtype=np.int64)
    ends[0, 0, 0] = ends[1, -1, -1] = ends[2, -1, -1] = 1
    work = np.tensordot(times, np.concatenate([counts, ends]), axes=1)
    found = sum(max(int(np.dot(times, chunk.parts)) for chunk in group) for group in rounds_of(MODEL, counts))
    assert found == work.max(axis=1).sum()


def test_rounds_that_are_alike_are_one_group_and_chunks_that_no_other_exceeds_remain() -> None:
    """Three rounds of two layers of the one kind beside two of the other; in the last a chunk of both is slowest."""
    one, other, both = (2, 0), (0, 2), (2, 2)
    counts = np.moveaxis(np.asarray([[one, other]] * 4 + [[one, both]]), 2, 0)
    groups = {frozenset(chunk.parts for chunk in group) for group in rounds_of(MODEL, counts)}
    first = frozenset({(2, 0, 1, 0, 0), (0, 2, 0, 0, 0)})
    between = frozenset({(6, 0, 0, 0, 0), (0, 6, 0, 0, 0)})
    assert groups == {first, between, frozenset({(2, 2, 0, 1, 1)})}


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
