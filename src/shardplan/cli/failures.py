"""How commands end without an answer: one line on standard error, a record on standard output, and the exit status."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Final

from shardplan.base.errors import InputError, ShardplanError, shortened, visible
from shardplan.base.outputs import JsonTarget, wants_json

WRONG_INPUT: Final = 2
DEFECT: Final = 70
"""EX_SOFTWARE of sysexits.h: a defect of shardplan."""
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141
"""The status that a shell reports for a program whose pipe was closed."""
DEBUG: Final = "SHARDPLAN_DEBUG"
"""Environment variable that asks for the traceback of a defect."""
LONGEST: Final = 300


def refuse(error: ShardplanError, arguments: Sequence[str]) -> int:
    """Prints the error on standard error, and on standard output if that takes the JSON. No file is touched."""
    if wants_json(arguments):
        with contextlib.suppress(ShardplanError, OSError, ValueError):
            JsonTarget("-").write(error.to_record())
    hint = error.hint.removeprefix(_shared_start(error)).strip()
    _print_error(f"shardplan: {error.message}", *([f"hint: {hint}"] if hint else []))
    return WRONG_INPUT


def interrupted() -> int:
    """Reports that the user has ended the command."""
    _print_error("shardplan: interrupted")
    return INTERRUPTED


class ClosedStream(io.TextIOBase):
    """Standard output that was closed before the program began (Python has None in its place)."""

    encoding = "utf-8"

    def write(self, _text: str, /) -> int:
        """Fails, as writing to a closed file does."""
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def is_of_output(error: Exception) -> bool:
    """Whether standard output could not be written."""
    if not isinstance(error, OSError):
        return False
    try:
        sys.stdout.write("")
        sys.stdout.flush()
    except OSError:
        return True
    return False


def of_file(error: OSError) -> InputError:
    """An unexpected error of the system about a file."""
    name = visible(os.fsdecode(error.filename)[:LONGEST]) if isinstance(error.filename, str | bytes) else "a file"
    return InputError(
        f"cannot use '{name}': {error.strerror}",
        rule="files can be read and written",
        hint="check the path, its rights and the space that is left",
    )


def unwritable(error: Exception) -> int:
    """Reports that standard output is closed or full, so the answer is lost."""
    why = (error.strerror if isinstance(error, OSError) else None) or str(error)
    _silence()
    return refuse(
        InputError(f"cannot write to standard output: {why}", rule="standard output can be written"), arguments=()
    )


def defect(error: BaseException) -> int:
    """Prints what to report; ``SHARDPLAN_DEBUG=1`` shows where it happened."""
    if os.environ.get(DEBUG, "0") not in ("", "0"):
        _print_error("".join(traceback.format_exception(error)).rstrip())
    what = visible(" ".join(f"{type(error).__name__}: {shortened(str(error), LONGEST)}".split()))
    _print_error(f"shardplan: defect: {what} (please report it with the command; {DEBUG}=1 shows where)")
    return DEFECT


def abandon_output() -> int:
    """Ends silently, since the reader of standard output has gone."""
    _silence()
    return BROKEN_PIPE


def _silence() -> None:
    """Stops all writing to standard output, even when Python flushes on exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_error(*lines: str) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write("\n".join(lines) + "\n")
        sys.stderr.flush()


def _shared_start(error: ShardplanError) -> str:
    """The guess that message and hint of an unknown name have in common."""
    guess = error.message.partition("did you mean ")[2]
    return f"did you mean {guess}" if guess else ""
