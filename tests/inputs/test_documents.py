from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardplan.base.errors import InputError
from shardplan.inputs.documents import documents_of
from shardplan.inputs.job import Job


def job(documents: Any, length: int = 8192) -> Job:
    return Job(sequence_length=length, global_batch_size=1, documents=documents)


def test_one_number_is_the_length_of_all() -> None:
    assert documents_of((1024,)) == documents_of((1024, 1024))
    assert (documents_of((1024,)).length, documents_of((1024,)).spread) == (1024, 0)


def test_a_document_that_fills_the_sequence_is_no_packing() -> None:
    assert job(None).packed is None
    assert job((8192,)).packed is None
    assert job((8191,)).packed is not None
    assert job((8192, 9000)).packed is not None


@given(st.integers(100, 10**6), st.floats(1.001, 2.27))
def test_a_log_normal_has_the_mean_and_the_percentile(mean: int, ratio: float) -> None:
    """By quantiles: exp(mu + sigma z), with mu = ln m - sigma^2 / 2."""
    percentile = round(mean * ratio)
    found = documents_of((mean, percentile))
    of_log = NormalDist(math.log(found.length) - found.spread**2 / 2, found.spread or 1e-9)
    assert found.length == mean
    assert math.exp(of_log.inv_cdf(0.9)) == pytest.approx(percentile, rel=1e-6)


@given(st.floats(2.28, 9.9))
def test_where_no_log_normal_has_the_percentile_some_documents_are_empty(ratio: float) -> None:
    """Of all documents, 90 % are at most as long as the percentile, and the mean is the one that was asked for."""
    mean, percentile = 10_000, round(10_000 * ratio)
    found = documents_of((mean, percentile))
    share = mean / found.length
    at = (math.log(percentile / found.length) + found.spread**2 / 2) / found.spread
    assert 0 < share < 1
    if ratio < 4.9:
        assert (1 - share) + share * NormalDist().cdf(at) == pytest.approx(0.9, abs=1e-4)
    else:
        assert math.exp(found.spread * min(at, 1)) * found.length == pytest.approx(percentile, rel=0.02)


def test_the_spread_has_no_jump_where_empty_documents_begin() -> None:
    below, above = documents_of((1_000_000, 2_273_000)), documents_of((1_000_000, 2_274_000))
    assert above.length == pytest.approx(below.length, rel=0.01)
    assert above.spread == pytest.approx(below.spread, rel=0.03)


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        ((8193,), "8,193 tokens in a sequence of 8,192"),
        ((8193, 9000), "at most the sequence length"),
        ((1024, 512), "at least their mean"),
        ((1024, 10240), "less than ten times"),
        ((1, 2, 3), "3 numbers"),
        ((0,), "documents is"),
        ((-5,), "documents is"),
        ((), "documents is"),
        ("1024", "a list such as 1024 or 1024,2048"),
        (1024, "documents is 1024"),
        ((1.5,), "documents is"),
        ((True,), "documents is"),
    ],
)
def test_lengths_that_documents_cannot_have(documents: Any, words: str) -> None:
    with pytest.raises(InputError) as error:
        job(documents)
    assert words in error.value.message + error.value.rule
    assert "--documents" in error.value.hint or "percentile" in error.value.hint


def test_a_list_is_taken_as_lengths() -> None:
    assert job([1024, 2048]) == job((1024, 2048))
    assert hash(job([1024])) == hash(job((1024,)))


def test_drawn_lengths_agree() -> None:
    """A million log-normal lengths of NumPy have the mean and the percentile."""
    found = documents_of((1000, 2000))
    drawn = np.random.default_rng(1).lognormal(math.log(found.length) - found.spread**2 / 2, found.spread, 10**6)
    assert drawn.mean() == pytest.approx(1000, rel=0.01)
    assert np.quantile(drawn, 0.9) == pytest.approx(2000, rel=0.01)
