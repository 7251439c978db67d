"""A profile from kernels that are timed on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardplan.cli.calibration.profile_file import profile_target
from shardplan.cli.progress import progress_bar
from shardplan.errors import InputError, shown
from shardplan.outputs.target import TIMINGS, JsonTarget

if TYPE_CHECKING:
    from shardplan.calibration.microbench import Measurements, Outcome


def profile_from_kernels(
    target: JsonTarget, out: str, *, device: str | None, sizes: str, accelerator: str | None, cluster: str | None
) -> int:
    """A profile from timed kernels. An interrupt keeps what was timed until then."""
    page = profile_target(out, None, accelerator, target)
    from shardplan.calibration import microbench
    from shardplan.inputs.profile import load_profile
    from shardplan.inputs.readers.catalog import load_accelerator, load_cluster

    timings = JsonTarget(str(microbench.measurements_path(out)), "--out", kind=TIMINGS, is_forced=target.is_forced)
    timings.check(accelerator, cluster, other=target)
    network = None if cluster is None else load_cluster(cluster)
    measured = _timed(device, sizes, accelerator)
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


def _timed(device: str | None, sizes: str, accelerator: str | None) -> Measurements:
    """Times the kernels. Raises ``InputError``."""
    from shardplan.calibration import microbench

    if sizes not in ("small", "full"):
        raise InputError(f"--sizes is {shown(sizes)}", rule="--sizes is small or full", hint="--sizes small")
    with progress_bar("timing kernels") as progress:
        return microbench.run_microbenchmark(
            device=device, sizes="small" if sizes == "small" else "full", accelerator=accelerator, progress=progress
        )


def _show_microbench(target: JsonTarget, measured: Measurements, outcome: Outcome, out: str) -> None:
    """What was timed and what follows from it, unless standard output is taken."""
    if target.is_stdout:
        return
    from shardplan.cli.layout import Page
    from shardplan.cli.show.calibration import show_microbench

    show_microbench(Page(), measured, outcome, out)
