"""A schedule with given times, and the event loop that runs it.

``shardplan simulate --times`` reads a :class:`StepCase`. ``run`` plays the pieces of all ranks: each rank runs its
pieces in order, and a piece starts as soon as its input has arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, fields
from functools import cache
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from shardplan.base.errors import InputError, ShardplanError, shown
from shardplan.base.fields import dataclass, in_files
from shardplan.base.files import FileKind, parse_document, printable, read_text
from shardplan.base.records import RecordFormat, keys, schema_fields
from shardplan.physics.schedules.base import ChunkTimes, Pipeline, Schedule
from shardplan.physics.schedules.order_file import read_order_file
from shardplan.physics.schedules.registry import load_any_schedule
from shardplan.simulation.pieces import NOTHING, Pieces, check_passes

if TYPE_CHECKING:
    from pydantic import BaseModel

RULE: Final = "a case names a schedule, its counts and its times"
CASE: Final = RecordFormat(RULE, "see docs/simulation.md for an example")
FILE: Final = FileKind("the case", 16 * 1024 * 1024, RULE)
MOST_TIME: Final = 1e9
"""Longest time of one pass. [s]"""

Times = float | tuple[float, ...]
"""One time for all chunks, or one for each chunk in the order of the model. [s]"""


@dataclass(frozen=True, kw_only=True)
class StepCase:
    """A schedule with the times of its passes."""

    schedule: str
    """Name of a schedule, or path of a CSV in PyTorch's format."""
    num_ranks: int
    num_microbatches: int
    forward: Times = field(metadata=in_files("forward_s"))
    """Forward pass of one micro-batch through a chunk. [s]"""
    input_gradient: Times = field(metadata=in_files("input_gradient_s"))
    """The part of the backward pass that the previous chunk waits for; all of it without ``weight_gradient``. [s]"""
    weight_gradient: Times = field(default=0.0, metadata=in_files("weight_gradient_s"))
    """The part of the backward pass that only the optimizer waits for. [s]"""
    transfer: Times = field(default=0.0, metadata=in_files("transfer_s"))
    """Transfer from a chunk to the next one, and back. [s]"""
    chunks_per_rank: int | None = None
    """By default the fewest chunks that the schedule allows."""
    max_in_flight: int | None = None
    """Most chunk passes that a rank may have in flight."""

    def load(self) -> tuple[Schedule, Pipeline, ChunkTimes]:
        """Arguments for ``simulate``. Raises InputError."""
        schedule = schedule_named(self.schedule)
        least = schedule.vp if hasattr(schedule, "vp") else schedule.least_vp
        vp = least if self.chunks_per_rank is None else self.chunks_per_rank
        counts = {"num_ranks": self.num_ranks, "num_microbatches": self.num_microbatches, "chunks_per_rank": vp}
        for name, count in counts.items():
            if count < 1:
                raise CASE.wrong(name, f"is {count}: it must be 1 or more")
        at = Pipeline(pp=self.num_ranks, vp=vp, num_microbatches=self.num_microbatches, group_size=self.num_ranks)
        check_passes(at)
        return schedule, at, self._times(self.num_ranks * vp)

    def _times(self, num_chunks: int) -> ChunkTimes:
        def column(name: str) -> NDArray[np.float64]:
            key, value = keys(StepCase)[name], getattr(self, name)
            given = np.atleast_1d(np.asarray(value, dtype=np.float64))
            if isinstance(value, tuple) and len(value) != num_chunks:
                fix = f"give {key} {num_chunks} times, or one number"
                raise CASE.wrong(key, f"has {len(value)} times for {num_chunks} chunks", fix=fix)
            bad = given[~((given >= 0) & (given <= MOST_TIME))]
            if len(bad):
                raise CASE.wrong(key, f"is {shown(float(bad[0]))}: it must be between 0 and {MOST_TIME:g} seconds")
            return np.array(np.broadcast_to(given, num_chunks))

        columns = {name: column(name) for name in ("forward", "input_gradient", "weight_gradient", "transfer")}
        if not np.any(columns["forward"]) and not np.any(columns["input_gradient"]):
            raise CASE.wrong("forward_s", "is 0, and so is input_gradient_s: some pass must take time")
        return ChunkTimes(**columns, max_in_flight=self.max_in_flight)


def schedule_named(name: str) -> Schedule:
    """The schedule called ``name``, or the one in the CSV file of that name. Raises InputError."""
    return read_order_file(Path(name)) if name.lower().endswith(".csv") else load_any_schedule(name.strip().lower())


