"""``shardplan resume``: whether a checkpoint can be loaded under another plan."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shardplan.ask.task_forms import ResumeForm
from shardplan.cli.flags.option_groups import OutputFlags, with_flags
from shardplan.cli.launch.audit import pairs
from shardplan.inputs.readers.typed import model_argument

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
    from shardplan.answers.resume import resume_document
    from shardplan.api.resuming import will_resume
    from shardplan.cli.show.document import show_document
    from shardplan.decide.operations import Operations

    found = will_resume(
        old,
        new,
        framework=asked.framework,
        model=None if asked.model is None else model_argument(asked.model),
        cluster=asked.cluster,
        env=dict(pairs("--env", asked.env)),
        given=dict(pairs("--given", asked.given)),
        operations=Operations(checkpoint_bandwidth=asked.checkpoint_bandwidth),
    )
    return show_document(resume_document(found, found.load), target)
