"""``shardplan resume``: whether a checkpoint can be loaded under another plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardplan.ask.more_forms import ResumeForm
from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.plan import OutputFlags
from shardplan.cli.launch.audit import named_cluster, named_model, pairs

if TYPE_CHECKING:
    from shardplan.launch.resume.side import ResumeSide

OldArgument = Annotated[
    Path,
    typer.Argument(metavar="OLD", help="Launch file or plan file of the run that saved.", show_default=False),
]
NewArgument = Annotated[
    Path,
    typer.Argument(metavar="NEW", help="Launch file or plan file of the run that loads.", show_default=False),
]


@with_flags
def resume(
    *,
    old: OldArgument,
    new: NewArgument,
    asked: ResumeForm,
    output: OutputFlags,
) -> int:
    """Say whether NEW can load the checkpoint that OLD saved, and what is not kept.

    The answer is made from a dated record of the framework; what it does not say is unknown. `--env new.NODES=64` and
    `--given old.num_accelerators=512` are for one of the two files. Exits with 1 if it does not load, or is unknown.
    """
    target = output.checked_target(old, new, asked.model, asked.cluster)
    from shardplan.decisions.operations import Operations
    from shardplan.launch.resume.answer import resume as resumed
    from shardplan.reports.forms.resume import load_of, resume_record

    def side(name: str, path: Path) -> ResumeSide:
        from shardplan.reports.resume_files import of_side, side_of_file

        return side_of_file(
            path,
            framework=asked.framework,
            model=named_model(asked.model),
            cluster=named_cluster(asked.cluster),
            env=of_side(dict(pairs("--env", asked.env)), name),
            given=of_side(dict(pairs("--given", asked.given)), name),
        )

    found = resumed(side("old", old), side("new", new))
    load = load_of(found, Operations(checkpoint_bandwidth=asked.checkpoint_bandwidth))
    target.write(resume_record(found, load))
    if not target.is_stdout:
        from shardplan.cli.layout import Page
        from shardplan.cli.show.resume import show_resume

        show_resume(Page(), found, load)
    return 0 if found.loads else 1
