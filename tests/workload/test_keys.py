from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from shardplan.inputs.documents import Documents, documents_of
from shardplan.workload.keys import document_length, mean_keys

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
