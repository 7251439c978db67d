"""The plans that are close to the fastest, and others that are listed: priced again, and where constants are worse.

Where no tie has headroom, slower plans are priced too, among which may be one that has: those that take up to
``ROOM_FACTOR`` times as long as the fastest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import coded, different, distinct
from shardplan.base.fields import dataclass, replace
from shardplan.estimation.band import band_of
from shardplan.estimation.perturbation import GROUPS, side_by_side
from shardplan.estimation.question import Question
from shardplan.estimation.ties import tie_factor
from shardplan.inputs.plan import Plan
from shardplan.planner.evaluation import Table, listed_of, outcomes
from shardplan.planner.pricing.tables import Tables
from shardplan.planner.ranking import Cell
from shardplan.planner.space import GRID

ROOM_FACTOR: Final = 1.15
"""A plan that may not fit gives way to one that has headroom and takes up to so many times as long as the fastest."""


class Needs(NamedTuple):
    """What a plan takes."""

    step_time: float
    """[s]"""
    peak_memory_bytes: float
    """On the fullest accelerator. [bytes]"""
    fits: bool = True


@dataclass(frozen=True, kw_only=True)
class PricedPlans:
    """Plans of the tables that fit: all that tie with the fastest, and those of listed cells.

    Where no tie has headroom, all that take up to ``ROOM_FACTOR`` times as long as the fastest.
    """

    tables: tuple[Tables, ...]
    factor: float
    """Step times within this factor of the fastest are ties."""
    positions: NDArray[np.intp]
    """Rows: family, sharding, slot of recomputation, layout, point."""
    step_time: NDArray[np.float64]
    """[s]"""
    lost: NDArray[np.float64]
    """Rows: groups of constants; how much longer the step takes where these are worse. [s]"""
    peak_memory_bytes: NDArray[np.float64]
    instead: Mapping[int, Plan] = field(default_factory=dict)
    """Plans under other software than the tables have, by index (``planner.related.forms``, ``shown_forms``)."""

    @classmethod
    def of(cls, tables: Sequence[Table], parts: Sequence[Columns]) -> PricedPlans:
        """The plans that are ``parts`` of some tables."""
        positions, times, memory = (np.concatenate(arrays, axis=-1) for arrays in zip(*parts, strict=True))
        return cls(
            tables=tuple(table.tables for table in tables),
            factor=tie_factor(),
            positions=positions,
            step_time=times[0],
            lost=lost_time(times),
            peak_memory_bytes=memory,
        )

    @property
    def pessimistic_time(self) -> NDArray[np.float64]:
        """Step time where all groups of constants are worse, as independent of one another. [s]"""
        return self.step_time + np.sqrt((self.lost**2).sum(axis=0))

    @property
    def tied(self) -> NDArray[np.intp]:
        """Positions of those that tie with the fastest, itself among them."""
        return self.tied_among(np.arange(len(self.step_time)))

    def tied_among(self, plans: NDArray[np.intp]) -> NDArray[np.intp]:
        """Those of ``plans`` that tie with the fastest of them."""
        return self.within(plans, self.factor)

    def within(self, plans: NDArray[np.intp], factor: float) -> NDArray[np.intp]:
        """Those of ``plans`` that take up to ``factor`` times as long as the fastest of them."""
        times = self.step_time[plans]
        return plans[times <= times.min(initial=np.inf) * factor * (1 + SAME)]

    def kinds(self, plans: NDArray[np.intp]) -> NDArray[np.intp]:
        """A number for each of ``plans``, the same where they differ in placement and recomputed layers alone."""
        number, sharding, slot, layout, point = self.positions[:, plans]
        rows = np.empty((4 + len(GRID), len(plans)), dtype=np.int64)
        for each in different(number):
            here = number == each
            family, vp = self.tables[each].family, self.tables[each].layouts.vp
            policy = np.unique(family.policies, return_inverse=True)[1]
            grid = (family.points[name][point[here]] for name in GRID)
            rows[0, here] = each
            rows[1:, here] = np.stack([sharding[here], policy[slot[here]], vp[layout[here]], *grid])
        return distinct(*coded(*rows))[1]

    def at(self, plans: NDArray[np.intp], step_time: NDArray[np.float64]) -> PricedPlans:
        """``plans`` alone, with other step times."""
        instead = {place: self.instead[each] for place, each in enumerate(plans.tolist()) if each in self.instead}
        return replace(
            self,
            instead=instead,
            positions=self.positions[:, plans],
            step_time=step_time,
            lost=self.lost[:, plans],
            peak_memory_bytes=self.peak_memory_bytes[plans],
        )

    def joined_by(
        self, forms: Mapping[int, Plan], origins: NDArray[np.intp], costs: NDArray[np.float64]
    ) -> PricedPlans:
        """The same, and behind them plans under other software.

        ``forms``: these plans by their index. ``origins``: the plan that each has the degrees of. ``costs``: a row of
        step times for each group of constants, the first as they are. [s]
        """
        return replace(
            self,
            positions=np.hstack([self.positions, self.positions[:, origins]]),
            step_time=np.concatenate([self.step_time, costs[0]]),
            lost=np.hstack([self.lost, lost_time(costs)]),
            peak_memory_bytes=np.concatenate([self.peak_memory_bytes, self.peak_memory_bytes[origins]]),
            instead={**self.instead, **forms},
        )

    def plan(self, index: int) -> Plan:
        """The plan at ``index``."""
        if index in self.instead:
            return self.instead[index]
        number, *place = self.positions[:, index]
        return self.tables[number].plan(*place)

    def needs(self, index: int) -> Needs:
        """What the plan at ``index`` takes."""
        return Needs(float(self.step_time[index]), float(self.peak_memory_bytes[index]))

    def index_of(self, cell: Cell) -> int | None:
        """The fastest of the plans at ``cell``; None where none is among these."""
        for number, tables in enumerate(self.tables):
            place = cell.place_in(tables)
            if place is not None:
                wanted = np.asarray([[number], *([each] for each in place)])
                found = np.flatnonzero((self.positions[[0, 1, 2, 4]] == wanted).all(axis=0))
                return int(found[self.step_time[found].argmin()]) if len(found) else None
        return None


Columns = tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.float64]]
"""Positions, step times (a row for each profile) and peak memory of plans."""


def lost_time(times: NDArray[np.float64]) -> NDArray[np.float64]:
    """How much longer steps take where a group of constants is worse, by rows of times: the first as they are. [s]"""
    lost: NDArray[np.float64] = np.maximum(times[1:] - times[0], 0.0)
    return lost


SAME = 1e-12
"""Times that differ by less are the same: sums in another order."""


def fastest_of(tables: Sequence[Table]) -> float:
    """The fastest step of ``tables``; infinite where nothing fits. [s]"""
    return min((float(table.best.min()) for table in tables), default=np.inf)


def priced_plans(
    question: Question, tables: Sequence[Table], listed: Sequence[Cell], within: float | None = None
) -> PricedPlans | None:
    """The plans of ``tables`` that tie with the fastest, and those of ``listed`` cells; None where nothing fits.

    ``within``: a factor of the fastest that counts in place of that of ties.
    """
    fastest = fastest_of(tables)
    if not np.isfinite(fastest):
        return None
    limit = fastest * (within or tie_factor())
    asked = side_by_side(question, num_axes=1)
    near = [
        table
        for table in tables
        if table.best.min() <= limit or any(cell.place_in(table.tables) is not None for cell in listed)
    ]
    return PricedPlans.of(near, [_of_table(asked, table, number, limit, listed) for number, table in enumerate(near)])


def has_headroom(question: Question, peak_memory_bytes: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether plans fit at the upper end of the band of their memory too."""
    return peak_memory_bytes * band_of(question, "memory").high <= float(question.usable_memory)


