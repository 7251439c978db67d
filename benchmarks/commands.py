"""Whole processes of the command line: wall time and peak memory, as a user's shell sees them.

Every round runs the baseline, a Python process that imports NumPy and ends, and then each command, so that other work
on the machine falls on all of them alike. Peak memory is the largest resident set that the system reports for the
process. Commands run in the folder of the repository, where the examples are.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import sysconfig
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from measure import Record, parser, table, write_record

ROOT = Path(__file__).parent.parent
BASELINE = 'python -c "import numpy"'
COMMANDS = (
    "--help",
    "models",
    "clusters dgx-h100",
    "audit examples/launch.sh --cluster dgx-h100 --gpus 512",
    "estimate llama-3.1-70b --cluster dgx-h100 --gpus 64 --tp 4 --pp 4 --vp 5",
    "plan llama-3.1-70b --cluster dgx-h100 --gpus 512",
    "plan llama-3.1-405b --cluster dgx-h100 --gpus 16384",
    "plan llama-3.1-405b --cluster dgx-h100 --gpus 16384 --json -",
    "plan deepseek-v3 --cluster dgx-h100 --gpus 2048 --global-batch-size 15360 --sequence-length 4096 --precision fp8",
    "plan qwen3-30b-a3b --cluster dgx-h100 --gpus 3072",
    "plan llama-3.1-405b --cluster dgx-h100 --gpus 64",
)
"""The last one has no plan that fits, so that suggestions are searched too."""
TINY = ("--help", "plan llama-3.2-1b --cluster dgx-h100 --gpus 8")

ANSWERS = (0, 1)
"""Exit statuses of an answer: yes or no."""
RESIDENT_UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes in which the system counts the largest resident set."""


@dataclass(frozen=True)
class Run:
    """One process."""

    wall_s: float
    cpu_s: float
    peak_memory_bytes: int


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What was measured for one command."""

    command: str
    wall_s: float
    """Middle of the runs, as the next two."""
    cpu_s: float
    baseline_ratio: float
    """Wall time over that of the baseline."""
    peak_memory_bytes: int
    """Largest of the runs."""


def main() -> None:
    """Measures, prints the table and writes the record."""
    flags = parser(__doc__ or "", runs=15).parse_args()
    shardplan = Path(sysconfig.get_path("scripts")) / "shardplan"
    argv = {BASELINE: [sys.executable, "-c", "import numpy"]}
    argv |= {f"shardplan {line}": [str(shardplan), *line.split()] for line in (TINY if flags.tiny else COMMANDS)}
    results: dict[str, list[Run]] = {name: [] for name in argv}
    with contextlib.chdir(ROOT):
        for number in range(flags.runs + 1):
            for name, words in argv.items():
                run = run_process(words)
                if number:  # the first round fills the caches of the file system
                    results[name].append(run)
    summaries = [_summary(name, runs, results[BASELINE]) for name, runs in results.items()]
    record: Record = {"runs": flags.runs, "commands": [asdict(each) for each in summaries]}
    print(report(record))
    write_record(flags.json, "commands", **record)


def report(record: Record) -> str:
    """The record as a table."""
    header = ("command", "wall s", "CPU s", "of baseline", "peak MB")
    return table(header, [_row(Summary(**each)) for each in record["commands"]])


def run_process(words: list[str]) -> Run:
    """Runs a command to its end, its output thrown away. Raises ``RuntimeError`` where it gives no answer."""
    output = os.open(os.devnull, os.O_WRONLY)
    try:
        streams = [(os.POSIX_SPAWN_DUP2, output, 1), (os.POSIX_SPAWN_DUP2, output, 2)]
        started = time.perf_counter()
        pid = os.posix_spawn(words[0], words, os.environ, file_actions=streams)
        _, status, usage = os.wait4(pid, 0)
        wall = time.perf_counter() - started
    finally:
        os.close(output)
    if os.waitstatus_to_exitcode(status) not in ANSWERS:
        message = f"no answer from {' '.join(words[1:])}"
        raise RuntimeError(message)
    return Run(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * RESIDENT_UNIT)


def _summary(name: str, runs: list[Run], baseline: list[Run]) -> Summary:
    wall = statistics.median(run.wall_s for run in runs)
    return Summary(
        command=name,
        wall_s=wall,
        cpu_s=statistics.median(run.cpu_s for run in runs),
        baseline_ratio=wall / statistics.median(run.wall_s for run in baseline),
        peak_memory_bytes=max(run.peak_memory_bytes for run in runs),
    )


def _row(each: Summary) -> tuple[str, ...]:
    return (
        f"`{each.command}`",
        f"{each.wall_s:.3f}",
        f"{each.cpu_s:.3f}",
        f"{each.baseline_ratio:.1f}",
        f"{each.peak_memory_bytes / 1e6:.0f}",
    )


if __name__ == "__main__":
    main()
