"""Time per question of a sweep: on one core and on two, over a Dask cluster, as the grid grows; and of a plain loop.

The grid is that of five models on twenty systems, with ten bandwidths between nodes, ten capacities and ten numbers of
accelerators: 100,000 questions. Slices of it are asked, whose questions are spread over all axes; ``--whole`` asks all.
"""

from __future__ import annotations

import resource
import tempfile
import time
from argparse import ArgumentParser
from concurrent.futures import Executor
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from measure import Record, parser, table, write_record

from shardplan.decide.sweeps.grid import SweepGrid, grid_of, question_at
from shardplan.decide.sweeps.rows import rows_of
from shardplan.decide.sweeps.run import WorkerProcesses, sweep
from shardplan.planner.search import search_question

WHOLE: dict[str, list[Any]] = {
    "model": ["llama-3.1-8b", "llama-3.1-70b", "qwen3-32b", "mixtral-8x7b", "gpt3-175b"],
    "cluster": [
        *("dgx-a100", "dgx-h100", "hgx-h200", "dgx-b200", "dgx-b300", "gb200-nvl72", "gb300-nvl72", "alps-gh200"),
        *("hgx-mi300x", "hgx-mi355x", "frontier", "aws-trn2", "gaudi2-hls2", "gaudi3-hls3", "aws-p4d", "aws-p5"),
        *("aws-p6-b200", "gcp-a3-mega", "azure-ndm-a100-v4", "perlmutter-gpu"),
    ],
    "inter_node_bandwidth": [12.5, 18.75, 25, 37.5, 50, 75, 100, 150, 200, 400],
    "memory": [40, 64, 80, 96, 128, 144, 192, 216, 256, 288],
    "gpus": [64, 128, 192, 256, 384, 512, 1024, 1536, 2048, 4096],
}
SLICES = {"small": (5, 1, 10, 10, 1), "large": (5, 2, 10, 10, 2)}
"""Values that are taken of each axis: 500 questions, and 2,000."""
NUM_LOOPED = 30
"""Questions of the plain loop, drawn from the large slice."""
WORKERS = 2
TINY = {"model": ["llama-3.2-1b"], "cluster": ["dgx-h100"], "memory": [20, 80], "gpus": [8, 16], "fix.pp": 1}


def main() -> None:
    """Measures, prints the table and writes the record."""
    flags = _flags().parse_args()
    if flags.groups:
        rows = [_looped(grid_of(WHOLE), NUM_LOOPED), _drawn(grid_of(WHOLE), flags.groups)]
    elif flags.whole:
        rows = [_looped(grid_of(WHOLE), NUM_LOOPED), _of_processes("two processes, whole grid", grid_of(WHOLE))]
    else:
        small, large = (grid_of(TINY), grid_of(TINY)) if flags.tiny else map(_slice, SLICES.values())
        rows = [_looped(large, 2 if flags.tiny else NUM_LOOPED)]
        rows.append(_swept("one process, small grid", small, None))
        rows.append(_swept("one process, large grid", large, None))
        if not flags.tiny:
            rows += [_of_processes("two processes, large grid", large), _of_cluster(large)]
    header = ("questions go to", "questions", "seconds", "ms a question", "processor ms", "peak MB of a process")
    print(table(header, [_cells(row) for row in rows]))
    write_record(flags.json, "sweep", ways=rows)


def _flags() -> ArgumentParser:
    flags = parser(__doc__ or "", runs=1)
    flags.add_argument(
        "--groups", type=int, help="ask this number of groups of 100 questions, drawn from the whole grid"
    )
    flags.add_argument("--whole", action="store_true", help="ask all 100,000 questions, on two processes")
    return flags


