"""The shipped constants, fitted again."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from shardplan.cli.progress import fit_progress
from shardplan.errors import InputError
from shardplan.outputs.target import JsonTarget

if TYPE_CHECKING:
    from shardplan.calibration.defaults import Refit


def refit_shipped(target: JsonTarget, *, write: bool) -> int:
    """The shipped constants, fitted again."""
    from shardplan.calibration import defaults
    from shardplan.calibration.fit import MOST_ITERATIONS
    from shardplan.reports.calibration import refit_changes, refit_record

    with fit_progress(MOST_ITERATIONS) as progress:
        found = defaults.refit(progress=progress)
    changes = refit_changes(found)
    if write:
        _write_defaults(found)
    target.write(refit_record(found, changes, is_written=write))
    if not target.is_stdout:
        from shardplan.cli.layout import Page
        from shardplan.cli.show.calibration import show_refit

        show_refit(Page(), found, changes, is_written=write)
    return 0


def _write_defaults(found: Refit) -> None:
    """Replaces the shipped files once all of them are made."""
    from shardplan.calibration.defaults import MOVES, moves_table, needs_table, residuals_table, write_profiles
    from shardplan.calibration.verdicts import NEEDS
    from shardplan.files import build
    from shardplan.inputs.profile import PROFILES
    from shardplan.inputs.readers.residuals import RESIDUALS

    try:
        with TemporaryDirectory(dir=PROFILES.parent, prefix=".profiles.") as name:
            folder = Path(name)
            write_profiles(found.fit, folder)
            (folder / RESIDUALS.name).write_text(residuals_table(found), encoding="utf-8")
            (folder / NEEDS.name).write_text(needs_table(found), encoding="utf-8")
            (folder / MOVES.name).write_text(moves_table(found.fit), encoding="utf-8")
            for path in sorted(folder.iterdir()):
                path.replace(PROFILES / path.name)
        build()
    except OSError as error:
        raise InputError(
            f"the shipped profiles cannot be written: {error.strerror or error}",
            rule="the shipped profiles can be written",
            hint="run it in a checkout of the source code",
        ) from None
