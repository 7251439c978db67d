"""Writing answers: files that are never lost, standard output, and JSON as text with keys in order."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO, TypeVar

from shardplan.base.errors import InputError, visible
from shardplan.base.files import was_read

LINE: Final = 110
ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
UNSHOWN: Final = re.compile("[\\x7f-\\x9f\\u2028\\u2029\\ud800-\\udfff]")
"""Control characters and what UTF-8 does not have, which are written as escapes."""
NOT_ASCII: Final = re.compile("[^\\x00-\\x7f]")


def json_text(value: Any, indent: int = 0) -> str:
    """JSON with everything that fits on one line on one line, so that long lists of numbers stay short."""
    quick = _on_one_line(value, LINE - indent) or _one_a_line(value, indent)
    if quick is not None:
        return quick
    if isinstance(value, dict):
        keys = [_key(str(key)) for key in value]
        return _joined("{", keys, [json_text(part, indent + 2) for part in value.values()], "}", indent)
    if not isinstance(value, list | tuple):
        return UNSHOWN.sub(lambda found: f"\\u{ord(found[0]):04x}", ENCODER.encode(value))
    if value and all(isinstance(part, int | float) for part in value):
        inner = " " * (indent + 2)
        lines = textwrap.fill(
            ENCODER.encode(value)[1:-1], LINE, initial_indent=inner, subsequent_indent=inner,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
        return f"[\n{lines}\n{' ' * indent}]"
    return _joined("[", [""] * len(value), [json_text(part, indent + 2) for part in value], "]", indent)


@lru_cache(maxsize=4096)
def _key(name: str) -> str:
    return f"{json.dumps(name)}: "


def _one_a_line(value: Any, indent: int) -> str | None:
    """An object of plain values, each on its own line, written in C code; None for anything else."""
    if not isinstance(value, dict) or any(isinstance(part, CONTAINERS) for part in value.values()):
        return None
    text = _encoder_of_lines(indent + 2).encode(value)
    return f"{{\n{' ' * (indent + 2)}{text[1:-1]}\n{' ' * indent}}}" if _is_plain(text) else None


@cache
def _encoder_of_lines(indent: int) -> json.JSONEncoder:
    return json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(f",\n{' ' * indent}", ": "))


def _is_plain(text: str) -> bool:
    """Whether none of it needs escapes."""
    return text.isascii() and "\x7f" not in text


def _on_one_line(value: Any, room: int) -> str | None:
    """A value that fits on one line, written in C code; None if it does not, or if it needs escapes."""
    is_container = isinstance(value, CONTAINERS)
    if is_container and _least_length(value) > room:
        return None
    text = ENCODER.encode(value)
    return text if (len(text) <= room or not is_container) and _is_plain(text) else None


CONTAINERS: Final = (dict, list, tuple)


def _least_length(value: Any) -> int:
    """Least characters of a container, by the number of its parts and of theirs."""
    parts = value.values() if isinstance(value, dict) else value
    return 3 * len(value) + 3 * sum(len(part) - 1 for part in parts if isinstance(part, CONTAINERS))


def in_ascii(text: str) -> str:
    """A JSON text with escapes for everything that is not ASCII, for consoles of another encoding."""
    return NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], text)


def _joined(start: str, keys: Sequence[str], parts: Sequence[str], end: str, indent: int) -> str:
    """An object or a list, on one line if that fits and no part needs more."""
    items = [key + part for key, part in zip(keys, parts, strict=True)]
    if sum(map(len, items)) + 2 * max(len(items), 1) + indent <= LINE and not any("\n" in part for part in parts):
        return f"{start}{', '.join(items)}{end}"
    inner, separator = " " * (indent + 2), ",\n"
    return f"{start}\n{separator.join(inner + item for item in items)}\n{' ' * indent}{end}"


T = TypeVar("T")

HEAD: Final = 4096
"""Number of bytes at the start of a file by which it is recognised."""


class OwnFile(NamedTuple):
    """A kind of file that shardplan writes, and how one is recognised."""

    name: str
    """Its name in errors."""
    mark: re.Pattern[bytes] | None
    """Pattern in its first bytes; None if its first line must be that of the new content."""


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
    """A file or ``-``; with None, nothing is written."""

    def __init__(
        self,
        where: str | None,
        flag: str = "--json",
        *,
        kind: OwnFile = JSON,
        is_forced: bool = False,
        forced_by: str = "--force",
    ) -> None:
        """Where to write; ``flag`` is the flag that gave it, for errors.

        ``is_forced`` replaces a file of another kind, which a user asks for with ``forced_by``.
        """
        self.where, self.flag, self.kind, self.is_forced = where, flag, kind, is_forced
        self.forced_by = forced_by

    @property
    def is_stdout(self) -> bool:
        """Whether the JSON replaces the text."""
        return self.where == "-"

    @property
    def path(self) -> Path | None:
        """The file; None for standard output and if nothing is written."""
        return None if self.where is None or self.is_stdout else Path(self.where)

    def check(self, *reads: str | Path | None, other: JsonTarget | None = None) -> None:
        """Checks early whether the file can be written. Raises InputError.

        ``reads`` are files or folders that the command reads; ``other`` is a target of the same command. Neither is
        overwritten.
        """
        if self.where == "":
            raise self._unwritable(self.where, "it is empty")
        path = self.path
        if path is None or self._attempt(lambda: _is_device(path)):
            return
        read = [Path(name) for name in reads if name is not None]
        written = [other.path] if other is not None and other.path is not None else []
        if any(_is_same(path, each) for each in (*read, *(each / "config.json" for each in read), *written)):
            raise self._already_exists(path)
        beside = self._temporary_file(path)
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
            raise self._already_exists(path)
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
                f"{self.flag} is {_shown_name(path)}, which exists and is not {self.kind.name}",
                rule="no file is written over that shardplan did not write",
                hint=f"give {self.flag} another file, or add {self.forced_by} to replace this one",
            )

    def _already_exists(self, path: Path) -> InputError:
        return InputError(
            f"{self.flag} is {_shown_name(path)}, which this command reads or writes already",
            rule="no file is written over that the command reads, or writes for another flag",
            hint=f"give {self.flag} a file of its own",
        )

    def write(self, record: Mapping[str, Any]) -> None:
        """Writes ``record``; the file holds its old content or all of the new one. Raises InputError."""
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
            self._attempt(lambda: _replace(path, self._temporary_file(path), (content,)))

    def write_parts(self, parts: Iterable[str]) -> None:
        """Writes a long text part by part; the file holds its old content or all of the new one. Raises InputError."""
        if self.is_stdout:
            sys.stdout.writelines(parts)
            sys.stdout.flush()
        elif self.path is not None:
            path = self.path
            self.check_content(b"")
            self._attempt(lambda: _replace(path, self._temporary_file(path), (part.encode("utf-8") for part in parts)))

    def _temporary_file(self, path: Path) -> Path:
        """A temporary file for the text until it is complete."""
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
            f"cannot write {_shown_name(path)}: {why}",
            rule=f"the file of {self.flag} can be written",
            hint=f"give {self.flag} a file in a folder that exists and can be written{or_stdout}",
        )


def check_one_on_stdout(targets: Iterable[JsonTarget]) -> None:
    """Raises InputError if two targets of a command are standard output."""
    to_stdout = [each.flag for each in targets if each.is_stdout]
    if len(to_stdout) > 1:
        raise InputError(
            f"{' and '.join(to_stdout)} are both -",
            rule="standard output takes one answer",
            hint=f"give {to_stdout[-1]} a file",
        )


def check_together(targets: Sequence[JsonTarget], reads: Sequence[str | Path | None]) -> None:
    """Checks early whether all files of a command can be written and are distinct. Raises InputError."""
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


def _shown_name(path: object) -> str:
    return f"'{visible(str(path)[:200])}'"


def _is_same(path: Path, other: Path) -> bool:
    """Whether two paths are the same file, through any links."""
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
