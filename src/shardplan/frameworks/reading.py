"""What every entry of a capability record is read with: its fields, its source, and errors that name the entry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardplan.errors import InputError, UnknownNameError, shown


def fields_of(raw: object, where: str, known: tuple[str, ...]) -> Mapping[str, Any]:
    """The fields in ``raw``, all of which are among ``known``. Raises ``InputError``."""
    if not isinstance(raw, Mapping):
        raise wrong(where, raw, f"it has the fields {', '.join(known[:4])} ...", f"write fields: {few(known)}")
    for name in raw:
        if name not in known:
            raise UnknownNameError(f"field of {where}", str(name)[:60], known, hint=f"one of {', '.join(known)}")
    return raw


def origin_of(entry: Mapping[str, Any], where: str) -> tuple[str, bool]:
    """Source of an entry, and whether it is from memory. Raises ``InputError``."""
    source, remembered = entry.get("source"), entry.get("from_memory", False)
    if not isinstance(source, str) or not source.strip():
        raise wrong(
            f"source of {where}", source, "every entry has a source", "source: path in the repository, or paper"
        )
    if not isinstance(remembered, bool):
        raise wrong(f"from_memory of {where}", remembered, "from_memory is true or false", "from_memory: true")
    return source, remembered


def list_in(raw: object, name: str, label: str, sample: str) -> list[Any]:
    """The list under ``name``. Raises ``InputError``."""
    if not isinstance(raw, list):
        raise wrong(f"{name} of {label}", raw, f"{name} is a list", f"{name}: [{{{sample}}}]")
    return raw


def few(known: tuple[str, ...] | None) -> str:
    """Some of the known names, as a hint shows them."""
    return ", ".join((known or ("1f1b",))[:3])


def wrong(what: str, value: object, rule: str, hint: str) -> InputError:
    """The error of a value that breaks a rule."""
    return InputError(f"{what} is {shown(value)}", rule=rule, hint=hint)
