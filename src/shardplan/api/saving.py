"""Plan files that Python writes: whole or not at all, and never over a file of another kind."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shardplan.errors import InputError
from shardplan.reports.plan_file import SCHEMAS

MOST_HEAD = 400
"""Characters of a file in which its schema is looked for."""


def save_record(record: Mapping[str, Any], where: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """Writes a record as JSON and returns the path. Raises InputError."""
    path = Path(where)
    if path.exists() and not overwrite and not _is_plan_file(path):
        raise InputError(
            f"{str(path)[:200]!r} is there already and is not a plan file",
            rule="only a plan file is replaced",
            hint="give another name, or overwrite=True",
        )
    text = json.dumps(record, ensure_ascii=False, allow_nan=False, indent=1) + "\n"
    try:
        _replace(path, text)
    except OSError as error:
        raise InputError(
            f"cannot write {str(path)[:200]!r}: {error.strerror or error}",
            rule="a plan file is written to a folder that exists and can be written",
            hint="check the path",
        ) from None
    return path


def _is_plan_file(path: Path) -> bool:
    try:
        head = path.read_bytes()[:MOST_HEAD].decode(errors="replace")
    except OSError:
        return False
    return f'"{SCHEMAS}' in head


def _replace(path: Path, text: str) -> None:
    """The file takes its place in one step."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
