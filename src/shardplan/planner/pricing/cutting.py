"""Plans of a family in pieces that are priced together.

Plans of one depth and number of chunks are worked on together, so that what follows from these is one number and not a
column; where they are few, those of several depths and numbers of chunks are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import columns_coded, different, distinct, first_of, largest
from shardplan.planner.family import Family
from shardplan.planner.pricing.pieces import LaidPoints, PointGroup, TablePiece
from shardplan.planner.pricing.tables import Depths, Tables

CELLS = 32_768
"""Plans of one sharding per piece of work: arrays of this length stay in the second-level cache."""
FEW = 1024
"""Points of a depth below which all its numbers of chunks are worked on together, with those of other such depths."""
STEP = 8192
"""Plans that are priced in the time which a piece of work costs whatever its length."""
SMALL = STEP // 8
"""Plans of a set, of one sharding, up to which it is not priced on its own."""


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
    if not len(alike):  # no number of chunks runs there by this software
        return
    depths = (int(family.points["depth"][some]),)
    every = LaidPoints(points, alike, family.shards[:, points])
    if np.isfinite(most_bytes):
        every = _light(tables, depths, every, most_bytes)
    for layouts in _with_equal_slots(family, alike) if len(every.points) else ():
        pairs = every._replace(layouts=layouts[:1])
        for part in _parts_of(family, pairs):
            at = PointGroup.of(tables, depths, pairs.at(part))
            yield at, (TablePiece.of(at, layouts[[number]]) for number in range(len(layouts)))


def _light(tables: Tables, depths: Depths, every: LaidPoints, most_bytes: float) -> LaidPoints:
    """Those points that have all of some layouts whose states take no more than ``most_bytes`` under any sharding."""
    _, different_ones = np.unique(tables.layouts.composition[every.layouts], axis=0, return_index=True)
    layouts = every.layouts[different_ones]
    peaks = [_least_peaks(tables, depths, every._replace(layouts=layouts[[n]])) for n in range(len(layouts))]
    kept = np.flatnonzero((every.shards & (np.minimum.reduce(peaks) <= most_bytes)).any(axis=0))
    return LaidPoints(every.points[kept], every.layouts, every.shards[:, kept])


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


def _pairs_of(tables: Tables, points: NDArray[np.intp]) -> LaidPoints:
    """Points with each of their layouts."""
    family = tables.family
    counts, first = family.num_chunks()[points], family.first_layouts()[points]
    chunk = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    points = np.repeat(points, counts)
    return LaidPoints(points, np.repeat(first, counts) + chunk, family.shards[:, points])


def _least_peaks(tables: Tables, depths: Depths, pairs: LaidPoints) -> NDArray[np.float64]:
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


def _parts_of(family: Family, pairs: LaidPoints) -> Iterator[NDArray[np.intp]]:
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


def priced_together(
    slots: NDArray[np.bool_], shardings: NDArray[np.bool_], sizes: NDArray[np.int64]
) -> NDArray[np.intp]:
    r"""For every set of points the number of the sets that it is priced with: as fast as joining pairs gets it.

    Sets have ``sizes`` points with some slots of recomputation and kinds of sharding each (a row for each set). All
    plans of n points with l slots and k shardings take :math:`k (c + l n)`, with c = ``STEP``. Small sets are one.
    """
    is_small = slots.sum(axis=1) * sizes <= SMALL
    number = np.where(is_small, 0, np.cumsum(~is_small) - (not is_small.any()))
    slots, shardings, sizes = _joined(number, slots), _joined(number, shardings), np.bincount(number, weights=sizes)
    while len(sizes) > 1:
        alone = _work_of(slots, shardings, sizes)
        both = _work_of(slots[:, None] | slots, shardings[:, None] | shardings, sizes[:, None] + sizes)
        gain = np.triu(alone[:, None] + alone - both, k=1)
        one, other = (int(i) for i in np.unravel_index(int(gain.argmax()), gain.shape))
        if gain[one, other] <= 0:
            break
        slots[one] |= slots[other]
        shardings[one] |= shardings[other]
        sizes[one] += sizes[other]
        kept = np.arange(len(sizes)) != other
        slots, shardings, sizes = slots[kept], shardings[kept], sizes[kept]
        number = np.where(number == other, one, number - (number > other))
    return number


def _joined(number: NDArray[np.intp], flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Flags of sets with the same number, any of them."""
    joined = np.zeros((int(number.max()) + 1, flags.shape[1]), dtype=bool)
    np.logical_or.at(joined, number, flags)
    return joined


def _work_of(slots: NDArray[np.bool_], shardings: NDArray[np.bool_], sizes: NDArray[Any]) -> NDArray[Any]:
    """What sets of points take, in plans."""
    work: NDArray[Any] = shardings.sum(axis=-1) * (STEP + slots.sum(axis=-1) * sizes)
    return work
