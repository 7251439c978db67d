"""Robust timing: warm up, time series of calls, keep a low quantile and the spread.

What else runs on a machine only adds time: the fast series are those that it disturbed least.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

import numpy as np

from shardplan.calibration.microbench.records import Timing
from shardplan.fields import dataclass

QUANTILE: Final = 0.2
"""Of the series, which stands for a case."""
Elapsed = Callable[[int], float]
"""Seconds that this number of calls takes, all work of the device included."""


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How long to look at one case."""

    warm_up_time: float
    """Calls are repeated at least this long before the first series. [s]"""
    series_time: float
    """Length of one series. [s]"""
    num_series: int
    most_calls: int
    """Calls in one series; a device queues that many without waiting for the host."""
    limit: float
    """After this long no further series begins. [s]"""


def measure(elapsed: Elapsed, effort: Effort) -> Timing:
    """Time of one call. The first call pays for compilation and memory; clocks settle while warming up."""
    start = time.perf_counter()
    elapsed(1)
    once = elapsed(1)
    while time.perf_counter() - start < effort.warm_up_time:
        once = min(once, elapsed(1))
    num_calls = math.ceil(min(max(effort.series_time / max(once, 1e-9), 1), effort.most_calls))
    series: list[float] = []
    while len(series) < effort.num_series and (len(series) < 3 or time.perf_counter() - start < effort.limit):
        series.append(elapsed(num_calls) / num_calls)
    return _timing(series)


def measure_together(elapsed: Elapsed, *, num_calls: int, num_series: int) -> Timing:
    """Time of one call that several processes make together: the number of calls may not depend on their clocks."""
    elapsed(2)
    return _timing([elapsed(num_calls) / num_calls for _ in range(num_series)])


def _timing(series: list[float]) -> Timing:
    low = float(np.quantile(series, QUANTILE))
    lower, upper = np.quantile(series, [0.25, 0.75])
    return Timing(time=low, spread=float(upper - lower) / low if low > 0 else 0.0, num_series=len(series))
