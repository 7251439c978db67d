"""Which plan of a file is meant, as people write it on a command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shardplan.base.errors import InputError, shown
from shardplan.inputs.readers.typed import whole

if TYPE_CHECKING:
    from shardplan.estimation.estimate import Estimate
    from shardplan.reports.plan_file import Pick, PlanFile


MOST_PICK: Final = 1_000_000


def picked_from(file: PlanFile, text: str | None) -> Estimate:
    """The plan of ``file`` that --pick names; where it is not given, the recommended one. Raises InputError."""
    return file.pick(file.best_pick if text is None else picked(text))


def picked(text: str) -> Pick:
    """The plan of a file that --pick names. Raises InputError."""
    if text.strip() == "recommended":
        return "recommended"
    if not text.strip().isdecimal():
        wanted = "a whole number, or recommended"
        raise InputError(
            f"--pick is {shown(text)}; it must be {wanted}", rule=f"--pick is {wanted}", hint=f"set --pick to {wanted}"
        )
    return whole(text, "--pick", most=MOST_PICK)
