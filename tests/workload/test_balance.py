from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.workload.test_keys import mask, packed

from shardplan.inputs.documents import Documents, documents_of
from shardplan.inputs.job import Job
from shardplan.inputs.layers import Attention
from shardplan.inputs.plan import CpComm, Plan
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.workload.attention import attention
from shardplan.workload.keys import MOST_DOCUMENTS, slowest_rank
from shardplan.workload.ops import AttentionCore
from shardplan.workload.shard import Shard


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
