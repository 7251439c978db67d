"""``shardplan stacks``: defaults of training frameworks, what they can run, and what ``--software`` sets."""

from __future__ import annotations

from typing import Annotated

import typer

from shardplan.base.errors import InputError
from shardplan.base.outputs import JsonTarget
from shardplan.cli.flags.flag import flag
from shardplan.cli.flags.option_groups import OutputFlags, with_flags

StackArgument = Annotated[
    str | None, typer.Argument(metavar="NAME", show_default=False, help="One of the list, or the path of a file.")
]
ReleasesFlag = Annotated[bool, flag("Show what changed from release to release, and when.", "--releases")]
FieldsFlag = Annotated[bool, flag("List what --software sets, with values and defaults.", "--fields")]


@with_flags
def stacks(
    *, output: OutputFlags, name: StackArgument = None, fields: FieldsFlag = False, releases: ReleasesFlag = False
) -> int:
    """List the training frameworks whose defaults are known, or show one.

    Every default of a framework is shown with its source, and so is all that it can run. torchtitan@0.3 shows what that
    version can run, and torchtitan@2024-12 what it did in that month; without either it is the newest.
    """
    target = output.checked_target(name)
    if fields:
        return _fields(name, target, is_alone=not releases)
    from shardplan.answers.stacks import releases_document, stack_document, stacks_document
    from shardplan.cli.show.document import show_document
    from shardplan.physics.frameworks.stack import list_stacks, load_stack

    if releases:
        return show_document(releases_document(load_stack(_named(name))), target)
    if name is None:
        return show_document(stacks_document(load_stack(each) for each in list_stacks()), target)
    return show_document(stack_document(load_stack(name)), target)


def _named(name: str | None) -> str:
    """The framework whose releases are asked for. Raises InputError where none is named."""
    if name is None:
        raise InputError(
            "--releases is given without a framework",
            rule="--releases shows the history of one framework",
            hint="shardplan stacks torchtitan --releases",
        )
    return name


def _fields(name: str | None, target: JsonTarget, *, is_alone: bool) -> int:
    """Lists what ``--software`` sets. Raises InputError where a framework or its releases are asked for too."""
    if not is_alone:
        raise InputError(
            "both --fields and --releases are given",
            rule="one list is shown",
            hint="leave one out",
        )
    if name is not None:
        raise InputError(
            f"both {name[:60]} and --fields are given",
            rule="--fields lists what can be set, of no framework",
            hint=f"leave one out; `shardplan stacks {name[:60]}` shows the values of that framework",
        )
    from shardplan.answers.stacks import fields_document
    from shardplan.cli.show.document import show_document

    return show_document(fields_document(), target)
