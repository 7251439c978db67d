"""Keys that queries meet under a mask, documents among them, and how evenly ranks attend."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from shardplan.inputs.documents import Documents, documents_of
from shardplan.inputs.job import Job
from shardplan.inputs.layers import Attention
from shardplan.inputs.plan import CpComm, Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.physics.workload.attention import MOST_DOCUMENTS, attention, document_length, mean_keys, slowest_rank
from shardplan.physics.workload.communication import Shard
from shardplan.physics.workload.ops import AttentionCore

LOG_NORMAL = documents_of((1024, 2048))


def mask(lengths: Sequence[int], *, causal: bool = True, window: int | None = None) -> NDArray[np.float64]:
    """The whole mask of a sequence of documents, query by key; a query's own key counts half, as in a continuum."""
    document = np.repeat(np.arange(len(lengths)), lengths)
    position = np.arange(len(document))
    back = position[:, None] - position[None, :]
    seen = document[:, None] == document[None, :]
    if window is not None:
        seen &= np.abs(back) < window
    if not causal:
        return seen.astype(float)
    return np.where(back == 0, 0.5, 1.0) * (seen & (back >= 0))


def packed(length: int, document: int) -> list[int]:
    return [document] * (length // document) + ([length % document] if length % document else [])


@given(st.integers(1, 200), st.integers(1, 250))
def test_keys_of_equal_documents_are_those_of_the_mask(length: int, document: int) -> None:
    counted = mask(packed(length, document)).sum() / length
    assert mean_keys(length, causal=True, documents=Documents(length=document)) == pytest.approx(counted, rel=1e-12)
    both = mask(packed(length, document), causal=False).sum() / length
    assert mean_keys(length, causal=False, documents=Documents(length=document)) == pytest.approx(both, rel=1e-12)


@given(st.integers(1, 200), st.integers(1, 250), st.integers(1, 250))
def test_keys_in_a_window_are_those_of_the_mask(length: int, document: int, window: int) -> None:
    """Within half a key, as without documents."""
    counted = mask(packed(length, document), window=window).sum() / length
    found = mean_keys(length, causal=True, window=window, documents=Documents(length=document))
    assert found == pytest.approx(counted, abs=0.5)


def test_hand_counted_masks() -> None:
    """Two documents of 4 in 8: (4 x 4 / 2) x 2 of 8 x 8 / 2 pairs; 3, 3 and a cut 2: 9/2 + 9/2 + 4/2 = 11 pairs."""
    assert mean_keys(8, causal=True, documents=Documents(length=4)) == 16 / 8
    assert mean_keys(8, causal=True, documents=Documents(length=3)) == 11 / 8
    assert mean_keys(8, causal=False, documents=Documents(length=3)) == 22 / 8
    assert mean_keys(8, causal=True, chunk=4, documents=Documents(length=3)) == (9 / 2 + 1 / 2) / 4


@given(
    length=st.integers(1, 10**6), causal=st.booleans(), window=st.sampled_from((None, 1, 512)),
    chunk=st.sampled_from((None, 700)),
)  # fmt: skip
def test_a_document_that_fills_the_sequence_changes_nothing(
    *, length: int, causal: bool, window: int | None, chunk: int | None
) -> None:
    alone = mean_keys(length, causal=causal, window=window, chunk=chunk)
    for longer in (length, 2 * length):
        documents = Documents(length=longer)
        assert mean_keys(length, causal=causal, window=window, chunk=chunk, documents=documents) == alone
        assert document_length(length, documents) == document_length(length, None) == length


def test_keys_grow_with_the_documents() -> None:
    """In proportion, where they divide the sequence; documents of one token attend to themselves alone."""
    keys = [mean_keys(8192, causal=True, documents=Documents(length=2**n)) for n in range(14)]
    assert keys == [2**n / 2 for n in range(14)]
    assert mean_keys(8192, causal=True, documents=Documents(length=1)) == 0.5


@pytest.mark.parametrize("lengths", [(1024, 1100), (1024, 2048), (1024, 2300), (1024, 4000)])
def test_a_long_sequence_meets_the_length_biased_expectation(lengths: tuple[int, int]) -> None:
    """E[l^2] / 2 E[l], for a log-normal m exp(sigma^2) / 2."""
    documents = documents_of(lengths)
    wanted = documents.length * math.exp(documents.spread**2) / 2
    assert mean_keys(10**9, causal=True, documents=documents) == pytest.approx(wanted, rel=1e-4)
    assert document_length(10**9, documents) == pytest.approx(2 * wanted, rel=1e-4)


@pytest.mark.parametrize("window", [None, 300])
@pytest.mark.parametrize(("lengths", "s"), [((1024, 2048), 2048), ((200, 300), 2048), ((2048, 4096), 2048)])
def test_keys_of_lengths_are_those_of_a_drawn_stream(lengths: tuple[int, int], s: int, window: int | None) -> None:
    """A stream of log-normal documents, cut into sequences: the keys of every position counted."""
    documents = documents_of(lengths)
    source = np.random.default_rng(7)
    drawn = source.lognormal(math.log(documents.length) - documents.spread**2 / 2, documents.spread, 4_000_000 // s)
    starts = np.cumsum(drawn)
    place = np.arange(0.5, starts[-1] // s * s)
    before = np.concatenate(([0.0], starts))[np.searchsorted(starts, place, side="right")]
    keys = place - np.maximum(before, place // s * s)
    counted = np.minimum(keys, window or s).mean()
    assert mean_keys(s, causal=True, window=window, documents=documents) == pytest.approx(counted, rel=0.06)


@given(st.integers(10, 10**5), st.floats(1.01, 9.5), st.integers(1, 20))
def test_more_documents_than_one_never_add_keys(mean: int, ratio: float, times: int) -> None:
    documents, s = documents_of((mean, round(mean * ratio))), mean * times
    found = mean_keys(s, causal=True, documents=documents)
    assert 0 < found <= s / 2 * (1 + 1e-9)
    assert mean_keys(s, causal=True, window=mean, documents=documents) <= found * (1 + 1e-9)
    assert found <= mean_keys(2 * s, causal=True, documents=documents) * (1 + 1e-9)


def test_kernels_take_the_time_of_their_documents() -> None:
    """Documents of 3, 3 and 2 at a rate of l / (l + 5): sum of l^2 (l + 5) / l, as if all had the mean length."""
    length = document_length(8, Documents(length=3))
    assert length == (9 + 9 + 4) / 8
    assert 8 * length * (length + 5) / length == pytest.approx(3 * 8 + 3 * 8 + 2 * 7)


def test_a_scale_changes_no_shape() -> None:
    """All lengths times ten: ten times the keys."""
    ten = Documents(length=10 * LOG_NORMAL.length, spread=LOG_NORMAL.spread)
    found = mean_keys(8192, causal=True, window=700, documents=LOG_NORMAL)
    assert mean_keys(81920, causal=True, window=7000, documents=ten) == pytest.approx(10 * found, rel=1e-12)


@pytest.mark.parametrize("spread", [0.2, 0.7, 1.2])
@pytest.mark.parametrize(("s", "window"), [(500, None), (2000, None), (2000, 300), (2000, 1500), (20000, 1000)])
def test_keys_of_lengths_are_the_integral_over_ages(spread: float, s: int, window: int | None) -> None:
    """The integral over a of (1 - a / s) E[(l - a)+] / m up to the window, lengths drawn at even quantiles of ln l."""
    mean = 1000.0
    z, step = np.linspace(-8, 8, 1601, retstep=True)
    weights = np.exp(-z * z / 2) / np.sqrt(2 * np.pi) * step
    lengths = mean * np.exp(spread * z - spread**2 / 2)
    places = 2000
    age = (np.arange(places) + 0.5) * min(s, window or s) / places
    left = np.maximum(lengths[:, None] - age, 0).T @ weights / mean
    integral = float(np.sum((1 - age / s) * left) * min(s, window or s) / places)
    documents = Documents(length=mean, spread=spread)
    assert mean_keys(s, causal=True, window=window, documents=documents) == pytest.approx(integral, rel=1e-4)
    assert mean_keys(s, causal=False, window=window, documents=documents) == pytest.approx(2 * integral, rel=1e-4)


def test_masks_by_hand_at_their_borders() -> None:
    """8 - 64/32 keys of a window of 8 in 16; both sides of a window of 3; a chunk that is the sequence is none."""
    assert mean_keys(16, causal=True, window=8) == 8 - 64 / 32
    assert mean_keys(16, causal=False, window=3) == 6
    assert mean_keys(16, causal=False, window=30) == 16
    assert mean_keys(16, causal=True, window=8, chunk=16) == 6
    assert mean_keys(16, causal=True, window=8, chunk=4) == 2
    assert document_length(16, Documents(length=16)) == 16
    assert document_length(16, Documents(length=8)) == 8


@pytest.mark.parametrize(
    ("window", "expected"), [(None, (2 * 6 * 3 + 4 * 2) / 16), (2, (2 * 6 * (2 - 4 / 12) + 4 * 1.5) / 16)]
)
def test_windows_of_documents_by_hand(window: int | None, expected: float) -> None:
    """Documents of 6, 6 and a cut 4 in 16: half of each, or w - w^2 / 2l of a window of two."""
    assert mean_keys(16, causal=True, window=window, documents=Documents(length=6)) == pytest.approx(expected)


def counted(ranks: int, length: int, document: int, *, causal: bool = True) -> float:
    """Largest sum of mask rows of a rank, in zigzag order, relative to the mean."""
    rows = mask(packed(length, document), causal=causal).sum(axis=1)
    pieces = rows.reshape(2 * ranks, -1).sum(axis=1)
    of_rank = [pieces[rank] + pieces[2 * ranks - 1 - rank] for rank in range(ranks)]
    return float(max(of_rank) / np.mean(of_rank))


@given(ranks=st.integers(1, 8), piece=st.integers(1, 12), document=st.integers(1, 200), causal=st.booleans())
def test_the_slowest_rank_is_that_of_the_mask(ranks: int, piece: int, document: int, *, causal: bool) -> None:
    length = 2 * ranks * piece
    found = slowest_rank(ranks, length, causal=causal, documents=Documents(length=min(document, length)))
    assert found == pytest.approx(counted(ranks, length, min(document, length), causal=causal), rel=1e-9)


def test_by_hand() -> None:
    """Two ranks, pieces of 2 in 8 tokens. Documents of 6 and 2: 2, 6, 10 and 2 pairs, 4 and 16 of ranks, mean 10."""
    assert slowest_rank(2, 8, causal=True, documents=Documents(length=6)) == 16 / 10
    assert isinstance(slowest_rank(2, 8, causal=True, documents=Documents(length=6)), float)
    assert slowest_rank(2, 8, causal=True, documents=Documents(length=2)) == 1
    assert slowest_rank(2, 8, causal=True, documents=Documents(length=8)) == 1
    assert slowest_rank(2, 8, causal=True, documents=None) == 1


@given(st.lists(st.sampled_from((1, 2, 4, 8, 16)), min_size=1, max_size=6), st.sampled_from(((700,), (700, 1500))))
def test_many_numbers_of_ranks_at_once(ranks: list[int], lengths: tuple[int, ...]) -> None:
    documents = documents_of(lengths)
    each = [slowest_rank(n, 8192, causal=True, documents=documents) for n in ranks]
    for shape in ((-1,), (1, -1), (-1, 1)):
        together = slowest_rank(np.asarray(ranks).reshape(shape), 8192, causal=True, documents=documents)
        assert np.shape(together) == np.asarray(ranks).reshape(shape).shape
        assert np.ravel(together).tolist() == each


@pytest.mark.parametrize("lengths", [(512,), (500, 1000), (2000, 4000), (1024, 4096)])
def test_more_ranks_are_no_more_even(lengths: tuple[int, ...]) -> None:
    """One rank has all the work, and n ranks at most n times the mean."""
    loads = [float(slowest_rank(2**n, 16384, causal=True, documents=documents_of(lengths))) for n in range(6)]
    assert loads[0] == 1
    assert loads == sorted(loads)
    assert all(1 <= load <= 2**n for n, load in enumerate(loads))


def test_many_short_documents_are_shared_evenly() -> None:
    """The excess falls as the root of the documents in a rank's share (central limit): fourfold length, half of it."""
    excess = [
        float(slowest_rank(4, length, causal=True, documents=documents_of((64, 128)))) - 1
        for length in (2**14, 2**16, 2**18)
    ]
    for longer, shorter in zip(excess[1:], excess[:-1], strict=True):
        assert longer == pytest.approx(shorter / 2, rel=0.2)


def test_a_window_evens_out_long_documents() -> None:
    documents = documents_of((2000, 4000))
    whole, windowed = (slowest_rank(8, 16384, causal=True, window=w, documents=documents) for w in (None, 128))
    assert 1 < windowed < 1.1 < whole


@pytest.mark.parametrize("lengths", [(200, 300), (1000, 2000), (8000, 16000)])
@pytest.mark.parametrize(("window", "chunk"), [(None, None), (700, None), (None, 2048)])
def test_drawn_sequences_agree_with_others(lengths: tuple[int, ...], window: int | None, chunk: int | None) -> None:
    """Another stream of other random numbers, counted on its own at every eighth token."""
    documents, s, ranks, count = documents_of(lengths), 8192, 4, 1000
    source = np.random.default_rng(3)
    number = int(1.5 * count * s / documents.length) + 500
    drawn = source.lognormal(np.log(documents.length) - documents.spread**2 / 2, documents.spread, number)
    starts = np.concatenate(([0.0], np.cumsum(drawn)))
    place = np.arange(4.0, count * s, 8)
    begins = np.maximum(starts[np.searchsorted(starts, place) - 1], place // (chunk or s) * (chunk or s))
    pieces = np.minimum(place - begins, window or s).reshape(count, 2 * ranks, -1).sum(axis=2)
    of_rank = pieces[:, :ranks] + pieces[:, ::-1][:, :ranks]
    wanted = of_rank.max(axis=1).mean() / of_rank.mean()
    found = slowest_rank(ranks, s, causal=True, window=window, chunk=chunk, documents=documents)
    assert found == pytest.approx(wanted, rel=0.03)


@pytest.mark.parametrize("lengths", [(1,), (1, 2), (3, 5)])
def test_endless_sequences_of_tiny_documents_take_no_endless_memory(lengths: tuple[int, ...]) -> None:
    assert 1 <= slowest_rank(8, 2**31, causal=True, documents=documents_of(lengths)) < 1.05
    assert MOST_DOCUMENTS < 10**6


def test_chunks_and_windows_by_hand() -> None:
    """Two ranks, pieces of 3 in 12 tokens, pieces 0 and 3 of the one.

    Documents of 8 and 4 in chunks of 6: 6, 2 and 4 tokens. Pairs before 3, 6, 9, 12: 4.5, 18, 2 + 0.5, 8 less; a window
    of 2: a token beyond its second meets two keys.
    """
    eight = Documents(length=8)
    pieces = (4.5, 13.5, 2 + 0.5, 8 - 0.5)
    found = slowest_rank(2, 12, causal=True, chunk=6, documents=eight)
    assert found == pytest.approx((pieces[1] + pieces[2]) / (sum(pieces) / 2))
    windowed = (2 + 2, 6, 4 + 0.5, 5.5)
    found = slowest_rank(2, 12, causal=True, window=2, documents=eight)
    assert found == pytest.approx(max(windowed[0] + windowed[3], windowed[1] + windowed[2]) / (sum(windowed) / 2))


def core(comm: CpComm, *, cp: int = 4, documents: tuple[int, ...] | None = (1000, 2000)) -> AttentionCore:
    job = Job(sequence_length=8192, global_batch_size=1, documents=documents)
    numbers = PlanNumbers.of(Plan(cp=cp, cp_comm=comm), cp, job)
    block = attention(Attention(num_heads=32, num_kv_heads=8, head_dim=128), Shard.of(4096, job, numbers))
    return next(op for op in block.operators if isinstance(op, AttentionCore))


def test_an_all_to_all_is_even_and_flop_are_those_of_the_average_rank() -> None:
    ring, gathered, heads = (core(comm) for comm in ("p2p", "allgather", "a2a"))
    assert ring.load == gathered.load > 1
    assert heads.load == 1
    assert ring.flops == gathered.flops == heads.flops
    assert 4 * ring.flops == core("p2p", cp=1).flops
    assert core("p2p", documents=None).load == 1


def test_a_ring_moves_all_keys_whatever_the_documents() -> None:
    model = Attention(num_heads=32, num_kv_heads=8, head_dim=128)
    talk = []
    for documents in (None, (100,)):
        job = Job(sequence_length=8192, global_batch_size=1, documents=documents)
        block = attention(model, Shard.of(4096, job, PlanNumbers.of(Plan(cp=4), 4, job)))
        talk.append((block.collectives, block.saved))
    assert talk[0] == talk[1]
