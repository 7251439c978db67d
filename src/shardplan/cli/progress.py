"""Progress of a command on standard error, and the worker threads that share its work."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Final

SLOW = 0.5
"""Time after which a command shows its progress. [s]"""


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on standard error, if that is a terminal and the work takes long."""
    with progress_bars(what) as (advance,):
        yield advance


@contextmanager
def progress_bars(*names: str) -> Iterator[tuple[Callable[[int, int], None] | None, ...]]:
    """A bar for each of several pieces of work; those that have not begun are not shown."""
    if not sys.stderr.isatty():
        yield (None,) * len(names)
        return
    from rich.console import Console
    from rich.progress import Progress

    started = time.monotonic()
    with Progress(console=Console(stderr=True), transient=True) as bar:
        tasks = [bar.add_task(name, total=None, visible=False) for name in names]

        def advance(number: int, done: int, total: int) -> None:
            bar.update(tasks[number], completed=done, total=total, visible=time.monotonic() - started > SLOW)

        yield tuple(partial(advance, number) for number in range(len(names)))


@contextmanager
def fit_progress(most: int) -> Iterator[Callable[[int, float], None] | None]:
    """The bar of a fit that takes at most this many iterations."""
    with progress_bar("fitting") as bar:
        if bar is None:
            yield None
            return
        bar(0, most)
        yield lambda iteration, _objective: bar(iteration, most)


MOST_WORKERS: Final = 1024


@contextmanager
def workers_of(num_workers: int) -> Iterator[Executor | None]:
    """An executor with this number of workers; None for one, which is the program itself.

    Workers are threads: NumPy releases the interpreter while it computes, and nothing need be copied or started.
    """
    if num_workers == 1:
        yield None
        return
    with ThreadPoolExecutor(num_workers) as executor:
        yield executor
