"""Options of a capability record as the words, keys and values that files hold."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Any


def flags(options: Iterable[str]) -> list[Sequence[str]]:
    """Options of a command line, ``--name value ...``, each as its words."""
    found: list[list[str]] = []
    for word in (word for option in options for word in shlex.split(option)):
        if not word.startswith("--") and found and ":" not in word:
            found[-1].append(word)
        else:
            found.append([word])
    return list(found)


def pairs(options: Iterable[str]) -> dict[str, str]:
    """Options of the form ``key=value``."""
    words = [word for option in options for word in shlex.split(option)]
    return {key: value for key, _, value in (word.partition("=") for word in words)}


def keys(options: Iterable[str]) -> dict[str, Any]:
    """Options of the form ``key: value``; switches and whole numbers are read."""
    parted = [option.partition(": ") for option in options]
    return {key: _read(value) for key, separator, value in parted if separator}


def _read(value: str) -> bool | int | str:
    if value in ("true", "false"):
        return value == "true"
    return int(value) if value.isdecimal() else value


def nested(values: dict[str, Any]) -> dict[str, Any]:
    """Values by keys with dots, ``{"a.b": 1}``, as mappings in mappings."""
    tree: dict[str, Any] = {}
    for key, value in values.items():
        *folders, name = key.split(".")
        place = tree
        for folder in folders:
            place = place.setdefault(folder, {})
        place[name] = value
    return tree
