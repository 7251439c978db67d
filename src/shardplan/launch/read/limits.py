"""Bounds on what is read, so that no file takes long or much memory, whatever it holds."""

from __future__ import annotations

from typing import Final, NoReturn

from shardplan.errors import InputError, shortened
from shardplan.files import FileKind, printable

MOST_BYTES: Final = 512 * 1024
"""Of a file, and of a script with all that it sources. The longest of 147 public launch files has 40 kB."""
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


class Budget:
    """Steps and characters that an evaluation may still use."""

    def __init__(self, file: str) -> None:
        self.file, self.steps, self.text, self.bytes, self.depth = file, MOST_STEPS, MOST_TEXT, MOST_BYTES, 0

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
                f"reads more than {MOST_BYTES:,} bytes with the files that it includes",
                "launch files are short",
            )

    def enter(self) -> None:
        """Goes one level deeper. Raises ``InputError`` where that is too deep."""
        self.depth += 1
        if self.depth > MOST_DEPTH:
            refuse(self.file, f"is nested deeper than {MOST_DEPTH} levels", "a launch script is shallow")

    def leave(self) -> None:
        """Comes back up."""
        self.depth -= 1


def whole_characters(text: str) -> str:
    """``text`` with a question mark for halves of characters, which no text in UTF-8 has."""
    return text if text.isascii() else text.encode("utf-8", errors="replace").decode()


def refuse(file: str, why: str, rule: str, hint: str = "") -> NoReturn:
    """Raises ``InputError`` about a file."""
    raise InputError(f"{printable(file)} {shortened(why, 300)}", rule=rule, hint=hint or f"correct {printable(file)}")
