"""``shardplan audit``: a launch script or configuration, understood, judged and improved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardplan.ask.more_forms import LaunchForm
from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.plan import DetailFlags, OutputFlags

if TYPE_CHECKING:
    from shardplan.inputs.cluster import Cluster
    from shardplan.inputs.model import ModelConfig


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
    from shardplan.launch.audit.answer import audit_launch
    from shardplan.launch.dialects.ask import Ask

    values = dict(pairs("--given", asked.given))
    if asked.num_accelerators is not None:
        values["num_accelerators"] = str(asked.num_accelerators)
    ask = Ask(
        path=file, env=dict(pairs("--env", asked.env)), arguments=tuple(args or ()), entry=asked.entry, given=values
    )
    found = audit_launch(
        ask,
        model=named_model(asked.model),
        cluster=named_cluster(asked.cluster),
        keep=tuple(name.strip() for name in (asked.keep or "").split(",") if name.strip()),
        observed=tuple(asked.observed or ()),
    )
    if target.where is not None:
        from shardplan.reports.forms.audit import audit_record

        target.write(audit_record(found))
    if not target.is_stdout:
        from shardplan.cli.layout import Page
        from shardplan.cli.show.audit import show_audit

        show_audit(Page(), found, details)
    return 0 if found.runs else 1


def pairs(flag: str, texts: Sequence[str] | None) -> list[tuple[str, str]]:
    """``NAME=VALUE`` as two texts; the value may be empty. Raises InputError."""
    from shardplan.errors import InputError, shown

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


def named_model(name: str | None) -> ModelConfig | None:
    """The model of ``--model``. Raises InputError."""
    if name is None:
        return None
    from shardplan.inputs.readers.catalog import load_model
    from shardplan.inputs.readers.typed import model_argument

    return load_model(model_argument(name))


def named_cluster(name: str | None) -> Cluster | None:
    """The cluster of ``--cluster``. Raises InputError."""
    if name is None:
        return None
    from shardplan.inputs.readers.catalog import load_cluster

    return load_cluster(name)
