"""Measured times of stages, from a CSV with a row for every model chunk."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from shardplan.errors import shown
from shardplan.files import FileKind, csv_rows, printable, read_text
from shardplan.schedules.base import ChunkTimes

RULE: Final = (
    "a file of stage times has the columns forward_s and backward_s, or input_gradient_s and weight_gradient_s"
)
FILE: Final = FileKind("the stage times", 1024 * 1024, RULE)
COLUMNS: Final = ("stage", "forward_s", "backward_s", "input_gradient_s", "weight_gradient_s", "transfer_s")
MOST: Final = 1e9
"""Seconds of one pass."""


def read_stage_times(path: Path, num_chunks: int) -> ChunkTimes:
    """Seconds of one micro-batch in every chunk, rows in the order of the model. Raises InputError.

    ``backward_s`` is both gradients; ``transfer_s`` is 0 where it is left out.
    """
    label = printable(path.name)
    names, *lines = csv_rows(read_text(path, FILE), label, FILE) or [[]]
    rows = [dict(zip(names, line, strict=False)) for line in lines if line]
    given = set(names)
    unknown = sorted(str(name) for name in given - set(COLUMNS))
    if unknown:
        raise FILE.wrong(f"{label} has the column {shown(unknown[0])}", f"use {', '.join(COLUMNS)}")
    if "forward_s" not in given or not given & {"backward_s", "input_gradient_s"}:
        raise FILE.wrong(
            f"{label} lacks forward_s, or the times of the backward pass", "add the columns that are missing"
        )
    if len(rows) != num_chunks:
        raise FILE.wrong(
            f"{label} has {len(rows)} rows for {num_chunks} chunks", "give a row for every chunk of the model"
        )

    def column(name: str) -> list[float]:
        return [_seconds(row.get(name), name, f"{label}, row {number}") for number, row in enumerate(rows, start=2)]

    zero = np.zeros(num_chunks)
    return ChunkTimes(
        forward=np.array(column("forward_s")),
        input_gradient=np.array(column("backward_s" if "backward_s" in given else "input_gradient_s")),
        weight_gradient=np.array(column("weight_gradient_s")) if "weight_gradient_s" in given else zero,
        transfer=np.array(column("transfer_s")) if "transfer_s" in given else zero,
    )


def stage_times_text(times: ChunkTimes) -> str:
    """``times`` as such a file: gradients in one column where no weight gradient has a time of its own."""
    split = bool(np.any(times.weight_gradient))
    gradients = {"input_gradient_s": times.input_gradient, "weight_gradient_s": times.weight_gradient}
    columns = {
        "stage": range(len(times.forward)),
        "forward_s": times.forward,
        **(gradients if split else {"backward_s": times.input_gradient}),
        "transfer_s": times.transfer,
    }
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(
        [stage, *(f"{seconds:.9g}" for seconds in row)] for stage, *row in zip(*columns.values(), strict=True)
    )
    return file.getvalue()


def with_gradients_split(times: ChunkTimes, like: ChunkTimes) -> ChunkTimes:
    """``times``, whose gradients were measured in one piece, split in the proportion that they have in ``like``."""
    whole = like.input_gradient + like.weight_gradient
    share = np.divide(like.weight_gradient, whole, out=np.zeros_like(whole), where=whole > 0)
    return replace(
        times, input_gradient=times.input_gradient * (1 - share), weight_gradient=times.input_gradient * share
    )


def _seconds(text: str | None, name: str, where: str) -> float:
    try:
        seconds = float(text or "")
    except ValueError:
        seconds = float("nan")
    if not 0 <= seconds <= MOST:
        raise FILE.wrong(f"{where}: {name} is {shown(text)}", f"give seconds between 0 and {MOST:g}")
    return seconds