def _cells(row: Record) -> tuple[str, ...]:
    cpu, peak = row["cpu_s_per_question"], row["peak_bytes"]
    shown = ("" if cpu is None else f"{1e3 * cpu:.1f}", "" if peak is None else f"{peak / 1e6:.0f}")
    each = f"{1e3 * row['seconds_per_question']:.1f}"
    return row["way"], f"{row['questions']:,}", f"{row['seconds']:.1f}", each, *shown


def _slice(sizes: tuple[int, ...]) -> SweepGrid:
    """A grid with some values of each axis, spread over it."""
    axes = zip(WHOLE.items(), sizes, strict=True)
    return grid_of({name: [values[len(values) * n // size] for n in range(size)] for (name, values), size in axes})


def _looped(grid: SweepGrid, number: int) -> Record:
    """A loop over the search, which answers its fastest plan in full, its ties and the recommended plan."""
    numbers = np.random.default_rng(0).permutation(grid.num_questions)[:number]
    asked_questions = [question_at(grid.point(int(each))) for each in numbers]
    started, started_cpu = time.perf_counter(), time.process_time()
    for each in asked_questions:
        search_question(each.question, top=1, stack=each.scope.stack, suggestions=False)
    cpu = time.process_time() - started_cpu
    return _record("a loop over search", number, time.perf_counter() - started, cpu)


def _swept(way: str, grid: SweepGrid, executor: Executor | None) -> Record:
    with tempfile.TemporaryDirectory() as folder:
        started, started_cpu = time.perf_counter(), time.process_time()
        sweep(grid, out=Path(folder) / "results", executor=executor)
        cpu = time.process_time() - started_cpu if executor is None else None
        peak = _peak_bytes(resource.RUSAGE_SELF) if executor is None else None
        return _record(way, grid.num_questions, time.perf_counter() - started, cpu, peak)


def _drawn(grid: SweepGrid, number: int) -> Record:
    """Groups of questions that are answered together, drawn at random from a grid, in this process."""
    order = grid.work_order().reshape(-1, grid.group_size)
    groups = order[np.random.default_rng(0).permutation(len(order))[:number]]
    started, started_cpu = time.perf_counter(), time.process_time()
    for group in groups:
        rows_of(grid, group.tolist())
    cpu, seconds = time.process_time() - started_cpu, time.perf_counter() - started
    way = f"one process, {number:,} of {len(order):,} groups of the whole grid"
    return _record(way, groups.size, seconds, cpu, _peak_bytes(resource.RUSAGE_SELF))


def _of_processes(way: str, grid: SweepGrid) -> Record:
    """Two worker processes, which have started; their processor time, from their start to their end, with the driver's.

    The peak is that of the largest process.
    """
    before, own = resource.getrusage(resource.RUSAGE_CHILDREN), time.process_time()
    workers = WorkerProcesses(WORKERS)
    for future in [workers.executor.submit(time.sleep, 1) for _ in range(2 * WORKERS)]:
        future.result()
    try:
        row = _swept(way, grid, workers.executor)
    finally:
        workers.end(now=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime + time.process_time() - own
    peak = max(_peak_bytes(resource.RUSAGE_SELF), _peak_bytes(resource.RUSAGE_CHILDREN))
    return row | {"cpu_s_per_question": cpu / grid.num_questions, "peak_bytes": peak}


def _peak_bytes(who: int) -> int:
    return 1024 * resource.getrusage(who).ru_maxrss


def _of_cluster(grid: SweepGrid) -> Record:
    distributed: Any = import_module("distributed")

    with (
        distributed.LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        return _swept("Dask, two workers, large grid", grid, client.get_executor(pure=False))


def _record(way: str, questions: int, seconds: float, cpu: float | None, peak: int | None = None) -> Record:
    """``cpu``: processor time, which other work on the machine disturbs less; None where it is not known."""
    each = {"seconds_per_question": seconds / questions, "cpu_s_per_question": None if cpu is None else cpu / questions}
    return {"way": way, "questions": questions, "seconds": seconds, "peak_bytes": peak} | each


if __name__ == "__main__":
    main()
