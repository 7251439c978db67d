"""The known cause of an error on a published run."""

from __future__ import annotations

from functools import cache

from shardplan.inputs.readers.causes import Cause, Subject, known_causes
from shardplan.inputs.readers.residuals import read_residuals


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
