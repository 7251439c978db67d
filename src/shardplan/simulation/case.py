"""A case of the simulation: a schedule and times in place of a plan, as ``shardplan simulate --times`` reads it."""

from __future__ import annotations

from dataclasses import field, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from shardplan.errors import InputError, ShardplanError, shown
from shardplan.fields import dataclass, in_files
from shardplan.files import FileKind, parse_document, printable, read_text
from shardplan.records import RecordFormat, keys, schema_fields
from shardplan.schedules.base import ChunkTimes, Pipeline, Schedule
from shardplan.schedules.registry import load_any_schedule
from shardplan.schedules.simulated.order_file import read_order_file
from shardplan.simulation.pieces import check_passes

if TYPE_CHECKING:
    from pydantic import BaseModel

RULE: Final = "a case names a schedule, its counts and its times"
CASE: Final = RecordFormat(RULE, "see docs/simulation.md for an example")
FILE: Final = FileKind("the case", 16 * 1024 * 1024, RULE)
MOST_TIME: Final = 1e9
"""Seconds of one pass."""

Times = float | tuple[float, ...]
"""Seconds of every chunk alike, or of each in the order of the model."""


@dataclass(frozen=True, kw_only=True)
class StepCase:
    """A schedule with times."""

    schedule: str
    """Name of a schedule, or a CSV of PyTorch."""
    num_ranks: int
    num_microbatches: int
    forward: Times = field(metadata=in_files("forward_s"))
    """One micro-batch through a chunk. [s]"""
    input_gradient: Times = field(metadata=in_files("input_gradient_s"))
    """The part of its backward pass that the previous chunk waits for; all of it where the other is left out. [s]"""
    weight_gradient: Times = field(default=0.0, metadata=in_files("weight_gradient_s"))
    """The part that only the optimizer waits for. [s]"""
    transfer: Times = field(default=0.0, metadata=in_files("transfer_s"))
    """From a chunk to the next one, and back. [s]"""
    chunks_per_rank: int | None = None
    """The fewest that the schedule takes where it is left out."""
    max_in_flight: int | None = None
    """Chunk passes that a rank may have in flight."""

    def load(self) -> tuple[Schedule, Pipeline, ChunkTimes]:
        """What the simulation takes. Raises InputError."""
        schedule = schedule_named(self.schedule)
        least = schedule.vp if hasattr(schedule, "vp") else schedule.least_vp
        vp = least if self.chunks_per_rank is None else self.chunks_per_rank
        for name, count in (
            ("num_ranks", self.num_ranks),
            ("num_microbatches", self.num_microbatches),
            ("chunks_per_rank", vp),
        ):
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
                raise CASE.wrong(
                    key,
                    f"has {len(value)} times for {num_chunks} chunks",
                    fix=f"give {key} {num_chunks} times, or one number",
                )
            bad = given[~((given >= 0) & (given <= MOST_TIME))]
            if len(bad):
                raise CASE.wrong(key, f"is {shown(float(bad[0]))}: it must be between 0 and {MOST_TIME:g} seconds")
            return np.array(np.broadcast_to(given, num_chunks))

        if not np.any(column("forward")) and not np.any(column("input_gradient")):
            raise CASE.wrong("forward_s", "is 0, and so is input_gradient_s: some pass must take time")
        return ChunkTimes(
            forward=column("forward"),
            input_gradient=column("input_gradient"),
            weight_gradient=column("weight_gradient"),
            transfer=column("transfer"),
            max_in_flight=self.max_in_flight,
        )


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
