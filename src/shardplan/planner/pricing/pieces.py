"""What a search looks for, plans of a family that are priced together, and what comes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import Flags, Numbers, all_hold, gather, where
from shardplan.base.fields import dataclass
from shardplan.estimation.charge import StateCharge
from shardplan.estimation.load import Around, StageWork
from shardplan.estimation.question import Question
from shardplan.estimation.step import Step, WorkOfStages, whole_step
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.physics.workload.stage import Stage
from shardplan.planner.pricing.tables import Depths, Reads, Tables


class PlanOutcome(Protocol):
    """What objectives read of plans."""

    @property
    def busiest(self) -> Numbers:
        """What the slowest stage takes, but for what all plans have in common. [s]"""

    @property
    def peak_memory_bytes(self) -> Numbers:
        """Of one rank of the fullest stage."""

    @property
    def fits(self) -> Flags:
        """Whether every device holds its stage."""


class Objective(NamedTuple):
    """A number for every plan that grows with what is reported of it, so that either ranks the plans."""

    value: Callable[[PlanOutcome], Numbers]
    """What plans are ranked by; infinite for those that are out of the question."""
    finished: Callable[[Question, NDArray[np.float64]], NDArray[np.float64]] = lambda _question, values: values
    """What is reported of plans that are ranked by these values."""
    most_bytes: Callable[[Question], float] = lambda _question: np.inf
    """Plans that need more memory are out of the question."""


def _time_of_fitting(step: PlanOutcome) -> Numbers:
    """Time of the busiest stage: the fixed time and the growth by stragglers are the same for all plans. [s]"""
    if not np.any(step.fits):
        return np.inf
    if np.all(step.fits):
        return step.busiest
    with np.errstate(divide="ignore"):  # some times faster than np.where, whose branches are hard to predict
        return np.divide(step.busiest, step.fits)


FASTEST = Objective(
    value=_time_of_fitting,
    finished=lambda question, values: np.asarray(whole_step(question, values)),
    most_bytes=lambda question: float(question.usable_memory),
)
"""Step time of the plans that fit. [s]"""
SMALLEST = Objective(value=lambda step: step.peak_memory_bytes)
"""Peak memory, whether it fits or not. [bytes]"""


Found = TypeVar("Found")


class LaidPoints(NamedTuple):
    """Points, each with its layout, or one for all, and the kinds of sharding that are looked at."""

    points: NDArray[np.intp]
    layouts: NDArray[np.intp]
    shards: NDArray[np.bool_]

    def at(self, chosen: NDArray[np.intp]) -> LaidPoints:
        """Some of them."""
        layouts = self.layouts if len(self.layouts) < len(self.points) else self.layouts[chosen]
        return LaidPoints(self.points[chosen], layouts, self.shards[:, chosen])


@dataclass(frozen=True, kw_only=True)
class PointGroup:
    """Points that are worked on together, and what they have whatever the chunks per rank."""

    tables: Tables
    points: NDArray[np.intp]
    slots: NDArray[np.intp]
    """Slots of recomputation."""
    depths: Depths
    """Depths of the points, and of those that come with them."""
    shards: NDArray[np.bool_]
    """For every kind of sharding and every point whether it is looked at."""
    _known: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    @classmethod
    def of(cls, tables: Tables, depths: Depths, pairs: LaidPoints) -> PointGroup:
        """Points with the slots of recomputation that any of them may have with its layout (or one for all)."""
        slots = tables.family.slots_at(pairs.points, pairs.layouts).any(axis=1)
        return cls(tables=tables, points=pairs.points, slots=np.flatnonzero(slots), depths=depths, shards=pairs.shards)

    @cached_property
    def numbers(self) -> PlanNumbers:
        """In numbers, the chunks per rank left open."""
        return self.tables.numbers.at(self.points, self.slots)

    @cached_property
    def around(self) -> Around:
        """What the stages of a plan have in common."""
        return gather(self.tables.around, self.points)

    @cached_property
    def whole_times(self) -> StageWork:
        """Work of all stages together, for who reads times."""
        return self.tables.whole_times_at(self.points, self.slots)

    def at_blocks(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Values of the block of every point."""
        return values.take(self._blocks, axis=-1)

    @cached_property
    def _blocks(self) -> NDArray[np.intp]:
        return self.tables.block_of_point[self.points]

    @cached_property
    def shardings(self) -> NDArray[np.intp]:
        """Kinds of sharding that any of the points may have."""
        return np.flatnonzero(self.shards.any(axis=1))

    @cached_property
    def valid(self) -> Flags:
        """Where the plans are valid, by kind of sharding, slot and point; True where all are."""
        slots = self.tables.family.recomputes[np.ix_(self.slots, self.points)]
        points = self.shards[self.shardings]
        return all_hold([True if points.all() else points[:, None, :], True if slots.all() else slots])

    @cached_property
    def starts(self) -> NDArray[np.intp]:
        """Where another point begins; a point comes once for each of its layouts where these are worked on together."""
        return np.flatnonzero(np.diff(self.points, prepend=-1))

    def work(self, compositions: NDArray[np.intp], rows: NDArray[np.intp], reads: Reads) -> StageWork:
        """Work of stages of these compositions, which is at these rows."""
        return self._once(compositions, reads, lambda: self.tables.work_at(self.depths, rows, self.slots, reads))

    def charge_times(self, sharding: int, compositions: NDArray[np.intp], rows: NDArray[np.intp]) -> StateCharge:
        """What the states of stages of these compositions cost, which are at these rows, for who reads times."""
        found = partial(self.tables.charge_times_at, sharding, self.depths, rows)
        return self._once(compositions, ("charge times", sharding), found)

    def bytes(self, compositions: NDArray[np.intp], rows: NDArray[np.intp]) -> StateCharge:
        """What they take under every kind of sharding."""
        found = partial(self.tables.bytes_at, self.shardings, self.depths, rows)
        return self._once(compositions, "bytes", found)

    def work_rows(self, compositions: NDArray[np.intp]) -> NDArray[np.intp]:
        """Where the work of stages of these compositions is."""
        at = compositions, self.points
        return self._once(compositions, "work rows", lambda: self.tables.work_rows(self.depths, at))

    def charge_rows(self, compositions: NDArray[np.intp]) -> NDArray[np.intp]:
        """Where the charges of stages of these compositions are."""
        at = compositions, self.points
        return self._once(compositions, "charge rows", lambda: self.tables.charge_rows(self.depths, at))

    def _once(self, compositions: NDArray[np.intp], what: object, found: Callable[[], Found]) -> Found:
        """What is found for one composition is kept for other layouts with the same one."""
        if len(compositions) > 1:
            return found()
        key = int(compositions[0]), what
        if key not in self._known:
            self._known[key] = found()
        known: Found = self._known[key]
        return known

    def sharding_time(self, sharding: int) -> Numbers:
        """Exchange of sharded states in every micro-batch, in all stages together, before work hides any of it. [s]"""
        return self.tables.sharding_time_at(sharding, self.points)


