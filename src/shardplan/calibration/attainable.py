r"""How many families a perfect band would cover as it should: runs of one family share most of their error.

Errors, in the units of ``estimation.band``, are of two parts, what a family shares and what its runs have of their own:

.. math:: z_{fr} = b_f + s_f\,e_{fr}, \quad b_f \sim N(0, \tau), \; \ln s_f \sim N(\ln s, \omega), \; e \sim N(0, 1)

A band of which 80 % of all such runs are inside covers less of a family with a large :math:`b_f` or :math:`s_f`, and
more of one with small ones, and neither is known of a family that nobody has measured. The share of a family with few
runs is a draw besides: of 20 independent runs 15 to 17 lie inside three times in five. Drawn here with the families'
sizes, and with the spreads of their centres and of their runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shardplan.estimation.band import KnownErrors
from shardplan.estimation.ties import NORMAL_P90
from shardplan.fields import dataclass

Vector = NDArray[np.float64]
INSIDE: Final = 0.8
"""Share of runs that should lie inside."""
EQUAL: Final = 1e-4
"""Least standard deviation, of families whose errors are equal."""
DRAWS: Final = 2000
"""Sets of families that are drawn."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Spread of errors between families and within them, in the units of bands."""

    between: float
    """Root mean square of the families' median errors."""
    within: float
    """Geometric mean of the standard deviations of runs of one family."""
    of_within: float
    """Standard deviation of their logarithm."""


def spread_of(known: KnownErrors, smallest: int) -> tuple[Spread, tuple[int, ...]]:
    """Spread of the families of at least ``smallest`` runs, and how many runs each has.

    Medians, and tenths to nine tenths of a family as those of a normal distribution: a few runs with a cause of their
    own are no spread.
    """
    names = np.asarray([run.family for run in known.runs])
    families = [known.scaled[names == name] for name in dict.fromkeys(names.tolist())]
    large = [errors for errors in families if len(errors) >= smallest]
    centres = np.asarray([np.median(errors) for errors in large])
    deviations = [np.subtract(*np.quantile(errors, (0.9, 0.1))) / (2 * NORMAL_P90) for errors in large]
    widths = np.log(np.maximum(deviations, EQUAL))
    spread = Spread(
        between=float(np.sqrt(np.mean(centres**2))),
        within=float(np.exp(np.mean(widths))),
        of_within=float(np.std(widths)),
    )
    return spread, tuple(map(len, large))


def attainable(spread: Spread, sizes: Sequence[int], *, is_spread_known: bool = False) -> NDArray[np.float64]:
    """Share inside of each family (column), of many sets (row) of families with these ``sizes`` of runs.

    ``is_spread_known``: a band as wide as the runs of each family spread, instead of the same for all.
    """
    random = np.random.default_rng(0)
    of_families = random.standard_normal((2, DRAWS, len(sizes)))
    centres = spread.between * of_families[0]
    within = spread.within * np.exp(spread.of_within * of_families[1])
    ends = NORMAL_P90 * np.hypot(spread.between, within)
    if not is_spread_known:
        every = centres + within * random.standard_normal((20, *centres.shape))
        ends = np.full_like(ends, np.quantile(np.abs(every), INSIDE))
    shares = []
    for centre, deviation, end, size in zip(centres.T, within.T, ends.T, sizes, strict=True):
        errors = centre[:, None] + deviation[:, None] * random.standard_normal((DRAWS, size))
        shares.append(np.mean(np.abs(errors) <= end[:, None], axis=1))
    return np.stack(shares, axis=1)
