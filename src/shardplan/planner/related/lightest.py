"""The plan that needs least memory, whether it fits or not, of plans that have been priced in part already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from shardplan.inputs.plan import Plan
from shardplan.planner.pricing.pieces import pieces_of
from shardplan.planner.pricing.tables import Tables

MORE_BYTES = 1.05
"""Times as much memory is allowed next where no plan needs so little; the square of it the next time."""


class _Found(NamedTuple):
    """A plan with its memory; of plans that need as much the first one in this order counts."""

    peak_memory_bytes: float
    family: int
    sharding: int
    slot: int
    point: int
    layout: int


def lightest_plan(families: Sequence[Tables], least: float) -> Plan:
    """The valid plan that needs least memory.

    ``least``: bytes that no plan does without. Looked for among plans whose states take no more than some bytes, until
    these are enough for one of them.
    """
    most, more, best = least, MORE_BYTES, None
    while best is None or best.peak_memory_bytes > most:
        most, more = best.peak_memory_bytes if best else most * more, more * more
        every = (each for number, tables in enumerate(families) for each in _lightest(number, tables, most))
        best = min(every, default=None)
    tables = families[best.family]
    return tables.family.plan(best.sharding, best.slot, int(tables.layouts.vp[best.layout]), best.point)


def _lightest(number: int, tables: Tables, most_bytes: float) -> Iterator[_Found]:
    """The lightest plan of every piece of a family; where points differ in placement alone, of the first of them."""
    chosen, _ = tables.family.placed_alike()
    for at, pieces in pieces_of(tables, most_bytes, chosen):
        for piece in pieces:
            peaks = np.where(piece.valid, piece.peak_memory_bytes, np.inf)
            value = peaks.min()
            if np.isfinite(value):
                kind, slot, point = np.nonzero(peaks == value)
                layouts = np.broadcast_to(piece.layouts, at.points.shape)[point]
                rows = zip(
                    at.shardings[kind].tolist(),
                    at.slots[slot].tolist(),
                    at.points[point].tolist(),
                    layouts.tolist(),
                    strict=True,
                )
                yield min(_Found(float(value), number, *row) for row in rows)
