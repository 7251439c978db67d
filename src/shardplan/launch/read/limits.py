"""Bounds on what is read, so that no file takes long or much memory, whatever it holds."""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time
from typing import Final, NoReturn, TypeVar

from shardplan.errors import InputError, shortened
from shardplan.files import FileKind, printable

T = TypeVar("T")
MOST_BYTES: Final = 512 * 1024
"""Of the commands of a script with all that it sources, and of what is not comments in TOML or INI, whose readers take
2 s for it. The longest of 147 public launch files has 40 kB."""
MOST_OF_FILE: Final = 10 * 1024 * 1024
"""Of any file, with all that makes it long."""
MOST_LINES: Final = 500_000
"""Of any file: readers take time for each, empty or not."""
MOST_OF_HERE: Final = 64 * 1024
"""Characters of a here-document that is read, in a script of more than :data:`MOST_BYTES`."""
MOST_PARSING: Final = 2.0
"""Processor time of the parser of shell scripts in one evaluation. [s]"""
MOST_STEPS: Final = 50_000
"""Statements, words and copies of variables of one evaluation."""
MOST_TEXT: Final = 4 * 1024 * 1024
"""Characters that expansions produce in one evaluation."""
MOST_DEPTH: Final = 40
"""Of nested expansions, functions, sourced files and evaluated texts."""
MOST_ITERATIONS: Final = 1000
"""Of one loop."""
MOST_NODES: Final = 100_000
"""Of a document, with what its aliases repeat."""
MOST_LEVELS: Final = 40
"""Of a nested document or expression."""

LAUNCH_FILE: Final = FileKind(
    "the launch file",
    MOST_BYTES,
    "a launch file is a short text file that can be read",
    "give the script or configuration itself",
)
LONG_FILE: Final = LAUNCH_FILE._replace(most_bytes=MOST_OF_FILE)
"""A file that is looked through before it is parsed."""


class Budget:
    """Steps and characters that an evaluation may still use."""

    def __init__(self, file: str, most_bytes: int = MOST_BYTES) -> None:
        self.file, self.steps, self.text, self.depth = file, MOST_STEPS, MOST_TEXT, 0
        self.bytes = self._most_bytes = most_bytes
        self._parsing = MOST_PARSING

    def spend(self, steps: int = 1) -> None:
        """Counts ``steps``. Raises ``InputError`` when none are left."""
        self.steps -= steps
        if self.steps < 0:
            refuse(self.file, f"takes more than {MOST_STEPS:,} steps to evaluate", "a launch script is short")

    def write(self, characters: int) -> None:
        """Counts characters that an expansion produces. Raises ``InputError`` when none are left."""
        self.text -= characters
        if self.text < 0:
            refuse(self.file, f"expands to more than {MOST_TEXT:,} characters", "a launch script is short")

    def read(self, characters: int) -> None:
        """Counts the size of a file that is read. Raises ``InputError`` when too much is read."""
        self.bytes -= characters
        if self.bytes < 0:
            refuse(
                self.file,
                f"reads more than {self._most_bytes:,} bytes with the files that it includes",
                "launch files are short",
            )

    def timed(self, parse: Callable[[float], T | None]) -> T:
        """What ``parse`` gives in the time that is left. [s] Raises ``InputError`` where it gives None."""
        start = thread_time()
        found = parse(self._parsing)
        self._parsing -= thread_time() - start
        if found is None:
            why = (
                f"takes more than {MOST_PARSING:g} s to parse: it may not be a shell script, or brackets are not closed"
            )
            refuse(self.file, why, "the file is well formed")
        return found

    def enter(self) -> None:
        """Goes one level deeper. Raises ``InputError`` where that is too deep."""
        self.depth += 1
        if self.depth > MOST_DEPTH:
            refuse(self.file, f"is nested deeper than {MOST_DEPTH} levels", "a launch script is shallow")

    def leave(self) -> None:
        """Comes back up."""
        self.depth -= 1


def check_length(text: str, file: str) -> None:
    """Raises ``InputError`` for a text that is too long to be looked through."""
    if len(text) > MOST_OF_FILE:
        refuse(file, f"has more than {MOST_OF_FILE:,} characters", LAUNCH_FILE.rule)
    if text.count("\n") > MOST_LINES:
        refuse(file, f"has more than {MOST_LINES:,} lines", LAUNCH_FILE.rule)


def whole_characters(text: str) -> str:
    """``text`` with a question mark for halves of characters, which no text in UTF-8 has."""
    return text if text.isascii() else text.encode("utf-8", errors="replace").decode()


def refuse(file: str, why: str, rule: str, hint: str = "") -> NoReturn:
    """Raises ``InputError`` about a file."""
    raise InputError(f"{printable(file)} {shortened(why, 300)}", rule=rule, hint=hint or f"correct {printable(file)}")
