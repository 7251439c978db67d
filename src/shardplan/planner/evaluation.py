"""All plans of a family evaluated: the estimate's own formulas, run over columns.

A step has a part that sharding does not change (its work) and one that recomputation hardly changes (its states). Each
is looked up for the plans that differ in it (``planner.tables``); both meet in the step of every plan. Plans of one
depth and number of chunks are worked on together, so that what follows from these is one number and not a column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from shardplan.arrays import Flags, Numbers, all_hold, different, distinct, first_of, gather
from shardplan.estimation.charge import StateCharge
from shardplan.estimation.load import Around, StageWork
from shardplan.estimation.question import Question
from shardplan.estimation.step import Step, WorkOfStages
from shardplan.fields import dataclass
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.planner.family import Family
from shardplan.planner.layouts import KnownPipelines
from shardplan.planner.objective import FASTEST, Objective
from shardplan.planner.rows import priced_together
from shardplan.planner.stopping import Stop, check
from shardplan.planner.tables import Depths, Tables

CELLS = 32_768
"""Plans of one sharding per piece of work: arrays of this length stay in the second-level cache."""
FEW = 1024
"""Points of a depth below which all its numbers of chunks are worked on together, with those of other such depths."""
Found = TypeVar("Found")
KEPT_BYTES = 30 * 2**20


@dataclass(frozen=True, kw_only=True)
class Table:
    """Best value of the objective over the chunks per rank: by sharding, recomputation and point."""

    tables: Tables
    best: NDArray[np.float64]
    num_evaluated: int
    """Plans that were priced."""
    num_feasible: int
    """Those of them that fit."""

    @cached_property
    def least(self) -> NDArray[np.float64]:
        """The best value of every point."""
        return self.best.min(axis=(0, 1))

    @property
    def num_pruned(self) -> int:
        """Valid plans that were left out, because a bound shows that they are too slow to be asked for."""
        return self.family.num_plans() - self.num_evaluated

    @property
    def family(self) -> Family:
        """The plans that were evaluated."""
        return self.tables.family


def evaluate(
    question: Question,
    family: Family,
    objective: Objective = FASTEST,
    *,
    stop: Stop | None = None,
    known: KnownPipelines | None = None,
) -> Table:
    """Evaluates every valid plan of ``family``. Raises ``SearchStopped`` where ``stop`` says so."""
    return evaluated(Tables(question=question, family=family, known=known or KnownPipelines()), objective, stop)


def evaluated(tables: Tables, objective: Objective, stop: Stop | None = None) -> Table:
    """As ``evaluate``, of what has been priced already."""
    _keep_freed_memory()
    question, family = tables.question, tables.family
    best = np.full((len(family.shardings), len(family.policies), family.num_points), np.inf)
    feasible = 0
    for at, pieces in pieces_of(tables):
        feasible += _fill(at, pieces, objective, best, stop)
    best = objective.finished(question, best)
    return Table(tables=tables, best=best, num_evaluated=family.num_plans(), num_feasible=feasible)


def _keep_freed_memory() -> None:
    """Makes the allocator of glibc reuse what arrays of a piece leave behind rather than hand it back to the kernel.

    Freeing a large block once raises the size up to which it does so (``mallopt(3)``, dynamic ``M_MMAP_THRESHOLD``);
    each piece would cost hundreds of page faults otherwise. The block itself is never touched. No effect elsewhere.
    """
    np.empty(KEPT_BYTES, dtype=np.uint8)


@dataclass(frozen=True, kw_only=True)
class PointGroup:
    """Points that are worked on together, and what they have whatever the chunks per rank."""

    tables: Tables
    points: NDArray[np.intp]
    slots: NDArray[np.intp]
    """Slots of recomputation."""
    depths: Depths
    """Depths of the points, and of those that come with them."""
    _known: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    @classmethod
    def of(cls, tables: Tables, points: NDArray[np.intp], layouts: NDArray[np.intp], depths: Depths) -> PointGroup:
        """Points with the slots of recomputation that any of them may have with its layout (or one for all)."""
        slots = tables.family.slots_at(points, layouts).any(axis=1)
        return cls(tables=tables, points=points, slots=np.flatnonzero(slots), depths=depths)

    @cached_property
    def numbers(self) -> PlanNumbers:
        """In numbers, the chunks per rank left open."""
        return self.tables.numbers_at(self.points, self.slots)

    @cached_property
    def around(self) -> Around:
        """What the stages of a plan have in common."""
        return gather(self.tables.around, self.points)

    @cached_property
    def whole(self) -> StageWork:
        """Work of all stages together."""
        return self.tables.whole_at(self.points, self.slots)

    @cached_property
    def shardings(self) -> list[int]:
        """Kinds of sharding that any of the points may have."""
        return np.flatnonzero(self.tables.family.shards[:, self.points].any(axis=1)).tolist()

    def valid(self, sharding: int) -> Flags:
        """Where the plans are valid under a kind of sharding, by slot and point; True where all are."""
        points = self.tables.family.shards[sharding, self.points]
        return self._valid_slots if points.all() else points & self._valid_slots

    @cached_property
    def _valid_slots(self) -> Flags:
        """Where recomputation is valid, by slot and point; True where all is."""
        slots = self.tables.family.recomputes[np.ix_(self.slots, self.points)]
        return True if slots.all() else slots

    @cached_property
    def starts(self) -> NDArray[np.intp]:
        """Where another point begins; a point comes once for each of its layouts where these are worked on together."""
        return np.flatnonzero(np.diff(self.points, prepend=-1))

    def work(self, compositions: NDArray[np.intp]) -> StageWork:
        """Work of stages of these compositions."""
        at = compositions, self.points
        return self._once(compositions, "work", lambda: self.tables.work_at(self.depths, at, self.slots))

    def memory_work(self, compositions: NDArray[np.intp]) -> StageWork:
        """The same without times."""
        at = compositions, self.points
        return self._once(compositions, "memory", lambda: self.tables.memory_work_at(self.depths, at, self.slots))

    def charge(self, sharding: int, compositions: NDArray[np.intp], rows: NDArray[np.intp]) -> StateCharge:
        """What the states of stages of these compositions cost, which are at these rows."""
        found = partial(self.tables.charge_at, sharding, self.depths, rows)
        return self._once(compositions, sharding, found)

    def memory_charge(self, sharding: int, compositions: NDArray[np.intp], rows: NDArray[np.intp]) -> StateCharge:
        """The same without times."""
        found = partial(self.tables.memory_charge_at, sharding, self.depths, rows)
        return self._once(compositions, ("memory", sharding), found)

    def charge_rows(self, compositions: NDArray[np.intp]) -> NDArray[np.intp]:
        """Where the charges of stages of these compositions are."""
        at = compositions, self.points
        return self._once(compositions, "rows", lambda: self.tables.charge_rows(self.depths, at))

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

    def within(self, tables: Tables, columns: NDArray[np.intp]) -> TablePiece:
        """Some of its points, priced by other tables of the same family."""
        at = PointGroup(tables=tables, points=self.at.points[columns], slots=self.at.slots, depths=self.at.depths)
        return TablePiece.of(at, self.layouts if len(self.layouts) == 1 else self.layouts[columns])

    @classmethod
    def of(cls, at: PointGroup, layouts: NDArray[np.intp]) -> TablePiece:
        """Plans of points with layouts that have as many kinds of stage."""
        return cls(at=at, layouts=layouts, num_kinds=int(at.tables.layouts.num_kinds[layouts[0]]))

    @cached_property
    def work(self) -> WorkOfStages:
        """What all kinds of sharding have in common."""
        return self._work_of([self.at.work(each) for each in self._compositions])

    @cached_property
    def memory_work(self) -> WorkOfStages:
        """The same without times."""
        return self._work_of([self.at.memory_work(each) for each in self._compositions])

    @cached_property
    def _compositions(self) -> list[NDArray[np.intp]]:
        """Of every kind of stage."""
        return [self.at.tables.layouts.composition[self.layouts, kind] for kind in range(self.num_kinds)]

    @cached_property
    def _charge_rows(self) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Of every kind of stage its compositions, and where their charges are."""
        return [(each, self.at.charge_rows(each)) for each in self._compositions]

    def _work_of(self, works: list[StageWork]) -> WorkOfStages:
        at, chosen, tables, layouts = self.at, self.layouts, self.at.tables, self.at.tables.layouts
        return WorkOfStages(
            question=tables.question,
            numbers=tables.with_chunks(at.numbers, self.layouts),
            around=at.around,
            kinds=[layouts.stage(self.layouts, kind) for kind in range(self.num_kinds)],
            works=works,
            whole=tables.whole[0],
            whole_work=lambda: at.whole,
            behind=lambda kind: at.work(layouts.behind[chosen, kind]),
            rounds=lambda: tables.rounds_at(at.depths, at.points, chosen),  # no circle through ``self``
        )

    @cached_property
    def runnable(self) -> Flags:
        """Where the recomputation goes with the chunks per rank, by slot and point; True where all does."""
        together = self.at.tables.family.together
        allowed = True if together is None else together[np.ix_(self.at.slots, self.layouts)]
        return True if np.all(allowed) else allowed

    def step(self, sharding: int) -> Step:
        """Outcome of the plans under a kind of sharding: slots of recomputation by points."""
        charges = [self.at.charge(sharding, *each) for each in self._charge_rows]
        return Step(work=self.work, charges=charges, sharding_time=self.at.sharding_time(sharding))

    def memory(self, sharding: int) -> Step:
        """The same for who reads no times."""
        charges = [self.at.memory_charge(sharding, *each) for each in self._charge_rows]
        return Step(work=self.memory_work, charges=charges, sharding_time=0.0)


