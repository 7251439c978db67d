r"""Goodput: the share of the wall time in which a run makes progress, by renewal-reward.

Failures strike a job at random, with a constant rate :math:`\lambda` of the whole job. A checkpoint of length
:math:`\delta` follows every :math:`\tau` seconds of training. After a failure the run waits :math:`D` until it is
detected, and restarts in :math:`R`, during which it can fail again. With :math:`s = \tau + \delta`, the mean time of a
cycle that ends in a complete checkpoint is

.. math:: E[T] = (e^{\lambda s} - 1)\, e^{\lambda R} \left(\frac{1}{\lambda} + D\right)

(J. Daly, Future Generation Computer Systems 22, 2006, for :math:`D = 0`), of which :math:`\tau` makes progress. The
interval with the most progress depends neither on :math:`D` nor on :math:`R`.

From this follows how long a whole run takes: steps of its stages, failures and checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from shardplan.base.errors import InputError
from shardplan.base.fields import dataclass
from shardplan.decide.operations import Operations, interruptions
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.pricing import num_trained_parameters
from shardplan.estimation.question import Question
from shardplan.inputs.model import ModelConfig

DAY: Final = 86400.0
MOST_EXPONENT: Final = 50.0
"""Mean number of failures in one restart and interval above which a run never ends."""
NODES_PER_FAILURE: Final = 0.78
"""Share of interruptions that take a node away: those of the hardware, in arXiv 2407.21783, section 3.3.4."""
ENOUGH_SPARES: Final = 0.99
MOST_COUNTED: Final = 500.0
"""Largest mean number of nodes in repair for which the terms of the distribution are summed."""


def failures_per_second(num_accelerators: float, operations: Operations) -> float:
    """Rate at which the whole job is interrupted. [1/s]

    Published runs give points (accelerators, rate). The rate is linear between two points, follows the line through the
    last two beyond them, and is proportional to the size below the first. A constant rate per accelerator does not fit:
    interruptions by hardware grow with the size, those by software do not.
    """
    if operations.failure_rate is not None:
        return operations.failure_rate * num_accelerators / 1000 / DAY
    known = interruptions()
    points = [(0.0, 0.0), *((float(each.num_accelerators), each.per_second) for each in known)]
    place = sum(num_accelerators > size for size, _ in points[1:-1])
    (low, low_rate), (high, high_rate) = points[place : place + 2]
    return low_rate + (num_accelerators - low) * (high_rate - low_rate) / (high - low)


LEAST_INTERVAL: Final = 300.0
"""Shortest training time between two checkpoints, unless an interval is given. The best one for failures alone is half
a minute on large clusters, but storage and evaluation do not keep up with that. Judgement. [s]
"""


def best_interval(write_time: float, rate: float) -> float:
    r"""Training between two checkpoints with the cheapest mean cycle: exact for random failures. [s]

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
    """Failure rate of the whole job. [1/s]"""
    detection_time: float
    """From a failure to the restart. [s]"""
    restart_time: float
    """From launch to the next step, including reading the checkpoint. [s]"""
    write_time: float
    """Time for which a checkpoint stops training. [s]"""
    interval: float
    """Training between two checkpoints; infinite if none is written. [s]"""


@dataclass(frozen=True, kw_only=True)
class Accounts:
    """The parts of a run's wall time, which add up to it. [s]"""

    productive: float
    """Steps that are kept."""
    recomputed: float
    """Steps and unfinished checkpoints lost to a failure."""
    checkpoint: float
    """Writing checkpoints."""
    detection: float
    """From failures to restarts."""
    restart: float
    """Starting again, including reading checkpoints."""
    start_up: float
    """The first start."""

    @property
    def wall_time(self) -> float:
        """The sum. [s]"""
        parts = (self.productive, self.recomputed, self.checkpoint, self.detection, self.restart, self.start_up)
        return math.fsum(parts)

    @property
    def goodput(self) -> float:
        """The share that is kept."""
        return self.productive / self.wall_time


def accounts(productive: float, recovery: Recovery, start_up_time: float) -> Accounts | None:
    """The mean time of a run with ``productive`` seconds of training, by part; None if it never ends."""
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
    r"""Spare accelerators that suffice to replace failed ones at once 99 % of the time: whole nodes.

    Nodes in repair are Poisson distributed with the mean :math:`0.78\,\lambda\,t_{repair}`.
    """
    mean = NODES_PER_FAILURE * rate * operations.value("repair_time")
    if mean > MOST_COUNTED:  # close to normal, and the first term underflows
        return node_size * math.ceil(mean + 2.33 * math.sqrt(mean))
    number, chance = 0, math.exp(-mean)
    total = chance
    while total < ENOUGH_SPARES:
        number += 1
        chance *= mean / number
        total += chance
    return node_size * number


