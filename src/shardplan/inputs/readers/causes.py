"""Known causes of errors on published runs, and what a user of such a setting should state."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Literal

from shardplan.base.fields import dataclass
from shardplan.base.files import DATA, shipped_document

Subject = Literal["step_time", "peak_memory", "order", "fits", "false_fits"]
"""The wrong quantity."""
Holding = Literal["always", "memory_full"]
"""Whether a cause slows a run wherever its setting occurs, or only if memory is nearly full."""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Why some published runs are far from their prediction."""

    cause: str
    runs: tuple[str, ...]
    """Patterns of their ids."""
    state: str
    """What the user of such a setting should state."""
    against: tuple[str, ...] = ("*",)
    """For two runs in the wrong order: patterns of the one that was measured to be faster."""
    holds: Holding = "always"

    def is_of(self, run_id: str, other: str = "") -> bool:
        """Whether the cause applies to a run, or to a run that was measured to be slower than the ``other``."""
        return _matches(run_id, self.runs) and _matches(other, self.against)


def _matches(run_id: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(run_id, pattern) for pattern in patterns)


@cache
def known_causes(subject: Subject) -> tuple[Cause, ...]:
    """The causes in ``data/measured_runs/causes.yaml``."""
    rows = shipped_document(DATA / "measured_runs" / "causes.yaml")[subject]
    return tuple(
        Cause(
            cause=row["cause"],
            runs=tuple(row["runs"]),
            state=row["state"],
            against=tuple(row.get("against", ("*",))),
            holds=row.get("holds", "always"),
        )
        for row in rows
    )


def slowed_by_full_memory(run_id: str) -> bool:
    """Whether a published run was slow only because its memory was nearly full."""
    return any(one.holds == "memory_full" and one.is_of(run_id) for one in known_causes("step_time"))