def _fill(
    at: PointGroup, pieces: Iterator[TablePiece], objective: Objective, best: NDArray[np.float64], stop: Stop | None
) -> int:
    """Writes the best values of some points over the chunks per rank, and counts their plans that fit."""
    feasible = 0
    least: dict[int, Numbers] = {}
    valid = {sharding: at.valid(sharding) for sharding in at.shardings}
    for piece in pieces:
        check(stop)
        for sharding in at.shardings:
            step = piece.step(sharding)
            value, fits = objective.value(step), all_hold([step.fits, valid[sharding], piece.runnable])
            if valid[sharding] is not True or piece.runnable is not True:
                with np.errstate(divide="ignore"):  # faster than np.where, as in ``objective``
                    value = np.divide(value, all_hold([valid[sharding], piece.runnable]))
            feasible += int(np.count_nonzero(np.broadcast_to(fits, (len(at.slots), len(at.points)))))
            known = least.get(sharding)
            least[sharding] = value if known is None else np.minimum(known, value)
    for sharding, values in least.items():
        lower(best[sharding], at, values)
    return feasible


def fitting(piece: TablePiece, sharding: int) -> NDArray[np.bool_]:
    """Which plans of a piece are valid under a kind of sharding and fit, by slot and point."""
    at = piece.at
    fits = all_hold([piece.memory(sharding).fits, at.valid(sharding), piece.runnable])
    return np.broadcast_to(np.asarray(fits), (len(at.slots), len(at.points)))


