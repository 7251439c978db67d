"""Three ways to constants: measured runs, kernels timed on this machine, the shipped ones fitted again."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NoReturn

from shardplan.base.errors import InputError, shown
from shardplan.base.outputs import PROFILE, TIMINGS, JsonTarget
from shardplan.cli.progress import fit_progress, progress_bar
from shardplan.cli.show.document import print_document, show_document

if TYPE_CHECKING:
    from shardplan.calibrate.defaults import Refit
    from shardplan.calibrate.user import UserFit

MOST_ERROR: Final = 0.5
"""Median error of the runs fitted above which a profile is not written unasked: it does not describe them."""


def profile_name(out: str | None) -> str:
    """Where the profile goes. Raises ``InputError``."""
    if out is None or out == "-":
        raise InputError(
            "no file for the profile is given", rule="--out names the file of the profile", hint="--out my-cluster.yaml"
        )
    return out


def profile_target(out: str, runs: str | None, accelerator: str | None, target: JsonTarget) -> JsonTarget:
    """Where the profile goes, which is written as YAML."""
    page = JsonTarget(out, "--out", kind=PROFILE, is_forced=target.is_forced)
    if out.lower().endswith((".json", ".csv")):
        raise InputError(
            f"--out is {out[-200:]!r}; a profile is YAML",
            rule="the file of --out does not end as one of another kind",
            hint="--out my-cluster.yaml",
        )
    page.check(runs, accelerator, other=target)
    return page


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
    from shardplan.answers.calibration import calibration_document
    from shardplan.calibrate.user import profile_text
    from shardplan.render.record import document_record

    date, file = datetime.now(UTC).date().isoformat(), Path(runs).name
    found = _fitted(runs, accelerator, file=file, date=date, holdout=holdout, seed=seed)
    poor = None if accept_poor_fit else _poor(found)
    document = calibration_document(found, out if poor is None else None)
    if poor is None:
        target.check_content(b"")  # else the profile would be written and its record refused
        page.write_text(profile_text(found, file=file, date=date))
        target.write(document_record(document))
    print_document(document, target)
    if poor is not None:
        _refuse_poor(found, *poor)
    return 0


def _fitted(runs: str, accelerator: str | None, *, file: str, date: str, holdout: float, seed: int) -> UserFit:
    """The fit to the rows of a file that can be used."""
    from shardplan.calibrate.fit import MOST_ITERATIONS
    from shardplan.calibrate.runs.rows import read_table
    from shardplan.calibrate.user import calibrate_runs

    table = read_table(runs)
    with fit_progress(MOST_ITERATIONS) as progress:
        found = calibrate_runs(
            table.runs, accelerator, file=file, date=date, holdout=holdout, seed=seed, unreadable=table.unreadable,
            progress=progress,
        )  # fmt: skip
    return replace(found, read_as=table.taken)


def _poor(found: UserFit) -> tuple[str, float] | None:
    """What the fitted constants do not describe, step time or peak memory, with its median error."""
    for quantity in ("step_time", "peak_memory"):
        median = getattr(found.on_fitted, quantity)[1].median
        if median is not None and median > MOST_ERROR:
            return quantity.replace("_", " "), median
    return None


def _refuse_poor(found: UserFit, quantity: str, median: float) -> NoReturn:
    runs = f"{len(found.fitted)} runs" if len(found.fitted) > 1 else "run"
    worst = ", ".join(f"{name[:60]} ({factor:.3g}x)" for name, factor in found.outliers[:3])
    raise InputError(
        f"no profile is written: the fit is off by {median:,.0%} in the median {quantity} of the {runs} behind it, "
        f"above {MOST_ERROR:.0%}" + (f"; predicted over measured: {worst}" if worst else ""),
        rule=f"a profile describes the runs it was fitted to: a median error of at most {MOST_ERROR:.0%}",
        hint="check units and fields of the runs, or write it all the same with --accept-poor-fit",
    )


def profile_from_kernels(
    target: JsonTarget, out: str, *, device: str | None, sizes: str, accelerator: str | None, cluster: str | None
) -> int:
    """A profile from timed kernels. An interrupt keeps what was timed until then."""
    page = profile_target(out, None, accelerator, target)
    from shardplan.answers.calibration import microbench_document
    from shardplan.calibrate import microbench
    from shardplan.inputs.profile import load_profile
    from shardplan.inputs.readers.catalog import load_accelerator, load_cluster

    timings = JsonTarget(str(microbench.measurements_path(out)), "--out", kind=TIMINGS, is_forced=target.is_forced)
    timings.check(accelerator, cluster, other=target)
    network = None if cluster is None else load_cluster(cluster)
    if sizes not in ("small", "full"):
        raise InputError(f"--sizes is {shown(sizes)}", rule="--sizes is small or full", hint="--sizes small")
    with progress_bar("timing kernels") as progress:
        measured = microbench.run_microbenchmark(
            device=device, sizes="small" if sizes == "small" else "full", accelerator=accelerator, progress=progress
        )
    if measured.rank != 0:
        return 0  # under torchrun the first process speaks for all
    generation = load_accelerator(measured.accelerator).generation if measured.accelerator else "default"
    outcome = microbench.outcome_of(measured, load_profile(generation), cluster=network)
    document = microbench_document(measured, outcome, out)
    if not outcome.constants:
        print_document(document, target)
    for each in (target, page, timings):
        each.check_content(b"")
    microbench.write_profile(out, outcome.constants, measured)  # refuses a profile without constants
    show_document(document, target)
    if not measured.is_complete:
        raise KeyboardInterrupt
    return 0


def refit_shipped(target: JsonTarget, *, write: bool) -> int:
    """The shipped constants, fitted again."""
    from shardplan.answers.calibration import refit_changes, refit_document
    from shardplan.calibrate import defaults
    from shardplan.calibrate.fit import MOST_ITERATIONS

    with fit_progress(MOST_ITERATIONS) as progress:
        found = defaults.refit(progress=progress)
    changes = refit_changes(found)
    if write:
        _write_defaults(found)
    return show_document(refit_document(found, changes, is_written=write), target)


def _write_defaults(found: Refit) -> None:
    """Replaces the shipped files once all of them are made."""
    from shardplan.base.files import build
    from shardplan.calibrate.defaults import MOVES, moves_table, needs_table, residuals_table, write_profiles
    from shardplan.calibrate.errors import NEEDS
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
