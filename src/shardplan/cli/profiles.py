"""``shardplan profiles``: constants of the estimate, each with its origin."""

from __future__ import annotations

from typing import Annotated

import typer

from shardplan.cli.flags.option_groups import with_flags
from shardplan.cli.flags.plan import OutputFlags
from shardplan.records import plain

ProfileArgument = Annotated[
    str | None,
    typer.Argument(metavar="NAME", show_default=False, help="A generation of accelerators, or the path of a profile."),
]


@with_flags
def profiles(*, output: OutputFlags, name: ProfileArgument = None) -> int:
    """List the calibration profiles, or show every constant of one.

    A constant has a value and a unit, what it was read from or fitted on, its value before the fit, and how uncertain
    it is.
    """
    target = output.checked_target(name)
    from shardplan.reports import profiles as reports

    if name is None:
        entries = reports.profile_entries()
        target.write({"schema": "shardplan/profiles/1", "profiles": plain(entries)})
    else:
        from shardplan.ask.names import profile_named

        profile = profile_named(name)
        generation = profile.generation
        target.write(reports.profile_record(profile, generation))
    if not target.is_stdout:
        from shardplan.cli.layout import Page
        from shardplan.cli.show import profiles as show_profiles

        if name is None:
            show_profiles.show_profile_list(Page(), entries)
        else:
            show_profiles.show_profile(Page(), profile, reports.constant_rows(profile, generation), generation)
    return 0
