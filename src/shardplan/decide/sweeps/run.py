"""A sweep from start to end: chunks are sent to an executor, and the returned rows are stored.

The work runs in this process, in worker processes, on a Dask cluster, or on a given executor.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

from shardplan.base.errors import InputError, shown
from shardplan.decide.sweeps.folder import SweepFolder, check_free, check_inputs, locked, new_folder, open_folder
from shardplan.decide.sweeps.grid import SweepGrid, check_names, grid_of, read_grid
from shardplan.decide.sweeps.rows import FAILED, Row, asked_row, failed_row, polars, rows_of

PATIENCE: Final = 5
"""Time after which a scheduler that does not answer counts as missing. [s]"""


class InProcess(Executor):
    """An executor that runs each piece of work when it is submitted, in this process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """The finished work."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001  # the future passes it on
            future.set_exception(error)
        return future


class WorkerProcesses:
    """Worker processes, which are replaced when one dies."""

    def __init__(self, num_workers: int) -> None:
        self.num_workers = num_workers
        self.executor = self._new()

    def replaced(self) -> Executor:
        """New workers in place of broken ones."""
        self.end(now=True)
        self.executor = self._new()
        return self.executor

    def end(self, *, now: bool) -> None:
        """Ends the workers; with ``now``, in the middle of their work."""
        processes = [*(getattr(self.executor, "_processes", None) or {}).values()]
        self.executor.shutdown(wait=not now, cancel_futures=True)
        for process in processes if now else ():
            process.terminate()

    def _new(self) -> ProcessPoolExecutor:
        """An executor whose workers all start at once.

        By default it starts one when work comes. If another dies at that moment, its thread fails on the new one or
        waits for it forever (CPython 3.11 to 3.14), and the interpreter waits for the thread.
        """
        spawned = multiprocessing.get_context("spawn")  # a forked worker would keep the files of the driver open
        executor = ProcessPoolExecutor(self.num_workers, mp_context=spawned, initializer=start_worker)
        for _ in range(self.num_workers):  # none is idle before it has imported the package
            executor.submit(os.getpid)
        return executor


def start_worker() -> None:
    """Ignores Ctrl-C, and makes the worker end with its driver: a killed driver leaves no workers behind."""
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
    """The executor of a Dask scheduler, and the address of its dashboard. Raises InputError if it is not there."""
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


CHUNK: Final = 16
"""Questions of a chunk in a small grid: what a crash loses of each worker."""
MOST_CHUNKS: Final = 10_000
"""Number of chunks above which they grow with the grid."""
SAMPLES: Final = 3
"""Groups of questions that are timed to predict the duration of a sweep."""
FEW: Final = 100
"""Number of questions up to which a sweep begins without predicting its duration."""


class SweepProgress(NamedTuple):
    """The progress of a sweep."""

    num_done: int
    num_questions: int
    num_failed: int
    """Questions of this run that were refused or failed; that nothing fits is an answer."""
    dashboard: str = ""
    """Address of the Dask dashboard."""


OnProgress = Callable[[SweepProgress], None]


def sweep(
    grid: SweepGrid | Mapping[str, Any] | str | os.PathLike[str],
    *,
    out: str | os.PathLike[str],
    executor: Executor | None = None,
    workers: int = 1,
    scheduler: str | None = None,
    resume: bool = False,
    progress: OnProgress | None = None,
) -> Any:
    """Answers every question of a grid and returns the rows as a polars frame, also stored in ``out/results.parquet``.

    ``grid``: fields with their values, ``{"model": ["llama-3.1-8b"], "cluster": ["dgx-h100"], "gpus": [64, 128]}``, or
    the path of a file. The work runs on ``executor`` (any of ``concurrent.futures``), on a Dask ``scheduler``, or in
    ``workers`` processes. ``resume`` continues the sweep in ``out``, and repeats what failed or is damaged.
    Raises InputError; finished rows are kept.
    """
    if not isinstance(grid, SweepGrid):
        grid = grid_of(grid) if isinstance(grid, Mapping) else read_grid(Path(grid))
    path, asked = Path(out), grid
    polars()
    if sum((executor is not None, scheduler is not None, workers > 1)) > 1:
        raise InputError(
            "workers, a scheduler and an executor are given",
            rule="questions go to worker processes, to a scheduler or to an executor",
            hint="keep one of them",
        )
    with ExitStack() as stack:
        cluster, folder = None, open_folder(path, asked) if resume else None
        if folder is not None:
            stack.enter_context(locked(path))
            check_inputs(folder)
            folder.reopen()
        else:
            check_names(asked)
            check_free(path)
        if scheduler is not None and (folder is None or folder.missing()):  # before anything is begun in the folder
            cluster = stack.enter_context(dask_executor(scheduler))
        if folder is None:
            stack.enter_context(locked(path))
            folder = new_folder(path, asked, chunk_size_of(asked))
        if folder.missing():
            _ask(folder, executor=executor, workers=workers, cluster=cluster, progress=progress)
        if not folder.results.exists():
            folder.finish()
        return folder.table()


def chunk_size_of(grid: SweepGrid) -> int:
    """Questions of a chunk: whole groups that are answered together."""
    wanted = max(CHUNK, grid.num_questions // MOST_CHUNKS)
    return grid.group_size * -(-wanted // grid.group_size)


def expected_time(grid: SweepGrid, num_workers: int) -> float:
    """Approximate duration of a sweep, from a few of its questions. [s]"""
    order, size = grid.work_order(), grid.group_size
    num_groups = len(order) // size
    starts = [size * (num_groups * (2 * sample + 1) // (2 * SAMPLES)) for sample in range(SAMPLES)]
    started = time.perf_counter()
    for start in starts:
        rows_of(grid, [int(number) for number in order[start : start + size]])
    return (time.perf_counter() - started) / (SAMPLES * size) * grid.num_questions / num_workers


def _ask(
    folder: SweepFolder,
    *,
    executor: Executor | None,
    workers: int,
    cluster: tuple[Executor, str] | None,
    progress: OnProgress | None,
) -> None:
    """Computes the missing rows. ``cluster`` is the executor of a Dask scheduler, and the address of its dashboard."""
    if cluster is not None:
        Dispatch(folder, progress, dashboard=cluster[1]).run(cluster[0])
    elif executor is not None:
        Dispatch(folder, progress).run(executor)
    elif workers > 1:
        processes, done = WorkerProcesses(workers), False
        try:
            Dispatch(folder, progress, processes=processes).run(processes.executor)
            done = True
        finally:
            processes.end(now=not done)
    else:
        Dispatch(folder, progress).run(InProcess())


class Dispatch:
    """Chunks on their way to workers and back."""

    def __init__(
        self,
        folder: SweepFolder,
        progress: OnProgress | None,
        *,
        processes: WorkerProcesses | None = None,
        dashboard: str = "",
    ) -> None:
        """``processes`` are worker processes that are replaced when one of them dies."""
        self.folder, self.progress, self.processes, self.dashboard = folder, progress, processes, dashboard
        self.order = folder.grid.work_order()
        self.pending = deque(folder.missing())
        self.suspects: deque[int] = deque()
        """Chunks that were running when a worker died: repeated one at a time, so that the guilty one is found."""
        self.tried: set[int] = set()
        self.in_flight: dict[Future[list[Row]], int] = {}
        self.num_done, self.num_failed = folder.num_done, 0

    def run(self, executor: Executor) -> None:
        """Computes every pending chunk. Raises InputError; finished chunks are kept."""
        self._say()
        while self.pending or self.suspects or self.in_flight:
            try:
                self._fill(executor)
                self._collect()
            except BrokenExecutor as error:
                executor = self._replaced(error)
        assert not self.folder.missing()

    def _fill(self, executor: Executor) -> None:
        """Submits chunks until all workers have one and another one is waiting for each."""
        waiting = self.suspects or self.pending
        most = 1 if self.suspects else _window(executor)
        while waiting and len(self.in_flight) < most:
            number = waiting.popleft()
            try:
                future = _submitted(executor, self.folder.grid, self._numbers(number))
            except BrokenExecutor:
                waiting.appendleft(number)
                raise
            self.in_flight[future] = number
            if isinstance(executor, InProcess):
                return

    def _collect(self) -> None:
        """Stores the chunks that have come back, at least one."""
        done, _ = wait(self.in_flight, return_when=FIRST_COMPLETED)
        for future in done:
            self._keep(self.in_flight[future], self._rows(future))
            del self.in_flight[future]

    def _rows(self, future: Future[list[Row]]) -> list[Row]:
        try:
            return future.result()
        except BrokenExecutor:
            raise
        except (Exception, CancelledError) as error:  # noqa: BLE001  # whatever the executor says, the rows are kept
            if type(error).__name__ == "KilledWorker":  # Dask gives up on work that has killed several workers
                return self._given_up(self.in_flight[future])
            raise _stopped(f"{type(error).__name__}: {error}") from None

    def _replaced(self, error: BrokenExecutor) -> Executor:
        """New workers after one died; their chunks are repeated."""
        if self.processes is None:
            raise _stopped(str(error)) from None
        asked, self.in_flight = [*self.in_flight.values()], {}
        if len(asked) == 1 and asked[0] in self.tried:  # it was asked again, alone
            self._keep(asked[0], self._given_up(asked[0]))
        else:
            self.suspects.extend(asked)
            self.tried.update(asked)
        return self.processes.replaced()

    def _given_up(self, chunk: int) -> list[Row]:
        """Rows of a chunk that kills every worker."""
        why = failed_row(FAILED, "the worker process ended while it worked on this chunk: killed, or out of memory")
        grid = self.folder.grid
        return [asked_row(grid, number, grid.point(number)) | why for number in self._numbers(chunk)]

    def _keep(self, chunk: int, rows: list[Row]) -> None:
        self.folder.write_chunk(chunk, rows)
        self.num_done += len(rows)
        self.num_failed += sum(row["outcome"] in ("refused", FAILED) for row in rows)
        self._say()

    def _numbers(self, chunk: int) -> list[int]:
        size = self.folder.chunk_size
        return [int(number) for number in self.order[chunk * size : (chunk + 1) * size]]

    def _say(self) -> None:
        if self.progress is not None:
            total = self.folder.grid.num_questions
            self.progress(SweepProgress(self.num_done, total, self.num_failed, self.dashboard))


def _submitted(executor: Executor, grid: SweepGrid, numbers: list[int]) -> Future[list[Row]]:
    """A submitted chunk. Raises BrokenExecutor, or InputError if a worker process cannot be started."""
    try:
        return executor.submit(rows_of, grid, numbers)
    except OSError as error:
        if getattr(executor, "_broken", False):  # it broke while it started a worker, and has closed its pipes
            raise BrokenExecutor(str(error)) from None
        raise _stopped(f"no worker process can be started: {error}") from None


def _window(executor: Executor) -> int:
    """Number of chunks on their way at a time: two for each worker."""
    ncores = getattr(getattr(executor, "_client", None), "ncores", None)  # of a Dask cluster, which may grow
    workers = sum(ncores().values()) if ncores is not None else getattr(executor, "_max_workers", None)
    return 2 * max(workers or os.cpu_count() or 1, 1)


def _stopped(why: str) -> InputError:
    return InputError(
        f"the executor has stopped: {why[:300]}",
        rule="the workers of a sweep keep running",
        hint="all rows that came back are kept: go on with --resume (resume=True)",
    )
