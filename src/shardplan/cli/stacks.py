"""``shardplan stacks``: defaults of training frameworks, what they can run, and what ``--software`` sets."""

from __future__ import annotations

from typing import Annotated

import typer

from shardplan.cli.flags.flag import flag
from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.plan import OutputFlags
from shardplan.errors import InputError
from shardplan.outputs.target import JsonTarget
from shardplan.records import plain

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
    target = output.target()
    target.check(name)
    if fields:
        return _fields(name, target)
    from shardplan.frameworks.stack import list_stacks, load_stack
    from shardplan.reports.stacks import stack_record, stacks_record

    found = [load_stack(each) for each in (list_stacks() if name is None else [name])]
    if name is None:
        target.write(stacks_record(found))
    else:
        target.write(stack_record(found[0]))
    if not target.is_stdout:
        from shardplan.cli.layout import Page
        from shardplan.cli.show import stacks as show_stacks

        if name is None:
            show_stacks.show_stack_list(Page(), found)
        else:
            show_stacks.show_stack(Page(), found[0])
    return 0


def _fields(name: str | None, target: JsonTarget) -> int:
    """Lists what ``--software`` sets. Raises InputError where a framework is named too."""
    if name is not None:
        raise InputError(
            f"both {name[:60]} and --fields are given",
            rule="--fields lists what can be set, of no framework",
            hint=f"leave one out; `shardplan stacks {name[:60]}` shows the values of that framework",
        )
    from shardplan.reports.stacks import field_rows

    rows = field_rows()
    target.write({"schema": "shardplan/software-fields/1", "fields": plain(rows)})
    if not target.is_stdout:
        from shardplan.cli.layout import Page
        from shardplan.cli.show.stacks import show_fields

        show_fields(Page(), rows)
    return 0
