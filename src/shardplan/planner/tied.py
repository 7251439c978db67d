"""All plans that are too close to the fastest to call, priced as the constants are and where they are worse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardplan.estimation.perturbation import GROUPS, side_by_side
from shardplan.estimation.question import Question
from shardplan.estimation.ties import tie_factor
from shardplan.inputs.plan import Plan
from shardplan.planner.evaluation import CELLS, Table, is_valid, outcomes
from shardplan.planner.points import Family
from shardplan.planner.ranking import Cell

NUM_AXES = 4
"""Of the arrays over a family: sharding, recomputation, chunks per rank, points."""


@dataclass(frozen=True, kw_only=True)
class TiedPlans:
    """Every plan of the tables that fits and ties with the fastest: arrays of one length."""

    families: tuple[Family, ...]
    factor: float
    """Step times within this factor of the fastest are ties."""
    positions: NDArray[np.intp]
    """Rows: family, sharding, recomputation, chunks per rank, point."""
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
        family, sharding, recomputation, chunks, point = (int(i) for i in self.positions[:, index])
        return self.families[family].plan(sharding, recomputation, self.families[family].vps[chunks], point)

    def index_of(self, cell: Cell) -> int | None:
        """The fastest of the plans at ``cell``; None where none ties."""
        number = next((i for i, family in enumerate(self.families) if family is cell.family), None)
        if number is None:
            return None
        sharding, recomputation, point = cell.position
        wanted = np.asarray([[number], [sharding], [recomputation], [point]])
        found = np.flatnonzero((self.positions[[0, 1, 2, 4]] == wanted).all(axis=0))
        return int(found[self.step_time[found].argmin()]) if len(found) else None


def tied_plans(question: Question, tables: Sequence[Table]) -> TiedPlans | None:
    """The plans of ``tables`` that tie with the fastest; None where nothing fits."""
    fastest = min((float(table.best.min()) for table in tables), default=np.inf)
    if not np.isfinite(fastest):
        return None
    factor = tie_factor()
    asked = side_by_side(question, num_axes=NUM_AXES)
    near = [table for table in tables if table.best.min() <= fastest * factor]
    parts = [part for number, table in enumerate(near) for part in _ties_of(asked, table, number, fastest * factor)]
    positions, times, memory = (np.concatenate(arrays, axis=-1) for arrays in zip(*parts, strict=True))
    return TiedPlans(
        families=tuple(table.family for table in near),
        factor=factor,
        positions=positions,
        step_time=times[0],
        lost=np.maximum(times[1:] - times[0], 0.0),
        peak_memory_bytes=memory,
    )


def _ties_of(asked: Question, table: Table, number: int, limit: float) -> Iterator[tuple[Any, Any, Any]]:
    """Positions, step times (a row for each profile) and peak memory of the plans of a table up to ``limit``."""
    near = table.best <= limit
    shardings, recomputations, points = (np.flatnonzero(near.any(axis=axes)) for axes in ((1, 2), (0, 2), (0, 1)))
    size = len(shardings) * len(recomputations) * len(table.family.vps) * (1 + len(GROUPS))
    for part in np.array_split(points, -(-len(points) * size // CELLS)):
        family = _part(table.family, shardings, recomputations, part)
        step = outcomes(asked, family)
        valid = is_valid(family)
        shape = (len(shardings), len(recomputations), *valid.shape[2:])
        times = np.broadcast_to(np.asarray(step.step_time), (1 + len(GROUPS), *shape))
        tied = np.broadcast_to(valid & step.fits, shape) & (times[0] <= limit * (1 + 1e-12))
        sharding, recomputation, chunks, point = np.nonzero(tied)
        family_number = np.full_like(point, number)
        places = (family_number, shardings[sharding], recomputations[recomputation], chunks, part[point])
        memory = np.broadcast_to(np.asarray(step.peak_memory_bytes), shape)
        yield np.stack(places), times[:, tied], memory[tied]


def _part(family: Family, shardings: Any, recomputations: Any, points: Any) -> Family:
    """The family with these positions of its axes alone."""
    return replace(
        family,
        shardings=tuple(family.shardings[i] for i in shardings),
        recomputations=tuple(family.recomputations[i] for i in recomputations),
        points={field: values[points] for field, values in family.points.items()},
        interleaves=family.interleaves[points],
        shards=family.shards[np.ix_(shardings, points)],
    )
