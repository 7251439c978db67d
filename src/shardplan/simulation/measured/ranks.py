"""What a file says of one rank of a measured step, and how ranks are combined.

``clock_shifts`` puts the clocks of ranks together: the smallest shifts for which no pass starts before its input is
ready. ``Layout`` says how a pipeline orders its passes, and numbers the passes of files that do not.

A table of passes is a CSV with a row for every pass. Its columns are ``rank``, ``kind`` (F forward pass, B input
gradient, W weight gradient, BW both gradients in one piece), ``chunk`` (within the rank; optional, default 0),
``microbatch``, ``start_s`` and ``end_s``; and ``step`` for several steps. All numbers count from 0. Lines that begin
with # are comments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from shardplan.base.errors import InputError, shown
from shardplan.base.fields import dataclass
from shardplan.base.files import FileKind, csv_rows
from shardplan.physics.schedules.base import ChunkTimes, Orders, Pass, Pipeline, Schedule
from shardplan.physics.schedules.registry import load_any_schedule
from shardplan.simulation.case import Seconds
from shardplan.simulation.pieces import BACKWARD, FORWARD, INPUT_GRADIENT, KINDS, NOTHING, WEIGHT_GRADIENT, Ints, Pieces
from shardplan.simulation.plan import SimulatedPlan, pipeline_of

NOT_GIVEN: Final = -1
"""Stands for a chunk or a micro-batch that the file does not name."""
RULE: Final = "a measured step has every pass of every rank once, with its start and end"
GROUPS: Final = {
    "forward passes": (FORWARD,),
    "backward passes": (INPUT_GRADIENT, BACKWARD),
    "weight gradients": (WEIGHT_GRADIENT,),
}
"""Kinds that a file counts together."""
MOST_PASSES: Final = 4_000_000
"""Most passes of one step."""
MOST_RANK: Final = 65_535
MOST_TIME: Final = 1e9
"""Largest time. [s] A trace whose clock counts from 1970 is shifted first."""


@dataclass(frozen=True, kw_only=True)
class MeasuredRank:
    """The passes of one rank in one step, in any order."""

    rank: int
    label: str
    """Name of the rank in errors: its number and its file."""
    kind: Ints
    """Position in ``KINDS`` of :mod:`shardplan.simulation.pieces`."""
    chunk: Ints
    microbatch: Ints
    start: Seconds
    """Start on the clock of the rank. [s]"""
    end: Seconds
    total_time: float | None = None
    """The whole pipeline call of the framework, if the file has it. [s]"""
    memory_bytes: float | None = None
    """Peak memory, if the file has it. [bytes]"""

    def checked(self) -> MeasuredRank:
        """The same rank. Raises ``InputError`` if a pass ends before it starts, or has no time."""
        for number, (start, end) in enumerate(zip(self.start.tolist(), self.end.tolist(), strict=True)):
            if not (abs(start) <= MOST_TIME and abs(end) <= MOST_TIME):
                raise wrong(f"{self.label}, pass {number}: the time is not between -{MOST_TIME:g} and {MOST_TIME:g} s")
            if end < start:
                raise wrong(f"{self.label}, pass {number} ends at {end:g} s, before it starts at {start:g} s")
        return self

    @property
    def is_numbered(self) -> bool:
        """Whether the file names the chunk and the micro-batch of every pass."""
        return not bool(np.any((self.chunk == NOT_GIVEN) | (self.microbatch == NOT_GIVEN)))


def with_split_gradients(kind: Ints, chunk: Ints, microbatch: Ints) -> Ints:
    """``kind``, where a backward pass without a separate weight gradient becomes both gradients in one piece."""
    weights = kind == WEIGHT_GRADIENT
    backward = np.isin(kind, GROUPS["backward passes"])
    if not weights.any():
        return np.where(backward, BACKWARD, kind)
    number = chunk * (int(microbatch.max()) + 1) + microbatch
    split = np.isin(number, number[weights])
    return np.where(backward, np.where(split, INPUT_GRADIENT, BACKWARD), kind)


def wrong(why: str, fix: str = "measure the step again, or give another one with --step") -> InputError:
    """The error for a measured step that cannot be read."""
    return InputError(why, rule=RULE, hint=fix)


RESOLUTION: Final = 2e-6
"""Error of the difference of two times of one clock: CUDA events have about half a microsecond. [s]"""


def clock_shifts(pieces: Pieces, start: Seconds, end: Seconds) -> Seconds | None:
    r"""Seconds to add to the times of every rank; None if no shift puts every pass after its input.

    A pass on rank j that needs one of rank i asks for :math:`o_j \ge o_i + e_i - s_j`. The shifts are the smallest
    non-negative ones that satisfy all of these: 0 if the times are in order as they are.
    """
    num_ranks = len(pieces.rank_names)
    least = np.full((num_ranks, num_ranks), -np.inf)
    (waits,) = np.nonzero(pieces.after != NOTHING)
    needs = pieces.after[waits]
    np.maximum.at(least, (pieces.rank[needs], pieces.rank[waits]), end[needs] - start[waits] - RESOLUTION)
    if np.any(np.diag(least) > 0):
        return None
    np.fill_diagonal(least, 0.0)
    shifts = np.zeros(num_ranks)
    for _ in range(num_ranks):
        longer: Seconds = np.maximum(shifts, (shifts[:, None] + least).max(axis=0))
        if np.array_equal(longer, shifts):
            return shifts
        shifts = longer
    return None


COUNTS: Final = {"pp": "ranks", "vp": "chunks on each rank", "num_microbatches": "micro-batches"}


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The schedule of a measured step and its counts."""

    schedule: Schedule
    at: Pipeline
    source: str
    """Where the layout is from: a plan, or a file next to the measurement."""

    @classmethod
    def usual(cls, num_ranks: int, vp: int, num_microbatches: int, source: str) -> Layout:
        """The layout of a framework that names no schedule: 1F1B, or interleaved if ranks have several chunks."""
        name = "interleaved" if vp > 1 else "1f1b"
        at = Pipeline(pp=num_ranks, vp=vp, num_microbatches=num_microbatches, group_size=num_ranks)
        return cls(schedule=load_any_schedule(name), at=at, source=source)

    @classmethod
    def of_plan(cls, simulated: SimulatedPlan) -> Layout:
        """The layout of a plan."""
        return cls(schedule=simulated.schedule, at=pipeline_of(simulated.priced), source="the plan")

    def check(self, num_ranks: int, vp: int, num_microbatches: int) -> None:
        """Refuses a measured step with other counts, and a schedule with copies. Raises ``InputError``."""
        if self.schedule.parameter_copies > 1:
            raise wrong(
                f"schedule {self.schedule.name} has two copies of every stage, and a measured step is read with one",
                "compare a plan with another schedule",
            )
        for (name, text), found in zip(COUNTS.items(), (num_ranks, vp, num_microbatches), strict=True):
            wanted = int(getattr(self.at, name))
            if found != wanted:
                raise wrong(
                    f"the measured step has {found} {text}, and {self.source} has {wanted}",
                    "give the plan that was measured, and the files of all its pipeline ranks",
                )

    def stages(self) -> list[dict[int, int]]:
        """For every rank, the position in the model of each of its chunks."""
        held: list[dict[int, int]] = [{} for _ in range(int(self.at.pp))]
        path = self.schedule.path(int(self.at.pp), int(self.at.vp), int(self.at.num_microbatches), 0)
        for position, place in enumerate(path):
            held[place.rank][place.chunk] = position
        return held

    def order(self) -> Orders:
        """The order of the schedule; if it depends on times, that for equal stages."""
        one = np.ones(int(self.at.pp) * int(self.at.vp))
        return self.schedule.order(
            self.at, ChunkTimes(forward=one, input_gradient=one, weight_gradient=one, transfer=np.zeros(len(one)))
        )

    def numbered(self, ranks: list[MeasuredRank]) -> list[MeasuredRank]:
        """``ranks`` with numbered passes: the n-th of a kind is the schedule's n-th. Raises ``InputError``."""
        return [_numbered(one, order, self.source) for one, order in zip(ranks, self.order(), strict=True)]


