"""Python configurations, by their syntax tree: nothing is imported or run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shardplan.launch.read.facts import Document


def read_python(path: Path, entry: str | None = None, *, env: Mapping[str, str] | None = None) -> Document:
    """What the module at ``path`` sets, or what its function ``entry`` returns. Raises ``InputError``."""
    raise NotImplementedError


def parse_python(text: str, file: str, entry: str | None = None, *, env: Mapping[str, str] | None = None) -> Document:
    """What a module given as text sets. Raises ``InputError``."""
    raise NotImplementedError
