"""``shardplan stacks``: defaults of training frameworks, what they can run, and what ``--software`` sets."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.plan import OutputFlags
from shardplan.errors import InputError
from shardplan.outputs.target import JsonTarget
from shardplan.records import plain

if TYPE_CHECKING:
    from shardplan.frameworks.stack import Stack


StackArgument = Annotated[
    str | None, typer.Argument(metavar="NAME", show_default=False, help="One of the list, or the path of a file.")
]
FieldsFlag = Annotated[bool, typer.Option("--fields", help="List what --software sets, with values and defaults.")]


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

    found = [load_stack(each) for each in (list_stacks() if name is None else [name])]
    if name is None:
        rows = [{"name": stack.name, "title": stack.full_name} for stack in found]
        target.write({"schema": "shardplan/stacks/1", "stacks": rows})
    else:
        target.write(_stack_record(found[0]))
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
    from shardplan.reports.software_fields import field_rows

    rows = field_rows()
    target.write({"schema": "shardplan/software-fields/1", "fields": plain(rows)})
    if not target.is_stdout:
        from shardplan.cli.layout import Page
        from shardplan.cli.show.stacks import show_fields

        show_fields(Page(), rows)
    return 0


def _stack_record(stack: Stack) -> dict[str, Any]:
    """Every default of a stack with its source, and what the framework can run."""
    from shardplan.frameworks.capability_rows import capability_record

    return {
        "schema": "shardplan/stack/1",
        **plain(replace(stack, can_run=None, can_run_before=())),
        "can_run": None if stack.can_run is None else capability_record(stack.can_run),
        "can_run_before": [capability_record(each) for each in stack.can_run_before],
    }
