"""Values of fields as people type them: numbers with their bounds, lists, quantities with units, choices."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from shardplan.base.errors import InputError, UnknownNameError, shown
from shardplan.base.fields import Described, described, wrong
from shardplan.base.units import Kind, comma_text, parse_count, parse_quantity, parse_whole, without_thousands
from shardplan.base.words import FLAGS, folded

STDIN: Final = "-"
LARGEST: Final = 1e30
LONGEST: Final = 2**31
QUANTITIES: Final[Mapping[str, Kind]] = {"s": "time", "bytes/s": "bandwidth"}
"""Units of fields that are typed with a unit."""


def model_argument(text: str) -> str | Mapping[str, Any]:
    """The model of a command: its name or path, or the content of standard input for ``-``. Raises InputError."""
    if text != STDIN:
        return text
    from shardplan.inputs.readers.hf.file import read_config_from

    return read_config_from(sys.stdin.buffer)


def whole(text: str, flag: str, *, least: int = 1, most: int, is_length: bool = False) -> int:
    """The number in ``text``; ``is_length``: tokens of a sequence, which may be 8k. Raises InputError."""
    try:
        value, why = parse_whole(text, is_length=is_length), ""
    except ValueError as error:
        value, why = -1, str(error)
    if least <= value <= most:
        return value
    wanted = f"a whole number from {least:,} to {most:,}{', such as 8192 or 8k' if is_length else ''}"
    said = f", which {why}" if why.startswith("may be") else f"; it must be {wanted}"
    raise InputError(f"{flag} is {shown(text)}{said}", rule=f"{flag} is {wanted}", hint=f"set {flag} to {wanted}")


def grid(text: str) -> tuple[int, int] | None:
    """Nodes and accelerators of each, from ``8x8``; None for other texts."""
    found = GRID.fullmatch(text)
    return None if found is None else (int(found[1]), int(found[2]))


RANGE: Final = re.compile(r"(?<=\d)\s*(?:\.\.\.?|-|\u2013|\bto\b)\s*(?=\d)", re.ASCII)
"""Separators of the first and the last of several counts: 64..4096, 64-4096."""
GRID: Final = re.compile(r"\s*([1-9]\d{0,7})\s*[xX*\u00d7]\s*([1-9]\d{0,7})\s*", re.ASCII)


def number(text: str, flag: str, *, least: float = 0.0, most: float = LARGEST, may_be_zero: bool = False) -> float:
    """The positive number in ``text``, at least ``least``: 70, 0.5, 1e28. Raises InputError."""
    try:
        value = float(without_thousands(text.strip())) if text.isascii() else math.nan
    except ValueError:
        value = math.nan
    if (value > 0 or (may_be_zero and value == 0)) and least <= value <= most:
        return value
    wanted = f"a number {f'from {least:g} to' if least or may_be_zero else 'above 0, at most'} {most:g}"
    comma = comma_text(text)
    said = f", which {comma}" if comma else f"; it must be {wanted}"
    raise InputError(f"{flag} is {shown(text)}{said}", rule=f"{flag} is {wanted}", hint=f"set {flag} to {wanted}")


def values_of(record: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a record from typed text; the record checks their range. Raises InputError."""
    known = described(record)
    return {name: _value(known[name], value) for name, value in given.items()}


def _value(field: Described, value: Any) -> Any:
    if field.kind.base is int:
        least = int(max(field.about.least, 0))
        most = LONGEST if field.about.most == math.inf else int(field.about.most)
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
    """The field called ``name`` and its value from ``text``: on, off or a name. Raises InputError."""
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


def named_once(flag: str, texts: Sequence[str]) -> dict[str, str]:
    """Values by name from texts ``name=value``, each name once. Raises InputError."""
    found: dict[str, str] = {}
    for name, value in pairs_of(flag, texts):
        if found.setdefault(name, value) != value:
            raise InputError(
                f"{flag} gives {name} as {shown(found[name])} and as {shown(value)}",
                rule=f"{flag} gives each name once",
                hint=f"write one {name}=value",
            )
    return found


def pairs_of(flag: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    """Names and values from texts ``name=value``. Raises InputError."""
    pairs = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name.strip() and equals and value.strip()):
            raise InputError(
                f"{flag} is {shown(text)}; it takes name=value",
                rule=f"{flag} takes name=value",
                hint=f"write {flag} {name.strip()[:40] or 'tp'}=value",
            )
        pairs.append((name.strip(), value.strip()))
    return pairs
