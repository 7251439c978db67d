"""Options of the command line that follow a record or the catalogue: default, choices and completion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from importlib import import_module
from typing import Any, get_args

import typer


def named(kind: str) -> Callable[[str], list[str]]:
    """Completion with the names of the catalogue."""

    def complete(incomplete: str) -> list[str]:
        from shardplan.inputs.readers import catalog

        names: list[str] = getattr(catalog, f"list_{kind}")()
        return [name for name in names if name.startswith(incomplete)]

    return complete


def completed(module: str, function: str, incomplete: str) -> list[str]:
    """Names that a function of a module lists and that start so."""
    names = getattr(import_module(f"shardplan.{module}"), function)()
    return [name for name in names if name.startswith(incomplete)]


def _default(record: type[Any], name: str) -> str:
    """The documented default of a field of the job or the plan, where it is a value."""
    value = next(field.default for field in fields(record) if field.name == name)
    if value is None or value is MISSING:
        return ""
    return f" [default: {('off', 'on')[value] if isinstance(value, bool) else value}]"


def field_option(record: type[Any], name: str, text: str, choices: Any = None, **more: Any) -> Any:
    """The option of a field of the job or the plan, which check its value themselves.

    ``choices``: a ``Literal``, or the names themselves.
    """
    if choices is None:
        return typer.Option(help=text + _default(record, name), show_default=False, **more)
    names = [str(choice) for choice in get_args(choices) or choices]
    return typer.Option(
        help=f"{text} {', '.join(names[:-1])} or {names[-1]}.{_default(record, name)}",
        show_default=False,
        metavar="NAME",
        autocompletion=lambda incomplete: [each for each in names if each.startswith(incomplete)],
        **more,
    )
