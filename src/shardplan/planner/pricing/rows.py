"""Rows of a table with a line for every pair that some plan has: what a stage holds, and what prices it.

And rows that are priced together, with all that any of them may have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardplan.fields import dataclass

Index = NDArray[np.intp]

ALONE = 512
"""Rows of one composition that are priced apart from others: what a stage holds is then a number, not a column."""
STEP = 8192
"""Plans that are priced in the time which a piece of work costs whatever its length."""
SMALL = STEP // 8
"""Plans of a set, of one sharding, up to which it is not priced on its own."""


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Pairs of a composition and a key (a block, or a set of degrees) that plans of some pipeline depths have.

    Rows of a depth lie together: one composition after the other, each with all keys of that depth.
    """

    compositions: Index
    """Composition of every row."""
    keys: Index
    """Key of every row."""
    place: Index
    """Position of every depth among those of the rows."""
    first: Index
    """First row of each of these."""
    num_keys: Index
    composition_at: Index
    """Position of every composition among those of a depth."""
    key_at: Index
    """Position of every key among those of a depth."""

    @classmethod
    def of(cls, depths: Sequence[int], compositions: Sequence[Index], keys: Sequence[Index]) -> Rows:
        """Rows of ``depths``; ``compositions`` and ``keys``: those of each of them, ascending."""
        num_rows = np.asarray([len(held) * len(priced) for held, priced in zip(compositions, keys, strict=True)])
        place = np.zeros(max(depths) + 1, dtype=np.intp)
        place[list(depths)] = np.arange(len(depths))
        return cls(
            compositions=np.concatenate([np.repeat(h, len(k)) for h, k in zip(compositions, keys, strict=True)]),
            keys=np.concatenate([np.tile(k, len(h)) for h, k in zip(compositions, keys, strict=True)]),
            place=place,
            first=np.cumsum(num_rows) - num_rows,
            num_keys=np.asarray([len(each) for each in keys]),
            composition_at=_positions(compositions),
            key_at=_positions(keys),
        )

    def at(self, depths: Index, compositions: Index, keys: Index) -> Index:
        """Rows of these compositions and keys at these depths; any of them may be one for all."""
        place = self.place.take(depths)  # much faster than by brackets
        composition = self.composition_at.take(place * self.composition_at.shape[1] + compositions)
        key = self.key_at.take(place * self.key_at.shape[1] + keys)
        row: Index = self.first.take(place) + composition * self.num_keys.take(place) + key
        return row

    def pieces(self, length: int) -> Iterator[slice]:
        """All rows in pieces of some length; those of one composition alone where they are many."""
        start, ends = 0, [*(np.flatnonzero(np.diff(self.compositions)) + 1).tolist(), len(self.compositions)]
        last = 0
        for end in ends:
            many, full = end - last >= ALONE, end - start > length
            if (many or full) and last > start:
                yield slice(start, last)
                start = last
            if many:
                yield from (slice(at, min(at + length, end)) for at in range(start, end, length))
                start = end
            last = end
        if last > start:
            yield slice(start, last)


def _positions(values: Sequence[Index]) -> Index:
    """Position of every number in each of some lists; nothing is to be read where a list lacks it."""
    found = np.zeros((len(values), 1 + max(int(each.max()) for each in values)), dtype=np.intp)
    for row, each in enumerate(values):
        found[row, each] = np.arange(len(each))
    return found


def priced_together(slots: NDArray[np.bool_], shardings: NDArray[np.bool_], sizes: NDArray[np.int64]) -> Index:
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


def _joined(number: Index, flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Flags of sets with the same number, any of them."""
    joined = np.zeros((int(number.max()) + 1, flags.shape[1]), dtype=bool)
    np.logical_or.at(joined, number, flags)
    return joined


def _work_of(slots: NDArray[np.bool_], shardings: NDArray[np.bool_], sizes: NDArray[Any]) -> NDArray[Any]:
    """What sets of points take, in plans."""
    work: NDArray[Any] = shardings.sum(axis=-1) * (STEP + slots.sum(axis=-1) * sizes)
    return work
