"""Files of measured steps: two real ones from published figures, and some made of simulated steps."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from shardplan.simulation.step import SimulatedStep

ITERATIONS = Path(__file__).parent / "primus_iterations.csv"
KINDS = ("F", "B", "W", "BW")


def dump_of(schedule: str) -> dict[int, dict[str, Any]]:
    """The measured iteration of every rank, with the keys of Primus."""
    with ITERATIONS.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    ranks: dict[int, dict[str, Any]] = {}
    for row in rows:
        if row["schedule"] == schedule:
            rank = ranks.setdefault(int(row["rank"]), {})
            rank |= {"total": float(row["total_ms"]), "memory": float(row["memory_gib"])}
            for edge in ("start", "end"):
                rank[f"{row['kind']}_{edge}"] = [float(cell) for cell in row[f"{edge}_ms"].split()]
    return ranks


def write_dump(folder: Path, ranks: Mapping[int, Any], *, vp: int = 1, num_microbatches: int = 16) -> list[Path]:
    """As Primus writes it, with the iteration as number 11 behind a first one that took longer."""
    config = {"pp_size": len(ranks), "vp_size": vp, "num_mbs": num_microbatches}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    paths = []
    for rank, iteration in ranks.items():
        paths.append(folder / f"pp_rank_{rank}.json")
        paths[-1].write_text(json.dumps({"1": iteration, "11": iteration}), encoding="utf-8")
    return paths


def write_table(path: Path, rows: Iterable[tuple[object, ...]], *, step: bool = False) -> Path:
    """Rows of rank, kind, chunk, micro-batch, start and end."""
    names = ("rank", "kind", "chunk", "microbatch", "start_s", "end_s", *(("step",) if step else ()))
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([names, *rows])
    return path


def rows_of(step: SimulatedStep, shifts: Mapping[int, float] | None = None) -> list[tuple[object, ...]]:
    """The passes of a simulated step; ``shifts``: seconds by which the clocks of ranks are wrong."""
    pieces, by = step.pieces, shifts or {}
    return [
        (rank, KINDS[kind], chunk, microbatch, start + by.get(rank, 0.0), end + by.get(rank, 0.0))
        for rank, kind, chunk, microbatch, start, end in zip(
            *(column.tolist() for column in (pieces.rank, pieces.kind, pieces.chunk, pieces.microbatch)),
            step.start.tolist(),
            step.end.tolist(),
            strict=True,
        )
    ]


def kernel(name: str, start: float, duration: float, stream: int = 7, **args: object) -> dict[str, object]:
    """An event of the profiler. Microseconds."""
    return {
        "ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": start, "dur": duration,
        "args": {"device": 0, "stream": stream, **args},
    }  # fmt: skip


def annotation(name: str, start: float, duration: float, *, on_device: bool = True) -> dict[str, object]:
    category = "gpu_user_annotation" if on_device else "user_annotation"
    return {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 7, "ts": start, "dur": duration}


def trace(events: Iterable[dict[str, object]], rank: int = 0, world_size: int = 8) -> str:
    """A file of the profiler."""
    return json.dumps(
        {
            "schemaVersion": 1,
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world_size},
            "traceEvents": [*events, {"ph": "i", "name": "Iteration Start", "ts": 1}],
            "traceName": "trace.json",
        }
    )
