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
FieldsFlag = Annotated[bool, flag("List what --software sets, with values and defaults.", "--fields")]


@with_flags
def stacks(*, output: OutputFlags, name: StackArgument = None, fields: FieldsFlag = False) -> int:
    """List the training frameworks whose defaults are known, or show one.

    Every default of a framework is shown with its source, and so is all that it can run. torchtitan@0.3 shows what that
    version can run; without a version it is the newest.
    """
    target = output.checked_target(name)
    if fields:
        return _fields(name, target)
    from shardplan.answers.stacks import stack_document, stacks_document
    from shardplan.cli.show.document import show_document
    from shardplan.physics.frameworks.stack import list_stacks, load_stack

    if name is None:
        return show_document(stacks_document(load_stack(each) for each in list_stacks()), target)
    return show_document(stack_document(load_stack(name)), target)


def _fields(name: str | None, target: JsonTarget) -> int:
    """Lists what ``--software`` sets. Raises InputError where a framework is named too."""
    if name is not None:
        raise InputError(
            f"both {name[:60]} and --fields are given",
            rule="--fields lists what can be set, of no framework",
            hint=f"leave one out; `shardplan stacks {name[:60]}` shows the values of that framework",
        )
    from shardplan.answers.stacks import fields_document
    from shardplan.cli.show.document import show_document

    return show_document(fields_document(), target)