@dataclass(frozen=True, kw_only=True)
class TablePiece:
    """Plans of some points with as many kinds of stage: of one layout, or each point with its own."""

    at: PointGroup
    layouts: NDArray[np.intp]
    """One, or one for each point."""
    num_kinds: int
    _known: dict[Reads, WorkOfStages] = field(default_factory=dict)

    @classmethod
    def of(cls, at: PointGroup, layouts: NDArray[np.intp]) -> TablePiece:
        """Plans of points with layouts that have as many kinds of stage."""
        return cls(at=at, layouts=layouts, num_kinds=int(at.tables.layouts.num_kinds[layouts[0]]))

    @cached_property
    def _compositions(self) -> list[NDArray[np.intp]]:
        """Of every kind of stage."""
        return [self.at.tables.layouts.composition[self.layouts, kind] for kind in range(self.num_kinds)]

    @cached_property
    def _work_rows(self) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Of every kind of stage its compositions, and where their work is."""
        return [(each, self.at.work_rows(each)) for each in self._compositions]

    @cached_property
    def _charge_rows(self) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Of every kind of stage its compositions, and where their charges are."""
        return [(each, self.at.charge_rows(each)) for each in self._compositions]

    @cached_property
    def _numbers(self) -> PlanNumbers:
        return self.at.tables.numbers.with_chunks(self.at.numbers, self.at.tables.layouts.vp[self.layouts])

    @cached_property
    def _kinds(self) -> list[Stage]:
        return [self.at.tables.layouts.stage(self.layouts, kind) for kind in range(self.num_kinds)]

    def _work(self, reads: Reads) -> WorkOfStages:
        """What all kinds of sharding have in common."""
        if reads not in self._known:
            self._known[reads] = self._work_of([self.at.work(*each, reads) for each in self._work_rows])
        return self._known[reads]

    def _work_of(self, works: list[StageWork]) -> WorkOfStages:
        at, chosen, tables, layouts = self.at, self.layouts, self.at.tables, self.at.tables.layouts
        return WorkOfStages(
            question=tables.question,
            numbers=self._numbers,
            around=at.around,
            kinds=self._kinds,
            works=works,
            whole=tables.whole[0],
            whole_work=lambda: at.whole_times,
            behind=lambda kind: at.work(behind := layouts.behind[chosen, kind], at.work_rows(behind), "times"),
            longest=lambda: tables.longest_time(chosen, at.at_blocks),  # no circle through ``self``
        )

    @cached_property
    def runnable(self) -> Flags:
        """Where the recomputation goes with the chunks per rank, by slot and point; True where all does."""
        together = self.at.tables.family.together
        allowed = True if together is None else together[np.ix_(self.at.slots, self.layouts)]
        return True if np.all(allowed) else allowed

    def step(self, sharding: int) -> Step:
        """Times of the plans under a kind of sharding: slots of recomputation by points."""
        charges = [self.at.charge_times(sharding, *each) for each in self._charge_rows]
        return Step(work=self._work("times"), charges=charges, sharding_time=self.at.sharding_time(sharding))

    @cached_property
    def _memory(self) -> Step:
        """Memory of the plans under every kind of sharding that any of them may have."""
        charges = [self.at.bytes(*each) for each in self._charge_rows]
        return Step(work=self._work("memory"), charges=charges, sharding_time=0.0)

    @cached_property
    def valid(self) -> Flags:
        """Where the plans are valid, by kind of sharding, slot and point; True where all are."""
        return all_hold([self.at.valid, self.runnable])

    @cached_property
    def fits(self) -> NDArray[np.bool_]:
        """Where the plans are valid and fit, by kind of sharding, slot and point."""
        return self._each(all_hold([self._memory.fits, self.valid]))

    @property
    def num_feasible(self) -> int:
        """How many of them are valid and fit."""
        return int(np.count_nonzero(self.fits))

    @cached_property
    def peaks(self) -> NDArray[np.float64]:
        """Of one rank of the fullest stage, by kind of sharding, slot and point; infinite where no memory will do."""
        kept = all_hold([self._memory.host_fits, self.valid])
        return self._each(where(kept, self._memory.peak_memory_bytes, np.inf))

    def outcomes(self) -> list[PieceOutcome]:
        """Outcome of the plans under every kind of sharding that any of them may have."""
        return [
            PieceOutcome(piece=self, sharding=sharding, number=number)
            for number, sharding in enumerate(self.at.shardings.tolist())
        ]

    @property
    def peak_memory_bytes(self) -> NDArray[np.float64]:
        """Of one rank of the fullest stage, by kind of sharding, slot and point."""
        return self._each(self._memory.peak_memory_bytes)

    def valid_under(self, number: int) -> NDArray[np.bool_]:
        """Where the plans are valid under one of its kinds of sharding, by slot and point."""
        return self._each(self.valid)[number]

    def _each(self, values: Any) -> NDArray[Any]:
        """One value for every kind of sharding, slot and point."""
        return np.broadcast_to(values, (len(self.at.shardings), len(self.at.slots), len(self.at.points)))


@dataclass(frozen=True, kw_only=True)
class PieceOutcome:
    """Outcome of the plans of a piece under a kind of sharding, by slot and point."""

    piece: TablePiece
    sharding: int
    number: int
    """Position of the kind of sharding among those of the piece."""

    @property
    def peak_memory_bytes(self) -> Numbers:
        """Of one rank of the fullest stage."""
        return self.piece.peak_memory_bytes[self.number]

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Where plans are valid and every device holds its stage."""
        return self.piece.fits[self.number]

    @property
    def busiest(self) -> Numbers:
        """What the slowest stage takes, but for what all plans have in common. [s]"""
        return self.piece.step(self.sharding).busiest

    def valued(self, objective: Objective) -> Numbers:
        """What valid plans are ranked by; infinite for others."""
        value = objective.value(self)
        if self.piece.valid is True:
            return value
        with np.errstate(divide="ignore"):  # faster than np.where, as in ``objective``
            return np.divide(value, self.piece.valid_under(self.number))
