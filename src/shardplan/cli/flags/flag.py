"""One flag of a command, and flags that take one value and are given several times: refused, not the last one taken.

Every command imports this file, help too, so it imports little.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import typer

from shardplan.base.errors import MOST_SHOWN, InputError, shortened

DETAILS: Final = " in detail"
"""Ends the titles of groups of flags that few people need."""


def check_given_once(order: Sequence[Any], arguments: Sequence[str]) -> None:
    """Refuses a flag of one value that ``order``, the parameters as they were read, has twice. Raises InputError.

    Flags that can be repeated take a list; a switch that has no opposite means the same each time.
    """
    for parameter in dict.fromkeys(order):
        if order.count(parameter) == 1 or not _has_one_value(parameter):
            continue
        names = (*parameter.opts, *parameter.secondary_opts)
        given = [*_given(names, arguments)]
        raise InputError(
            f"{parameter.opts[0]} is given {order.count(parameter)} times: {shortened(', '.join(given), MOST_SHOWN)}",
            rule=f"{parameter.opts[0]} is given once",
            hint=f"give {parameter.opts[0]} once; for each of several values run a command of its own",
        )


def _has_one_value(parameter: Any) -> bool:
    if parameter.param_type_name != "option" or parameter.multiple or parameter.count:
        return False
    return not parameter.is_flag or bool(parameter.secondary_opts)


def _given(names: Sequence[str], arguments: Sequence[str]) -> Iterator[str]:
    """What follows each of the names: their values; of a switch the name that was typed."""
    for place, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name in names:
            following = arguments[place + 1 : place + 2]
            yield value if equals else following[0] if following and not following[0].startswith("--") else name


def flag(text: str, *names: str, panel: str | None = None, **more: Any) -> Any:
    """A flag with its help; ``panel``: the heading of the help under which it stands. Others as for typer."""
    return typer.Option(*names, help=text, rich_help_panel=panel, **more)
