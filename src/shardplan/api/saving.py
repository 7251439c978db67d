"""Plan files that Python writes: whole or not at all, and never over a file of another kind."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shardplan.outputs.target import JsonTarget


def save_record(record: Mapping[str, Any], where: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """Writes a record as JSON and returns the path. Raises InputError."""
    path = Path(where)
    JsonTarget(str(path), "path", forced_by="overwrite=True", is_forced=overwrite).write(record)
    return path
