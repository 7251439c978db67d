"""``shardplan methods``: our own estimate and the published models, what each counts and what it leaves out."""

from __future__ import annotations

from typing import Annotated

import typer

from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.plan import OutputFlags

NameArgument = Annotated[
    str | None, typer.Argument(metavar="NAME", show_default=False, help="One of the list, to show all of it.")
]


@with_flags
def methods(*, output: OutputFlags, name: NameArgument = None) -> int:
    """List the methods of estimating a training run: ours, the published ones, and those of other packages.

    Each with what it counts, what it leaves out or has wrong, and where it was published.
    """
    target = output.checked_target()
    from shardplan.reports.methods import catalogue as reports

    entries = reports.method_entries() if name is None else (reports.method_entry(name),)
    target.write(reports.methods_record(entries))
    if not target.is_stdout:
        from shardplan.cli.layout import Page
        from shardplan.cli.show import methods as show_methods

        if name is None:
            show_methods.show_list(Page(), entries)
        else:
            show_methods.show_one(Page(), entries[0])
    return 0
