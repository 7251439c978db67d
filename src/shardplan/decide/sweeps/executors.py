"""Who asks the questions: this process, other processes, a Dask cluster, or an executor that is handed in.

A worker answers one chunk of questions as rows.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from itertools import groupby
from typing import Any, Final

from shardplan.base.errors import InputError, ShardplanError, shown
from shardplan.decide.sweeps.grid import TOGETHER, PutPoint, SweepGrid, put
from shardplan.decide.sweeps.rows import FAILED, Row, answered_row, asked_row, failed_row
from shardplan.inputs.job import Job
from shardplan.planner.layouts import KnownPipelines
from shardplan.planner.related.alike import best_of_alike, estimates_of

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


KNOWN = KnownPipelines()
"""Pipelines of the models that this worker has been asked about lately."""


def rows_of(grid: SweepGrid, numbers: Sequence[int]) -> list[Row]:
    """A row for each of these questions, in their order. A question without an answer is a row with its reason."""
    points = [(number, grid.point(number)) for number in numbers]
    rows: list[Row] = []
    for _, group in groupby(points, key=lambda each: _apart(each[1])):
        rows += _answered(grid, [*group])
    return rows


def _apart(point: dict[str, Any]) -> list[tuple[str, Any]]:
    """The values that questions have in common which are answered together."""
    return [(name, value) for name, value in point.items() if name not in TOGETHER]


def _answered(grid: SweepGrid, points: Sequence[tuple[int, dict[str, Any]]]) -> Iterator[Row]:
    """Rows of questions that differ in memory and rates alone, which are answered together."""
    rows = {number: asked_row(grid, number, point) for number, point in points}
    puts: dict[int, PutPoint] = {}
    for number, point in points:
        try:
            puts[number] = put(point)
        except Exception as error:  # noqa: BLE001  # one question must not end a sweep
            rows[number] |= _failed(error)
    by_job: dict[Job, list[int]] = {}  # peaks of other number formats can change the usual precision
    for number, each in puts.items():
        by_job.setdefault(each.question.job, []).append(number)
    for numbers in by_job.values():
        for number, answer in zip(numbers, _answers([puts[each] for each in numbers]), strict=True):
            rows[number] |= answer
    return iter(rows.values())


def _answers(puts: Sequence[PutPoint]) -> Iterable[Row]:
    if not puts:
        return ()
    first, questions = puts[0], [each.question for each in puts]
    wanted = first.is_recommended
    try:
        found = best_of_alike(
            questions, restrictions=first.restrictions, stack=first.stack, known=KNOWN, to_take=wanted
        )
        plans = [each.to_take if wanted else each.fastest for each in found]
        answers = estimates_of(questions, plans, first.stack)
    except Exception as error:  # noqa: BLE001  # as above
        return [_failed(error)] * len(puts)
    pairs = zip(puts, answers, found, strict=True)
    return [answered_row(each, answer, known.num_plans) for each, answer, known in pairs]


def _failed(error: Exception) -> Row:
    if isinstance(error, ShardplanError):
        return failed_row("refused", f"{error.message} ({error.hint})" if error.hint else error.message)
    return failed_row(FAILED, f"{type(error).__name__}: {error}"[:500])
