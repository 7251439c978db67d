"""The model of a command: its name or path, or what is on standard input."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

STDIN: Final = "-"


def model_argument(text: str) -> str | Mapping[str, Any]:
    """The model of a command: its name or path, or what is on standard input for ``-``. Raises InputError."""
    if text != STDIN:
        return text
    from shardplan.inputs.readers.hf.file import read_config_from

    return read_config_from(sys.stdin.buffer)
