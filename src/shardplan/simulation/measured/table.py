"""Passes as a table that anybody can write: a CSV with a row for every pass.

Columns: ``rank``, ``kind`` (F forward pass, B input gradient, W weight gradient, BW both gradients in one piece),
``chunk`` (which of the rank's chunks; 0 where the column is left out), ``microbatch``, ``start_s`` and ``end_s``; and
``step``, where the table has several steps. All numbers count from 0. Lines that begin with # are comments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from shardplan.errors import shown
from shardplan.files import FileKind, csv_rows
from shardplan.simulation.measured.ranks import MOST_PASSES, MOST_RANK, MOST_TIME, MeasuredRank
from shardplan.simulation.pieces import KINDS

SOURCE: Final = "table of passes"
NEEDED: Final = ("rank", "kind", "microbatch", "start_s", "end_s")
OPTIONAL: Final = {"chunk": "0", "step": "0"}
RULE: Final = f"a table of passes has the columns {', '.join(NEEDED)}, and may have {' and '.join(OPTIONAL)}"
FILE: Final = FileKind("the table of passes", 256 * 1024 * 1024, RULE)
COMMENT: Final = "#"
MOST: Final = {"rank": MOST_RANK, "chunk": MOST_RANK, "microbatch": MOST_PASSES, "step": 10**9}

Row = tuple[int, int, int, int, int, float, float]
"""Step, rank, kind, chunk, micro-batch, start and end."""


def is_table(text: str) -> bool:
    """Whether the beginning of a file is that of such a table: its first line that is no comment."""
    header = next((line for line in text.splitlines() if line.strip() and not line.startswith(COMMENT)), "")
    return {"rank", "kind"} <= {name.strip() for name in header.split(",")}


def ranks_of(text: str, label: str) -> dict[str, list[MeasuredRank]]:
    """The ranks of every step, steps by their number. Raises ``InputError``."""
    numbered = enumerate(csv_rows(text, label, FILE), start=1)
    (_, first), *lines = [each for each in numbered if each[1] and not each[1][0].startswith(COMMENT)] or [(1, [""])]
    given = [name.strip() for name in first]
    missing = [name for name in NEEDED if name not in given]
    unknown = [name for name in given if name not in (*NEEDED, *OPTIONAL)]
    if missing or unknown:
        what = f"lacks the column {missing[0]}" if missing else f"has the column {shown(unknown[0])}"
        raise FILE.wrong(f"{label} {what}", "write the columns that the rule names")
    rows = [_row(given, line, f"{label}, row {number}") for number, line in lines]
    if not rows:
        raise FILE.wrong(f"{label} has no passes", "write a row for every pass")
    if len(rows) > MOST_PASSES:
        raise FILE.wrong(f"{label} has more than {MOST_PASSES:,} rows", "write fewer steps into one table")
    steps: dict[int, list[Row]] = {}
    for row in rows:
        steps.setdefault(row[0], []).append(row)
    return {str(step): _ranks(steps[step], label) for step in sorted(steps)}


def _ranks(rows: Sequence[Row], label: str) -> list[MeasuredRank]:
    columns = np.array(rows, dtype=np.float64).T
    rank, kind, chunk, microbatch = columns[1:5].astype(np.int64)
    return [
        MeasuredRank(
            rank=one,
            label=f"rank {one} ({label})",
            kind=kind[rank == one],
            chunk=chunk[rank == one],
            microbatch=microbatch[rank == one],
            start=columns[5][rank == one],
            end=columns[6][rank == one],
        )
        for one in np.unique(rank).tolist()
    ]


def _row(names: Sequence[str], cells: Sequence[str], where: str) -> Row:
    if len(cells) != len(names):
        raise FILE.wrong(f"{where} has {len(cells)} cells for {len(names)} columns", "write a cell for every column")
    values = {**OPTIONAL, **dict(zip(names, map(str.strip, cells), strict=True))}
    kind = values["kind"].upper()
    if kind not in KINDS:
        raise FILE.wrong(f"{where}: kind is {shown(values['kind'])}", f"write one of {', '.join(KINDS)}")
    step, rank, chunk, microbatch = (
        _whole(values[name], name, where) for name in ("step", "rank", "chunk", "microbatch")
    )
    start, end = (_seconds(values[name], name, where) for name in ("start_s", "end_s"))
    if end < start:
        raise FILE.wrong(
            f"{where} (rank {rank}): the pass ends at {end:g} s, before it starts at {start:g} s", "correct it"
        )
    return step, rank, KINDS.index(kind), chunk, microbatch, start, end


def _whole(text: str, name: str, where: str) -> int:
    if not text.isdecimal() or len(text) > 12 or int(text) > MOST[name]:
        raise FILE.wrong(f"{where}: {name} is {shown(text)}", f"write a whole number from 0 to {MOST[name]:,}")
    return int(text)


def _seconds(text: str, name: str, where: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = float("nan")
    if not abs(seconds) <= MOST_TIME:
        raise FILE.wrong(f"{where}: {name} is {shown(text)}", f"write seconds between -{MOST_TIME:g} and {MOST_TIME:g}")
    return seconds
