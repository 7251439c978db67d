"""Searches that can be cut off: by a deadline, or by whoever asked."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import field

from shardplan.base.errors import ShardplanError
from shardplan.base.fields import dataclass

Stop = Callable[[], bool]
"""Asked between pieces of work; the search ends where it says yes."""


class SearchStopped(ShardplanError):  # noqa: N818  # what happened, not a fault
    """A search was cut off before it had looked at every plan."""


@dataclass(frozen=True)
class Deadline:
    """Says yes once that many seconds have passed since it was made."""

    seconds: float
    started: float = field(default_factory=time.monotonic)

    def __call__(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() - self.started >= self.seconds


def check(stop: Stop | None) -> None:
    """Raises ``SearchStopped`` where ``stop`` says yes."""
    if stop is not None and stop():
        raise SearchStopped(
            "the search was stopped before it had looked at every plan",
            rule="a search that is stopped has no answer",
            hint="allow more time, or narrow the space with --fix and --limit",
        )
