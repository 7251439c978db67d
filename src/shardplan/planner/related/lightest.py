"""The plan that needs least memory, whether it fits or not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardplan.inputs.plan import Plan
from shardplan.planner.listed import with_chunks
from shardplan.planner.pricing.pairs import Pairs, peaks
from shardplan.planner.pricing.tables import Tables
from shardplan.planner.pruning.bounds import ROUNDING
from shardplan.planner.pruning.first_stages import FirstStages

FIRST = 256
"""Points with a recomputation that may be lightest of all, which are looked at first."""
MORE = 8
"""Times as many are looked at next where others may be lighter."""


class _Found(NamedTuple):
    """A plan with its memory; of plans that need as much the first one in this order counts."""

    peak_memory_bytes: float
    family: int
    sharding: int
    slot: int
    point: int
    layout: int


def lightest_plan(families: Sequence[Tables]) -> Plan:
    """The valid plan that needs least memory.

    Looked for among plans that may need no more than some bytes, until these are enough for one of them.
    """
    least = [FirstStages(tables).least_memory() for tables in families]
    ordered = np.sort(np.concatenate([each.ravel() for each in least]))
    size, most, best = FIRST, -np.inf, None
    while best is None or best.peak_memory_bytes * (1 + ROUNDING) > most:
        most = float(ordered[min(size, len(ordered)) - 1])
        most = min(most, best.peak_memory_bytes) * (1 + ROUNDING) if best else most
        every = (_lightest(number, families[number], each <= most) for number, each in enumerate(least))
        size, best = MORE * size, min((each for found in every for each in found), default=None)
    tables = families[best.family]
    return tables.family.plan(best.sharding, best.slot, int(tables.layouts.vp[best.layout]), best.point)


def _lightest(number: int, whole: Tables, cells: NDArray[np.bool_]) -> Iterator[_Found]:
    """The lightest plan of some cells of a family, by slot of recomputation and point."""
    points = np.flatnonzero(cells.any(axis=0))
    tables = whole.within(points, cells[:, points])
    slots, here = np.nonzero(tables.family.recomputes)
    plans, _ = with_chunks(tables, np.zeros_like(slots), slots, here)
    if len(plans):
        peak = peaks(tables, Pairs(plans.shardings, plans.slots, plans.layouts, plans.points), on_any_host=True)
        kind, plan = np.nonzero(peak == peak.min())
        rows = zip(kind, plans.slots[plan], points[plans.points[plan]], plans.layouts[plan], strict=True)
        yield min(_Found(float(peak.min()), number, *map(int, row)) for row in rows)
