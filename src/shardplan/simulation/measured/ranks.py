"""What a file says of one rank of a measured step, before ranks are put together."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from shardplan.errors import InputError
from shardplan.fields import dataclass
from shardplan.simulation.clock import Seconds
from shardplan.simulation.pieces import BACKWARD, FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, Ints

NOT_GIVEN: Final = -1
"""A chunk or a micro-batch that the file does not name."""
RULE: Final = "a measured step has every pass of every rank once, with its start and end"
GROUPS: Final = {
    "forward passes": (FORWARD,),
    "backward passes": (INPUT_GRADIENT, BACKWARD),
    "weight gradients": (WEIGHT_GRADIENT,),
}
"""Kinds that a file counts together."""
MOST_PASSES: Final = 4_000_000
"""Passes of one step."""
MOST_RANK: Final = 65_535
MOST_TIME: Final = 1e9
"""Seconds; a trace whose clock counts from 1970 is shifted before."""


@dataclass(frozen=True, kw_only=True)
class MeasuredRank:
    """The passes of one rank in one step, in any order."""

    rank: int
    label: str
    """What errors call the rank: its number and its file."""
    kind: Ints
    """Position in ``KINDS`` of :mod:`shardplan.simulation.pieces`."""
    chunk: Ints
    microbatch: Ints
    start: Seconds
    """By the clock of the rank. [s]"""
    end: Seconds
    total_time: float | None = None
    """The whole pipeline call of the framework, where the file has it. [s]"""
    memory_bytes: float | None = None
    """Peak memory, where the file has it. [bytes]"""

    def checked(self) -> MeasuredRank:
        """Itself. Raises ``InputError`` where a pass ends before it starts, or has no time."""
        for number, (start, end) in enumerate(zip(self.start.tolist(), self.end.tolist(), strict=True)):
            if not (abs(start) <= MOST_TIME and abs(end) <= MOST_TIME):
                raise wrong(f"{self.label}, pass {number}: the time is not between -{MOST_TIME:g} and {MOST_TIME:g} s")
            if end < start:
                raise wrong(f"{self.label}, pass {number} ends at {end:g} s, before it starts at {start:g} s")
        return self

    @property
    def is_numbered(self) -> bool:
        """Whether the file names the chunk and the micro-batch of every pass."""
        return not bool(np.any((self.chunk == NOT_GIVEN) | (self.microbatch == NOT_GIVEN)))


def with_split_gradients(kind: Ints, chunk: Ints, microbatch: Ints) -> Ints:
    """``kind``, where a backward pass without a weight gradient of its own is both gradients in one piece."""
    weights = kind == WEIGHT_GRADIENT
    backward = np.isin(kind, GROUPS["backward passes"])
    if not weights.any():
        return np.where(backward, BACKWARD, kind)
    split = _in(chunk, microbatch, chunk[weights], microbatch[weights])
    return np.where(backward, np.where(split, INPUT_GRADIENT, BACKWARD), kind)


def _in(chunk: Ints, microbatch: Ints, chunks: Ints, microbatches: Ints) -> NDArray[np.bool_]:
    """Which pairs are among others."""
    width = int(max(microbatch.max(), microbatches.max())) + 1
    return np.isin(chunk * width + microbatch, chunks * width + microbatches)


def wrong(why: str, fix: str = "measure the step again, or give another one with --step") -> InputError:
    """A measured step that cannot be read."""
    return InputError(why, rule=RULE, hint=fix)
