"""One sweep at a time writes into a folder: a lock that names its process and host."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from shardplan.errors import InputError
from shardplan.files import FileKind, read_text

LOCK: Final = "sweep.lock"
LOCK_FILE: Final = FileKind("the lock", 4096, "a lock names a process and a host")


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the folder's lock. Raises InputError where another sweep holds it.

    The operating system frees the lock of a process that was killed, so that the file it leaves does not stop the
    next sweep on the same host. A file that another host left does: whether that sweep still runs cannot be seen here.
    """
    path, me = folder / LOCK, f"process {os.getpid()} on {socket.gethostname()}"
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        holder = _holder(path)
        if not _taken(file) or not _is_here(holder):
            raise _held(path, holder)
        os.ftruncate(file, 0)
        os.write(file, f"{me}\n".encode())
        try:
            yield
        finally:
            os.ftruncate(file, 0)  # the file stays: one that is removed could be locked by two
    finally:
        os.close(file)


def holder_of(folder: Path) -> str | None:
    """Who writes into the folder now; None where nobody does."""
    path = folder / LOCK
    if not path.exists():
        return None
    with path.open("r+b") as file:
        holder = _holder(path)
        return None if _is_here(holder) and _taken(file.fileno()) else holder


def _taken(file: int) -> bool:
    """Takes the lock of an open file; False where another process has it."""
    try:
        import fcntl
    except ImportError:  # Windows has no such locks: there the file alone is the lock
        return os.fstat(file).st_size == 0
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _holder(path: Path) -> str:
    try:
        return read_text(path, LOCK_FILE).strip()
    except InputError:
        return ""


def _is_here(holder: str) -> bool:
    """Whether a holder, if there is one, is a process of this host."""
    return not holder or holder.endswith(f" on {socket.gethostname()}")


RULE: Final = "one sweep at a time writes into a folder"


def _held(path: Path, holder: str) -> InputError:
    return InputError(
        f"another sweep writes into '{path.parent}': {holder or 'a process that has not said which'}",
        rule=RULE,
        hint=f"wait for it, or give --out another folder; if that process has ended, delete {path.name} there",
    )
