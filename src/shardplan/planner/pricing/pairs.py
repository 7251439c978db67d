"""Plans that have been picked out, each under one of several systems: columns of one length, looked up in tables.

Tables of questions side by side hold the price of every part under every system. Few plans are of use to each system,
and not the same ones, so a plan is priced for those systems alone to which it may be of use.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import Numbers, all_hold, columns_coded, distinct, gather, mapped, one_number, where
from shardplan.base.fields import replace
from shardplan.estimation.load import StageWork
from shardplan.estimation.step import Step, WorkOfStages, whole_step
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.physics.workload.stage import Stage
from shardplan.planner.pricing.cutting import CELLS
from shardplan.planner.pricing.tables import Reads, Tables
from shardplan.planner.stopping import Stop, check

Index = NDArray[np.intp]
MORE_KINDS = 4096
"""Kinds of stage that are priced twice rather than plans in one more round."""
Record = TypeVar("Record")


class Pairs(NamedTuple):
    """Plans but for their sharding, each under one of the systems."""

    systems: Index
    slots: Index
    layouts: Index
    points: Index

    def at(self, index: NDArray[Any]) -> Pairs:
        """Those at these positions."""
        return Pairs(*(column[index] for column in self))


def least_times(tables: Tables, pairs: Pairs, stop: Stop | None = None) -> NDArray[np.float64]:
    """Steps of plans take no less, whatever their sharding. [s]"""
    found = np.empty(len(pairs.systems))
    for part, lookup in _lookups(tables, pairs, np.zeros(len(found), dtype=np.intp), stop):
        found[part] = whole_step(tables.question, lookup.work("times").least_busy)
    return found


def step_times(
    tables: Tables,
    pairs: Pairs,
    shardings: NDArray[np.bool_],
    stop: Stop | None = None,
    *,
    reads: Reads = "times",
) -> NDArray[np.float64]:
    """Step times of plans under the kinds of sharding that are wanted: kinds by pairs; infinite elsewhere. [s]

    Where memory is read as well, infinite where plans do not fit.
    """
    found = np.full(shardings.shape, np.inf)
    for part, lookup in _lookups(tables, pairs, columns_coded(shardings), stop):
        wanted = np.flatnonzero(shardings[:, part].any(axis=1))
        if len(wanted):
            step = lookup.step(wanted, reads)
            times = whole_step(tables.question, step.busiest)
            found[np.ix_(wanted, part)] = times if reads == "times" else where(step.fits, times, np.inf)
    return np.where(shardings, found, np.inf)


def peaks(tables: Tables, pairs: Pairs, stop: Stop | None = None, *, on_any_host: bool = False) -> NDArray[np.float64]:
    """Memory of plans under every kind of sharding: kinds by pairs; infinite where none will do. [bytes]

    ``on_any_host``: also of plans that move more to the memory of a host than it has.
    """
    family = tables.family
    found = np.empty((len(family.shardings), len(pairs.points)))
    for part, lookup in _lookups(tables, pairs, np.zeros(len(pairs.points), dtype=np.intp), stop):
        step = lookup.step(np.arange(len(family.shardings)), "memory")
        valid = all_hold([on_any_host or step.host_fits, family.shards[:, pairs.points[part]]])
        found[:, part] = where(valid, step.peak_memory_bytes, np.inf)
    return found


def _lookups(tables: Tables, pairs: Pairs, groups: Index, stop: Stop | None) -> Iterator[tuple[Index, _Lookup]]:
    """Positions of plans in pieces, those of a group as neighbours, and their prices."""
    num_kinds = kinds_together(tables.layouts.num_kinds[pairs.layouts])
    order = np.lexsort((groups, num_kinds))
    for alike in np.split(order, np.flatnonzero(np.diff(num_kinds[order])) + 1) if len(order) else ():
        for start in range(0, len(alike), CELLS // 4):
            check(stop)
            part = alike[start : start + CELLS // 4]
            yield part, _Lookup(tables, pairs.at(part))


def kinds_together(num_kinds: Index) -> Index:
    """With how many kinds of stage each plan is priced: some more where that saves few plans a round of their own."""
    counts = np.bincount(num_kinds)
    found, several = np.arange(len(counts)), np.flatnonzero(counts).tolist()
    for number, more in pairwise(several):
        if counts[number] * (more - number) <= MORE_KINDS:
            found[found == number] = more
            counts[more] += counts[number]
    return found[num_kinds]


class _Lookup:
    """Plans, and where in the tables their prices are; those with fewer kinds of stage have the last of them again."""

    def __init__(self, tables: Tables, pairs: Pairs) -> None:
        self._tables, self._pairs = tables, pairs
        self._depth = tables.family.points["depth"][pairs.points]

    def work(self, reads: Reads) -> WorkOfStages:
        """What sharding does not change."""
        tables, (_, _, layouts, points), laid = self._tables, self._pairs, self._tables.layouts
        return WorkOfStages(
            question=tables.question,
            numbers=self._numbers,
            around=self._picked(tables.around, points),
            kinds=self._stages,
            works=[self._work(each, reads) for each in self._compositions],
            whole=tables.whole[0],
            whole_work=lambda: self._picked(tables.read(tables.whole[1], "times"), tables.block_of_point[points]),
            behind=lambda kind: self._work(laid.behind[layouts, self._kinds[kind]], "times"),
            longest=self._longest_time,
        )

    def step(self, shardings: Index, reads: Reads) -> Step:
        """Outcome under some kinds of sharding: kinds by pairs."""
        charge, _ = self._tables.charge_table(self._tables.depths)
        charge = charge if reads == "both" else charge.times if reads == "times" else charge.memory
        kinds = shardings[:, None]
        return Step(
            work=self.work(reads),
            charges=[self._picked(charge, each, kinds) for each in self._charge_rows],
            sharding_time=0.0 if reads == "memory" else self._picked(self._tables.sharding_time, self._keys, kinds),
        )

    @cached_property
    def _kinds(self) -> list[Index]:
        """Kinds of stage of every plan."""
        last = self._tables.layouts.num_kinds[self._pairs.layouts] - 1
        return [np.minimum(kind, last) for kind in range(int(last.max()) + 1)]

    @cached_property
    def _compositions(self) -> list[Index]:
        """Of every kind of stage."""
        laid, layouts = self._tables.layouts, self._pairs.layouts
        return [laid.composition[layouts, kind] for kind in self._kinds]

    @cached_property
    def _keys(self) -> Index:
        """Sets of degrees and placement."""
        return self._tables.layout_keys[1][self._pairs.points]

    @cached_property
    def _charge_rows(self) -> list[Index]:
        """Of every kind of stage where its charges are."""
        _, rows = self._tables.charge_table(self._tables.depths)
        return [rows.at(self._depth, each, self._keys) for each in self._compositions]

    @property
    def _stages(self) -> list[Stage]:
        """Every kind of stage: made once for plans of one layout."""
        own, index = distinct(self._pairs.layouts, len(self._tables.layouts.vp))
        last = self._tables.layouts.num_kinds[own] - 1
        stages = [self._tables.layouts.stage(own, np.minimum(kind, last)) for kind in range(len(self._kinds))]
        return [gather(each, index) if len(own) > 1 else each for each in stages]

    @property
    def _numbers(self) -> PlanNumbers:
        """What is read of plans in numbers once their parts are priced."""
        tables, (_, slots, layouts, points) = self._tables, self._pairs
        layers = np.asarray([[np.inf if n is None else n for n in each] for each in tables.family.layers])
        numbers = tables.numbers.with_chunks(tables.numbers.of(points, None), tables.layouts.vp[layouts])
        return replace(numbers, recompute_num_layers=one_number(layers[self._depth, slots]))

    def _longest_time(self) -> Numbers:
        """Seconds on the longest ways through uneven chunks."""
        taken = partial(self._picked, last=self._tables.block_of_point[self._pairs.points])
        return self._tables.longest_time(self._pairs.layouts, taken)

    def _work(self, compositions: Index, reads: Reads) -> StageWork:
        """Work of stages of these compositions."""
        places = self._tables.work_rows(self._tables.depths, (compositions, self._pairs.points))
        return self._picked(self._tables.work_table(self._tables.depths, reads), places)

    def _picked(self, record: Record, last: Index, kinds: Index | None = None) -> Record:
        """``record`` with every array taken at a system, a slot of recomputation and a place for each pair.

        ``kinds``: of sharding, which take the place of the slots.
        """
        known: dict[tuple[int, ...], Any] = {}
        slots = self._pairs.slots if kinds is None else kinds

        def place(shape: tuple[int, ...]) -> Any:
            of_systems, of_slots, length = (1,) * (3 - len(shape)) + shape
            index: Any = last if length > 1 else 0
            index = index + slots * length if of_slots > 1 else index
            return index + self._pairs.systems * (of_slots * length) if of_systems > 1 else index

        def taken(array: NDArray[Any]) -> Numbers:
            if array.shape not in known:
                known[array.shape] = place(array.shape)
            return np.take(array, known[array.shape])  # by the place in all axes

        return mapped(record, taken)
