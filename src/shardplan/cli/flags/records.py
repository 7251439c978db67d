"""Flags that follow the fields of a record: name, help, default, choices and completion."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING
from inspect import Parameter
from typing import Annotated, Any, NamedTuple

import typer

from shardplan.cli.numbers import number, whole
from shardplan.errors import InputError, UnknownNameError, shown
from shardplan.fields import Described, described, wrong
from shardplan.units import Kind, parse_count, parse_quantity, parse_whole
from shardplan.words import FLAGS, folded

Given = Mapping[str, Any]
"""Values of the flags that were given, as text or switches."""
LONGEST = 2**31
DETAILS = " in detail"
"""Ends the titles of groups of flags that few people need."""
QUANTITIES: Mapping[str, Kind] = {"s": "time", "bytes/s": "bandwidth"}
"""Units of fields that are typed with one of their own."""
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
    more: dict[str, Any] = {"autocompletion": _completion(names), "metavar": "NAME"} if names else {}
    metavar = field.about.metavar or METAVARS.get(field.kind.base)
    if metavar is not None:
        more["metavar"] = metavar
    return typer.Option(help=help_of(field), show_default=False, rich_help_panel=title, **more)


def help_of(field: Described) -> str:
    """What a field is, its choices and its default."""
    text, names, default = field.about.help, field.kind.choices, field.default
    choices = f" {', '.join(names[:-1])} or {names[-1]}." if names and text.endswith(":") else ""
    if default is None or default is MISSING:
        return text + choices
    return f"{text}{choices} [default: {('off', 'on')[default] if isinstance(default, bool) else default}]"


def _completion(names: tuple[str, ...]) -> Callable[[str], list[str]]:
    return lambda incomplete: [each for each in names if each.startswith(incomplete)]


def values_of(record: type[Any], given: Given) -> dict[str, Any]:
    """Arguments of a record from its flags; the record checks their range. Raises InputError."""
    known = described(record)
    return {name: _value(known[name], value) for name, value in given.items()}


def _value(field: Described, value: Any) -> Any:
    if field.kind.base is int:
        least, most = int(max(field.about.least, 0)), int(min(field.about.most, LONGEST))
        return whole(value, field.flag, least=least, most=most, is_length=field.about.is_length)
    if field.kind.base is float and field.about.is_count:
        return float(parse_count(value, field=field.flag))
    if field.about.unit in QUANTITIES:
        return parse_quantity(value, QUANTITIES[field.about.unit], field=field.flag)
    if field.kind.base is float:
        about = field.about
        return number(
            value, field.flag, least=about.least, most=about.most, may_be_zero=about.includes_least and about.least == 0
        )
    return _whole_numbers(field, value) if field.kind.base is tuple else value


def _whole_numbers(field: Described, text: str) -> tuple[int, ...]:
    try:
        found = tuple(parse_whole(part, is_length=field.about.is_length) for part in text.split(","))
    except ValueError:
        found = ()
    if not field.allows(found):
        raise InputError(
            f"{field.flag} is {shown(text)}; it must be {field.wanted}",
            rule=f"{field.name} is {field.wanted}",
            hint=f"write {field.flag} {field.about.example}",
        )
    return found


def assigned(record: type[Any], name: str, text: str) -> tuple[str, Any]:
    """The field that is called ``name`` and the value, on or off or a name, that ``text`` means. Raises InputError."""
    known = described(record)
    field = known.get(name.strip().lower().replace("-", "_"))
    if field is None:
        shared = getattr(record, "SHARED_FLAG", "")
        raise UnknownNameError(f"name of {shared}", name[:60], known, hint="see `shardplan stacks --fields`")
    switch = FLAGS.get(folded(text)) if field.kind.base is bool else None
    value: Any = field.meant(text.strip()) if switch is None else switch
    if not field.allows(value):
        raise wrong(field, text)
    return field.name, value
