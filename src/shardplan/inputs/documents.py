"""Documents packed into a sequence, and their lengths."""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass

if TYPE_CHECKING:
    from statistics import NormalDist

Z90: Final = 1.2815515655446008
"""0.9 quantile of the normal distribution."""
HALVINGS: Final = 60
LEAST_SPREAD: Final = 1e-6


@cache
def normal() -> NormalDist:
    """The normal distribution, imported only if document lengths are given, since that takes time."""
    from statistics import NormalDist

    return NormalDist()


@dataclass(frozen=True, kw_only=True)
class Documents:
    """Lengths of documents: all equal, or log-normal."""

    length: float
    """Length of each, or the mean. [tokens]"""
    spread: float = 0.0
    """Standard deviation of the logarithm of a length; 0 if all are equal."""

    def fill(self, sequence_length: float) -> bool:
        """Whether one document fills the sequence."""
        return not self.spread and self.length >= sequence_length


@lru_cache(maxsize=256)
def documents_of(lengths: tuple[int, ...]) -> Documents:
    r"""One length of all documents, or mean m and 90th percentile q of a log-normal distribution.

    .. math:: \ln(q/m) = z\,\sigma - \sigma^2/2, \quad z = \Phi^{-1}(0.9)

    The smaller solution :math:`\sigma \le z` is taken. It exists up to :math:`q/m = e^{z^2/2} = 2.27`. Above that, the
    largest share w of documents for which there is one holds all tokens, with a mean of m/w and
    :math:`z = \Phi^{-1}(1 - 0.1/w)`; the others are so short that they do not count.
    """
    mean, *percentile = lengths
    ratio = math.log(percentile[0] / mean) if percentile else 0.0
    if ratio == 0:
        return Documents(length=float(mean))
    if ratio <= Z90**2 / 2:
        return Documents(length=float(mean), spread=Z90 - math.sqrt(Z90**2 - 2 * ratio))
    share = _share(ratio)
    return Documents(length=mean / share, spread=max(_z(share), LEAST_SPREAD))


def _z(share: float) -> float:
    r""":math:`\Phi^{-1}(1 - 0.1/w)`, at least 0."""
    return max(normal().inv_cdf(1 - 0.1 / share), 0.0)


def _share(ratio: float) -> float:
    r"""The share w with :math:`z^2/2 - \ln w` = ``ratio``, by bisection: the left side falls with w."""
    low, high = math.exp(-ratio), 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _z(middle) ** 2 / 2 - math.log(middle) > ratio else (low, middle)
    return (low + high) / 2


def check_documents(lengths: tuple[int, ...], sequence_length: int) -> None:
    """Refuses impossible lengths of documents in a sequence. Raises ``InputError``."""
    text = ",".join(str(length) for length in lengths)
    mean, percentile = lengths[0], lengths[-1]
    if len(lengths) > 2:
        raise InputError(
            f"documents is {text}: {len(lengths)} numbers",
            rule="documents is one length, or a mean and a 90th percentile",
            hint="set --documents to 1024 or 1024,2048; write no separators of thousands",
        )
    if mean > sequence_length:
        raise InputError(
            f"documents is {text}: {mean:,} tokens in a sequence of {sequence_length:,}",
            rule="the (mean) length of documents is at most the sequence length",
            hint=f"set --documents to at most {sequence_length}, or raise --sequence-length",
        )
    if not mean <= percentile < 10 * mean:
        raise InputError(
            f"documents is {text}: a mean of {mean:,} and a 90th percentile of {percentile:,}",
            rule="the 90th percentile of lengths is at least their mean and less than ten times it",
            hint=f"set the 90th percentile to {mean} up to {10 * mean - 1}; write no separators of thousands",
        )
