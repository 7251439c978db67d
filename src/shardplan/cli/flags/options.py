"""Options of the command line that follow a record or the catalogue: default, choices and completion."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module


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
