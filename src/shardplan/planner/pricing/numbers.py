"""Columns of tables: points of a family in numbers, as the formulas read them, and the axes and rows of what is priced.

What is priced lies along the last axis, kinds of sharding or slots of recomputation before it. Rows are pairs that some
plan has: what a stage holds, and what prices it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import Numbers, mapped, one_number
from shardplan.base.fields import dataclass, replace
from shardplan.estimation.question import Question
from shardplan.inputs.plan import OP_SAC, RECOMPUTE_MODULES, recompute_modules
from shardplan.inputs.plan_numbers import PlanNumbers
from shardplan.inputs.sharding import sharding_fields
from shardplan.planner.family import Family
from shardplan.planner.space import GRID


@dataclass(frozen=True, kw_only=True)
class PointNumbers:
    """Listed points of a family as numbers."""

    question: Question
    family: Family

    @cached_property
    def dp(self) -> NDArray[np.float64]:
        """Data-parallel degree of every point."""
        points = self.family.points
        return np.asarray(self.question.num_accelerators // (points["tp"] * points["cp"] * points["pp"]), dtype=float)

    @cached_property
    def num_microbatches(self) -> NDArray[np.float64]:
        """Micro-batches of a replica at every point."""
        return self.question.job.global_batch_size // (self.dp * self.family.points["micro_batch_size"])

    @cached_property
    def _columns(self) -> dict[str, NDArray[np.float64]]:
        """Fields of all points that the search combines freely."""
        return {name: self.family.points[name].astype(np.float64) for name in GRID}

    def by_placement(self, points: NDArray[np.intp]) -> Iterator[tuple[PlanNumbers, NDArray[np.intp]]]:
        """Listed points (sorted by placement) in numbers, those of each placement apart."""
        placements = self.family.points["placement"][points]
        for number, placement in enumerate(self.family.placements):
            part = points[placements == number]
            if len(part):
                yield replace(self.of(part, None), placement=placement), part

    def of(self, points: NDArray[np.intp], slots: NDArray[np.intp] | None) -> PlanNumbers:
        """Listed points in numbers; recomputation by slot, on an axis of its own."""
        columns = {name: values.take(points) for name, values in self._columns.items()}
        fields: dict[str, Any] = dict(columns)
        fields["dp"] = self.dp[points]
        fields["edp"] = self.question.num_accelerators // (columns["pp"] * columns["ep"] * columns["etp"])
        fields["num_microbatches"] = self.num_microbatches[points]
        fields["microbatch_group_size"] = self._one.microbatch_group_size if self._has_group else columns["pp"]
        if slots is not None:
            fields |= self._recompute_fields(points, slots)
        return replace(self._one, **fields)

    @cached_property
    def _one(self) -> PlanNumbers:
        """Any plan of the family in numbers, for the switches, which are the same in all."""
        plan = self.family.plan(0, 0, self.family.vps[int(self.family.points["depth"][0])][0], 0)
        plan = replace(plan, recompute="none", recompute_num_layers=None)
        return PlanNumbers.of(plan, self.question.num_accelerators, self.question.job)

    @property
    def _has_group(self) -> bool:
        return self.family.switches.get("microbatch_group_size") is not None

    def _recompute_fields(self, points: NDArray[np.intp], slots: NDArray[np.intp]) -> dict[str, Any]:
        policies = mapped(self.policies, lambda flags: flags[slots, None])
        return policies | {"recompute_num_layers": self._num_layers[self._depths_of(points)][:, slots].T}

    @cached_property
    def policies(self) -> dict[str, Any]:
        """Which modules every slot of recomputation runs again, and whether all of a layer."""
        policies = self.family.policies
        modules = [recompute_modules(policy) for policy in policies]
        names = (*RECOMPUTE_MODULES, OP_SAC)
        return {
            "recompute": {name: np.asarray([name in listed for listed in modules]) for name in names},
            "recompute_full": np.asarray([policy == "full" for policy in policies]),
        }

    def _depths_of(self, points: NDArray[np.intp]) -> NDArray[np.intp]:
        """Depth of every point; of one where all have the same."""
        depths = self.family.points["depth"][points]
        return depths[:1] if depths.min() == depths.max() else depths

    @cached_property
    def _num_layers(self) -> NDArray[np.float64]:
        """Layers to which recomputation applies, by depth and slot."""
        return np.asarray([[np.inf if n is None else n for n in layers] for layers in self.family.layers])

    def with_most_chunks(self, points: NDArray[np.intp], slots: NDArray[np.intp]) -> PlanNumbers:
        """Plans of these points in numbers, with the largest number of chunks per rank that each may have."""
        most = np.asarray([max(vps) for vps in self.family.vps])[self.family.points["depth"][points]]
        chunks = np.where(self.family.interleaves[points], most, 1).astype(np.float64)
        return replace(self.at(points, slots), vp=one_number(chunks))

    def at(self, points: NDArray[np.intp], slots: NDArray[np.intp]) -> PlanNumbers:
        """Plans of these points in numbers, their chunks per rank left open; what all have in common is one number."""
        numbers = self.of(points, slots)
        columns: dict[str, Any] = {
            name: one_number(getattr(numbers, name)) for name in (*GRID, "dp", "edp", "num_microbatches")
        }
        group = numbers.microbatch_group_size if self._has_group else columns["pp"]
        layers = one_number(numbers.recompute_num_layers)
        return replace(numbers, **columns, microbatch_group_size=group, recompute_num_layers=layers)

    def with_chunks(self, numbers: PlanNumbers, chunks: NDArray[np.float64]) -> PlanNumbers:
        """The same plans with these chunks per rank."""
        vp = one_number(chunks)
        if self.family.switches.get("overlap_pp") is not None:
            return replace(numbers, vp=vp)
        several = np.greater(vp, 1)
        is_one = several.all() == several.any()
        return replace(numbers, vp=vp, overlap_pp=bool(several.any()) if is_one else several)

    def under_every_sharding(self, numbers: PlanNumbers, points: NDArray[np.intp]) -> PlanNumbers:
        """The same under every kind of sharding, on an axis of its own."""
        kinds = np.asarray([kind for kind, _ in self.family.shardings])[:, None]
        return self.sharded(numbers, kinds, self.family.sharding_degrees[:, points])

    def sharded(self, numbers: PlanNumbers, kinds: NDArray[np.str_], degrees: NDArray[np.int64]) -> PlanNumbers:
        """The same with these kinds of sharding over this number of ranks (0: all)."""
        software = self.question.job.software
        found = sharding_fields(kinds, degrees, software, replicas=numbers.replicas, pp=numbers.pp)
        return replace(numbers, **found)


Made = TypeVar("Made")


def of_sharding(charge: Made, number: int) -> Made:
    """What the states cost under one of the shardings, which lie on the last axis but one."""

    def own(array: NDArray[Any]) -> NDArray[Any]:
        if array.ndim < 2:
            return array
        chosen = array[..., number if array.shape[-2] > 1 else 0, :]
        return chosen if array.ndim == 2 else chosen[..., None, :]  # networks side by side keep the axis of slots

    return mapped(charge, own)


def as_row(values: Numbers, like: NDArray[Any]) -> NDArray[np.float64]:
    """Values along a last axis as long as ``like``; networks side by side keep theirs in front."""
    array = np.asarray(values, dtype=np.float64)
    return np.broadcast_to(array, (*array.shape[:-1], *like.shape))


def of_slots(values: Numbers, slots: NDArray[np.intp], family: Family) -> Numbers:
    """Values of some slots of recomputation, which lie on the last axis but one."""
    array = np.asarray(values)
    if array.ndim < 2 or array.shape[-2] != len(family.policies) or len(slots) == len(family.policies):
        return values
    return array.take(slots, axis=-2)


Index = NDArray[np.intp]

ALONE = 512
"""Rows of one composition that are priced apart from others: what a stage holds is then a number, not a column."""


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