def read_case(path: Path) -> StepCase:
    """The case in the JSON or YAML file at ``path``. Raises InputError."""
    label = printable(str(path)[:200])
    document = parse_document(read_text(path, FILE), label=label, is_json=path.suffix.lower() == ".json")
    try:
        checked: Any = CASE.read(_schema(), document, as_json=True)
    except ShardplanError as error:
        raise InputError(f"{label}: {error.message}", rule=error.rule, hint=error.hint) from None
    return StepCase(**{each.name: getattr(checked, each.name) for each in fields(StepCase)})


@cache
def _schema() -> type[BaseModel]:
    from pydantic import ConfigDict, create_model

    config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    return create_model("StepCase", __config__=config, **schema_fields(StepCase))


Seconds = NDArray[np.float64]
MOST_WAITING = 4
"""Most ranks that an error lists."""
TURNS: Final = 4096
"""Turns of ranks between two calls of ``between``: a few milliseconds."""
Between = Callable[[], None]
"""A function that is called now and then; an exception from it ends the simulation."""


def run(pieces: Pieces, took: Seconds, transfer: Seconds, between: Between | None = None) -> tuple[Seconds, Seconds]:
    """Start and end of every piece. [s]

    ``took`` is the duration of every piece, ``transfer`` the travel time of its input. The pieces of a block start
    together and end together. Raises ``InputError`` if ranks wait for one another.
    """
    bounds = pieces.bounds.tolist()
    together = took
    if not pieces.is_alone:  # the duration of a block is that of its last piece; the others take none
        together = np.zeros(len(took))
        np.add.at(together, pieces.block, took)
    ends, turns = _play(pieces.after_list, transfer.tolist(), together.tolist(), bounds, between)
    stuck = [rank for rank, turn in enumerate(turns) if turn < bounds[rank + 1]]
    if stuck:
        raise _deadlock(pieces, stuck, turns)
    end = np.asarray(ends)
    free = np.concatenate(([0.0], end[:-1]))
    free[pieces.bounds[:-1]] = 0.0
    start = np.maximum(free, np.where(pieces.after == NOTHING, 0.0, end[pieces.after]) + transfer)
    return (start, end) if pieces.is_alone else (start[pieces.block], end[pieces.block])


def _play(
    after: list[int], transfer: list[float], took: list[float], bounds: list[int], between: Between | None
) -> tuple[list[float], list[int]]:
    """End of every piece, and the piece that every rank has reached.

    Uses plain lists: Python reads single elements of lists faster than of arrays. A rank runs until it has to wait, and
    continues when the piece that it waits for ends.
    """
    num_ranks, nobody = len(bounds) - 1, -1
    end = [-1.0] * len(took) + [0.0]  # the last element is for pieces that wait for nothing
    turns, clocks = bounds[:-1], [0.0] * num_ranks
    waiting, others = [nobody] * len(took), [nobody] * num_ranks  # first and further waiting ranks of a piece
    ready = list(range(num_ranks))
    for _ in repeat(None) if between is None else _calls_between(between):
        if not ready:
            break
        rank = ready.pop()
        piece, last, now = turns[rank], bounds[rank + 1], clocks[rank]
        while piece < last:
            need = after[piece]
            arrival = end[need]
            if arrival < 0:
                waiting[need], others[rank] = rank, waiting[need]
                break
            arrival += transfer[piece]
            if arrival > now:  # noqa: PLR1730  # max() takes twice as long
                now = arrival
            now += took[piece]
            end[piece] = now
            other = waiting[piece]
            while other >= 0:
                ready.append(other)
                other = others[other]
            piece += 1
        turns[rank], clocks[rank] = piece, now
    end.pop()
    return end, turns


def _calls_between(between: Between) -> Iterator[None]:
    """Yields forever and calls ``between`` every ``TURNS`` turns."""
    while True:
        between()
        yield from repeat(None, TURNS)


def _deadlock(pieces: Pieces, stuck: Sequence[int], turns: Sequence[int]) -> InputError:
    """The error for ranks that wait for one another: which ranks, at which piece, for whom."""
    texts = []
    for rank in stuck[:MOST_WAITING]:
        piece = turns[rank]
        need = int(pieces.after[piece])
        source = "" if need == NOTHING else f" for {pieces.name(need)} on {pieces.rank_names[pieces.rank[need]]}"
        texts.append(f"{pieces.rank_names[rank]} waits with {pieces.name(piece)}{source}")
    more = f", and {len(stuck) - MOST_WAITING} more ranks wait" if len(stuck) > MOST_WAITING else ""
    return InputError(
        f"ranks wait for one another: {'; '.join(texts)}{more}",
        rule="no rank waits for a pass that cannot run",
        hint="change the order of the passes on these ranks",
    )
