"""Plans of a part of a family that fit in memory: a pool, of which those are priced that may be of use.

A plan is of use to a system and a capacity where its step takes no longer than some limit. Bounds come first: that of
all plans of a point, then, where it is within the limit, that of the pipeline, both with what its states add under the
kinds of sharding that fit, and last the step. Where many plans are within the limit, their pipelines are priced under
the best network first, on which they take no longer than on any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import different
from shardplan.planner.evaluation import pairs_in
from shardplan.planner.pricing.pairs import Index, Pairs, least_times, peaks, step_times
from shardplan.planner.pricing.tables import Tables
from shardplan.planner.pruning.bounds import ROUNDING, FirstStages, LeastOfStates, bound_and_promise, least_of_states
from shardplan.planner.related.side_by_side import Limits, Slice
from shardplan.planner.stopping import Stop

FIRST = 16
"""Points of every system that are looked at first, so that others have something to be slower than."""
ENOUGH = 1024
"""Points of a family below which all are looked at together."""
MANY = 2048
"""Plans, each under one of the systems, that are priced in about the time of few."""
SOME = 64
"""Plans of every system and capacity whose closer bound is found first."""
FEW = 8
"""The most promising of them, which are priced first, so that others have something to be slower than."""


class Fitting(NamedTuple):
    """Plans that fit, each under one of the systems: columns of one length."""

    places: Index
    """Rows: family, sharding, slot of recomputation, layout, point."""
    systems: Index
    classes: Index
    """The smallest capacity in which each fits."""
    peak_memory_bytes: NDArray[np.float64]
    step_time: NDArray[np.float64]
    """[s]"""

    def at(self, index: NDArray[np.intp] | NDArray[np.bool_]) -> Fitting:
        """Those at these positions."""
        columns: Any = (column[..., index] for column in self)
        return Fitting(*columns)

    def within(self, limits: Limits) -> Fitting:
        """Those whose step takes no longer."""
        return self.at(self.step_time <= limits[self.systems, self.classes])

    def in_order(self) -> Fitting:
        """The same in the order in which a search names equally fast plans."""
        family, sharding, slot, layout, point = self.places
        return self.at(np.lexsort((layout, slot, sharding, point, family)))

    @classmethod
    def joined(cls, parts: Sequence[Fitting]) -> Fitting:
        """Plans of several lists; none of no list."""
        if not parts:
            none = np.empty(0, dtype=np.intp)
            return cls(np.empty((5, 0), dtype=np.intp), none, none, np.empty(0), np.empty(0))
        return cls(*(np.concatenate(columns, axis=-1) for columns in zip(*parts, strict=True)))


class Pool:
    """Plans but for their sharding that fit and may be of use, as far as the first bound says."""

    def __init__(
        self,
        tables: Tables,
        usable: NDArray[np.float64],
        least: NDArray[np.float64],
        states: LeastOfStates,
        *,
        best: int | None,
        stop: Stop | None,
    ) -> None:
        """``least``: what passes of plans take at least, by system, slot and point [s]; ``states``: what states add.

        ``usable``: what tensors can fill of each capacity, ascending [bytes]; ``best``: the system with the best
        network, if one has it.
        """
        self._tables, self._usable, self._best, self._stop = tables, usable, best, stop
        self._first, self._several = least, least.shape[-1]
        self._once = np.concatenate([states.single, states.several], axis=-1)
        self._states = self._once + np.concatenate([states.sharded, states.sharded], axis=-1)

    def fill(self, limits: Limits) -> None:
        """Finds the memory of all plans that may be within limits."""
        plans = pairs_in(self._tables, self._tables.family.recomputes)
        peak = peaks(self._tables, plans, self._stop)
        smallest = np.searchsorted(self._usable, peak.min(axis=0))
        least = np.minimum(*np.split(self._states, 2, axis=-1)).min(axis=1)
        shares = _least_shares(self._first + least[:, None, :], limits)
        near = np.flatnonzero(shares[smallest, plans.slots, plans.points] <= 1 + ROUNDING)
        self._plans = np.stack([plans.slots, plans.layouts, plans.points])[:, near]
        """Slots of recomputation, layouts and points."""
        self._peak = peak[:, near]
        self._smallest = np.searchsorted(self._usable, self._peak)
        self._lay_out()

    def _lay_out(self) -> None:
        """Puts the first bound of all plans side by side."""
        slots, layouts, points = self._plans
        self._place = points + np.where(self._tables.layouts.vp[layouts] > 1, self._several, 0)
        self._passes = self._first[:, slots, points]
        self._bound = np.full(self._passes.shape, np.inf)
        for kind, smallest in enumerate(self._smallest):
            added = self._states[:, kind].take(self._place, axis=-1)
            added[:, smallest == len(self._usable)] = np.inf
            np.minimum(self._bound, added, out=self._bound)
        self._bound += self._passes
        self._is_close = np.zeros(self._bound.shape, dtype=bool)
        self._is_bounded = np.zeros(len(layouts), dtype=bool)

    @cached_property
    def _least_once(self) -> NDArray[np.float64]:
        """What states add once a step, whatever the sharding: by system and place. [s]"""
        return self._once.min(axis=1)

    @property
    def has_many(self) -> bool:
        """Whether there are so many plans that those that promise most are priced before others."""
        return self._bound.size > MANY

    def _least(self, systems: Index, columns: Index) -> NDArray[np.float64]:
        """Steps of some plans take no less: by kind of sharding; infinite where they do not fit. [s]"""
        slots, _, points = self._plans[:, columns]
        num_kinds, num_places = self._once.shape[1:]
        row = systems * num_kinds * num_places + self._place[columns]
        once, states = self._once.ravel(), self._states.ravel()
        close, first = self._passes[systems, columns], self._first[systems, slots, points]
        found = np.empty((num_kinds, len(columns)))
        for kind, smallest in enumerate(self._smallest):
            at = row + kind * num_places
            np.maximum(close + once.take(at), first + states.take(at), out=found[kind])
            found[kind, smallest[columns] == len(self._usable)] = np.inf
        return found

    def promising(self, limits: Limits) -> Limits:
        """Limits within which, by their bound, are few plans of every system and capacity; no higher than these."""
        self._come_closer(self._with_some(self._bound, limits, SOME))
        return self._with_some(np.where(self._is_close, self._bound, np.inf), limits, FEW)

    def _with_some(self, bound: NDArray[np.float64], limits: Limits, number: int) -> Limits:
        """Limits within which are so many of these bounds of every system and capacity."""
        found, least = limits.copy(), self._smallest.min(axis=0)
        for capacity in range(len(self._usable)):
            fitting = bound[:, least <= capacity]
            if fitting.shape[1] >= number:
                last = np.partition(fitting, number - 1, axis=1)[:, number - 1]
                found[:, capacity] = np.fmin(found[:, capacity], last)
        return found

    def price(self, limits: Limits, kept: Limits) -> Fitting:
        """Plans that have not been priced and may be within limits: those within others, which are no lower."""
        if self.has_many:
            self._bound_by_best(limits)
            self._come_closer(limits)
        pairs, columns = self._near(limits)
        smallest = self._smallest[:, columns]
        most = kept[pairs.systems, smallest] * (1 + ROUNDING)
        times = step_times(self._tables, pairs, self._least(pairs.systems, columns) <= most, self._stop)
        self._bound[pairs.systems, columns] = np.nan  # none is priced twice: limits only fall
        sharding, pair = np.nonzero((times <= most) & np.isfinite(times))
        found = pairs.at(pair)
        return Fitting(
            places=np.stack([np.zeros_like(sharding), sharding, found.slots, found.layouts, found.points]),
            systems=found.systems,
            classes=smallest[sharding, pair],
            peak_memory_bytes=self._peak[sharding, columns[pair]],
            step_time=times[sharding, pair],
        )

    def _come_closer(self, limits: Limits) -> None:
        """Finds the closer bound of plans that may be within limits."""
        pairs, columns = self._near(limits, without=self._is_close)
        at = pairs.systems, columns
        self._passes[at] = least_times(self._tables, pairs, self._stop)
        self._bound[at] = self._least(*at).min(axis=0)
        self._is_close[at] = True

    def _bound_by_best(self, limits: Limits) -> None:
        """Bounds plans that may be within limits on all systems by what they take on the best one, if they are many."""
        _, near = self._near(limits, without=self._is_close)
        if self._best is None or len(near) <= MANY:
            return
        columns = different(near[~self._is_bounded[near]])
        self._is_bounded[columns] = True
        pairs = Pairs(np.full_like(columns, self._best), *self._plans[:, columns])
        least = least_times(self._tables, pairs, self._stop) + self._least_once.take(self._place[columns], axis=-1)
        self._bound[:, columns] = np.maximum(self._bound[:, columns], least)

    def _near(self, limits: Limits, without: NDArray[np.bool_] | None = None) -> tuple[Pairs, Index]:
        """Plans and systems whose bound is within limits, and their positions in the pool."""
        limit = limits[:, :1] if len(self._usable) == 1 else limits[:, self._smallest.min(axis=0)]
        near = self._bound <= limit * (1 + ROUNDING)
        found = np.flatnonzero(near if without is None else near > without)
        systems, columns = np.divmod(found, near.shape[1]) if len(found) else (found, found)
        return Pairs(systems, *self._plans[:, columns]), columns


def _least_shares(bound: NDArray[np.float64], limits: Limits) -> NDArray[np.float64]:
    """What share of the limit plans take at least, of the system of the smallest: by capacity, slot and point."""
    shares = [(bound / limit[:, None, None]).min(axis=0) for limit in limits.T[:-1]]
    return np.stack([*shares, np.full(bound.shape[1:], np.inf)])  # where a plan fits no capacity


class FamilyPools:
    """The plans of a family, of which those that may be of use are priced."""

    def __init__(self, asked: Slice, number: int, tables: Tables, stop: Stop | None) -> None:
        self._number, self._family, self._usable, self._stop = number, tables.family, asked.usable, stop
        self.times, family, self._best = tables, tables.family, asked.best
        shape = len(asked.of_systems), *family.recomputes.shape
        self._passes, promise = (np.broadcast_to(each, shape) for each in bound_and_promise(self.times))
        first, most_bytes = FirstStages(self.times), float(asked.usable[-1])
        states = least_of_states(self.times, most_bytes, first)
        self._states = LeastOfStates(*(np.broadcast_to(each, (shape[0], *family.shards.shape)) for each in states))
        self._least_states = self._states.least.min(axis=1)
        self._may_fit = first.least_memory() <= most_bytes * (1 + ROUNDING)
        self._promise = np.min(promise, axis=1, where=self._may_fit, initial=np.inf) + self._least_states
        self._seen = np.zeros(family.num_points, dtype=bool)
        self._pools: list[tuple[Index, Pool]] = []

    def first_points(self) -> Index:
        """Those that promise most to any system, of small micro-batches, of which most fit; all where they are few."""
        points = np.flatnonzero(self._may_fit.any(axis=0))
        if np.count_nonzero(self._may_fit) < ENOUGH:
            return points
        points = points[self._family.is_lightest[points]]
        if len(points) <= FIRST:
            return points
        return points[different(np.argpartition(self._promise[:, points], FIRST, axis=1)[:, :FIRST])]

    def other_points(self) -> Index:
        """Those that have not been looked at."""
        return np.flatnonzero(~self._seen)

    def fill(self, points: Index, limits: Limits) -> None:
        """Finds the memory of plans of some points that may be of use."""
        self._seen[points] = True
        cells = np.zeros((len(self._may_fit), len(points)), dtype=bool)
        most = np.minimum(limits[:, 0] * (1 + ROUNDING), np.finfo(np.float64).max)  # what is infinite is not valid
        for passes, states, limit in zip(self._passes, self._least_states, most, strict=True):
            cells |= passes[:, points] + states[points] <= limit
        cells &= self._may_fit[:, points]
        held = np.flatnonzero(cells.any(axis=0))
        if len(held):
            points, cells = points[held], cells[:, held]
            least = self._passes[:, :, points], self._states.at(points)
            tables = self.times.within(points, cells)
            pool = Pool(tables, self._usable, *least, best=self._best, stop=self._stop)
            pool.fill(limits)
            self._pools.append((points, pool))

    @property
    def has_many(self) -> bool:
        """Whether many plans have been filled in last."""
        return bool(self._pools) and self._pools[-1][1].has_many

    def promising(self, limits: Limits) -> Limits:
        """Limits within which some plans are that have been filled in last; no higher than these."""
        return self._pools[-1][1].promising(limits) if self._pools else limits

    def price(self, limits: Limits, kept: Limits) -> list[Fitting]:
        """Plans that have not been priced and may be within limits: those within others, which are no lower."""
        return [self._of_family(points, pool.price(limits, kept)) for points, pool in self._pools]

    def _of_family(self, points: Index, kept: Fitting) -> Fitting:
        """Plans of a pool at their places."""
        places = kept.places.copy()
        places[0], places[-1] = self._number, points[kept.places[-1]]
        return kept._replace(places=places)
