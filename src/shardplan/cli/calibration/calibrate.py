"""``shardplan calibrate``: constants from one's own measured steps, from kernels, or all shipped ones again."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Annotated

import typer

from shardplan.base.errors import InputError, shown
from shardplan.cli.calibration.ways import (
    MOST_ERROR,
    profile_from_kernels,
    profile_from_runs,
    profile_name,
    refit_shipped,
)
from shardplan.cli.flags.flag import flag
from shardplan.cli.flags.option_groups import OutputFlags, with_flags
from shardplan.inputs.readers.typed import whole

MOST_SEED = 2**31
HOLDOUT = "0.3"

RunsArgument = Annotated[
    str | None,
    typer.Argument(metavar="RUNS.csv", show_default=False, help="Measured runs of one accelerator, a row for each."),
]
AcceleratorFlag = Annotated[
    str | None,
    flag(
        "What was measured (see `shardplan accelerators`). Default: the accelerator that all rows name.",
        panel="Fit",
        metavar="NAME|FILE",
    ),
]
OutFlag = Annotated[str | None, flag("File to write the profile to.", panel="Output", metavar="FILE")]
HoldoutFlag = Annotated[
    str,
    flag(
        "Share of the runs that the fit does not see, to check it, in whole configurations; 0: none.",
        panel="Fit",
        metavar="SHARE",
    ),
]
SeedFlag = Annotated[str, flag("Random seed that selects the held-out runs.", panel="Fit", metavar="N")]
PoorFitFlag = Annotated[
    bool,
    flag(
        f"Write the profile even where its median error on the runs it was fitted to is above {MOST_ERROR:.0%}.",
        "--accept-poor-fit",
        panel="Fit",
    ),
]
TemplateFlag = Annotated[
    bool, flag("Print a file of measured runs to start from: the header and two rows.", "--template", panel="Fit")
]
DefaultsFlag = Annotated[
    bool,
    flag(
        "For developers: fit all shipped constants again from the published runs, with every team left out once. "
        "Takes two or three minutes on one core.",
        "--defaults",
        panel="Shipped constants",
    ),
]
WriteFlag = Annotated[
    bool, flag("Replace the shipped profiles and left-out errors.", "--write", panel="Shipped constants")
]
MicrobenchFlag = Annotated[
    bool,
    flag("Time kernels on this machine with torch, and collectives under torchrun.", "--microbench", panel="Kernels"),
]
DeviceFlag = Annotated[
    str | None, flag("cpu, cuda or cuda:1. Default: the GPU where there is one.", panel="Kernels", metavar="NAME")
]
ClusterFlag = Annotated[
    str | None,
    flag(
        "What the collectives run on (see `shardplan clusters`). Default: the usual cluster of the accelerator.",
        panel="Kernels",
        metavar="NAME|FILE",
    ),
]
SizesFlag = Annotated[str, flag("small (under a minute) or full.", panel="Kernels", metavar="NAME")]


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
    target = output.checked_target(runs, accelerator, cluster)
    _check_way(
        {"RUNS.csv": runs is not None, "--template": template, "--microbench": microbench, "--defaults": defaults}
    )
    if template:
        return _template()
    is_other = bool(accelerator or out or holdout != HOLDOUT)
    _check_flags(defaults=defaults, is_other=is_other, write=write, microbench=microbench, cluster=cluster is not None)
    if defaults:
        return refit_shipped(target, write=write)
    place = profile_name(out)
    if microbench:
        return profile_from_kernels(target, place, device=device, sizes=sizes, accelerator=accelerator, cluster=cluster)
    assert runs is not None
    share, number = _share(holdout), whole(seed, "--seed", least=0, most=MOST_SEED)
    return profile_from_runs(
        target, runs, accelerator, place, holdout=share, seed=number, accept_poor_fit=accept_poor_fit
    )


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
    from shardplan.calibrate.runs.columns import TEMPLATE

    sys.stdout.write(TEMPLATE)
    return 0


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
