"""Workers of the commands that can spread their work."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

MOST_WORKERS: Final = 1024


@contextmanager
def workers_of(num_workers: int) -> Iterator[Executor | None]:
    """An executor with this number of workers; None for one, which is the program itself.

    Threads: NumPy lets go of the interpreter while it computes, and nothing need be copied or started anew.
    """
    if num_workers == 1:
        yield None
        return
    with ThreadPoolExecutor(num_workers) as executor:
        yield executor
