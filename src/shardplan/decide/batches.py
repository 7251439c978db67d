"""The batches to search for a run on one size, within limits, and batches that grow over a run.

A plan trains more tokens a second with more micro-batches, since costs that occur once a step are spread over more of
them. So the candidates for every number of replicas are the largest batches that they divide, also with micro-batches
that fill the stages of a pipeline: the largest multiples within the limits of the divisors of the count, times a few
powers of two.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

from shardplan.base.arrays import divisors
from shardplan.base.errors import InputError, shown
from shardplan.base.fields import dataclass
from shardplan.base.units import parse_count, parse_whole
from shardplan.estimation.question import Question
from shardplan.inputs.job import MOST_COUNT
from shardplan.planner.related.counts import worth_of_batches

RULE: Final = "batch limits are LOW..HIGH, whole numbers of sequences above 0 with LOW at most HIGH"
HINT: Final = "LOW is at most HIGH and both are above 0, such as 1024..4096"
LARGEST_REPLICA: Final = 1024
"""Largest number of accelerators of a replica: tensor parallelism of 16 and 64 stages."""
MORE_SEQUENCES: Final = (1, 2, 4, 8)
"""Micro-batch sizes of which a batch is also a multiple."""
MOST_BATCHES: Final = 6
"""Most batches of a size that are searched: the most promising, by how many layouts they leave."""


@dataclass(frozen=True, kw_only=True)
class BatchLimits:
    """Fewest and most sequences of a step. Raises InputError."""

    low: int
    high: int

    def __post_init__(self) -> None:
        are_whole = all(isinstance(each, int) and not isinstance(each, bool) for each in (self.low, self.high))
        if not are_whole or not 1 <= self.low <= self.high <= MOST_COUNT:
            raise wrong_limits(f"{self.low}..{self.high}")

    def __str__(self) -> str:
        return f"{self.low:,} to {self.high:,}"

    def check(self, batch: int) -> None:
        """Raises InputError if ``batch`` is outside the limits."""
        if not self.low <= batch <= self.high:
            raise InputError(
                f"global_batch_size is {batch:,}, and the batch limits are {self}",
                rule="a batch that is given is within the batch limits",
                hint="leave --global-batch-size or --batch-limits out, or correct one of them",
            )

    def batches(self, question: Question) -> tuple[int, ...]:
        """Batches to search on the accelerators of the question, the most promising first; empty if there are none."""
        found = [*dict.fromkeys(self._multiples(question.num_accelerators))]
        worth = dict(zip(found, worth_of_batches(question, found), strict=True))
        return tuple(sorted(found, key=lambda batch: -worth[batch])[:MOST_BATCHES])

    def _multiples(self, num_accelerators: int) -> Iterator[int]:
        """The largest multiples of what replicas and micro-batches divide."""
        for replicas in reversed(divisors(num_accelerators)):
            for each in MORE_SEQUENCES if num_accelerators <= replicas * LARGEST_REPLICA else ():
                batch = self.high // (replicas * each) * replicas * each
                if batch >= self.low:
                    yield batch

    def no_batch(self, num_accelerators: int) -> InputError:
        """The error if no replicas of a size share a batch within the limits."""
        least = min(each for each in divisors(num_accelerators) if num_accelerators <= each * LARGEST_REPLICA)
        return InputError(
            f"no batch of {self} sequences can be shared by replicas of {num_accelerators:,} accelerators",
            rule=f"the batch is a multiple of the replicas, and a replica has at most {LARGEST_REPLICA:,} accelerators",
            hint=f"set --batch-limits so that a multiple of {least:,} is within them",
        )


def parse_batch_limits(text: str) -> BatchLimits:
    """The limits in a text ``LOW..HIGH``. Raises InputError."""
    low, dots, high = text.strip().partition("..")
    try:
        values = parse_whole(low), parse_whole(high)
    except ValueError:
        raise wrong_limits(text) from None
    if not dots:
        raise wrong_limits(text)
    return BatchLimits(low=values[0], high=values[1])


def wrong_limits(given: object) -> InputError:
    """The error for limits that cannot be read."""
    return InputError(f"--batch-limits is {shown(given)}", rule=RULE, hint=HINT)


def with_batch(question: Question, batch: int) -> Question:
    """The question with another batch."""
    return replace(question, job=replace(question.job, global_batch_size=batch))


RAMP_RULE: Final = "a ramp is BATCH:TOKENS or BATCHxLENGTH:TOKENS, joined by commas, with growing tokens"
RAMP_HINT: Final = (
    "write --batch-ramp 512x4096:252M,1024:2.87T: a batch of 512 until 252 M tokens, then 1,024 until 2.87 T"
)


class RampStage(NamedTuple):
    """A stage of the run with one batch."""

    tokens: float
    """Tokens trained in it."""
    fields: dict[str, Any]
    """Fields of the job that differ from those of the rest of the run."""


def stages_of(ramp: str | None, tokens: float) -> tuple[RampStage, ...]:
    """The stages of a run over ``tokens``, the last with the job's own batch. Raises InputError."""
    stages: list[RampStage] = []
    done = 0.0
    for text in ramp.split(",") if ramp is not None else ():
        until, fields = _stage(text)
        if until <= done:
            raise _wrong(text)
        stages.append(RampStage(min(until, tokens) - done, fields))
        done = min(until, tokens)
        if done >= tokens:
            return tuple(stages)
    return (*stages, RampStage(tokens - done, {}))


def _stage(text: str) -> tuple[int, dict[str, Any]]:
    """Tokens at which a stage ends, and its fields of the job."""
    job, has_end, end = text.strip().partition(":")
    batch, has_length, length = job.partition("x")
    try:
        fields = {"global_batch_size": parse_whole(batch)}
        if has_length:
            fields["sequence_length"] = parse_whole(length, is_length=True)
    except ValueError:
        raise _wrong(text) from None
    if not has_end or min(fields.values()) < 1:
        raise _wrong(text)
    return parse_count(end, field="--batch-ramp"), fields


def _wrong(text: str) -> InputError:
    return InputError(f"--batch-ramp has {shown(text)}", rule=RAMP_RULE, hint=RAMP_HINT)
