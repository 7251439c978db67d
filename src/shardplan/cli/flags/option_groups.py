"""Groups of flags: dataclasses and records whose fields are options of every command with them among its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints

from shardplan.cli.flags.records import FlagsOf


def with_flags(command: Callable[..., int]) -> Callable[..., int]:
    """A command with one option for each field of the groups of flags among its parameters."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    records = {name: flags for name, hint in hints.items() for flags in _flags_of(hint)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in records:
            parameters += records[name].parameters()
        else:
            parameters += _options(groups[name]) if name in groups else [parameter.replace(annotation=hints[name])]

    @wraps(command)
    def run(**given: Any) -> int:
        filled = {name: flags.read(given) for name, flags in records.items()}
        filled |= {name: kind(**{f.name: given.pop(f.name) for f in fields(kind)}) for name, kind in groups.items()}
        return command(**filled, **given)

    keyword = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    run.__signature__ = inspect.Signature(keyword, return_annotation=int)  # type: ignore[attr-defined]  # typer reads it
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in keyword}
    return run


def _flags_of(hint: Any) -> Iterator[FlagsOf]:
    """The record whose fields a parameter takes, if it is such a one."""
    yield from (each for each in getattr(hint, "__metadata__", ()) if isinstance(each, FlagsOf))


def _options(group: Any) -> Iterator[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        yield inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[field.name]
        )
