"""``shardplan calibrate``: constants from your own measured steps, from kernels, or a refit of the shipped ones."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NoReturn

from shardplan.base.errors import InputError, shown
from shardplan.base.fields import asked, dataclass, switch
from shardplan.base.outputs import PROFILE, TIMINGS, JsonTarget
from shardplan.cli.flags import OutputFlags, with_flags
from shardplan.cli.output import print_document, show_document
from shardplan.cli.progress import fit_progress, progress_bar

if TYPE_CHECKING:
    from shardplan.calibrate.defaults import Refit
    from shardplan.calibrate.user import UserFit

MOST_SEED: Final = 2**31
HOLDOUT: Final = "0.3"
MOST_ERROR: Final = 0.5
"""Median error of the fitted runs above which a profile is written only on request: it does not describe them."""


@dataclass(frozen=True, kw_only=True)
class FitFlags:
    """What constants are fitted to, and how."""

    PANEL = "Fit"

    runs: str | None = asked("CSV of measured runs on one accelerator.", is_argument=True, metavar="RUNS.csv")
    accelerator: str | None = asked(
        "What was measured (see `shardplan accelerators`). Default: the accelerator that all rows name.",
        metavar="NAME|FILE",
    )
    out: str | None = asked("File to write the profile to.", panel="Output", metavar="FILE")
    holdout: str = asked(
        "Share of the runs to hold out of the fit, in whole configurations; 0 for none.",
        default=HOLDOUT,
        metavar="SHARE",
    )
    seed: int = asked("Random seed that selects the held-out runs.", default=0, least=0, most=MOST_SEED, metavar="N")
    accept_poor_fit: bool = switch(
        f"Write the profile even if its median error on the fitted runs is above {MOST_ERROR:.0%}."
    )
    template: bool = switch("Print a file of measured runs to start from: the header and two rows.")
    microbench: bool = switch(
        "Time kernels on this machine with torch, and collectives under torchrun.", panel="Kernels"
    )
    device: str | None = asked(
        "cpu, cuda or cuda:1. Default: the GPU if there is one.", panel="Kernels", metavar="NAME"
    )
    sizes: str = asked("small (under a minute) or full.", default="full", panel="Kernels", metavar="NAME")
    cluster: str | None = asked(
        "What the collectives run on (see `shardplan clusters`). Default: the usual cluster of the accelerator.",
        panel="Kernels",
        metavar="NAME|FILE",
    )
    defaults: bool = switch(
        "For developers: fit all shipped constants again from the published runs, with every team left out once. "
        "Takes two or three minutes on one core.",
        panel="Shipped constants",
    )
    write: bool = switch("Replace the shipped profiles and left-out errors.", panel="Shipped constants")


@with_flags
def calibrate(*, output: OutputFlags, wanted: FitFlags) -> int:
    """Fit the constants of the estimate to your own measured runs, or to kernels timed on this machine.

    The profile holds the constants that moved, each with its uncertainty and its old value; `--profile` of plan,
    estimate and validate reads it. The fit starts from the shipped constants and moves them as far as the runs
    ask for, weighed against how well they are known.
    """
    runs = wanted.runs
    target = output.checked_target(runs, wanted.accelerator, wanted.cluster)
    _check_flags(wanted)
    if wanted.template:
        from shardplan.calibrate.runs.columns import TEMPLATE

        sys.stdout.write(TEMPLATE)
        return 0
    if wanted.defaults:
        return _refit_shipped(target, write=wanted.write)
    out = _profile_name(wanted.out)
    return _profile_from_kernels(target, wanted, out) if runs is None else _profile_from_runs(target, runs, wanted, out)


def _check_flags(wanted: FitFlags) -> None:
    """Checks that one way to calibrate is given, and only flags that go with it. Raises ``InputError``."""
    given = {
        "RUNS.csv": wanted.runs is not None,
        "--template": wanted.template,
        "--microbench": wanted.microbench,
        "--defaults": wanted.defaults,
    }
    ways = [name for name, is_given in given.items() if is_given]
    if len(ways) != 1:
        raise InputError(
            f"{' and '.join(ways)} are given" if ways else "nothing to calibrate with is given",
            rule="one of RUNS.csv, --template, --microbench and --defaults is given",
            hint="shardplan calibrate my-runs.csv --out my-cluster.yaml; --template prints a file to start from",
        )
    if wanted.template:
        return
    if wanted.defaults and (wanted.accelerator or wanted.out or wanted.holdout != HOLDOUT):
        raise InputError(
            "--defaults is given with flags of another fit",
            rule="--defaults goes with --write and --json alone",
            hint="leave --accelerator, --out and --holdout out",
        )
    if wanted.write and not wanted.defaults:
        raise InputError("--write is given without --defaults", rule="--write goes with --defaults", hint="--out FILE")
    if wanted.cluster is not None and not wanted.microbench:
        raise InputError(
            "--cluster is given without --microbench",
            rule="--cluster goes with --microbench",
            hint="rows of RUNS.csv name their cluster themselves",
        )


def _share(text: str) -> float:
    """A share from 0.3 or 30 %."""
    try:
        value = float(text.removesuffix("%").strip()) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 0.9 or "_" in text:
        raise InputError(
            f"--holdout is {shown(text)}; it must be a share from 0 to 0.9",
            rule="--holdout is a share from 0 to 0.9",
            hint="--holdout 0.3",
        )
    return value


def _profile_name(out: str | None) -> str:
    """Name of the profile's file. Raises ``InputError``."""
    if out is None or out == "-":
        raise InputError(
            "no file for the profile is given", rule="--out names the file of the profile", hint="--out my-cluster.yaml"
        )
    return out


