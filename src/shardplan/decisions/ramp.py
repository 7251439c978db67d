"""A batch, and maybe a sequence length, that grows over the run."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from shardplan.errors import InputError, shown
from shardplan.units import parse_count, parse_whole

RULE: Final = "a ramp is BATCH:TOKENS or BATCHxLENGTH:TOKENS, joined by commas, with growing tokens"
HINT: Final = "write --batch-ramp 512x4096:252M,1024:2.87T: a batch of 512 until 252 M tokens, then 1,024 until 2.87 T"


class RampStage(NamedTuple):
    """A piece of the run with one batch."""

    tokens: float
    """Trained in it."""
    fields: dict[str, Any]
    """Fields of the job that differ from those of the rest of the run."""


def stages_of(ramp: str | None, tokens: float) -> tuple[RampStage, ...]:
    """The pieces of a run over ``tokens``, the last with the job's own batch. Raises InputError."""
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
    """Tokens at which a piece ends, and its fields of the job."""
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
    return InputError(f"--batch-ramp has {shown(text)}", rule=RULE, hint=HINT)