def checkpoint_bytes(question: Question) -> float:
    """Size of a checkpoint: all weights, and the optimizer states of those that are trained. [bytes]

    For Adam in mixed precision 14 bytes per parameter: BLOOM's of 176 B parameters had 2.3 TB.
    """
    job, trained = question.job, num_trained_parameters(question)
    return job.recipe.weight_bytes * num_parameters(question.model, trained) + job.optimizer_bytes * trained


def num_parameters(model: ModelConfig, trained: float) -> float:
    """Number of parameters, of which ``trained`` are trained."""
    return max(float(model.num_parameters + model.num_mtp_parameters), trained)


@dataclass(frozen=True, kw_only=True)
class StageRun:
    """A stage of the run with its plan."""

    num_steps: int
    estimate: Estimate
    question: Question

    @classmethod
    def of(cls, question: Question, estimate: Estimate, tokens: float) -> StageRun:
        """The stage that trains ``tokens``."""
        return cls(num_steps=num_steps(question, tokens), estimate=estimate, question=question)

    @property
    def productive_time(self) -> float:
        """Time of its steps. [s]"""
        return self.num_steps * self.estimate.step_time


def num_steps(question: Question, tokens: float) -> int:
    """Steps that train ``tokens``."""
    return math.ceil(tokens / question.job.tokens_per_step)


@dataclass(frozen=True, kw_only=True)
class Duration:
    """Wall time of a run, and its parts."""

    accounts: Accounts
    """The parts, with the step time in the middle of its band."""
    wall_time_p10: float
    """With step times that a tenth of comparable runs undercut. [s]"""
    wall_time_p90: float
    """With step times that a tenth of them exceeded. [s]"""
    recovery: Recovery
    num_failures: float
    """Mean number of unexpected interruptions."""
    checkpoint_bytes: float
    """Size of one checkpoint. [bytes]"""


def recovery_of(question: Question, operations: Operations, step_time: float) -> Recovery:
    """What a failure costs on the accelerators of the question; intervals are whole steps.

    ``step_time`` [s] is 0 if it is not known; then intervals are not rounded.
    """
    number = question.num_accelerators
    rate = failures_per_second(number, operations)
    write = checkpoint_bytes(question) / (number * operations.value("checkpoint_bandwidth"))
    interval = operations.checkpoint_interval
    if interval is None:
        interval = max(best_interval(write, rate), LEAST_INTERVAL)
    if math.isfinite(interval) and step_time:
        interval = step_time * max(round(interval / step_time), 1)
    return Recovery(
        failures_per_second=rate,
        detection_time=operations.value("detection_time"),
        restart_time=operations.value("start_up_time") + write,
        write_time=write,
        interval=interval,
    )


def duration_of(stages: Sequence[StageRun], operations: Operations) -> Duration | None:
    """How long the run takes; None if failures are so frequent that it never ends."""
    last = stages[-1]
    recovery = recovery_of(last.question, operations, last.estimate.step_time)
    start_up = operations.value("start_up_time")
    middle, low, high = (
        accounts(sum(stage.num_steps * getattr(stage.estimate, name) for stage in stages), recovery, start_up)
        for name in ("step_time", "step_time_p10", "step_time_p90")
    )
    if middle is None or low is None or high is None:
        return None
    exposed = middle.productive + middle.recomputed + middle.checkpoint + middle.restart  # failures strike during these
    return Duration(
        accounts=middle,
        wall_time_p10=low.wall_time,
        wall_time_p90=high.wall_time,
        recovery=recovery,
        num_failures=recovery.failures_per_second * exposed,
        checkpoint_bytes=checkpoint_bytes(last.question),
    )


def longest_productive(question: Question, operations: Operations, wall_time: float) -> float:
    """Longest time that a run of ``wall_time`` can train with any plan; wall time is linear in it. [s]

    This holds for the best interval between checkpoints; for a given interval, whose whole steps may be better, it is
    all of the wall time.
    """
    start_up = operations.value("start_up_time")
    if operations.checkpoint_interval is not None or wall_time <= start_up:
        return wall_time
    spent = accounts(wall_time, recovery_of(question, operations, 0.0), start_up)
    return wall_time if spent is None else wall_time * (wall_time - start_up) / (spent.wall_time - start_up)


def check_tokens(question: Question) -> float:
    """The tokens of the run. Raises InputError if none are given, or fewer than a step has."""
    tokens, in_a_step = question.job.tokens, question.job.tokens_per_step
    if tokens is None:
        raise InputError(
            "no tokens are given", rule="a budget is for a number of tokens", hint="give --tokens, such as 15.6T"
        )
    if tokens < in_a_step:
        raise InputError(
            f"{tokens:,.0f} tokens are fewer than one step has: {in_a_step:,}",
            rule="a run has at least one step",
            hint="give more --tokens, or a smaller --global-batch-size",
        )
    return tokens