def roomy_memory(question: Question) -> float:
    """Plans that need no more have headroom. [bytes]"""
    usable = float(question.usable_memory)
    return min(usable, usable / band_of(question, "memory").high * (1 + SAME))


def priced_cells(question: Question, tables: Sequence[Table], cells: Sequence[NDArray[np.bool_]]) -> PricedPlans:
    """All plans that fit of some cells of every table, whether they tie or not."""
    asked = side_by_side(question, num_axes=1)
    pairs = enumerate(zip(tables, cells, strict=True))
    return PricedPlans.of(tables, [_of_cells(asked, table, number, chosen) for number, (table, chosen) in pairs])


def _of_table(asked: Question, table: Table, number: int, limit: float, listed: Sequence[Cell]) -> Columns:
    """The plans of a table that count: those within ``limit``, and those of listed cells."""
    shown = np.zeros(table.best.shape, dtype=bool)
    for cell in listed:
        place = cell.place_in(table.tables)
        if place is not None:
            shown[place] = True
    places, times, memory = _of_cells(asked, table, number, (table.best <= limit) | shown)
    counts = shown[places[1], places[2], places[4]] | (times[0] <= limit * (1 + SAME))
    return places[:, counts], times[:, counts], memory[counts]


def _of_cells(asked: Question, table: Table, number: int, cells: NDArray[np.bool_]) -> Columns:
    """The plans of some cells that fit."""
    plans = listed_of(table, cells)
    if not len(plans):
        return np.empty((5, 0), dtype=np.intp), np.empty((1 + len(GROUPS), 0)), np.empty(0)
    step = outcomes(asked, table.tables, plans)
    times = np.broadcast_to(step.step_time, (1 + len(GROUPS), len(plans)))
    memory = np.broadcast_to(step.peak_memory_bytes, (len(plans),))
    kept = np.flatnonzero(step.fits)
    left = plans.at(kept)
    places = (np.full_like(left.points, number), left.shardings, left.slots, left.layouts, left.points)
    return np.stack(places), times[:, kept], memory[kept]
