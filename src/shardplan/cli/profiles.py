"""``shardplan profiles`` and ``stacks``: constants of the estimate and defaults of frameworks, each with its origin."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.plan import OutputFlags
from shardplan.records import plain

if TYPE_CHECKING:
    from shardplan.frameworks.stack import Stack


ProfileArgument = Annotated[
    str | None,
    typer.Argument(metavar="NAME", show_default=False, help="A generation of accelerators, or the path of a profile."),
]
StackArgument = Annotated[
    str | None, typer.Argument(metavar="NAME", show_default=False, help="One of the list, or the path of a file.")
]


@with_flags
def profiles(*, output: OutputFlags, name: ProfileArgument = None) -> int:
    """List the calibration profiles, or show every constant of one.

    A constant has a value and a unit, what it was read from or fitted on, its value before the fit, and how uncertain
    it is.
    """
    target = output.target()
    target.check(name)
    from shardplan.reports import profiles as reports

    if name is None:
        entries = reports.profile_entries()
        target.write({"schema": "shardplan/profiles/1", "profiles": plain(entries)})
    else:
        from shardplan.cli.question import profile_named

        profile, generation = profile_named(name)
        target.write(reports.profile_record(profile, generation))
    if not target.is_stdout:
        from shardplan.cli.layout import Page
        from shardplan.cli.show import profiles as show_profiles

        if name is None:
            show_profiles.show_profile_list(Page(), entries)
        else:
            show_profiles.show_profile(Page(), profile, reports.constant_rows(profile, generation), generation)
    return 0


@with_flags
def stacks(*, output: OutputFlags, name: StackArgument = None) -> int:
    """List the training frameworks whose defaults are known, or show those of one.

    Every default is shown with its source, and so is all that the framework can run. torchtitan@0.3 shows what that
    version can run, no version the newest.
    """
    target = output.target()
    target.check(name)
    from shardplan.frameworks.stack import list_stacks, load_stack

    found = [load_stack(each) for each in (list_stacks() if name is None else [name])]
    if name is None:
        rows = [{"name": stack.name, "title": stack.full_name} for stack in found]
        target.write({"schema": "shardplan/stacks/1", "stacks": rows})
    else:
        target.write(_stack_record(found[0]))
    if not target.is_stdout:
        from shardplan.cli.layout import Page
        from shardplan.cli.show import profiles as show_profiles

        if name is None:
            show_profiles.show_stack_list(Page(), found)
        else:
            show_profiles.show_stack(Page(), found[0])
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
