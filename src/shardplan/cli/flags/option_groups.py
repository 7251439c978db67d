"""Groups of flags: dataclasses and records whose fields are options of every command with them among its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Any, NamedTuple, get_type_hints

from shardplan.cli.flags.records import FlagsOf


def with_flags(command: Callable[..., int]) -> Callable[..., int]:
    """A command with one option for each field of the groups of flags among its parameters."""
    defaults = {name: parameter.default for name, parameter in inspect.signature(command).parameters.items()}
    parts = _parts(command, defaults)

    @wraps(command)
    def run(**given: Any) -> int:
        return command(**{name: part.take(given) for name, part in parts.items()})

    options = [option for part in parts.values() for option in part.options]
    run.__signature__ = inspect.Signature(options, return_annotation=int)  # type: ignore[attr-defined]  # typer reads it
    run.__annotations__ = {option.name: option.annotation for option in options}
    return run


class _Part(NamedTuple):
    """A parameter of a command, or a field of a group of flags."""

    options: list[inspect.Parameter]
    take: Callable[[dict[str, Any]], Any]
    """Takes its value out of those of the options."""


def _parts(owner: Any, defaults: dict[str, Any]) -> dict[str, _Part]:
    """The parameters of a command, or the fields of a group, by name."""
    hints = get_type_hints(owner, include_extras=True)
    return {name: _part(name, hints[name], default) for name, default in defaults.items()}


def _part(name: str, hint: Any, default: Any) -> _Part:
    """A single option, the fields of a record, or a group, which may hold groups."""
    record = next((each for each in getattr(hint, "__metadata__", ()) if isinstance(each, FlagsOf)), None)
    if record is not None:
        return _Part(list(record.parameters()), record.read)
    if is_dataclass(hint):
        empty = inspect.Parameter.empty
        parts = _parts(hint, {each.name: empty if each.default is MISSING else each.default for each in fields(hint)})
        options = [option for part in parts.values() for option in part.options]
        return _Part(options, lambda given: hint(**{field: part.take(given) for field, part in parts.items()}))  # type: ignore[operator]  # a class
    option = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)
    return _Part([option], lambda given: given.pop(name))
