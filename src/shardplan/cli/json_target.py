"""Where ``--json`` points: a file that is replaced as a whole, or standard output."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shardplan.errors import InputError

LINE = 110
ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


class JsonTarget:
    """A file or ``-``; made from None it swallows what is written."""

    def __init__(self, where: str | None, flag: str = "--json") -> None:
        """``flag``: by which it was given, for errors."""
        self.where, self.flag = where, flag

    @property
    def is_stdout(self) -> bool:
        """Whether the JSON takes the place of the text."""
        return self.where == "-"

    @property
    def path(self) -> Path | None:
        """The file; None for standard output and where nothing is written."""
        return None if self.where is None or self.is_stdout else Path(self.where)

    def check(self, *reads: str | Path | None, other: JsonTarget | None = None) -> None:
        """Finds out early whether the file can be written. Raises InputError.

        ``reads``: files that the command reads; ``other``: a target of the same command. Neither is written over.
        """
        if self.where == "":
            raise self._unwritable(self.where, "it is empty")
        self._check_apart(reads, other)
        if self.path is not None and not _is_device(self.path):
            beside = self._beside(self.path)
            self._attempt(lambda: beside.open("x").close())
            beside.unlink()

    def _check_apart(self, reads: Sequence[str | Path | None], other: JsonTarget | None) -> None:
        path = self.path
        if path is None or self._attempt(lambda: _is_device(path)):
            return
        read = [Path(name) for name in reads if name is not None and self._attempt(Path(name).is_file)]
        written = [other.path] if other is not None and other.path is not None else []
        if any(_is_same(path, each) for each in (*read, *written)):
            raise InputError(
                f"{self.flag} is {str(path)[:200]!r}, which this command reads or writes already",
                rule="no file is written over that the command reads, or writes for another flag",
                hint=f"give {self.flag} a file of its own",
            )

    def write(self, record: Mapping[str, Any]) -> None:
        """Writes ``record``; a file holds either what it held before or all of it. Raises InputError."""
        if self.where is not None:
            self.write_text(json_text(record) + "\n")

    def write_text(self, text: str) -> None:
        """Writes ``text`` as a whole. Raises InputError."""
        if self.is_stdout:
            sys.stdout.write(text)
            sys.stdout.flush()
        else:
            self.write_bytes(self._attempt(lambda: text.encode("utf-8")))

    def write_bytes(self, content: bytes) -> None:
        """Writes ``content`` to the file as a whole. Raises InputError."""
        if self.path is not None:
            path = self.path
            self._attempt(lambda: _replace(path, self._beside(path), content))

    def _beside(self, path: Path) -> Path:
        """A file for the text until it is complete."""
        if self._attempt(path.is_dir):
            raise self._unwritable(path, "it is a directory")
        target: Path = self._attempt(path.resolve)
        return target.with_name(f".{target.name[:200]}.{os.getpid()}.tmp")

    def _attempt(self, action: Any) -> Any:
        try:
            return action()
        except OSError as error:
            raise self._unwritable(self.where, error.strerror or str(error)) from None
        except (ValueError, RuntimeError) as error:  # a null character; a loop of links
            raise self._unwritable(self.where, str(error)) from None

    def _unwritable(self, path: object, why: str) -> InputError:
        or_stdout = ", or - for standard output" if self.flag == "--json" else ""
        return InputError(
            f"cannot write {str(path)[:200]!r}: {why}",
            rule=f"the file of {self.flag} can be written",
            hint=f"give {self.flag} a file in a folder that exists and can be written{or_stdout}",
        )


def target_of(arguments: Sequence[str]) -> JsonTarget:
    """The target that a command line names, even one that cannot be parsed; none where it names that file twice."""
    where, others = None, []
    for position, argument in enumerate(arguments):
        if position and arguments[position - 1] == "--json":
            where = argument
        elif argument.startswith("--json="):
            where = argument.removeprefix("--json=")
        elif argument != "--json":
            others.append(argument.partition("=")[2] if argument.startswith("-") else argument)
    target = JsonTarget(where or None)
    return JsonTarget(None) if any(_is_same(target.path, Path(name)) for name in others if name) else target


def _is_same(path: Path | None, other: Path) -> bool:
    """Whether two paths are those of one file."""
    try:
        return path is not None and path.resolve() == other.resolve()
    except (OSError, ValueError, RuntimeError):
        return False


def _replace(path: Path, beside: Path, content: bytes) -> None:
    if _is_device(path):
        path.write_bytes(content)
        return
    try:
        beside.write_bytes(content)
        if path.exists():
            beside.chmod(stat.S_IMODE(path.stat().st_mode))
        beside.replace(path.resolve())
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()


def _is_device(path: Path) -> bool:
    """Whether ``path`` is something other than a file, such as /dev/null or a pipe."""
    try:
        return not stat.S_ISREG(path.stat().st_mode) and not stat.S_ISDIR(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def json_text(value: Any, indent: int = 0) -> str:
    """JSON with what fits on a line on one line, so that long lists of numbers stay short."""
    if isinstance(value, dict):
        keys = [f"{json.dumps(str(key))}: " for key in value]
        return _joined("{", keys, [json_text(part, indent + 2) for part in value.values()], "}", indent)
    if not isinstance(value, list | tuple):
        return ENCODER.encode(value)
    parts = [json_text(part, indent + 2) for part in value]
    if sum(map(len, parts)) + 2 * len(parts) > LINE - indent and all(isinstance(part, int | float) for part in value):
        inner = " " * (indent + 2)
        lines = textwrap.fill(", ".join(parts), LINE, initial_indent=inner, subsequent_indent=inner)
        return f"[\n{lines}\n{' ' * indent}]"
    return _joined("[", [""] * len(parts), parts, "]", indent)


def _joined(start: str, keys: Sequence[str], parts: Sequence[str], end: str, indent: int) -> str:
    """An object or a list, on one line if that fits and no part needs more."""
    items = [key + part for key, part in zip(keys, parts, strict=True)]
    if sum(map(len, items)) + 2 * max(len(items), 1) + indent <= LINE and not any("\n" in part for part in parts):
        return f"{start}{', '.join(items)}{end}"
    inner, separator = " " * (indent + 2), ",\n"
    return f"{start}\n{separator.join(inner + item for item in items)}\n{' ' * indent}{end}"
