"""``shardplan calibrate``: constants from one's own measured steps, from kernels, or all shipped ones again."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.plan import OutputFlags
from shardplan.errors import InputError, shown
from shardplan.inputs.readers.typed import whole
from shardplan.outputs.target import PROFILE, TIMINGS, JsonTarget

if TYPE_CHECKING:
    from shardplan.calibration.defaults import Refit
    from shardplan.calibration.microbench import Measurements, Outcome
    from shardplan.calibration.user import UserFit


MOST_SEED = 2**31
HOLDOUT = "0.3"
MOST_ERROR = 0.5
"""Median error of the runs fitted above which a profile is not written unasked: it does not describe them."""


def _option(text: str, *names: str, panel: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, **more)


RunsArgument = Annotated[
    str | None,
    typer.Argument(metavar="RUNS.csv", show_default=False, help="Measured runs of one accelerator, a row for each."),
]
AcceleratorFlag = Annotated[
    str | None,
    _option(
        "What was measured (see `shardplan accelerators`). Default: the accelerator that all rows name.",
        panel="Fit",
        metavar="NAME|FILE",
    ),
]
OutFlag = Annotated[str | None, _option("File to write the profile to.", panel="Output", metavar="FILE")]
HoldoutFlag = Annotated[
    str,
    _option(
        "Share of the runs that the fit does not see, to check it, in whole configurations; 0: none.",
        panel="Fit",
        metavar="SHARE",
    ),
]
SeedFlag = Annotated[str, _option("Random seed that selects the held-out runs.", panel="Fit", metavar="N")]
PoorFitFlag = Annotated[
    bool,
    _option(
        f"Write the profile even where its median error on the runs it was fitted to is above {MOST_ERROR:.0%}.",
        "--accept-poor-fit",
        panel="Fit",
    ),
]
TemplateFlag = Annotated[
    bool,
    _option(
        "Print a file of measured runs to start from: the header and two rows.",
        "--template",
        panel="Fit",
    ),
]
DefaultsFlag = Annotated[
    bool,
    _option(
        "For developers: fit all shipped constants again from the published runs, with every family left out once. "
        "Takes two or three minutes on one core.",
        "--defaults",
        panel="Shipped constants",
    ),
]
WriteFlag = Annotated[
    bool, _option("Replace the shipped profiles and left-out errors.", "--write", panel="Shipped constants")
]
MicrobenchFlag = Annotated[
    bool,
    _option(
        "Time kernels on this machine with torch, and collectives under torchrun.", "--microbench", panel="Kernels"
    ),
]
DeviceFlag = Annotated[
    str | None, _option("cpu, cuda or cuda:1. Default: the GPU where there is one.", panel="Kernels", metavar="NAME")
]
ClusterFlag = Annotated[
    str | None,
    _option(
        "What the collectives run on (see `shardplan clusters`). Default: the usual cluster of the accelerator.",
        panel="Kernels",
        metavar="NAME|FILE",
    ),
]
SizesFlag = Annotated[str, _option("small (under a minute) or full.", panel="Kernels", metavar="NAME")]


@with_flags
def calibrate(
    *,
    output: OutputFlags,
    runs: RunsArgument = None,
    accelerator: AcceleratorFlag = None,
    out: OutFlag = None,
    holdout: HoldoutFlag = HOLDOUT,
    seed: SeedFlag = "0",
    accept_poor_fit: PoorFitFlag = False,
    template: TemplateFlag = False,
    microbench: MicrobenchFlag = False,
    device: DeviceFlag = None,
    sizes: SizesFlag = "full",
    cluster: ClusterFlag = None,
    defaults: DefaultsFlag = False,
    write: WriteFlag = False,
) -> int:
    """Fit the constants of the estimate: to your own measured runs, or to kernels timed on this machine.

    The profile that is written holds the constants that moved, each with its uncertainty and what it was; `--profile`
    of plan, estimate and validate reads it. The fit starts from the shipped constants and moves them as far as the runs
    ask for, against how well they are known.
    """
    target = output.target()
    target.check(runs, accelerator, cluster)
    _check_way(
        {"RUNS.csv": runs is not None, "--template": template, "--microbench": microbench, "--defaults": defaults}
    )
    if template:
        return _template()
    is_other = bool(accelerator or out or holdout != HOLDOUT)
    _check_flags(defaults=defaults, is_other=is_other, write=write, microbench=microbench, cluster=cluster is not None)
    if defaults:
        return _defaults(target, write=write)
    place = _profile_name(out)
    if microbench:
        return _microbench(target, place, device=device, sizes=sizes, accelerator=accelerator, cluster=cluster)
    assert runs is not None
    share, number = _share(holdout), whole(seed, "--seed", least=0, most=MOST_SEED)
    return _runs(target, runs, accelerator, place, holdout=share, seed=number, accept_poor_fit=accept_poor_fit)


def _check_way(given: Mapping[str, bool]) -> None:
    """One way to calibrate. Raises ``InputError``."""
    ways = [name for name, is_given in given.items() if is_given]
    if len(ways) != 1:
        raise InputError(
            f"{' and '.join(ways)} are given" if ways else "nothing to calibrate with is given",
            rule="one of RUNS.csv, --template, --microbench and --defaults is given",
            hint="shardplan calibrate my-runs.csv --out my-cluster.yaml; --template prints a file to start from",
        )


def _check_flags(*, defaults: bool, is_other: bool, write: bool, microbench: bool, cluster: bool) -> None:
    """Flags stand next to the one that they go with; ``is_other``: some are of another fit. Raises ``InputError``."""
    if defaults and is_other:
        raise InputError(
            "--defaults is given with flags of another fit",
            rule="--defaults goes with --write and --json alone",
            hint="leave --accelerator, --out and --holdout out",
        )
    if write and not defaults:
        raise InputError("--write is given without --defaults", rule="--write goes with --defaults", hint="--out FILE")
    if cluster and not microbench:
        raise InputError(
            "--cluster is given without --microbench",
            rule="--cluster goes with --microbench",
            hint="rows of RUNS.csv name their cluster themselves",
        )


def _template() -> int:
    """A file of measured runs to start from."""
    from shardplan.calibration.runs.template import TEMPLATE

    sys.stdout.write(TEMPLATE)
    return 0


def _profile_name(out: str | None) -> str:
    """Where the profile goes. Raises ``InputError``."""
    if out is None or out == "-":
        raise InputError(
            "no file for the profile is given", rule="--out names the file of the profile", hint="--out my-cluster.yaml"
        )
    return out


def _share(text: str) -> float:
    """0.3, or 30 %."""
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


def _runs(
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
    page = _profile_target(out, runs, accelerator, target)
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
    with _iterations(MOST_ITERATIONS) as progress:
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


def _profile_target(out: str, runs: str | None, accelerator: str | None, target: JsonTarget) -> JsonTarget:
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


def _microbench(
    target: JsonTarget, out: str, *, device: str | None, sizes: str, accelerator: str | None, cluster: str | None
) -> int:
    """A profile from timed kernels. An interrupt keeps what was timed until then."""
    page = _profile_target(out, None, accelerator, target)
    from shardplan.calibration import microbench
    from shardplan.cli.progress import progress_bar
    from shardplan.inputs.profile import load_profile
    from shardplan.inputs.readers.catalog import load_accelerator, load_cluster

    timings = JsonTarget(str(microbench.measurements_path(out)), "--out", kind=TIMINGS, is_forced=target.is_forced)
    timings.check(accelerator, cluster, other=target)
    if sizes not in ("small", "full"):
        raise InputError(f"--sizes is {shown(sizes)}", rule="--sizes is small or full", hint="--sizes small")
    network = None if cluster is None else load_cluster(cluster)
    with progress_bar("timing kernels") as progress:
        measured = microbench.run_microbenchmark(
            device=device,
            sizes="small" if sizes == "small" else "full",
            accelerator=accelerator,
            progress=progress,
        )
    if measured.rank != 0:
        return 0  # under torchrun the first process speaks for all
    generation = load_accelerator(measured.accelerator).generation if measured.accelerator else "default"
    outcome = microbench.outcome_of(measured, load_profile(generation), cluster=network)
    if not outcome.constants:
        _show_microbench(target, measured, outcome, out)
    for each in (target, page, timings):
        each.check_content(b"")
    raw = microbench.write_profile(out, outcome.constants, measured)  # refuses a profile without constants
    from shardplan.reports.calibration import microbench_record

    target.write(microbench_record(measured, outcome, out, str(raw)))
    _show_microbench(target, measured, outcome, out)
    if not measured.is_complete:
        raise KeyboardInterrupt
    return 0


def _show_microbench(target: JsonTarget, measured: Measurements, outcome: Outcome, out: str) -> None:
    """What was timed and what follows from it, unless standard output is taken."""
    if target.is_stdout:
        return
    from shardplan.cli.layout import Page
    from shardplan.cli.show.calibration import show_microbench

    show_microbench(Page(), measured, outcome, out)


def _defaults(target: JsonTarget, *, write: bool) -> int:
    """The shipped constants, fitted again."""
    from shardplan.calibration import defaults
    from shardplan.calibration.fit import MOST_ITERATIONS
    from shardplan.reports.calibration import refit_changes, refit_record

    with _iterations(MOST_ITERATIONS) as progress:
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
                os.replace(path, PROFILES / path.name)  # noqa: PTH105 # Path.replace is the same
        list(build())
    except OSError as error:
        raise InputError(
            f"the shipped profiles cannot be written: {error.strerror or error}",
            rule="the shipped profiles can be written",
            hint="run it in a checkout of the source code",
        ) from None


@contextlib.contextmanager
def _iterations(most: int) -> Any:
    """Progress of a fit."""
    from shardplan.cli.progress import progress_bar

    with progress_bar("fitting") as bar:
        advance: Callable[[int, float], None] | None = None
        if bar is not None:
            bar(0, most)

            def advance(iteration: int, _objective: float) -> None:
                bar(iteration, most)

        yield advance
