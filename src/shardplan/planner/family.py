"""The valid plans of one setting of the switches as columns, all pipeline depths and placements together."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardplan.base.arrays import columns_coded, distinct, first_of
from shardplan.base.fields import dataclass, replace
from shardplan.inputs.plan import Plan
from shardplan.planner.space import GRID, Degree, Filling

Points = dict[str, NDArray[np.int64]]
ShardingPair = tuple[str, Degree]


def degrees_at(degree: Degree, points: Points) -> NDArray[np.int64]:
    """Ranks over which states are sharded at every point; 0: all replicas, or no such group."""
    ranks = degree.degree(points["tp"], points["cp"]) if isinstance(degree, Filling) else degree or 0
    return np.broadcast_to(np.asarray(ranks, dtype=np.int64), points["tp"].shape)


class SoftwarePart(NamedTuple):
    """Of which family, with the same points, some plans are run by software of their own."""

    whole: Family
    same_memory: bool
    """Whether they need as much memory as those of the whole; otherwise they may need more."""
    counts: bool
    """Whether it stands for the whole where plans are counted."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """Plans of one setting of the switches: points, each with its shardings, recomputations and chunks per rank."""

    switches: dict[str, Any]
    depths: tuple[int, ...]
    """Pipeline depths that have valid plans."""
    placements: tuple[str, ...]
    points: Points
    """Valid combinations of the fields of ``GRID``, sorted by placement: an array for each field, and ``depth`` and
    ``placement``, positions in ``depths`` and ``placements``; ``layout``, a number that points share which differ in
    the micro-batch alone, and ``degrees``, one of those that differ in the placement as well; and ``position``, that of
    the micro-batch among its candidates."""
    vps: tuple[tuple[int, ...], ...]
    """Chunks per rank at every depth."""
    shardings: tuple[ShardingPair, ...]
    shards: NDArray[np.bool_]
    """For every kind of sharding and every point whether it is valid (and not another in other words)."""
    policies: tuple[str, ...]
    """Recomputation policies, in slots: one for every number of layers that a policy applies to."""
    layers: tuple[tuple[int | None, ...], ...]
    """For every depth the layers of a stage to which each slot applies (None: all)."""
    recomputes: NDArray[np.bool_]
    """For every slot and point whether it is valid (and not another in other words)."""
    single: NDArray[np.bool_]
    """For every point whether it may have one chunk per rank."""
    interleaves: NDArray[np.bool_]
    """For every point whether it may have more than one."""
    together: NDArray[np.bool_] | None = None
    """For every slot and layout (depth and chunks per rank, those of a depth together) whether they go together; None
    where all do."""
    part: SoftwarePart | None = None
    """Where these are plans of a larger family, run by software of their own that changes no memory."""

    @property
    def whole(self) -> Family:
        """The plans whatever software of those that change no memory runs them."""
        return self if self.part is None else self.part.whole

    @property
    def counts(self) -> bool:
        """Whether its plans are counted; not where the same plans are counted under other software."""
        return self.part is None or self.part.counts

    @property
    def num_points(self) -> int:
        """Points of the family."""
        return len(self.interleaves)

    def within(self, points: NDArray[np.intp], recomputes: NDArray[np.bool_] | None = None) -> Family:
        """Plans of some of the points, ascending; of some of the recomputation there, by slot and point."""
        return replace(
            self,
            points={name: values[points] for name, values in self.points.items()},
            shards=self.shards[:, points],
            recomputes=self.recomputes[:, points] if recomputes is None else self.recomputes[:, points] & recomputes,
            single=self.single[points],
            interleaves=self.interleaves[points],
        )

    def plan(self, sharding: int, slot: int, vp: int, point: int) -> Plan:
        """The plan with ``vp`` chunks per rank at these positions of the other axes."""
        kind, _ = self.shardings[sharding]
        fields: dict[str, Any] = {name: int(self.points[name][point]) for name in GRID}
        return Plan(
            **self.switches,
            **fields,
            vp=vp,
            placement=self.placements[int(self.points["placement"][point])],
            sharding=kind,  # type: ignore[arg-type]  # one of the words of Sharding
            sharding_degree=int(self.sharding_degrees[sharding, point]) or None,
            recompute=self.policies[slot],
            recompute_num_layers=self.layers[int(self.points["depth"][point])][slot],
        )

    @cached_property
    def sharding_degrees(self) -> NDArray[np.int64]:
        """Ranks over which each kind of sharding shards at every point (0: all replicas)."""
        return np.stack([degrees_at(degree, self.points) for _, degree in self.shardings])

    @cached_property
    def is_lightest(self) -> NDArray[np.bool_]:
        """Which points have the smallest micro-batch of all with their degrees: of their plans most fit."""
        keys, positions = self.points["layout"], self.points["position"]
        least = np.full(int(keys.max()) + 1, positions.max())
        np.minimum.at(least, keys, positions)
        return np.asarray(positions == least[keys])

    def num_chunks(self) -> NDArray[np.int64]:
        """How many numbers of chunks per rank every point may have."""
        one = np.asarray([vps.count(1) for vps in self.vps])[self.points["depth"]]
        more = np.asarray([len(vps) - vps.count(1) for vps in self.vps])[self.points["depth"]]
        return one * self.single + more * self.interleaves

    def first_layouts(self) -> NDArray[np.int64]:
        """The first layout of every point."""
        sizes = np.asarray([len(vps) for vps in self.vps])
        return (np.cumsum(sizes) - sizes)[self.points["depth"]] + self.first_chunks()

    def slots_at(self, points: NDArray[np.intp], layouts: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Which slots of recomputation go with points, each with a layout (or with one layout for all)."""
        slots = self.recomputes[:, points]
        return slots if self.together is None else slots & self.together[:, layouts]

    @cached_property
    def kinds_of_points(self) -> NDArray[np.intp]:
        """For every point a number, the same where the same recomputation is valid."""
        return columns_coded(self.recomputes)

    @cached_property
    def kinds_of_layouts(self) -> NDArray[np.intp]:
        """For every layout a number, the same where it goes with the same slots of recomputation."""
        num_layouts = sum(len(vps) for vps in self.vps)
        return np.zeros(num_layouts, dtype=np.intp) if self.together is None else columns_coded(self.together)

    def placed_alike(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Points, one for all that differ in placement alone and have the same plans; and which of these each has."""
        sizes = int(self.points["position"].max()) + 1
        code = self.points["degrees"] * sizes + self.points["position"]
        chunks = 2 * self.single + self.interleaves
        for kinds in (columns_coded(self.shards), self.kinds_of_points, chunks.astype(np.intp)):
            _, code = distinct(code, int(code.max()) + 1)
            code = code * (int(kinds.max()) + 1) + kinds
        values, which = distinct(code, int(code.max()) + 1)
        return first_of(which, len(values)), which

    def num_inner(self) -> NDArray[np.int64]:
        """How many combinations of recomputation and chunks per rank every point may have."""
        counts = self.num_chunks()
        if self.together is None:
            return counts * self.recomputes.sum(axis=0)
        before = np.pad(self.together.cumsum(axis=1), ((0, 0), (1, 0)))
        first = self.first_layouts()
        return ((before[:, first + counts] - before[:, first]) * self.recomputes).sum(axis=0)

    def num_plans(self) -> int:
        """Valid plans."""
        return int((self.shards.sum(axis=0) * self.num_inner()).sum())

    def first_chunks(self) -> NDArray[np.int64]:
        """Position of the first of them among those of the depth."""
        one = np.asarray([vps.count(1) for vps in self.vps])[self.points["depth"]]
        return np.where(self.single, 0, one)
