"""How a pipeline lays out its passes, and the numbers of passes that a file does not number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from shardplan.fields import dataclass
from shardplan.schedules.base import ChunkTimes, Orders, Pass, Pipeline, Schedule
from shardplan.schedules.registry import load_any_schedule
from shardplan.simulation.measured.ranks import GROUPS, MeasuredRank, wrong
from shardplan.simulation.pieces import KINDS, Ints
from shardplan.simulation.plan import SimulatedPlan, pipeline_of

COUNTS: Final = {"pp": "ranks", "vp": "chunks on each rank", "num_microbatches": "micro-batches"}


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The schedule of a measured step and its counts."""

    schedule: Schedule
    at: Pipeline
    source: str
    """Where this is from: a plan, or a file next to the measurement."""

    @classmethod
    def usual(cls, num_ranks: int, vp: int, num_microbatches: int, source: str) -> Layout:
        """That of a framework which names no schedule: 1F1B, interleaved where ranks have several chunks."""
        name = "interleaved" if vp > 1 else "1f1b"
        at = Pipeline(pp=num_ranks, vp=vp, num_microbatches=num_microbatches, group_size=num_ranks)
        return cls(schedule=load_any_schedule(name), at=at, source=source)

    @classmethod
    def of_plan(cls, simulated: SimulatedPlan) -> Layout:
        """That of a plan."""
        return cls(schedule=simulated.schedule, at=pipeline_of(simulated.priced), source="the plan")

    def check(self, num_ranks: int, vp: int, num_microbatches: int) -> None:
        """Refuses a measured step of other counts, and a schedule with copies. Raises ``InputError``."""
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
        """For every rank, the place in the model of each of its chunks."""
        held: list[dict[int, int]] = [{} for _ in range(int(self.at.pp))]
        path = self.schedule.path(int(self.at.pp), int(self.at.vp), int(self.at.num_microbatches), 0)
        for position, place in enumerate(path):
            held[place.rank][place.chunk] = position
        return held

    def order(self) -> Orders:
        """The order of the schedule, for equal stages where it depends on times."""
        one = np.ones(int(self.at.pp) * int(self.at.vp))
        return self.schedule.order(
            self.at, ChunkTimes(forward=one, input_gradient=one, weight_gradient=one, transfer=np.zeros(len(one)))
        )

    def numbered(self, ranks: list[MeasuredRank]) -> list[MeasuredRank]:
        """``ranks``, where the n-th pass of a kind is the n-th of the schedule on that rank. Raises ``InputError``."""
        return [_numbered(one, *_columns(order), self.source) for one, order in zip(ranks, self.order(), strict=True)]


def _columns(order: Sequence[Pass]) -> tuple[Ints, Ints, Ints]:
    """Kind, chunk and micro-batch of the passes of one rank."""
    rows = [(KINDS.index(one.kind), one.chunk, one.microbatch) for one in order]
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return columns[:, 0], columns[:, 1], columns[:, 2]


def _numbered(one: MeasuredRank, kind: Ints, chunk: Ints, microbatch: Ints, source: str) -> MeasuredRank:
    """A rank with the chunk and micro-batch of every pass, by its number among those of its kind."""
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
