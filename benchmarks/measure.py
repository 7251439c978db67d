"""What the benchmarks share: facts of the machine, repeated timing, tables and records.

It imports nothing beyond the standard library, so that a process which measures others stays small.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = ["Record", "Timing", "machine", "parser", "print_table", "table", "timed", "write_record"]

Record = dict[str, Any]
"""What a benchmark measured, as it is written to a file."""

CPU_INFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Repeated runs of one thing."""

    wall_s: tuple[float, ...]
    cpu_s: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """Middle of the wall times. [s]"""
        return statistics.median(self.wall_s)

    @property
    def median_cpu_s(self) -> float:
        """Middle of the processor times, which other work on the machine disturbs less. [s]"""
        return statistics.median(self.cpu_s)


def timed(work: Callable[[], object], *, runs: int, warm_up: int = 1) -> Timing:
    """Times ``work`` in this process, after runs that are not counted."""
    for _ in range(warm_up):
        work()
    wall, cpu = [], []
    for _ in range(runs):
        started, started_cpu = time.perf_counter(), time.process_time()
        work()
        wall.append(time.perf_counter() - started)
        cpu.append(time.process_time() - started_cpu)
    return Timing(wall_s=tuple(wall), cpu_s=tuple(cpu))


def machine() -> dict[str, str]:
    """What the figures depend on, and nothing that tells one machine of a kind from another."""
    return {
        "processor": _processor(),
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": metadata.version("numpy"),
        "shardplan": metadata.version("shardplan"),
    }


def _processor() -> str:
    """Model of the processor; where the name is short, its family and model number too."""
    if not CPU_INFO.exists():
        return platform.processor() or platform.machine()
    lines = (line.partition(":") for line in CPU_INFO.read_text(encoding="utf-8").splitlines())
    facts: dict[str, str] = {}
    for key, _, value in lines:
        facts.setdefault(key.strip(), value.strip())
    name = facts.get("model name", platform.machine())
    if "cpu family" not in facts:
        return name
    return (
        f"{name} (family {facts['cpu family']}, model {facts.get('model', '?')}, {facts.get('cache size', '?')} cache)"
    )


def parser(description: str, *, runs: int) -> argparse.ArgumentParser:
    """Flags that every benchmark has."""
    flags = argparse.ArgumentParser(description=description)
    flags.add_argument("--runs", type=int, default=runs, help=f"timed runs of everything (default: {runs})")
    flags.add_argument("--tiny", action="store_true", help="as little as shows that the benchmark runs; means nothing")
    flags.add_argument("--json", type=Path, metavar="PATH", help="write the record here")
    return flags


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table that reads well as text too: the first column to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join(_line(cells, widths) for cells in (header, rule, *rows))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = cells
    padded = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
    return f"| {' | '.join(padded)} |"


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints ``table``."""
    print(table(header, rows))


def write_record(path: Path | None, benchmark: str, **content: Any) -> None:
    """Writes the record of a benchmark, if a path is given."""
    if path is not None:
        record: Record = {"benchmark": benchmark, "machine": machine(), **content}
        path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
