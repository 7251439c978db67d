"""How long answers are: a distribution with a mean, a spread and a cap, or lengths that were measured.

What generation takes depends on the longest answers: a batch shrinks as answers end, and the last one decides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.errors import InputError, shown
from shardplan.base.fields import dataclass
from shardplan.inputs.documents import normal

Array = NDArray[np.float64]

SPREAD: Final = 0.6
"""Standard deviation over mean where it is not given, of answers that end by themselves. An assumption: mean and cap
are all that most reports say of lengths."""
ENDLESS: Final = 0.01
"""Share of answers that never end, where it is not given: they repeat themselves until the cap. An assumption. With
some hundreds of answers at once it matters whether there are any, not how many."""
MOST_TOKENS: Final = 2**24
NUM_CELLS: Final = 256
"""Steps, even and in proportion, into which the tokens up to the cap are cut."""


@dataclass(frozen=True, kw_only=True)
class Lengths:
    r"""Lengths of answers in tokens: a share e that only the cap ends, the others log-normal, cut at the cap.

    .. math:: P(l > t) = e + (1 - e)\,\Phi\left(\frac{\mu - \ln t}{\sigma}\right), \quad t < c

    with :math:`\mu` such that the mean is the given one, cut answers included.
    """

    mean: float
    """Mean length, of answers that the cap cut too. [tokens]"""
    cap: int
    """Tokens after which an answer is cut."""
    spread: float = SPREAD
    """Standard deviation over mean of the answers that end by themselves; 0: all are alike."""
    endless: float = ENDLESS
    """Share of answers that only the cap ends."""
    measured: tuple[int, ...] = ()
    """Lengths that were measured, in place of the distribution."""

    def __post_init__(self) -> None:
        """Raises ``InputError`` where no distribution has these values."""
        if not 0 <= self.mean <= self.cap <= MOST_TOKENS:
            raise InputError(
                f"answers have {self.mean:,.10g} tokens on average and {self.cap:,} at most",
                rule=f"the mean length is at most the cap, which is at most {MOST_TOKENS:,} tokens",
                hint='write --response-tokens "mean=2k,max=4k"',
            )
        if not (0 <= self.spread <= 10 and 0 <= self.endless <= 1):
            raise InputError(
                f"spread is {shown(self.spread)} and endless is {shown(self.endless)}",
                rule="spread is a number from 0 to 10, endless a share from 0 to 1",
                hint='write --response-tokens "mean=2k,max=4k,spread=0.6,endless=0.01"',
            )

    @classmethod
    def of_file(cls, lengths: Sequence[int], cap: int | None = None) -> Lengths:
        """Lengths that were measured. Raises ``InputError`` where there are none."""
        if not lengths or min(lengths) < 0:
            raise InputError(
                f"the shortest length is {min(lengths):,}" if lengths else "the file has no length",
                rule="a file of lengths has a whole number of tokens in each line, 0 or more",
                hint="write the length of every answer on a line of its own",
            )
        most = max(*lengths, 1) if cap is None else cap
        ordered = tuple(sorted(min(each, most) for each in lengths))
        return cls(mean=sum(ordered) / len(ordered), cap=most, spread=0.0, endless=0.0, measured=ordered)

    @cached_property
    def edges(self) -> Array:
        """Tokens at which the cells begin and end, from 0 to the longest answer: closer where most answers end."""
        longest = max(float(self.cap if self.measured or self.spread or self._endless else self.mean), 1e-9)
        even = np.linspace(0.0, longest, NUM_CELLS + 1)
        return np.union1d(even, np.geomspace(min(longest, 1.0) / 2, longest, NUM_CELLS))

    @cached_property
    def alive(self) -> Array:
        """Share of answers that have not ended, on average over every cell."""
        longer = np.array([self.longer_than(t) for t in self.edges])
        return (longer[1:] + longer[:-1]) / 2 * (self.mean / max(self._mean_of(longer), 1e-12))

    def longer_than(self, tokens: float) -> float:
        """Share of answers of more than this number of tokens."""
        if self.measured:
            return 1 - float(np.searchsorted(self.measured, tokens, side="right")) / len(self.measured)
        if tokens >= self.edges[-1]:
            return 0.0
        if not self.spread or self._ending <= 0:
            return 1.0 if tokens < self._ending else self._endless
        if tokens <= 0:
            return 1.0
        return self._endless + (1 - self._endless) * normal().cdf((self._mu - math.log(tokens)) / self._sigma)

    def longest_of(self, number: int) -> float:
        r"""Mean length of the longest of this many answers, :math:`\int 1 - (1 - P(l > t))^n dt`. [tokens]"""
        longer = np.array([self.longer_than(t) for t in self.edges])
        return self._mean_of(1 - (1 - longer) ** number)

    def mean_age(self) -> float:
        r"""Tokens that an answer has at a moment chosen at random, :math:`E[l^2] / 2 E[l]`."""
        middles = (self.edges[1:] + self.edges[:-1]) / 2
        width = np.diff(self.edges)
        return float((middles * self.alive * width).sum() / max(self.mean, 1e-12))

    @property
    def _endless(self) -> float:
        """Share that the cap ends, no more than the mean allows."""
        return min(self.endless, self.mean / self.cap) if self.cap else 0.0

    @property
    def _ending(self) -> float:
        """Mean of the answers that end by themselves, cut at the cap. [tokens]"""
        rest = 1 - self._endless
        return (self.mean - self._endless * self.cap) / rest if rest > 0 else 0.0

    @property
    def _sigma(self) -> float:
        return math.sqrt(math.log1p(self.spread**2))

    @cached_property
    def _mu(self) -> float:
        """Logarithm of the median of the answers that end by themselves, by bisection."""
        low, high = math.log(1e-6), math.log(1e6 * max(self.cap, 1))
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if self._cut_mean(middle) < self._ending else (low, middle)
        return (low + high) / 2

    def _cut_mean(self, mu: float) -> float:
        r""":math:`E[\min(l, c)]` of a log-normal length."""
        sigma, at = self._sigma, (math.log(self.cap) - mu) / self._sigma
        whole = math.exp(min(mu + sigma**2 / 2, 700))
        return whole * normal().cdf(at - sigma) + self.cap * (1 - normal().cdf(at))

    def _mean_of(self, longer: Array) -> float:
        """Mean length that the cells have together."""
        return float(((longer[1:] + longer[:-1]) / 2 * np.diff(self.edges)).sum())
