"""Keys that a query meets under a mask, documents packed into a sequence among them, and how evenly ranks attend."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shardplan.arrays import Numbers, different
from shardplan.inputs.documents import Documents, normal

TINY: Final = 1e-300


def mean_keys(
    sequence_length: float,
    *,
    causal: bool,
    window: int | None = None,
    chunk: int | None = None,
    documents: Documents | None = None,
) -> float:
    r"""Keys that a query meets on average: :math:`s/2` under a causal mask, :math:`w - w^2/2s` in a sliding window.

    A chunk of :math:`c` tokens is a sequence of its own, :math:`c/2`. So is a document (Llama 3, arXiv 2407.21783,
    section 3.2: no attention between documents of a sequence): of n documents of :math:`l` tokens and the rest r of a
    sequence, each token meets

    .. math:: \bar{s} = \frac{n\,l\,\bar{s}(l) + r\,\bar{s}(r)}{s}

    keys. Documents of different lengths follow each other from one sequence to the next, which cuts the first and the
    last (:func:`keys_of_lengths`).
    """
    s = float(sequence_length)
    if chunk is not None and chunk < s:
        return mean_keys(chunk, causal=causal, documents=documents)
    if documents is None or documents.fill(s):
        return float(keys_of_one(s, causal=causal, window=window))
    if documents.spread:
        reach = s if window is None else min(s, float(window))
        return (1 if causal else 2) * keys_of_lengths(documents, s, reach)
    whole, rest = divmod(s, documents.length)
    of_whole, of_rest = (keys_of_one(length, causal=causal, window=window) for length in (documents.length, rest))
    return float(whole * documents.length * of_whole + rest * of_rest) / s


def keys_of_one(s: Numbers, *, causal: bool, window: int | None) -> Numbers:
    """The same in one document of s tokens, none at 0."""
    if not causal:
        return np.minimum(s, 2.0 * window) if window is not None else s
    reach = np.minimum(s, window) if window is not None else s
    return reach - reach * reach / np.maximum(2 * s, TINY)


def document_length(sequence_length: float, documents: Documents | None) -> float:
    r"""Mean length of the document that a token is in, :math:`\sum l^2 / \sum l`. [tokens]

    Kernels whose rate falls as :math:`l / (l + l_0)` with the length of a document take, over all documents of a
    sequence, the time that they take where all have this length.
    """
    if documents is None:
        return float(sequence_length)
    return 2 * mean_keys(sequence_length, causal=True, documents=documents)


@lru_cache(maxsize=256)
def keys_of_lengths(documents: Documents, s: float, reach: float) -> float:
    r"""Keys up to ``reach`` tokens back that a query meets among documents of log-normal lengths, causal mask.

    .. math:: \int_0^w (1 - \frac{a}{s}) \frac{E[(l - a)^+]}{m}\,da, \quad
        \lim_{s, w \to \infty} = \frac{E[l^2]}{2\,m}

    A token has at least a tokens of its document before it in a stream of documents with the probability
    :math:`E[(l - a)^+] / m` (the age of a renewal process), and before it in its sequence with :math:`1 - a/s`.
    In closed form with the partial moments :math:`M_k = E[l^k;\, l < w]` and :math:`\bar{M}_k = E[l^k;\, l \ge w]`:

    .. math:: \frac{1}{m} [\frac{M_2}{2} - \frac{M_3}{6 s} + \bar{M}_1 (w - \frac{w^2}{2 s})
        - \bar{M}_0 (\frac{w^2}{2} - \frac{w^3}{3 s})]
    """
    w = reach
    below = [_moment(documents, power, w, sign=1) for power in (2, 3)]
    above = [_moment(documents, power, w, sign=-1) for power in (0, 1)]
    inside = below[0] / 2 - below[1] / (6 * s)
    return (inside + above[1] * (w - w * w / (2 * s)) - above[0] * (w * w / 2 - w**3 / (3 * s))) / documents.length


def _moment(documents: Documents, power: int, bound: float, *, sign: int) -> float:
    r""":math:`E[l^k]` of the lengths below the bound (``sign`` 1) or above it (-1).

    .. math:: E[l^k;\, l < w] = m^k e^{k (k - 1) \sigma^2 / 2}\,
        \Phi\left(\frac{\ln(w/m) + \sigma^2/2 - k \sigma^2}{\sigma}\right)
    """
    spread = documents.spread
    whole = documents.length**power * math.exp(power * (power - 1) * spread**2 / 2)
    at = (math.log(bound / documents.length) + spread**2 / 2 - power * spread**2) / spread
    return whole * normal().cdf(sign * at)


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
