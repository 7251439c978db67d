"""How commands end that give no answer: on one line of standard error, as a record on standard output, by status."""

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
"""EX_SOFTWARE of sysexits.h: what is wrong is shardplan."""
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141
"""As a shell reports a program that the end of its pipe has stopped."""
DEBUG: Final = "SHARDPLAN_DEBUG"
"""Variable of the environment that asks for the traceback of a defect."""
LONGEST: Final = 300


def refuse(error: ShardplanError, arguments: Sequence[str]) -> int:
    """Says what is wrong on standard error, and on standard output where that takes the JSON. No file is touched."""
    if wants_json(arguments):
        with contextlib.suppress(ShardplanError, OSError, ValueError):
            JsonTarget("-").write(error.to_record())
    hint = error.hint.removeprefix(_shared_start(error)).strip()
    _say(f"shardplan: {error.message}", *([f"hint: {hint}"] if hint else []))
    return WRONG_INPUT


def interrupted() -> int:
    """Says that the user has ended the command."""
    _say("shardplan: interrupted")
    return INTERRUPTED


class ClosedStream(io.TextIOBase):
    """Standard output that was closed before the program began (Python has None in its place)."""

    encoding = "utf-8"

    def write(self, _text: str, /) -> int:
        """Fails, as writing to a closed file does."""
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def is_of_output(error: Exception) -> bool:
    """Whether it was standard output that could not be written."""
    if not isinstance(error, OSError):
        return False
    try:
        sys.stdout.write("")
        sys.stdout.flush()
    except OSError:
        return True
    return False


def of_file(error: OSError) -> InputError:
    """What the system says of a file that nobody expected to be in the way."""
    name = visible(os.fsdecode(error.filename)[:LONGEST]) if isinstance(error.filename, str | bytes) else "a file"
    return InputError(
        f"cannot use '{name}': {error.strerror}",
        rule="files can be read and written",
        hint="check the path, its rights and the space that is left",
    )


def unwritable(error: Exception) -> int:
    """Standard output is closed or full: what was to be said is lost."""
    why = (error.strerror if isinstance(error, OSError) else None) or str(error)
    _silence()
    return refuse(
        InputError(f"cannot write to standard output: {why}", rule="standard output can be written"), arguments=()
    )


def defect(error: BaseException) -> int:
    """Says what to report; ``SHARDPLAN_DEBUG=1`` shows where it happened."""
    if os.environ.get(DEBUG, "0") not in ("", "0"):
        _say("".join(traceback.format_exception(error)).rstrip())
    what = visible(" ".join(f"{type(error).__name__}: {shortened(str(error), LONGEST)}".split()))
    _say(f"shardplan: defect: {what} (please report it with the command; {DEBUG}=1 shows where)")
    return DEFECT


def abandon_output() -> int:
    """The reader of standard output has gone: say nothing more."""
    _silence()
    return BROKEN_PIPE


def _silence() -> None:
    """Writes nothing more to standard output, not even when Python flushes on exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(*lines: str) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write("\n".join(lines) + "\n")
        sys.stderr.flush()


def _shared_start(error: ShardplanError) -> str:
    """The guess that message and hint of an unknown name share."""
    guess = error.message.partition("did you mean ")[2]
    return f"did you mean {guess}" if guess else ""
