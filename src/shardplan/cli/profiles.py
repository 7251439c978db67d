"""``shardplan profiles``: constants of the estimate, each with its origin."""

from __future__ import annotations

from typing import Annotated

import typer

from shardplan.cli.flags.option_groups import OutputFlags, with_flags

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
    from shardplan.answers.profiles import profile_document, profiles_document
    from shardplan.cli.show.document import show_document

    if name is None:
        return show_document(profiles_document(), target)
    from shardplan.ask.names import profile_named

    profile = profile_named(name)
    return show_document(profile_document(profile, profile.generation), target)
