"""Known causes of errors on published runs: what a user of such a setting should state."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Literal

from shardplan.base.fields import dataclass
from shardplan.base.files import DATA, shipped_document
from shardplan.inputs.readers.residuals import read_residuals

Subject = Literal["step_time", "peak_memory", "order", "fits", "false_fits"]
"""What is off."""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Why some published runs are far from their prediction."""

    cause: str
    runs: tuple[str, ...]
    """Patterns of their ids."""
    state: str
    """What the user of such a setting should state."""
    against: tuple[str, ...] = ("*",)
    """Of two runs in the wrong order: patterns of the one that was measured to be faster."""

    def is_of(self, run_id: str, other: str = "") -> bool:
        """Whether it is that of a run, or of a run measured to be slower than the ``other``."""
        return _matches(run_id, self.runs) and _matches(other, self.against)


def _matches(run_id: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(run_id, pattern) for pattern in patterns)


@cache
def known_causes(subject: Subject) -> tuple[Cause, ...]:
    """The shipped list, ``data/measured_runs/causes.yaml``."""
    rows = shipped_document(DATA / "measured_runs" / "causes.yaml")[subject]
    return tuple(
        Cause(
            cause=row["cause"], runs=tuple(row["runs"]), state=row["state"], against=tuple(row.get("against", ("*",)))
        )
        for row in rows
    )


@cache
def _published() -> frozenset[str]:
    """Ids of the published runs; a run of one's own may be called like a pattern."""
    from shardplan.calibrate.errors import read_needs  # takes time to import

    return frozenset({*(one.id for one in read_residuals()), *read_needs()})


def cause_of(run_id: str, subject: Subject = "step_time", other: str = "") -> Cause | None:
    """The first cause whose patterns match a published run; None where none is known."""
    if run_id not in _published():
        return None
    return next((one for one in known_causes(subject) if one.is_of(run_id, other)), None)
