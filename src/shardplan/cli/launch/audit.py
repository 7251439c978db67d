"""``shardplan audit``: a launch script or configuration, understood, judged and improved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from shardplan.ask.task_forms import LaunchForm
from shardplan.cli.flags.option_groups import DetailFlags, OutputFlags, with_flags
from shardplan.cli.groups import ARGUMENTS
from shardplan.inputs.readers.typed import model_argument

FilesArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE",
        help="Script or configuration, then files that it names or that hold with it. They are read, never run. "
        "Arguments of the script come after --.",
        show_default=False,
    ),
]
RootOption = Annotated[
    Path | None,
    typer.Option(
        "--root",
        metavar="DIR",
        help="Folder that the script is launched from. Without it, the root of its repository is tried.",
        rich_help_panel=LaunchForm.PANEL,
        show_default=False,
    ),
]


@with_flags
def audit(
    *,
    context: typer.Context,
    files: FilesArgument,
    root: RootOption = None,
    asked: LaunchForm,
    output: OutputFlags,
    details: DetailFlags,
) -> int:
    """Say what a launch script runs, which rules it breaks, and what would be better.

    Nothing of the file is executed. Exits with 1 if a broken rule stops the run or it does not fit in memory.
    """
    target = output.checked_target(*files, asked.model, asked.cluster)
    from shardplan.answers.audit import audit_document
    from shardplan.api.audits import AuditAnswer
    from shardplan.api.audits import audit as audited
    from shardplan.cli.show.document import show_document

    found = audited(
        *files,
        root=root,
        model=None if asked.model is None else model_argument(asked.model),
        cluster=asked.cluster,
        num_accelerators=asked.num_accelerators,
        env=dict(pairs("--env", asked.env)),
        arguments=tuple(context.meta[ARGUMENTS]),
        entry=asked.entry,
        given=dict(pairs("--given", asked.given)),
        keep=tuple(name.strip() for name in (asked.keep or "").split(",") if name.strip()),
        observed=tuple(asked.observed or ()),
    )
    if not isinstance(found, AuditAnswer):
        return show_document(found.document(is_whole=details.all), target)
    document = audit_document(found, states_assumptions=details.states_assumptions, is_whole=details.all)
    return show_document(document, target)


def pairs(flag: str, texts: Sequence[str] | None) -> list[tuple[str, str]]:
    """``NAME=VALUE`` as two texts; the value may be empty. Raises InputError."""
    from shardplan.base.errors import InputError, shown

    found = []
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not name.strip() or not equals:
            raise InputError(
                f"{flag} is {shown(text)}; it takes NAME=VALUE",
                rule=f"{flag} takes NAME=VALUE",
                hint=f"write {flag} NODES=64",
            )
        found.append((name.strip(), value))
    return found