def _numbered(one: MeasuredRank, order: Sequence[Pass], source: str) -> MeasuredRank:
    """A rank with the chunk and micro-batch of every pass, by its number among those of its kind."""
    rows = [(KINDS.index(each.kind), each.chunk, each.microbatch) for each in order]
    kind, chunk, microbatch = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    by_time = np.argsort(one.start, kind="stable")
    chunks, microbatches = one.chunk.copy(), one.microbatch.copy()
    for name, kinds in GROUPS.items():
        mine = by_time[np.isin(one.kind[by_time], kinds)]
        (planned,) = np.nonzero(np.isin(kind, kinds))
        if len(mine) != len(planned):
            raise wrong(
                f"{one.label} has {len(mine)} {name}, and the schedule of {source} has {len(planned)} on that rank",
                "give the plan that was measured, or another step with --step",
            )
        chunks[mine], microbatches[mine] = chunk[planned], microbatch[planned]
    return replace(one, chunk=chunks, microbatch=microbatches)


SOURCE: Final = "table of passes"
NEEDED: Final = ("rank", "kind", "microbatch", "start_s", "end_s")
OPTIONAL: Final = {"chunk": "0", "step": "0"}
TABLE_RULE: Final = f"a table of passes has the columns {', '.join(NEEDED)}, and may have {' and '.join(OPTIONAL)}"
FILE: Final = FileKind("the table of passes", 256 * 1024 * 1024, TABLE_RULE)
COMMENT: Final = "#"
MOST: Final = {"rank": MOST_RANK, "chunk": MOST_RANK, "microbatch": MOST_PASSES, "step": 10**9}

Row = tuple[int, int, int, int, int, float, float]
"""Step, rank, kind, chunk, micro-batch, start and end."""


def is_table(text: str) -> bool:
    """Whether a text begins like a table of passes: decided by its first line that is no comment."""
    header = next((line for line in text.splitlines() if line.strip() and not line.startswith(COMMENT)), "")
    return {"rank", "kind"} <= {name.strip() for name in header.split(",")}


def ranks_of(text: str, label: str) -> dict[str, list[MeasuredRank]]:
    """The ranks of every step, by the step's number. Raises ``InputError``."""
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
    columns = np.array(rows, dtype=np.float64).T
    (step, rank, kind, chunk, microbatch), (start, end) = columns[:5].astype(np.int64), columns[5:]
    found: dict[str, list[MeasuredRank]] = {}
    for number, one in np.unique(columns[:2].astype(np.int64), axis=1).T.tolist():  # by step, then by rank
        mine = (step == number) & (rank == one)
        found.setdefault(str(number), []).append(
            MeasuredRank(
                rank=one,
                label=f"rank {one} ({label})",
                kind=kind[mine],
                chunk=chunk[mine],
                microbatch=microbatch[mine],
                start=start[mine],
                end=end[mine],
            )
        )
    return found


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
