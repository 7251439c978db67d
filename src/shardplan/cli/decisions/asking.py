"""From flags to the searches of a decision."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardplan.cli.flags.plan import SpaceFlags
    from shardplan.cli.question import Asked
    from shardplan.decisions.searching import Searches


def searches_of(asked: Asked, space: SpaceFlags) -> tuple[Searches, tuple[str, ...]]:
    """How questions are searched, and all that was assumed so far. Raises InputError."""
    from shardplan.cli.question import restrictions
    from shardplan.decisions.searching import Searches
    from shardplan.frameworks.defaults import switches_in_stack

    restricted = restrictions(space)
    of_stack = switches_in_stack(asked.stack, {name for each in restricted.values() for name in each})
    return Searches(stack=asked.stack, **restricted), (*asked.assumptions, *of_stack)
