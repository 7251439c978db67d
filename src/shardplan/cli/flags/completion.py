"""Completion of names on the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module


def one_of(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Completion with these names."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def listed_by(module: str, function: str) -> Callable[[str], list[str]]:
    """Completion with the names that a function of a module lists; it is imported when somebody asks."""

    def complete(incomplete: str) -> list[str]:
        return one_of(getattr(import_module(f"shardplan.{module}"), function)())(incomplete)

    return complete


def named(kind: str) -> Callable[[str], list[str]]:
    """Completion with the names of the catalogue."""
    return listed_by("inputs.readers.catalog", f"list_{kind}")
