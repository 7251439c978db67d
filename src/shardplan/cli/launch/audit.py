"""``shardplan audit``: a launch script or configuration, understood, judged and improved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from shardplan.ask.task_forms import LaunchForm
from shardplan.cli.flags.option_groups import DetailFlags, OutputFlags, with_flags
from shardplan.inputs.readers.typed import model_argument

FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="Script or configuration. It is read, never run.", show_default=False)
]
ArgsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- ARGS...]", help="Arguments of the script, after --.", show_default=False),
]


@with_flags
def audit(
    *,
    file: FileArgument,
    args: ArgsArgument = None,
    asked: LaunchForm,
    output: OutputFlags,
    details: DetailFlags,
) -> int:
    """Say what a launch script runs, which rules it breaks, and what would be better.

    Nothing of the file is executed. Exits with 1 if a broken rule stops the run or it does not fit in memory.
    """
    target = output.checked_target(file, asked.model, asked.cluster)
    from shardplan.api.audits import audit as audited

    found = audited(
        file,
        model=None if asked.model is None else model_argument(asked.model),
        cluster=asked.cluster,
        num_accelerators=asked.num_accelerators,
        env=dict(pairs("--env", asked.env)),
        arguments=tuple(args or ()),
        entry=asked.entry,
        given=dict(pairs("--given", asked.given)),
        keep=tuple(name.strip() for name in (asked.keep or "").split(",") if name.strip()),
        observed=tuple(asked.observed or ()),
    )
    from shardplan.answers.audit import audit_document
    from shardplan.cli.show.document import show_document

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