def lower(best: NDArray[np.float64], at: PointGroup, values: Numbers) -> None:
    """Puts the smaller of what is in ``best``, by slot and point of the family, and the values of some points there."""
    whole = np.broadcast_to(values, (len(at.slots), len(at.points)))
    if len(at.starts) < len(at.points):
        whole = np.minimum.reduceat(whole, at.starts, axis=1)
    place = np.ix_(at.slots, at.points[at.starts])
    best[place] = np.minimum(best[place], whole)


def pieces_of(tables: Tables) -> Iterator[tuple[PointGroup, Iterator[TablePiece]]]:
    """The plans of a family in pieces of about ``CELLS``, points that may have the same chunks per rank together."""
    family = tables.family
    counts, first = family.num_chunks(), family.first_layouts()
    group = first * (int(counts.max()) + 1) + counts
    order = np.lexsort((tables.block_of_point, group))
    few = []
    for points in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
        if len(points) < FEW:
            few.append(points)
            continue
        alike = np.arange(first[points[0]], first[points[0]] + counts[points[0]])
        depths = (int(family.points["depth"][points[0]]),)
        for layouts in _with_equal_slots(family, alike):
            for part in _parts_of(family, points, layouts[:1]):
                at = PointGroup.of(tables, points[part], layouts[:1], depths)
                yield at, (TablePiece.of(at, layouts[[number]]) for number in range(len(layouts)))
    if few:
        yield from _mixed(tables, np.concatenate(few))


def _mixed(tables: Tables, points: NDArray[np.intp]) -> Iterator[tuple[PointGroup, Iterator[TablePiece]]]:
    """Plans of points with different chunks per rank, those with as many kinds of stage together."""
    family, layouts = tables.family, tables.layouts
    counts = family.num_chunks()[points]
    first = family.first_layouts()[points]
    chunk = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    points, layout = np.repeat(points, counts), np.repeat(first, counts) + chunk
    depths = tuple(different(family.points["depth"][points]).tolist())
    kinds = 2 * layouts.num_kinds[layout] + (layouts.vp[layout] > 1)
    order = np.lexsort((points, kinds))
    for alike in np.split(order, np.flatnonzero(np.diff(kinds[order])) + 1):
        for part in _parts_of(family, points[alike], layout[alike]):
            rows = alike[part]
            at = PointGroup.of(tables, points[rows], layout[rows], depths)
            if len(at.slots):
                yield at, iter([TablePiece.of(at, layout[rows])])


def _with_equal_slots(family: Family, layouts: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Layouts in groups that go with the same slots of recomputation, which may be none; these are left out."""
    kinds = family.kinds_of_layouts[layouts]
    groups = [layouts[kinds == kind] for kind in different(kinds)]
    return groups if family.together is None else [each for each in groups if family.together[:, each[0]].any()]


def _parts_of(family: Family, points: NDArray[np.intp], layouts: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    """Positions of points, each with its layout (or one for all), in pieces that have most of what is valid together.

    Points differ in the slots of recomputation and in the kinds of sharding that are valid; those of a piece are
    priced with all that any of them may have. Sets of points are priced together where that takes less time than
    pricing each on its own.
    """
    of_points, of_layouts = family.kinds_of_points, family.kinds_of_layouts
    kinds = of_points[points] * (int(of_layouts.max()) + 1) + of_layouts[layouts]
    _, code = distinct(kinds, int(kinds.max()) + 1)
    first = first_of(code, int(code.max()) + 1)
    slots = family.slots_at(points[first], layouts[first] if len(layouts) > 1 else layouts)
    together = priced_together(slots.T, family.shards[:, points[first]].T, np.bincount(code))
    number = together[code]
    for each in range(int(together.max()) + 1):
        positions = np.flatnonzero(number == each)
        length = max(CELLS // max(int(slots[:, together == each].any(axis=1).sum()), 1), 1)
        yield from (positions[start : start + length] for start in range(0, len(positions), length))
