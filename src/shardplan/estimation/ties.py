r"""Which plans are too close to call: errors of configurations on one cluster, compared with one another.

Configurations of one model on one cluster share most of their error, so their *order* is surer than either step time.
From runs that share family, model, accelerators and sequence,

.. math:: s = \text{the 68 \% quantile of } |r_i - r_j|, \quad r = \ln(predicted / measured)

over all pairs of a setting, a setting of n runs weighing as n. A quantile bears the few runs with a cause of their own.
One number serves all accelerators: with constants fitted without the generation of each run, s is the same 6 %.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from shardplan.inputs.readers.residuals import Residual, read_residuals

UNKNOWN_SD = 0.1
"""Standard deviation taken where no runs can be compared; what the shipped runs give, rounded."""
ONE_SD = 0.6827
"""Share of a normal distribution within one standard deviation."""
NORMAL_P90 = 1.2816
"""90th percentile of the standard normal distribution."""


def difference_sd(residuals: Iterable[Residual]) -> float:
    """Standard deviation of ln(predicted ratio / measured ratio) of two configurations in one setting."""
    groups: dict[tuple[str, ...], list[float]] = {}
    for run in residuals:
        if run.setting and run.time is not None:
            groups.setdefault((run.family, run.features.accelerator, run.setting), []).append(run.time)
    several = [errors for errors in groups.values() if len(errors) > 1]
    apart = [abs(a - b) for errors in several for a, b in combinations(errors, 2)]
    weights = [2 / (len(errors) - 1) for errors in several]
    num_pairs = [len(errors) * (len(errors) - 1) // 2 for errors in several]
    return _quantile(np.asarray(apart), np.repeat(weights, num_pairs), ONE_SD) if apart else UNKNOWN_SD


def _quantile(values: NDArray[np.float64], weights: NDArray[np.float64], share: float) -> float:
    order = np.lexsort((weights, values))
    values, weights = values[order], weights[order]
    return float(np.interp(share * weights.sum(), np.cumsum(weights) - weights / 2, values))


@cache
def tie_factor() -> float:
    """Step times within this factor of one another are ties: the 10-90 band of the error of a ratio, were it normal."""
    return math.exp(NORMAL_P90 * difference_sd(read_residuals()))
