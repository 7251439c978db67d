"""Shell scripts: the commands that they run, by reading alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from shardplan.launch.read.facts import Script


def read_script(path: Path, *, env: Mapping[str, str] | None = None, arguments: Sequence[str] = ()) -> Script:
    """What the shell script at ``path`` runs, given environment variables and arguments. Raises ``InputError``."""
    raise NotImplementedError


def parse_script(
    text: str, file: str, *, env: Mapping[str, str] | None = None, arguments: Sequence[str] = ()
) -> Script:
    """What a script given as text runs; files that it sources are not opened. Raises ``InputError``."""
    raise NotImplementedError
