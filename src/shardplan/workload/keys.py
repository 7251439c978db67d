"""Keys that a query meets under a mask: causal, sliding window, chunks, documents packed into a sequence."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import numpy as np

from shardplan.arrays import Numbers
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
