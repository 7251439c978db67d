"""Files that commands write (``--json``, ``--html``, ``--out`` ...): none is lost that is not ours, or that was read.

A file is replaced as a whole, by a complete answer. It is left alone where the command has read it, directly or by way
of another file, where another flag writes it, and where it is none of ours, unless ``--force`` is given.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO, TypeVar

from shardplan.errors import InputError, visible
from shardplan.files import was_read
from shardplan.outputs.json_text import in_ascii, json_text

T = TypeVar("T")

HEAD: Final = 4096
"""Bytes of a file by which it is recognised as ours."""


class OwnFile(NamedTuple):
    """A kind of file that shardplan writes, and how one is recognised."""

    name: str
    """What errors call it."""
    mark: re.Pattern[bytes] | None
    """What is in its first bytes; None: its first line is that of the new content."""


JSON: Final = OwnFile("an answer of shardplan", re.compile(rb'\s*\{\s*"(schema": "shardplan/|error": \{\s*"rule": )'))
"""An answer, or the error of an earlier version in its place."""
PROFILE: Final = OwnFile("a profile that shardplan wrote", re.compile(rb"# Constants (of|measured on) "))
TIMINGS: Final = OwnFile("timings that shardplan wrote", re.compile(rb'\s*\{\s*"format": "shardplan microbenchmark '))
HTML: Final = OwnFile(
    "a page that shardplan wrote", re.compile(rb'.*<meta name="generator" content="shardplan">', re.DOTALL)
)
PNG: Final = OwnFile("a picture that shardplan drew", re.compile(rb"\x89PNG\r\n.*tEXtSoftware\0shardplan", re.DOTALL))
TRACE: Final = OwnFile("a trace that shardplan wrote", re.compile(rb'\{"schema": "shardplan/trace/'))
SVG: Final = OwnFile("a picture that shardplan drew", re.compile(rb'<svg [^>]*data-generator="shardplan"'))
CSV: Final = OwnFile("a table with the same columns", None)
SEARCHED: Final = OwnFile(
    "a result file of the searcher", re.compile(rb'\{\s*(\}\s*\Z|"\d+, \d+, \d+": "[\d.]+ms/iter")')
)  # fmt: skip


class JsonTarget:
    """A file or ``-``; made from None it swallows what is written."""

    def __init__(
        self,
        where: str | None,
        flag: str = "--json",
        *,
        kind: OwnFile = JSON,
        is_forced: bool = False,
        forced_by: str = "--force",
    ) -> None:
        """Where to write; ``flag`` is by what it was given, for errors.

        ``is_forced``: whether a file of another kind is replaced, which a user asks for with ``forced_by``.
        """
        self.where, self.flag, self.kind, self.is_forced = where, flag, kind, is_forced
        self.forced_by = forced_by

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

        ``reads``: files or folders that the command reads; ``other``: a target of the same command. Neither is written
        over.
        """
        if self.where == "":
            raise self._unwritable(self.where, "it is empty")
        path = self.path
        if path is None or self._attempt(lambda: _is_device(path)):
            return
        read = [Path(name) for name in reads if name is not None]
        written = [other.path] if other is not None and other.path is not None else []
        if any(_is_same(path, each) for each in (*read, *(each / "config.json" for each in read), *written)):
            raise self._taken(path)
        beside = self._beside(path)
        if self.kind.mark is not None:
            self._check_kind(path, b"")
        self._attempt(lambda: beside.open("x").close())
        beside.unlink()

    def check_content(self, content: bytes) -> None:
        """Refuses to replace a file that was read or is not ours by ``content``. Raises InputError."""
        path = self.path
        if path is None or self._attempt(lambda: _is_device(path)):
            return
        if was_read(path):
            raise self._taken(path)
        self._check_kind(path, content)

    def _check_kind(self, path: Path, content: bytes) -> None:
        """Refuses a file of another kind. Raises InputError."""
        if self.is_forced or not self._attempt(path.is_file):
            return
        with self._attempt(lambda: path.open("rb")) as file:
            head = self._attempt(lambda: file.read(HEAD))
        first = content.partition(b"\n")[0]
        is_own = head.startswith(first + b"\n") if self.kind.mark is None else bool(self.kind.mark.match(head))
        if head and not is_own:
            raise InputError(
                f"{self.flag} is {_named(path)}, which exists and is not {self.kind.name}",
                rule="no file is written over that shardplan did not write",
                hint=f"give {self.flag} another file, or add {self.forced_by} to replace this one",
            )

    def _taken(self, path: Path) -> InputError:
        return InputError(
            f"{self.flag} is {_named(path)}, which this command reads or writes already",
            rule="no file is written over that the command reads, or writes for another flag",
            hint=f"give {self.flag} a file of its own",
        )

    def write(self, record: Mapping[str, Any]) -> None:
        """Writes ``record``; a file holds either what it held before or all of it. Raises InputError."""
        if self.where is not None:
            text = json_text(record) + "\n"
            self.write_text(text if not self.is_stdout or _is_unicode(sys.stdout) else in_ascii(text))

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
            self.check_content(content)
            self._attempt(lambda: _replace(path, self._beside(path), (content,)))

    def write_parts(self, parts: Iterable[str]) -> None:
        """Writes a long text part by part; a file holds either what it held before or all of it. Raises InputError."""
        if self.is_stdout:
            sys.stdout.writelines(parts)
            sys.stdout.flush()
        elif self.path is not None:
            path = self.path
            self.check_content(b"")
            self._attempt(lambda: _replace(path, self._beside(path), (part.encode("utf-8") for part in parts)))

    def _beside(self, path: Path) -> Path:
        """A file for the text until it is complete."""
        if self._attempt(path.is_dir):
            raise self._unwritable(path, "it is a directory")
        target: Path = self._attempt(path.resolve)
        return target.with_name(f".{target.name[:200]}.{os.getpid()}.tmp")

    def _attempt(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except InputError:
            raise
        except OSError as error:
            raise self._unwritable(self.where, error.strerror or str(error)) from None
        except (ValueError, RuntimeError) as error:  # a null character; a loop of links
            raise self._unwritable(self.where, str(error)) from None

    def _unwritable(self, path: object, why: str) -> InputError:
        or_stdout = ", or - for standard output" if self.flag == "--json" else ""
        return InputError(
            f"cannot write {_named(path)}: {why}",
            rule=f"the file of {self.flag} can be written",
            hint=f"give {self.flag} a file in a folder that exists and can be written{or_stdout}",
        )


def check_one_on_stdout(targets: Iterable[JsonTarget]) -> None:
    """Raises InputError where two targets of a command are standard output."""
    to_stdout = [each.flag for each in targets if each.is_stdout]
    if len(to_stdout) > 1:
        raise InputError(
            f"{' and '.join(to_stdout)} are both -",
            rule="standard output takes one answer",
            hint=f"give {to_stdout[-1]} a file",
        )


def check_together(targets: Sequence[JsonTarget], reads: Sequence[str | Path | None]) -> None:
    """Finds out early whether all files of a command can be written, each another one. Raises InputError."""
    for number, each in enumerate(targets):
        each.check(*reads, *(other.path for other in targets[:number]))


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether a command line, even one that cannot be parsed, asks for JSON on standard output."""
    where = None
    for position, argument in enumerate(arguments):
        if position and arguments[position - 1] == "--json":
            where = argument
        elif argument.startswith("--json="):
            where = argument.removeprefix("--json=")
    return where == "-"


def _is_unicode(stream: TextIO) -> bool:
    """Whether a stream writes UTF-8, which is what readers of JSON expect."""
    return (getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "").startswith("utf8")


def _named(path: object) -> str:
    return f"'{visible(str(path)[:200])}'"


def _is_same(path: Path, other: Path) -> bool:
    """Whether two paths are those of one file, by whatever links."""
    try:
        return path.resolve() == other.resolve() or (other.exists() and path.exists() and path.samefile(other))
    except (OSError, ValueError, RuntimeError):
        return False


def _replace(path: Path, beside: Path, parts: Iterable[bytes]) -> None:
    if _is_device(path):
        with path.open("wb") as device:
            device.writelines(parts)
        return
    try:
        with beside.open("wb") as file:
            file.writelines(parts)
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
