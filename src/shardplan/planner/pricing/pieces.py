"""Plans of a family in pieces that are priced together, and what comes of each piece.

Plans of one depth and number of chunks are worked on together, so that what follows from these is one number and not a
column; where they are few, those of several depths and numbers of chunks are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from shardplan.arrays import (
    Flags,
    Numbers,
    all_hold,
    columns_coded,
    different,
    distinct,
    first_of,
    gather,
    largest,
    where,
)
from shardplan.estimation.charge import StateCharge
from shardplan.estimation.load import Around, StageWork
from shardplan.estimation.step import Step, WorkOfStages
from shardplan.fields import dataclass
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.planner.family import Family
from shardplan.planner.objective import Objective
from shardplan.planner.pricing.rows import priced_together
from shardplan.planner.pricing.tables import Depths, Reads, Tables
from shardplan.workload.stage import Stage

CELLS = 32_768
"""Plans of one sharding per piece of work: arrays of this length stay in the second-level cache."""
FEW = 1024
"""Points of a depth below which all its numbers of chunks are worked on together, with those of other such depths."""
Found = TypeVar("Found")


class _Pairs(NamedTuple):
    """Points, each with its layout, or one for all, and the kinds of sharding that are looked at."""

    points: NDArray[np.intp]
    layouts: NDArray[np.intp]
    shards: NDArray[np.bool_]

    def at(self, chosen: NDArray[np.intp]) -> _Pairs:
        """Some of them."""
        layouts = self.layouts if len(self.layouts) < len(self.points) else self.layouts[chosen]
        return _Pairs(self.points[chosen], layouts, self.shards[:, chosen])


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
    def of(cls, tables: Tables, depths: Depths, pairs: _Pairs) -> PointGroup:
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
            rounds=lambda: tables.rounds_at(at.points, chosen),  # no circle through ``self``
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


def pieces_of(
    tables: Tables, most_bytes: float = np.inf, chosen: NDArray[np.intp] | None = None
) -> Iterator[tuple[PointGroup, Iterator[TablePiece]]]:
    """The plans of a family in pieces of about ``CELLS``, points that may have the same chunks per rank together.

    Where points are few, plans whose states alone take more than ``most_bytes`` are left out. ``chosen``: points whose
    plans are asked for, else all.
    """
    few: list[NDArray[np.intp]] = []
    for groups in _groups_of(tables, np.arange(tables.family.num_points) if chosen is None else chosen):
        rare = [points for points in groups if len(points) < FEW]
        for points in groups:
            if len(points) >= FEW:
                yield from _alike(tables, points, most_bytes)
        if len(rare) == len(groups):
            few += rare
        elif rare:  # what their depth is made of is at hand now
            yield from _mixed(tables, np.concatenate(rare), most_bytes)
    if few:
        yield from _mixed(tables, np.concatenate(few), most_bytes)


def _groups_of(tables: Tables, chosen: NDArray[np.intp]) -> Iterator[list[NDArray[np.intp]]]:
    """For every depth its points, those that may have the same chunks per rank together."""
    family = tables.family
    counts, depths = family.num_chunks(), family.points["depth"]
    group = family.first_layouts() * (int(counts.max()) + 1) + counts
    order = chosen[np.lexsort((tables.block_of_point[chosen], group[chosen], depths[chosen]))]
    for points in np.split(order, np.flatnonzero(np.diff(depths[order])) + 1):
        yield np.split(points, np.flatnonzero(np.diff(group[points])) + 1)


def _alike(
    tables: Tables, points: NDArray[np.intp], most_bytes: float
) -> Iterator[tuple[PointGroup, Iterator[TablePiece]]]:
    """Plans of points of one depth that may have the same chunks per rank, one number of these after the other."""
    family, (some, *_) = tables.family, points
    first = int(family.first_layouts()[some])
    alike = np.arange(first, first + int(family.num_chunks()[some]))
    depths = (int(family.points["depth"][some]),)
    every = _Pairs(points, alike, family.shards[:, points])
    if np.isfinite(most_bytes):
        every = _light(tables, depths, every, most_bytes)
    for layouts in _with_equal_slots(family, alike) if len(every.points) else ():
        pairs = every._replace(layouts=layouts[:1])
        for part in _parts_of(family, pairs):
            at = PointGroup.of(tables, depths, pairs.at(part))
            yield at, (TablePiece.of(at, layouts[[number]]) for number in range(len(layouts)))


def _light(tables: Tables, depths: Depths, every: _Pairs, most_bytes: float) -> _Pairs:
    """Those points that have all of some layouts whose states take no more than ``most_bytes`` under any sharding."""
    _, different_ones = np.unique(tables.layouts.composition[every.layouts], axis=0, return_index=True)
    layouts = every.layouts[different_ones]
    peaks = [_least_peaks(tables, depths, every._replace(layouts=layouts[[n]])) for n in range(len(layouts))]
    kept = np.flatnonzero((every.shards & (np.minimum.reduce(peaks) <= most_bytes)).any(axis=0))
    return _Pairs(every.points[kept], every.layouts, every.shards[:, kept])


def _mixed(
    tables: Tables, points: NDArray[np.intp], most_bytes: float
) -> Iterator[tuple[PointGroup, Iterator[TablePiece]]]:
    """Plans of points with different chunks per rank, those with as many kinds of stage together."""
    family, layouts = tables.family, tables.layouts
    depths = tuple(different(family.points["depth"][points]).tolist())
    pairs = _pairs_of(tables, points)
    if np.isfinite(most_bytes):
        shards = pairs.shards & (_least_peaks(tables, depths, pairs) <= most_bytes)
        pairs = pairs._replace(shards=shards).at(np.flatnonzero(shards.any(axis=0)))
    kinds = 2 * layouts.num_kinds[pairs.layouts] + (layouts.vp[pairs.layouts] > 1)
    order = np.lexsort((pairs.points, kinds))
    for alike in np.split(order, np.flatnonzero(np.diff(kinds[order])) + 1) if len(order) else ():
        of_kind = pairs.at(alike)
        for part in _parts_of(family, of_kind):
            at = PointGroup.of(tables, depths, of_kind.at(part))
            if len(at.slots):
                yield at, iter([TablePiece.of(at, of_kind.layouts[part])])


def _pairs_of(tables: Tables, points: NDArray[np.intp]) -> _Pairs:
    """Points with each of their layouts."""
    family = tables.family
    counts, first = family.num_chunks()[points], family.first_layouts()[points]
    chunk = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    points = np.repeat(points, counts)
    return _Pairs(points, np.repeat(first, counts) + chunk, family.shards[:, points])


def _least_peaks(tables: Tables, depths: Depths, pairs: _Pairs) -> NDArray[np.float64]:
    """What the fullest stage takes at least, whatever activations it keeps: by sharding and pair. [bytes]"""
    layouts = tables.layouts
    compositions = layouts.composition[pairs.layouts]
    peaks, found = tables.least_peaks(depths), []
    for kind in range(compositions.shape[1]):  # of layouts with fewer kinds the first one again
        chosen = np.where(kind < layouts.num_kinds[pairs.layouts], compositions[:, kind], compositions[:, 0])
        found.append(peaks.take(tables.charge_rows(depths, (chosen, pairs.points)), axis=-1))
    return np.asarray(largest(found))  # faster than ``np.maximum.reduce`` of a list


def _with_equal_slots(family: Family, layouts: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Layouts in groups that go with the same slots of recomputation, which may be none; these are left out."""
    kinds = family.kinds_of_layouts[layouts]
    groups = [layouts[kinds == kind] for kind in different(kinds)]
    return groups if family.together is None else [each for each in groups if family.together[:, each[0]].any()]


def _parts_of(family: Family, pairs: _Pairs) -> Iterator[NDArray[np.intp]]:
    """Positions of points with their layouts in pieces that have most of what is looked at together.

    Points differ in the slots of recomputation and in the kinds of sharding that are valid; those of a piece are
    priced with all that any of them may have. Sets of points are priced together where that takes less time than
    pricing each on its own.
    """
    of_shards, of_layouts = columns_coded(pairs.shards), family.kinds_of_layouts
    kinds = family.kinds_of_points[pairs.points] * (int(of_layouts.max()) + 1) + of_layouts[pairs.layouts]
    kinds = kinds * (int(of_shards.max()) + 1) + of_shards
    _, code = distinct(kinds, int(kinds.max()) + 1)
    first = pairs.at(first_of(code, int(code.max()) + 1))
    slots = family.slots_at(first.points, first.layouts)
    together = priced_together(slots.T, first.shards.T, np.bincount(code))
    number = together[code]
    for each in range(int(together.max()) + 1):
        positions = np.flatnonzero(number == each)
        length = max(CELLS // max(int(slots[:, together == each].any(axis=1).sum()), 1), 1)
        yield from (positions[start : start + length] for start in range(0, len(positions), length))
