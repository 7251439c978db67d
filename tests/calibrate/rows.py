"""Measured runs written out for tests: cells by column, and the file they make."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from shardplan.calibrate.runs.questions import AskedRun, question_of
from shardplan.calibrate.runs.rows import MeasuredRun, read_runs

PUBLISHED = Path(__file__).parent / "korthikanti.csv"
"""Step times of Korthikanti et al. 2022, arXiv 2205.05198, table 5."""

CELLS: Mapping[str, str] = {
    "id": "run", "family": "own", "framework": "megatron-lm", "model": "llama-3.1-8b", "accelerator": "h100-sxm-80gb",
    "num_accelerators": "16", "precision": "bf16", "sequence_length": "8192", "global_batch_size": "64",
    "micro_batch_size": "1", "tp": "2", "pp": "1", "step_time_s": "5", "options": "",
}  # fmt: skip
"""A run of Llama 3.1 8B on two nodes."""


def write(folder: Path, *rows: Mapping[str, str], name: str = "runs.csv") -> Path:
    """A file with these rows, columns in the order in which they first appear."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    path = folder / name
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)
    return path


def run(folder: Path, **cells: str) -> MeasuredRun:
    """One run with some cells of ``CELLS`` changed."""
    return read_runs(write(folder, {**CELLS, **cells}))[0]


def asked(folder: Path, **cells: str) -> AskedRun:
    """The question of that run."""
    return question_of(run(folder, **cells))
