"""Flags that follow the fields of a record: name, help, default, choices and completion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING
from inspect import Parameter
from typing import Annotated, Any, NamedTuple

import typer

from shardplan.cli.flags.completion import one_of
from shardplan.fields import Described, described
from shardplan.words import switch_word

Given = Mapping[str, Any]
"""Values of the flags that were given, as text or switches."""
DETAILS = " in detail"
"""Ends the titles of groups of flags that few people need."""
METAVARS = {int: "N", float: "N", tuple: "N,N,..."}


class FlagsOf(NamedTuple):
    """The flags of a record's described fields."""

    record: type[Any]
    title: str
    """Title of the group in the help."""

    def parameters(self) -> Iterator[Parameter]:
        """One for each field, as typer reads them."""
        for field in described(self.record).values():
            kind: Any = bool if field.kind.base is bool else str
            annotation = Annotated[kind | None, _option(field, self.title + DETAILS * field.about.is_rare)]
            yield Parameter(field.name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)

    def read(self, values: dict[str, Any]) -> Given:
        """Takes the flags of the record out of ``values``; those that were given."""
        taken = {name: values.pop(name) for name in described(self.record)}
        return {name: value for name, value in taken.items() if value is not None}


def _option(field: Described, title: str) -> Any:
    names = field.kind.choices
    more: dict[str, Any] = {"autocompletion": one_of(names), "metavar": "NAME"} if names else {}
    metavar = field.about.metavar or METAVARS.get(field.kind.base)
    if metavar is not None:
        more["metavar"] = metavar
    return typer.Option(help=help_of(field), show_default=False, rich_help_panel=title, **more)


def help_of(field: Described) -> str:
    """What a field is, its choices and its default."""
    text, names, default = field.about.help, field.kind.choices, field.default
    choices = f" {', '.join(names[:-1])} or {names[-1]}." if names and text.endswith(":") else ""
    if default is None or default is MISSING or "Default:" in text:
        return text + choices
    return f"{text}{choices} [default: {switch_word(default)}]"