def _profile_target(out: str, runs: str | None, accelerator: str | None, target: JsonTarget) -> JsonTarget:
    """Target of the profile, which is written as YAML."""
    page = JsonTarget(out, "--out", kind=PROFILE, is_forced=target.is_forced)
    if out.lower().endswith((".json", ".csv")):
        raise InputError(
            f"--out is {out[-200:]!r}; a profile is YAML",
            rule="the file of --out does not end as one of another kind",
            hint="--out my-cluster.yaml",
        )
    page.check(runs, accelerator, other=target)
    return page


def _profile_from_runs(target: JsonTarget, runs: str, wanted: FitFlags, out: str) -> int:
    """Writes a profile from measured runs, if it describes them."""
    holdout, seed = _share(wanted.holdout), wanted.seed
    page = _profile_target(out, runs, wanted.accelerator, target)
    from shardplan.answers.calibration import calibration_document
    from shardplan.calibrate.user import profile_text
    from shardplan.render.record import document_record

    date, file = datetime.now(UTC).date().isoformat(), Path(runs).name
    found = _fitted(runs, wanted.accelerator, file=file, date=date, holdout=holdout, seed=seed)
    poor = None if wanted.accept_poor_fit else _poor(found)
    document = calibration_document(found, out if poor is None else None)
    if poor is None:
        target.check_content(b"")  # before the profile is written
        page.write_text(profile_text(found, file=file, date=date))
        target.write(document_record(document))
    print_document(document, target)
    if poor is not None:
        _refuse_poor(found, *poor)
    return 0


def _fitted(runs: str, accelerator: str | None, *, file: str, date: str, holdout: float, seed: int) -> UserFit:
    """The fit to the usable rows of a file."""
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
    """The quantity that the fitted constants do not describe, step time or peak memory, with its median error."""
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


def _profile_from_kernels(target: JsonTarget, wanted: FitFlags, out: str) -> int:
    """Writes a profile from timed kernels. An interrupt keeps what was timed so far."""
    accelerator, sizes = wanted.accelerator, wanted.sizes
    page = _profile_target(out, None, accelerator, target)
    from shardplan.answers.calibration import microbench_document
    from shardplan.calibrate import microbench
    from shardplan.inputs.profile import load_profile
    from shardplan.inputs.readers.catalog import load_accelerator, load_cluster

    timings = JsonTarget(str(microbench.measurements_path(out)), "--out", kind=TIMINGS, is_forced=target.is_forced)
    timings.check(accelerator, wanted.cluster, other=target)
    network = None if wanted.cluster is None else load_cluster(wanted.cluster)
    if sizes not in ("small", "full"):
        raise InputError(f"--sizes is {shown(sizes)}", rule="--sizes is small or full", hint="--sizes small")
    with progress_bar("timing kernels") as progress:
        measured = microbench.run_microbenchmark(
            device=wanted.device,
            sizes="small" if sizes == "small" else "full",
            accelerator=accelerator,
            progress=progress,
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


def _refit_shipped(target: JsonTarget, *, write: bool) -> int:
    """Fits the shipped constants again."""
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
    """Replaces the shipped files after all of them are made."""
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
