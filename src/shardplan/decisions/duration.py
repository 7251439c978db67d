"""How long a whole run takes: steps of its stages, failures and checkpoints."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shardplan.decisions.goodput import Accounts, Recovery, accounts, best_interval, failures_per_second
from shardplan.decisions.operations import Operations
from shardplan.errors import InputError
from shardplan.estimation.estimate import Estimate
from shardplan.estimation.pricing import num_trained_parameters
from shardplan.estimation.question import Question
from shardplan.fields import dataclass
from shardplan.inputs.model import ModelConfig


def checkpoint_bytes(question: Question) -> float:
    """What a checkpoint holds: all weights, and the optimizer's states of those that are trained. [bytes]

    For Adam in mixed precision 14 bytes per parameter: BLOOM's of 176 B parameters had 2.3 TB.
    """
    job, trained = question.job, num_trained_parameters(question)
    return job.recipe.weight_bytes * num_parameters(question.model, trained) + job.optimizer_bytes * trained


def num_parameters(model: ModelConfig, trained: float) -> float:
    """All parameters, of which ``trained`` are trained."""
    return max(float(model.num_parameters + model.num_mtp_parameters), trained)


@dataclass(frozen=True, kw_only=True)
class StageRun:
    """A stage of the run on its plan."""

    num_steps: int
    estimate: Estimate
    question: Question

    @classmethod
    def of(cls, question: Question, estimate: Estimate, tokens: float) -> StageRun:
        """The stage that trains ``tokens``."""
        return cls(num_steps=num_steps(question, tokens), estimate=estimate, question=question)

    @property
    def productive_time(self) -> float:
        """Of its steps. [s]"""
        return self.num_steps * self.estimate.step_time


def num_steps(question: Question, tokens: float) -> int:
    """Steps that train ``tokens``."""
    return math.ceil(tokens / question.job.tokens_per_step)


@dataclass(frozen=True, kw_only=True)
class Duration:
    """Wall time of a run, and what it is spent on."""

    accounts: Accounts
    """By what it is spent on, with the step time in the middle of its band."""
    wall_time_p10: float
    """With step times that a tenth of comparable runs undercut. [s]"""
    wall_time_p90: float
    """With step times that a tenth of them exceeded. [s]"""
    recovery: Recovery
    num_failures: float
    """Unexpected interruptions, in the mean."""
    checkpoint_bytes: float
    """Of one checkpoint. [bytes]"""


def recovery_of(question: Question, operations: Operations, step_time: float) -> Recovery:
    """What a failure costs on as many accelerators as the question has; intervals are whole steps.

    ``step_time``: 0 where it is not known, and intervals are as they are. [s]
    """
    number = question.num_accelerators
    rate = failures_per_second(number, operations)
    write = checkpoint_bytes(question) / (number * operations.value("checkpoint_bandwidth"))
    interval = operations.checkpoint_interval
    if interval is None:
        interval = best_interval(write, rate)
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
    """How long the run takes; None where failures come so often that it never ends."""
    last = stages[-1]
    recovery = recovery_of(last.question, operations, last.estimate.step_time)
    start_up = operations.value("start_up_time")
    middle, low, high = (
        accounts(sum(stage.num_steps * getattr(stage.estimate, name) for stage in stages), recovery, start_up)
        for name in ("step_time", "step_time_p10", "step_time_p90")
    )
    if middle is None or low is None or high is None:
        return None
    return Duration(
        accounts=middle,
        wall_time_p10=low.wall_time,
        wall_time_p90=high.wall_time,
        recovery=recovery,
        num_failures=num_failures(middle, recovery),
        checkpoint_bytes=checkpoint_bytes(last.question),
    )


def longest_productive(question: Question, operations: Operations, wall_time: float) -> float:
    """Time that a run of ``wall_time`` can train at most, whatever its plan: what it takes is linear in it. [s]

    At the best interval between checkpoints; all of it where another is given, whose whole steps may be better.
    """
    start_up = operations.value("start_up_time")
    if operations.checkpoint_interval is not None or wall_time <= start_up:
        return wall_time
    spent = accounts(wall_time, recovery_of(question, operations, 0.0), start_up)
    return wall_time if spent is None else wall_time * (wall_time - start_up) / (spent.wall_time - start_up)


def num_failures(spent: Accounts, recovery: Recovery) -> float:
    """Unexpected interruptions of a run, in the mean: failures strike while it trains, writes and restarts."""
    exposed = spent.productive + spent.recomputed + spent.checkpoint + spent.restart
    return recovery.failures_per_second * exposed


def check_tokens(question: Question) -> float:
    """The tokens of the run. Raises InputError where none are given, or fewer than a step has."""
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
