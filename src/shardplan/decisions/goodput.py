r"""Goodput: the share of the wall time in which a run makes progress, by renewal-reward.

Failures strike a job at random, with a constant rate :math:`\lambda` of the whole job. A checkpoint of length
:math:`\delta` follows every :math:`\tau` seconds of training. After a failure the run waits :math:`D` until it is
noticed and starts again in :math:`R`, in which it can fail again. With :math:`s = \tau + \delta`, a cycle that ends in
a complete checkpoint takes, in the mean,

.. math:: E[T] = (e^{\lambda s} - 1)\, e^{\lambda R} \left(\frac{1}{\lambda} + D\right)

(J. Daly, Future Generation Computer Systems 22, 2006, for :math:`D = 0`), of which :math:`\tau` makes progress. The
interval that makes most of it depends neither on :math:`D` nor on :math:`R`.
"""

from __future__ import annotations

import math
from typing import Final

from shardplan.decisions.operations import Operations, interruptions
from shardplan.fields import dataclass

DAY: Final = 86400.0
MOST_EXPONENT: Final = 50.0
"""Failures in one restart and interval, in the mean, from which a run never ends."""
NODES_PER_FAILURE: Final = 0.78
"""Share of interruptions that take a node away: those of the hardware, in arXiv 2407.21783, section 3.3.4."""
ENOUGH_SPARES: Final = 0.99
MOST_COUNTED: Final = 500.0
"""Nodes in repair up to which the terms of their distribution are summed."""


def failures_per_second(num_accelerators: float, operations: Operations) -> float:
    """Rate at which the whole job is interrupted. [1/s]

    Published runs give points (accelerators, rate); between two the rate is linear, beyond the last it goes on like the
    line through the last two, and below the first it is in proportion to the size. One rate per accelerator holds for
    neither: the interruptions that grow with the hardware come on top of those of the software.
    """
    if operations.failure_rate is not None:
        return operations.failure_rate * num_accelerators / 1000 / DAY
    known = interruptions()
    points = [(0.0, 0.0), *((float(each.num_accelerators), each.per_second) for each in known)]
    place = sum(num_accelerators > size for size, _ in points[1:-1])
    (low, low_rate), (high, high_rate) = points[place : place + 2]
    return low_rate + (num_accelerators - low) * (high_rate - low_rate) / (high - low)


def best_interval(write_time: float, rate: float) -> float:
    r"""Training between two checkpoints that makes the mean cycle cheapest: exact for failures at random. [s]

    The minimum of :math:`E[T] / \tau` is where :math:`x = \lambda\tau` solves
    :math:`x - 1 + e^{-x - \lambda\delta} = 0`, whose left side is convex and rises from below 0: Newton's method from
    above descends to it.
    """
    if rate == 0:
        return math.inf
    delta = rate * write_time
    x = 1.0
    for _ in range(200):
        decay = math.exp(-x - delta)
        step = (math.expm1(-x - delta) + x) / (1 - decay) if delta + x > 0 else 0.0
        x -= step
        if abs(step) <= 1e-15 * x:
            break
    return max(x, 0.0) / rate


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """What a failure costs a run, and how often one strikes."""

    failures_per_second: float
    """Of the whole job. [1/s]"""
    detection_time: float
    """From a failure to the restart. [s]"""
    restart_time: float
    """From launch to the next step, reading the checkpoint included. [s]"""
    write_time: float
    """In which a checkpoint keeps the run from training. [s]"""
    interval: float
    """Training between two checkpoints; infinite where none is written. [s]"""


@dataclass(frozen=True, kw_only=True)
class Accounts:
    """Where the wall time of a run goes; they sum to it. [s]"""

    productive: float
    """Steps that are kept."""
    recomputed: float
    """Steps that a failure threw away, and checkpoints that it broke off."""
    checkpoint: float
    """Writing checkpoints."""
    detection: float
    """From failures to restarts."""
    restart: float
    """Starting again, reading checkpoints included."""
    start_up: float
    """The first start."""

    @property
    def wall_time(self) -> float:
        """All of it. [s]"""
        parts = (self.productive, self.recomputed, self.checkpoint, self.detection, self.restart, self.start_up)
        return math.fsum(parts)

    @property
    def goodput(self) -> float:
        """Share that is kept."""
        return self.productive / self.wall_time


def accounts(productive: float, recovery: Recovery, start_up_time: float) -> Accounts | None:
    """Where the time of a run with ``productive`` seconds of training goes, in the mean; None where it never ends."""
    rate = recovery.failures_per_second
    first = {"productive": productive, "start_up": start_up_time}
    if rate == 0:
        writes = productive / recovery.interval * recovery.write_time
        return Accounts(**first, checkpoint=writes, recomputed=0.0, detection=0.0, restart=0.0)
    cycle = min(recovery.interval, productive) + recovery.write_time
    if rate * max(cycle, recovery.restart_time) > MOST_EXPONENT:
        return None
    num_cycles = productive / min(recovery.interval, productive)
    at_work = math.expm1(rate * cycle)
    again = math.expm1(rate * recovery.restart_time)
    return Accounts(
        **first,
        checkpoint=num_cycles * recovery.write_time,
        recomputed=num_cycles * (at_work / rate - cycle),
        detection=num_cycles * at_work * (1 + again) * recovery.detection_time,
        restart=num_cycles * at_work * again / rate,
    )


def spares_needed(rate: float, node_size: int, operations: Operations) -> int:
    r"""Accelerators that replace failed ones without a wait in 99 % of the time: whole nodes.

    Nodes in repair are Poisson distributed with the mean :math:`0.78\,\lambda\,t_{repair}`.
    """
    mean = NODES_PER_FAILURE * rate * operations.value("repair_time")
    if mean > MOST_COUNTED:  # close to normal, and the first term is too small for a number
        return node_size * math.ceil(mean + 2.33 * math.sqrt(mean))
    number, chance = 0, math.exp(-mean)
    total = chance
    while total < ENOUGH_SPARES:
        number += 1
        chance *= mean / number
        total += chance
    return node_size * number
