"""From flags to the searches of a decision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardplan.errors import InputError

if TYPE_CHECKING:
    from shardplan.cli.flags.plan import SpaceFlags
    from shardplan.cli.question import Asked
    from shardplan.decisions.searching import Searches


def searches_of(asked: Asked, space: SpaceFlags) -> tuple[Searches, tuple[str, ...]]:
    """How questions are searched, and all that was assumed so far. Raises InputError."""
    from shardplan.cli.question import choices
    from shardplan.decisions.searching import Searches
    from shardplan.frameworks.defaults import switches_in_stack

    fix, limit, exclude = (choices(f"--{name}", getattr(space, name)) for name in ("fix", "limit", "exclude"))
    of_stack = switches_in_stack(asked.stack, {*fix, *limit, *exclude})
    searches = Searches(stack=asked.stack, fix=fix, limit=limit, exclude=exclude)
    return searches, (*asked.assumptions, *of_stack)


def check_one_stack(stack: str | None, command: str) -> None:
    """Refuses ``--stack all``. Raises InputError."""
    from shardplan.frameworks.usual_stack import ALL

    if (stack or "").lower() == ALL:
        raise InputError(
            f"--stack is {stack}; {command} takes one framework",
            rule=f"{command} plans for one framework",
            hint="name one of `shardplan stacks`, or any for no framework",
        )
