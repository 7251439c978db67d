"""Whether timings are worth a constant: how much they scatter, grow with the work, and agree with the formulas."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final

import numpy as np

from shardplan.calibration.microbench.fitting import Solution
from shardplan.calibration.microbench.records import (
    Case,
    Exchange,
    Host,
    Measurements,
    MemoryPass,
    Product,
    TimedAttention,
    Timing,
)
from shardplan.calibration.microbench.stand_in import attention_core

MOST_SPREAD: Final = 0.3
"""Distance of the quartiles of a case's series, relative to its time, above which something else ran on the machine."""
MOST_USUAL_SPREAD: Final = 1.0
"""Spread of the middle case of a kind above which even its fast series are not believed."""
MOST_RESIDUAL: Final = 0.3
"""Median error of the formulas at the optimum above which their constants are not believed."""
LEAST_GROWTH: Final = 0.3
"""Growth of the times with the work, as an exponent, below which they are those of something else (a time slice)."""
LEAST_GROWTH_OF_EXCHANGES: Final = 0.15
"""The same of collectives, whose latency rules up to a megabyte."""
LEAST_RANGE: Final = 4.0
"""Ratio of the most to the least work within which growth is not looked at."""
SHOWN: Final = 3


def busy(measurements: Measurements) -> str | None:
    """A warning that names the cases whose times scatter; None where there are none."""
    scattered = [sample for sample in measurements.samples if is_scattered(sample.timing)]
    if not scattered:
        return None
    worst = sorted(scattered, key=lambda sample: -sample.timing.spread)[:SHOWN]
    named = ", ".join(f"{label(sample.case)} by {sample.timing.spread:.0%}" for sample in worst)
    return (
        f"the machine was busy: {len(scattered)} of {len(measurements.samples)} cases vary by more than "
        f"{MOST_SPREAD:.0%} between series ({named})"
    )


def is_scattered(timing: Timing) -> bool:
    """Whether the series of a case differ too much."""
    return timing.spread > MOST_SPREAD


def doubt(solution: Solution, samples: Sequence[tuple[Case, Timing]]) -> str | None:
    """Why the constants of a fit are not to be believed; None where nothing speaks against them."""
    exponent, least = growth(samples), LEAST_GROWTH
    if any(isinstance(case, Exchange) for case, _ in samples):
        least = LEAST_GROWTH_OF_EXCHANGES
    if exponent is not None and exponent < least:
        return f"times hardly grow with the work (exponent {exponent:.2f}, at least {least:g} is believed)"
    if solution.residual > MOST_RESIDUAL:
        return f"the formulas miss the timings by {solution.residual:.0%} in the median (at most {MOST_RESIDUAL:.0%})"
    if np.median([timing.spread for _, timing in samples]) > MOST_USUAL_SPREAD:
        return f"more than half of the timings vary by more than {MOST_USUAL_SPREAD:.0%}"
    return None


def growth(samples: Sequence[tuple[Case, Timing]]) -> float | None:
    """Slope of ln(time) over ln(work) within groups of like cases; None where they differ little in work."""
    groups: dict[Hashable, list[tuple[float, float]]] = {}
    for case, timing in samples:
        groups.setdefault(_kind(case), []).append((np.log(_work(case)), np.log(timing.time)))
    centred = [np.asarray(group) - np.mean(group, axis=0) for group in groups.values()]
    if not centred:
        return None
    work, time = np.concatenate(centred).T
    if np.ptp(work) < np.log(LEAST_RANGE):
        return None
    return float(work @ time / (work @ work))


def _kind(case: Case) -> Hashable:
    """What cases have in common that differ in their work alone."""
    match case:
        case MemoryPass():
            return case.operation
        case Product():
            return case.precision
        case TimedAttention():
            return case.precision, case.direction
        case Exchange():
            return case.operation, case.size, case.stride
        case Host():
            return case.operation


def _work(case: Case) -> float:
    """FLOP or bytes."""
    match case:
        case MemoryPass() | Exchange():
            return float(case.bytes)
        case Product():
            return 2.0 * case.m * case.k * case.n
        case TimedAttention():
            return float(attention_core(case).flops)
        case Host():
            return 1.0


def label(case: Case) -> str:
    """A case in a few words."""
    match case:
        case MemoryPass():
            return f"{case.operation} of {case.bytes} bytes"
        case Product():
            return f"{case.precision} product {case.m}x{case.k}x{case.n}"
        case TimedAttention():
            return f"{case.direction} attention {case.sequence_length}x{case.head_dim}"
        case Exchange():
            return f"{case.operation} of {case.bytes} bytes between {case.size}"
        case Host():
            return f"host {case.operation}"
