"""``shardplan schedules``: the pipeline schedules, and a drawing of one."""

from __future__ import annotations

from typing import Annotated

import typer

from shardplan.cli.flags.option_groups import OutputFlags, with_flags

NameArgument = Annotated[
    str | None,
    typer.Argument(metavar="NAME", show_default=False, help="One of the list."),
]


@with_flags
def schedules(*, output: OutputFlags, name: NameArgument = None) -> int:
    """List the pipeline schedules, or show and draw one.

    Bubble and micro-batches in flight are simulated for 8 ranks and 32 micro-batches, with free transfers.
    """
    target = output.checked_target(name)
    from shardplan.physics.schedules.registry import list_all_schedules, load_any_schedule
    from shardplan.reports.schedules import schedule_record, schedule_row

    if name is not None:
        found = load_any_schedule(name.strip().lower())
        target.write({"schema": "shardplan/schedule/1", **schedule_record(found)})
    else:
        every = [load_any_schedule(each) for each in list_all_schedules()]
        target.write({"schema": "shardplan/schedules/1", "schedules": [schedule_record(each) for each in every]})
    if not target.is_stdout:
        from shardplan.cli.show.schedules import show_list, show_schedule
        from shardplan.render.page import Page

        if name is None:
            show_list(Page(), [schedule_row(each) for each in every])
        else:
            show_schedule(Page(), found)
    return 0
