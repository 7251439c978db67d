"""All plans that are too close to the fastest to call, priced as the constants are and where they are worse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardplan.estimation.perturbation import GROUPS, side_by_side
from shardplan.estimation.question import Question
from shardplan.estimation.ties import tie_factor
from shardplan.inputs.plan import Plan
from shardplan.planner.evaluation import Table
from shardplan.planner.listed import listed_near, outcomes
from shardplan.planner.ranking import Cell
from shardplan.planner.tables import Tables


@dataclass(frozen=True, kw_only=True)
class TiedPlans:
    """Every plan of the tables that fits and ties with the fastest: arrays of one length."""

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

    @property
    def pessimistic_time(self) -> NDArray[np.float64]:
        """Step time where all groups are worse, as independent of one another. [s]"""
        return self.step_time + np.sqrt((self.lost**2).sum(axis=0))

    def plan(self, index: int) -> Plan:
        """The plan at ``index``."""
        number, sharding, slot, layout, point = (int(i) for i in self.positions[:, index])
        tables = self.tables[number]
        return tables.family.plan(sharding, slot, int(tables.layouts.vp[layout]), point)

    def index_of(self, cell: Cell) -> int | None:
        """The fastest of the plans at ``cell``; None where none ties."""
        number = next((i for i, tables in enumerate(self.tables) if tables is cell.tables), None)
        if number is None:
            return None
        sharding, slot, point = cell.position
        wanted = np.asarray([[number], [sharding], [slot], [point]])
        found = np.flatnonzero((self.positions[[0, 1, 2, 4]] == wanted).all(axis=0))
        return int(found[self.step_time[found].argmin()]) if len(found) else None


def tied_plans(question: Question, tables: Sequence[Table]) -> TiedPlans | None:
    """The plans of ``tables`` that tie with the fastest; None where nothing fits."""
    fastest = min((float(table.best.min()) for table in tables), default=np.inf)
    if not np.isfinite(fastest):
        return None
    factor = tie_factor()
    asked = side_by_side(question, num_axes=1)
    near = [table for table in tables if table.best.min() <= fastest * factor]
    parts = [_ties_of(asked, table, number, fastest * factor) for number, table in enumerate(near)]
    positions, times, memory = (np.concatenate(arrays, axis=-1) for arrays in zip(*parts, strict=True))
    return TiedPlans(
        tables=tuple(table.tables for table in near),
        factor=factor,
        positions=positions,
        step_time=times[0],
        lost=np.maximum(times[1:] - times[0], 0.0),
        peak_memory_bytes=memory,
    )


def _ties_of(
    asked: Question, table: Table, number: int, limit: float
) -> tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.float64]]:
    """Positions, step times (a row for each profile) and peak memory of the plans of a table up to ``limit``."""
    near = listed_near(table, limit)
    step = outcomes(asked, table.tables, near)
    times = np.broadcast_to(np.asarray(step.step_time), (1 + len(GROUPS), len(near)))
    memory, fits = (np.broadcast_to(np.asarray(part), (len(near),)) for part in (step.peak_memory_bytes, step.fits))
    tied = np.flatnonzero(fits & (times[0] <= limit * (1 + 1e-12)))
    kept = near.at(tied)
    places = (np.full_like(kept.points, number), kept.shardings, kept.slots, kept.layouts, kept.points)
    return np.stack(places), times[:, tied], memory[tied]
