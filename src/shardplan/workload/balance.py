"""How evenly ranks that share a sequence attend where documents are packed into it."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shardplan.arrays import Numbers, different
from shardplan.inputs.documents import Documents
from shardplan.workload.keys import keys_of_one

MOST_SEQUENCES: Final = 256
MOST_DOCUMENTS: Final = 2**18
"""Documents that are looked at; of longer sequences only this number of the first, which are shared less evenly."""


def slowest_rank(
    ranks: Numbers,
    sequence_length: int,
    *,
    causal: bool,
    window: int | None = None,
    chunk: int | None = None,
    documents: Documents | None,
) -> Numbers:
    r"""Products of the rank that attends most, relative to the average one, where n ranks share every sequence.

    Rank i holds the pieces i and 2 n - 1 - i of 2 n equal ones, which balances a causal mask (Llama 3, arXiv
    2407.21783, section 3.3.2; zigzag order of Transformer Engine). Documents do not end where pieces do, so that with
    them some ranks attend more than others, and all wait for those in every layer:

    .. math:: \frac{E[\max_i W_i]}{E[W_i]}

    Without documents all attend alike. Documents of one length have the same borders in every sequence, and pairs of
    query and key are counted. Of a distribution, ``MOST_SEQUENCES`` sequences are drawn from one stream, always the
    same; their mean is sure to about 2 %. One number per number of ranks; the micro-batches of other replicas are taken
    to be as long.
    """
    if documents is None:
        return 1.0
    distinct, at = np.unique(np.asarray(ranks), return_inverse=True)
    found = [
        _slowest(int(each), float(sequence_length), causal=causal, window=window, chunk=chunk, documents=documents)
        for each in distinct
    ]
    return found[0] if np.ndim(ranks) == 0 else np.asarray(found)[at].reshape(np.shape(ranks))


@lru_cache(maxsize=1024)
def _slowest(
    ranks: int, s: float, *, causal: bool, window: int | None, chunk: int | None, documents: Documents
) -> float:
    if ranks == 1:
        return 1.0
    shortest = min(documents.length, chunk or math.inf)
    s = min(s, MOST_DOCUMENTS * shortest)
    count = int(np.clip(MOST_DOCUMENTS * shortest / s, 1, MOST_SEQUENCES)) if documents.spread else 1
    borders = _borders(documents, s, count, chunk)
    pieces = np.arange(count)[:, None] * s + np.arange(2 * ranks + 1) * (s / (2 * ranks))
    work = np.diff(_pairs_before(pieces, borders, causal=causal, window=window), axis=1)
    of_rank = work[:, :ranks] + work[:, : ranks - 1 : -1]
    return float(of_rank.max(axis=1).mean() / of_rank.mean())


@lru_cache(maxsize=16)
def _borders(documents: Documents, s: float, count: int, chunk: int | None) -> NDArray[np.float64]:
    """Where documents, chunks and ``count`` sequences of s tokens begin in a stream, and where it ends."""
    starts = np.cumsum(_drawn(documents, count * s)) if documents.spread else np.arange(0, s, documents.length)
    of_sequence = np.arange(0, s, chunk or s)
    sequences = (np.arange(count)[:, None] * s + of_sequence).ravel()
    inside = starts[starts < count * s]
    return different(np.concatenate((inside, sequences, [count * s])))


def _drawn(documents: Documents, total: float) -> NDArray[np.float64]:
    """Lengths that fill ``total`` tokens, always the same: log-normal by the method of Box and Muller (1958)."""
    source = np.random.Generator(np.random.PCG64(0))
    lengths = np.empty(0)
    while lengths.sum() < total:
        first, second = source.random((2, int(total / documents.length) + MOST_SEQUENCES))
        normal = np.sqrt(-2 * np.log1p(-first)) * np.cos(2 * np.pi * second)
        drawn = documents.length * np.exp(documents.spread * normal - documents.spread**2 / 2)
        lengths = np.concatenate((lengths, drawn))
    return lengths


def _pairs_before(
    places: NDArray[np.float64], borders: NDArray[np.float64], *, causal: bool, window: int | None
) -> NDArray[np.float64]:
    """Pairs of a query before each place in a stream and a key that it meets."""
    lengths = np.diff(borders)
    before = np.concatenate(([0.0], np.cumsum(lengths * keys_of_one(lengths, causal=causal, window=window))))
    at = np.clip(np.searchsorted(borders, places, side="right") - 1, 0, len(lengths) - 1)
    part = places - borders[at]
    return before[at] + part * keys_of_one(part if causal else lengths[at], causal=causal, window=window)
