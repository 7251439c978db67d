"""``shardplan resume``: whether a checkpoint can be loaded under another plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardplan.cli.flags.flag import flag
from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.plan import OutputFlags
from shardplan.cli.launch.audit import ClusterFlag, EnvFlag, GivenFlag, ModelFlag, named_cluster, named_model, pairs

if TYPE_CHECKING:
    from shardplan.launch.resume.answer import ResumeSide

OldArgument = Annotated[
    Path,
    typer.Argument(metavar="OLD", help="Launch file or plan file of the run that saved.", show_default=False),
]
NewArgument = Annotated[
    Path,
    typer.Argument(metavar="NEW", help="Launch file or plan file of the run that loads.", show_default=False),
]
FrameworkFlag = Annotated[
    str | None,
    flag(
        "Framework of plan files that name none: megatron-lm, torchtitan, deepspeed ...",
        "--framework",
        panel="Question",
        metavar="NAME",
    ),
]
BandwidthFlag = Annotated[
    str | None,
    flag(
        "Reading of checkpoints, per accelerator: 0.15GB/s.",
        "--checkpoint-bandwidth",
        panel="Question",
        metavar="VALUE",
    ),
]


@with_flags
def resume(
    *,
    old: OldArgument,
    new: NewArgument,
    framework: FrameworkFlag = None,
    model: ModelFlag = None,
    cluster: ClusterFlag = None,
    env: EnvFlag = None,
    given: GivenFlag = None,
    checkpoint_bandwidth: BandwidthFlag = None,
    output: OutputFlags,
) -> int:
    """Say whether NEW can load the checkpoint that OLD saved, and what is not kept.

    The answer is made from a dated record of the framework; what it does not say is unknown. `--env new.NODES=64` and
    `--given old.num_accelerators=512` are for one of the two files. Exits with 1 if it does not load, or is unknown.
    """
    target = output.checked_target(old, new, model, cluster)
    from shardplan.answers.resume import load_of, resume_document
    from shardplan.cli.show.document import show_document
    from shardplan.decisions.operations import Operations
    from shardplan.launch.resume.answer import resume as resumed
    from shardplan.units import parse_bandwidth

    def side(name: str, path: Path) -> ResumeSide:
        from shardplan.reports.resume_files import of_side, side_of_file

        return side_of_file(
            path,
            framework=framework,
            model=named_model(model),
            cluster=named_cluster(cluster),
            env=of_side(dict(pairs("--env", env)), name),
            given=of_side(dict(pairs("--given", given)), name),
        )

    found = resumed(side("old", old), side("new", new))
    text = checkpoint_bandwidth
    bandwidth = None if text is None else parse_bandwidth(text, field="--checkpoint-bandwidth")
    load = load_of(found, Operations(checkpoint_bandwidth=bandwidth))
    return show_document(resume_document(found, load), target)
