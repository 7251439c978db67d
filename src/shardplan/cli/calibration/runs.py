"""A profile from measured runs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from shardplan.cli.calibration.profile_file import profile_target
from shardplan.cli.progress import fit_progress
from shardplan.errors import InputError
from shardplan.outputs.target import JsonTarget

if TYPE_CHECKING:
    from shardplan.calibration.user import UserFit

MOST_ERROR = 0.5
"""Median error of the runs fitted above which a profile is not written unasked: it does not describe them."""


def profile_from_runs(
    target: JsonTarget,
    runs: str,
    accelerator: str | None,
    out: str,
    *,
    holdout: float,
    seed: int,
    accept_poor_fit: bool,
) -> int:
    """A profile from measured runs, where it describes them."""
    page = profile_target(out, runs, accelerator, target)
    from shardplan.calibration.user import profile_text
    from shardplan.reports.calibration import calibration_record

    date, file = datetime.now(UTC).date().isoformat(), Path(runs).name
    found = _fitted(runs, accelerator, file=file, date=date, holdout=holdout, seed=seed)
    is_kept = accept_poor_fit or _poor(found) is None
    if is_kept:
        target.check_content(b"")  # else the profile would be written and its record refused
        page.write_text(profile_text(found, file=file, date=date))
        target.write(calibration_record(found, out))
    _show_runs(target, found, out if is_kept else None)
    if not is_kept:
        _refuse_poor(found)
    return 0


def _fitted(runs: str, accelerator: str | None, *, file: str, date: str, holdout: float, seed: int) -> UserFit:
    """The fit to the rows of a file that can be used."""
    from shardplan.calibration.fit import MOST_ITERATIONS
    from shardplan.calibration.runs.rows import read_table
    from shardplan.calibration.user import calibrate_runs

    table = read_table(runs)
    with fit_progress(MOST_ITERATIONS) as progress:
        found = calibrate_runs(
            table.runs, accelerator, file=file, date=date, holdout=holdout, seed=seed, unreadable=table.unreadable,
            progress=progress,
        )  # fmt: skip
    return replace(found, read_as=table.taken)


def _show_runs(target: JsonTarget, found: UserFit, out: str | None) -> None:
    """What the fit found, unless standard output is taken. ``out``: where the profile is, if anywhere."""
    if target.is_stdout:
        return
    from shardplan.cli.layout import Page
    from shardplan.cli.show.calibration import show_calibration

    show_calibration(Page(), found, out)


def _poor(found: UserFit) -> tuple[str, float] | None:
    """What the fitted constants do not describe, step time or peak memory, with its median error."""
    for quantity in ("step_time", "peak_memory"):
        median = getattr(found.on_fitted, quantity)[1].median
        if median is not None and median > MOST_ERROR:
            return quantity.replace("_", " "), median
    return None


def _refuse_poor(found: UserFit) -> NoReturn:
    poor = _poor(found)
    assert poor is not None
    runs = f"{len(found.fitted)} runs" if len(found.fitted) > 1 else "run"
    worst = ", ".join(f"{name[:60]} ({factor:.3g}x)" for name, factor in found.outliers[:3])
    raise InputError(
        f"no profile is written: the fit is off by {poor[1]:,.0%} in the median {poor[0]} of the {runs} behind it, "
        f"above {MOST_ERROR:.0%}" + (f"; predicted over measured: {worst}" if worst else ""),
        rule=f"a profile describes the runs it was fitted to: a median error of at most {MOST_ERROR:.0%}",
        hint="check units and fields of the runs, or write it all the same with --accept-poor-fit",
    )
