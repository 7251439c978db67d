"""Who asks the questions: this process, other processes, a Dask cluster, or an executor that is handed in."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

from shardplan.errors import InputError, shown

PATIENCE: Final = 5
"""Seconds after which a scheduler that does not answer is not there."""


class InProcess(Executor):
    """Runs each piece of work when it is submitted, in this process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """The finished work."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001  # a future hands it on
            future.set_exception(error)
        return future


class WorkerProcesses:
    """Worker processes, which are replaced when one dies."""

    def __init__(self, num_workers: int) -> None:
        self.num_workers = num_workers
        self.executor = self._new()

    def replaced(self) -> Executor:
        """New workers in place of those that broke."""
        self.end(now=True)
        self.executor = self._new()
        return self.executor

    def end(self, *, now: bool) -> None:
        """Ends the workers; ``now``: in the middle of their work."""
        processes = [*(getattr(self.executor, "_processes", None) or {}).values()]
        self.executor.shutdown(wait=not now, cancel_futures=True)
        for process in processes if now else ():
            process.terminate()

    def _new(self) -> ProcessPoolExecutor:
        """An executor whose workers all start at once.

        Left to itself it starts one when work comes. If another dies at that moment, its thread trips over the
        new one or waits for it for ever (CPython 3.11 to 3.14), and the interpreter waits for the thread.
        """
        spawned = multiprocessing.get_context("spawn")  # a forked worker would hold the files of the driver open
        executor = ProcessPoolExecutor(self.num_workers, mp_context=spawned, initializer=start_worker)
        for _ in range(self.num_workers):  # none is idle before it has imported the package
            executor.submit(os.getpid)
        return executor


def start_worker() -> None:
    """Leaves Ctrl-C to the driver, and ends with it: a driver that was killed leaves no workers behind."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def dask_executor(address: str) -> Iterator[tuple[Executor, str]]:
    """The executor of a Dask scheduler, and the address of its dashboard. Raises InputError where it is not there."""
    try:
        distributed = import_module("distributed")
    except ImportError:
        raise InputError(
            "distributed is not installed, which talks to a Dask scheduler",
            rule="--scheduler needs the extra 'cluster'",
            hint="pip install 'shardplan[cluster]'",
        ) from None
    try:
        client = distributed.Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError, TimeoutError, TypeError) as error:
        raise InputError(
            f"no Dask scheduler answers at {shown(address)}: {str(error).partition(chr(10))[0][:200]}",
            rule="--scheduler is the address of a scheduler that runs",
            hint="start one with `dask scheduler`, and give its address: tcp://host:8786",
        ) from None
    try:
        yield client.get_executor(pure=False, retries=2), str(client.dashboard_link)
    finally:
        client.close(timeout=PATIENCE)
